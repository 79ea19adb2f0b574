"""AttFace, (92, 112, 400) bytes: `ltr` compared with TensorLy's two non-negative Tucker decompositions."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tucket as tk
from benchmarks.measure import seconds

DATA = Path(os.environ.get("TUCKET_DATA", Path(__file__).parents[2] / "shared" / "data"))


def compare_methods(rank: int = 10) -> Iterator[dict[str, Any]]:
    """Fit a model by every method: seconds, relative error, KL divergence per total."""
    if not (DATA / "attface.npz").exists():
        print(f"AttFace is left out: there is no attface.npz in {DATA}; set TUCKET_DATA to its folder")
        return
    from tensorly.decomposition import non_negative_tucker, non_negative_tucker_hals

    x = np.load(DATA / "attface.npz")["tensor"]
    dense, total = x.astype(np.float64), x.sum(dtype=np.float64)
    ranks = [rank] * 3
    tk.ltr(x, rank)  # load the compiled loops
    methods: dict[str, Callable[[], Any]] = {
        "tucket, random blocks": partial(tk.ltr, x, rank, blocks="random", rng=0),
        "tucket, uniform blocks": partial(tk.ltr, x, rank, blocks="uniform"),
        "tucket, segments": partial(tk.ltr, x, rank, blocks="segments"),
        "tucket, clusters": partial(tk.ltr, x, rank),
        "TensorLy non_negative_tucker, 100 iterations": partial(
            non_negative_tucker, dense, ranks, n_iter_max=100, random_state=0
        ),
        "TensorLy non_negative_tucker_hals, 30 iterations": partial(
            non_negative_tucker_hals, dense, ranks, n_iter_max=30, random_state=0
        ),
    }
    print(f"{f'AttFace, rank {rank}':50} {'seconds':>9} {'rel. error':>10} {'KL / sum':>9}")
    for name, method in methods.items():
        kept: list[Any] = []
        took = seconds(lambda: kept.append(method()))  # noqa: B023
        if name.startswith("tucket"):
            took = float(np.median([seconds(method) for _ in range(9)]))
        model = tk.Tucker(*kept[0])
        error, kl = model.relative_error(x), model.kl(x) / total
        print(f"{name:50} {took:9.4f} {error:10.4f} {kl:9.5f}", flush=True)
        yield {"method": name, "rank": rank, "seconds": took, "relative_error": error, "kl": kl}
