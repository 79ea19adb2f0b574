"""Searches for blocks compared with TensorLy, on real tensors: python -m benchmarks.blocks.

The time of a search is given in iterations of TensorLy's `non_negative_tucker` on the same tensor at the same rank.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk
from benchmarks.measure import seconds

DATA = Path(os.environ.get("TUCKET_DATA", Path(__file__).parents[2] / "shared" / "data"))

# name, rank, limits of KL / sum for segments and clusters, limit of the time of a search in iterations of TensorLy
CASES = (
    ("AttFace", (10, 10, 10), (0.0524, 0.0450), 2.0),
    ("AttFace", (40, 40, 40), (0.0288, 0.0284), 6.0),
    ("4DLFD dino", (3, 3, 60, 60, 1), (0.0063, 0.0062), 10 / 3),
    ("digits", (100, 4, 4), (None, 0.228), None),
    ("Hangzhou", (8, 5, 12), (None, None), None),
    ("Adult", (4, 5, 3, 5, 3, 2, 2), (None, None), None),
    ("MovieLens", (20, 50, 5), (None, None), None),
)


def load(name: str) -> NDArray[Any] | None:
    """Return a tensor, or None if its file is missing."""
    if name == "digits":
        from sklearn.datasets import load_digits

        images: NDArray[Any] = load_digits().images
        return images
    if name == "4DLFD dino":
        from matplotlib.image import imread

        files = [DATA / "lf_dino_png" / f"input_Cam{camera:03d}.png" for camera in range(81)]
        if not files[0].exists():
            return None
        views = [np.round(imread(file)[..., :3] * 255).astype(np.uint8) for file in files]
        return np.stack(views).reshape(9, 9, 512, 512, 3)
    if name == "MovieLens":
        if not (DATA / "movielens_small.npz").exists():
            return None
        ratings = np.load(DATA / "movielens_small.npz")
        dense = np.zeros(ratings["shape"], np.uint8)
        np.add.at(dense, tuple(ratings["coords"].T), (2 * ratings["values"]).astype(np.uint8))  # in half stars
        return dense
    file = DATA / {"AttFace": "attface", "Hangzhou": "hangzhou_metro", "Adult": "adult_7way"}[name]
    if not file.with_suffix(".npz").exists():
        return None
    tensor: NDArray[Any] = np.load(file.with_suffix(".npz"))["tensor"]
    return tensor


def iteration(x: NDArray[Any], rank: tuple[int, ...]) -> float:
    """Time one iteration of TensorLy: the difference of a longer and a shorter run from the same start.

    Returns NaN for tensors that would take minutes.
    """
    if x.size > 1e8:
        return math.nan
    from tensorly.decomposition import non_negative_tucker
    from tensorly.random import random_tucker

    start = random_tucker(x.shape, rank, non_negative=True, random_state=0)
    run = partial(non_negative_tucker, x.astype(np.float64), list(rank), init=start, tol=0)
    counts = (1, 3) if x.size > 1e7 else (2, 12)
    short, long = (seconds(lambda: run(n_iter_max=count)) for count in counts)  # noqa: B023
    return (long - short) / (counts[1] - counts[0])


def measure() -> Iterator[dict[str, Any]]:
    """Search for blocks in every case."""
    print(f"{'tensor, rank':32} {'blocks':9} {'KL / sum':>9} {'limit':>7} {'ms':>8} {'iterations':>11} {'limit':>6}")
    for name, rank, limits, most in CASES:
        x = load(name)
        if x is None:
            print(f"{name} is left out: its file is not in {DATA}; set TUCKET_DATA to its folder")
            continue
        total, step = x.sum(dtype=np.float64), iteration(x, rank)
        for blocks, limit in zip(("uniform", "segments", "clusters"), (None, *limits)):
            reduce = partial(tk.ltr, x, rank, blocks=blocks)
            model = reduce()  # the first call also loads the compiled loops
            took = float(np.median([seconds(reduce) for _ in range(3)]))
            kl = model.kl(x) / total
            is_fine = (limit is None or kl <= limit) and (most is None or blocks == "uniform" or took / step <= most)
            print(
                f"{f'{name} {rank}':32} {blocks:9} {kl:9.5f} {limit or '':>7} {1000 * took:8.1f} {took / step:11.2f} "
                f"{'' if most is None else f'{most:6.2f}'}{'' if is_fine else ' !'}",
                flush=True,
            )
            yield {
                "tensor": name, "rank": rank, "blocks": blocks, "kl": kl, "limit": limit, "seconds": took,
                "iteration_seconds": None if math.isnan(step) else step, "most_iterations": most,
            }  # fmt: skip
        yield from tensorly(name, x, rank)


def tensorly(name: str, x: NDArray[Any], rank: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Measure TensorLy's two decompositions on the same tensor, unless they take minutes."""
    if x.size > 1e7:
        return
    from tensorly.decomposition import non_negative_tucker, non_negative_tucker_hals

    dense, total, kept = x.astype(np.float64), x.sum(dtype=np.float64), []
    for label, function, count in (("MU", non_negative_tucker, 100), ("HALS", non_negative_tucker_hals, 30)):
        run = partial(function, dense, list(rank), n_iter_max=count, random_state=0)
        took = seconds(lambda: kept.append(run()))  # noqa: B023
        kl = tk.Tucker(*kept[-1]).kl(x) / total
        print(f"{f'{name} {rank}':32} {f'TensorLy, {label} {count}':17} {kl:9.5f} {1000 * took:8.1f} ms", flush=True)
        yield {
            "tensor": name, "rank": rank, "method": f"TensorLy, {label}", "iterations": count,
            "kl": kl if math.isfinite(kl) else None, "seconds": took,
        }  # fmt: skip


def digits() -> dict[str, float]:
    """Time the search for clusters of digits against TensorLy's HALS."""
    from tensorly.decomposition import non_negative_tucker_hals

    x = load("digits")
    assert x is not None
    took = float(np.median([seconds(partial(tk.ltr, x, (100, 4, 4))) for _ in range(3)]))
    hals = seconds(partial(non_negative_tucker_hals, x, [100, 4, 4], n_iter_max=20, random_state=0))
    print(f"digits, clusters: 1/{hals / took:.0f} of 20 iterations of TensorLy HALS (limit 1/20)")
    return {"seconds": took, "hals_seconds": hals}


def curve() -> dict[str, float] | None:
    """Time the information curve of AttFace against one search for segments."""
    x = load("AttFace")
    if x is None:
        return None
    segments = float(np.median([seconds(lambda: tk.ltr(x, 10, blocks="segments")) for _ in range(3)]))
    tk.information_curve(x[:9, :9, :9])
    took = seconds(lambda: tk.information_curve(x))
    print(f"information_curve of AttFace: {took:.2f} s, {took / segments:.1f} x a search for segments (limit 20)")
    return {"seconds": took, "segments_seconds": segments}


def long_mode() -> Iterator[dict[str, Any]]:
    """Search for blocks of a tensor with a mode of a million indices."""
    rng = np.random.default_rng(0)
    x = np.empty((1_000_000, 50, 20), np.uint8)
    kinds = rng.integers(0, 40, (30, 50, 20))
    for first in range(0, len(x), 10_000):  # runs of 3000 rows with the same of 30 patterns, plus noise
        pattern = kinds[(np.arange(first, first + 10_000) // 3000) % 30]
        x[first : first + 10_000] = rng.poisson(pattern)
    total = float(np.median([seconds(lambda: np.sum(x, dtype=np.float64)) for _ in range(5)]))
    for blocks in ("segments", "clusters"):
        took = seconds(partial(tk.ltr, x, (200, 10, 5), blocks=blocks))
        print(f"1000000x50x20 uint8, (200, 10, 5), {blocks}: {took:.1f} s, {took / total:.0f} x numpy.sum (limit 60)")
        yield {"blocks": blocks, "seconds": took, "sum_seconds": total}


if __name__ == "__main__":
    list(measure())
    digits()
    curve()
    list(long_mode())
