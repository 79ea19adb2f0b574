"""Error against time of non-negative Tucker decompositions on real tensors: python -m benchmarks.ntd.

Every time is that of a whole call, from the tensor to the model; both errors are then measured on the model. A curve
of `ntd` has one call per budget, with growing budgets. nn_fac needs a separate environment and takes part if the
variable NN_FAC_PYTHON names the Python of that environment.
"""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk
from benchmarks.blocks import load
from benchmarks.measure import forget_peak, machine, peak, seconds
from benchmarks.pages import fill
from benchmarks.plot import draw_ntd

RESULTS = Path(__file__).parent / "results" / "ntd.json"

CASES = (
    ("AttFace", (10, 10, 10)),
    ("AttFace", (40, 40, 40)),
    ("Hangzhou", (8, 5, 12)),
    ("digits", (40, 4, 4)),
    ("MovieLens, 16 films a block", (10, 10, 5)),
)

# rank, loss, loss to reach (None: that of TensorLy HALS after 30 iterations), and the least speed-up over HALS
TARGETS = (
    (10, "ls", None, 60),
    (10, "kl", None, 60),
    (10, "ls", 0.2125, 10),
    (10, "kl", 0.0314, 10),
    (40, "ls", None, 50),
    (40, "ls", 0.1625, 5),
    (40, "kl", 0.0188, 5),
)

CONVERGED = {(10, "ls"): 0.2103, (10, "kl"): 0.0310, (40, "ls"): 0.157, (40, "kl"): 0.0183}

OURS = "ntd, coarse to fine"

Row = dict[str, Any]


def tensor(name: str) -> NDArray[Any] | None:
    """Return the tensor of a case, or None if its file is missing."""
    x = load(name.split(",")[0])
    if x is None or not name.startswith("MovieLens"):
        return x
    users, films, genres = x.shape
    return tk.collect(x, tk.Partition.uniform(x.shape, (users, -(-films // 16), genres))).core


def row_of(x: NDArray[Any], method: str, detail: str, took: float, model: Any) -> Row:
    """Return and print the time of a model and both of its errors."""
    model = tk.Tucker(*model)
    error, kl = model.relative_error(x), model.kl(x) / float(x.sum(dtype=np.float64))
    print(f"{method:34} {detail:>16} {took:9.4f} s {error:8.4f} {kl:9.5f}", flush=True)
    return {"method": method, "detail": detail, "seconds": took, "ls": error, "kl": kl if math.isfinite(kl) else None}


def ours(x: NDArray[Any], rank: tuple[int, ...]) -> Iterator[Row]:
    """Measure LTR with several kinds of blocks, and `ntd` with growing budgets."""
    for blocks in ("random", "segments", "clusters"):
        reduce: Callable[[], Any] = partial(tk.ltr, x, rank, blocks=blocks, rng=0)
        model = reduce()
        yield row_of(x, "LTR", blocks, float(np.median([seconds(reduce) for _ in range(3)])), model)
    variants: tuple[tuple[str, Row, float], ...] = (
        (OURS, {}, 1.25),
        ("ntd, one level, from LTR", {"multilevel": False, "init": "ltr"}, 2.0),
        ("ntd, one level, from chance", {"multilevel": False, "init": "random"}, 2.0),
    )
    for name, options, step in variants:
        for loss in ("ls", "kl"):
            decompose = partial(tk.ntd, x, rank, loss=loss, **options)
            decompose(n_iter_max=1)  # the first call loads the compiled loops
            budget, stopped, last = 0.004, "budget", math.inf
            while stopped == "budget":
                budget *= step
                runs = sorted(_timed(decompose, budget) for _ in range(3 if budget < 0.5 else 1))
                took, _, fit = runs[len(runs) // 2]
                stopped = fit.stopped
                if fit.loss < last or stopped != "budget":  # otherwise the larger budget changed nothing
                    yield row_of(x, name, loss, took, fit.model)
                last = fit.loss


def _timed(decompose: Callable[..., tk.Fit], budget: float) -> tuple[float, int, tk.Fit]:
    """Return the time of a call, a unique number that breaks ties when sorting, and the result."""
    start = time.perf_counter()
    fit = decompose(budget=budget)
    return time.perf_counter() - start, id(fit), fit


def peers(x: NDArray[Any], rank: tuple[int, ...]) -> Iterator[Row]:
    """Measure the sequential decomposition, the two of TensorLy, and nn_fac."""
    from tensorly.decomposition import non_negative_tucker, non_negative_tucker_hals

    dense, kept = x.astype(np.float64), []
    took = seconds(lambda: kept.append(tk.lra_sntd(x, rank)))
    yield row_of(x, "lraSNTD", "", took, kept[-1])
    for name, function, counts in (
        ("TensorLy, multiplicative", non_negative_tucker, (1, 10, 100)),
        ("TensorLy, HALS", non_negative_tucker_hals, (1, 5, 30)),
    ):
        for count in counts:
            run = partial(function, dense, list(rank), n_iter_max=count, tol=0, random_state=0)
            took = seconds(lambda: kept.append(run()))  # noqa: B023
            yield row_of(x, name, str(count), took, kept[-1])
    yield from nn_fac(x, rank)


def nn_fac(x: NDArray[Any], rank: tuple[int, ...]) -> Iterator[Row]:
    """Measure nn_fac from its two starts: random numbers, and an ordinary Tucker decomposition."""
    python = os.environ.get("NN_FAC_PYTHON")
    if python is None:
        print("nn_fac is left out: set NN_FAC_PYTHON to a Python that has it")
        return
    script = Path(__file__).with_name("peer_nn_fac.py")
    with tempfile.TemporaryDirectory() as folder:
        source, target = Path(folder, "x.npy"), Path(folder, "model.npz")
        np.save(source, x)
        for init, rule, count in (
            ("random", "hals", 20), ("tucker", "hals", 1), ("tucker", "hals", 20), ("tucker", "mu", 20),
        ):  # fmt: skip
            command: list[str | Path] = [python, script, source, target, init, rule, str(count), *map(str, rank)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            model = np.load(target)
            factors = [model[f"factor_{mode}"] for mode in range(x.ndim)]
            name = f"nn_fac, {'HALS' if rule == 'hals' else 'KL'}"
            yield row_of(x, name, f"{count} from {init}", json.loads(done.stdout)["seconds"], (model["core"], factors))


def targets(x: NDArray[Any], rank: int, rows: list[Row]) -> Iterator[Row]:
    """Compare how fast `ntd` reaches each target with the time of 30 iterations of TensorLy HALS."""
    hals = next(row for row in rows if row["method"] == "TensorLy, HALS" and row["detail"] == "30")
    for r, loss, wanted, part in TARGETS:
        if r == rank:
            least = hals[loss] if wanted is None else wanted
            curve = [row for row in rows if row["method"] == "LTR" or (row["method"], row["detail"]) == (OURS, loss)]
            reached = min((row["seconds"] for row in curve if row[loss] <= least), default=math.inf)
            ratio = hals["seconds"] / reached
            print(
                f"rank {rank}, {loss}: {least:.4f} in {reached:.3f} s, 1/{ratio:.0f} of HALS (limit 1/{part})"
                f"{'' if ratio >= part else ' !'}"
            )
            yield {"rank": r, "loss": loss, "reach": least, "own": wanted is None, "ratio": ratio, "least_ratio": part}
    for loss in ("ls", "kl"):
        fit = tk.ntd(x, rank, loss=loss, tol=1e-6, n_iter_max=3000)  # type: ignore[arg-type]
        found = fit.loss / (float(x.sum(dtype=np.float64)) if loss == "kl" else 1)
        known = CONVERGED[rank, loss]
        print(f"rank {rank}, {loss}, to convergence: {found:.5f} in {fit.trace[-1].seconds:.1f} s (limit {known})")
        yield {"rank": rank, "loss": loss, "to_the_end": found, "seconds": fit.trace[-1].seconds, "known": known}


def dominated(rows: list[Row]) -> Iterator[str]:
    """List the points of peers for which no point of tucket is at least as good in both time and error."""
    mine = [row for row in rows if row["method"].startswith(("ntd, coarse", "LTR"))]
    for row in rows:
        for loss in ("ls", "kl"):
            if not row["method"].startswith(("ntd", "LTR")) and row[loss] is not None:
                better = (m for m in mine if m[loss] is not None and m[loss] <= row[loss])
                if all(m["seconds"] > row["seconds"] for m in better):
                    yield f"{row['method']} {row['detail']}, {loss}"


def large() -> Row | None:
    """Decompose two billion bytes: views of a scene, in 32 lights, with noise."""
    scene = load("4DLFD dino")
    if scene is None:
        return None
    rng = np.random.default_rng(0)
    x, noise = np.empty((32, *scene.shape), np.uint8), rng.integers(-12, 13, scene.size // 9 + 1000, np.int16)
    for light, views in enumerate(x):
        for view, plain in zip(views, scene):
            first = int(rng.integers(1000))
            shade = plain * (0.6 + 0.4 * math.sin(light / 5) ** 2)
            view[...] = np.clip(shade + noise[first : first + plain.size].reshape(plain.shape), 0, 255)
    once = float(np.median([seconds(lambda: np.sum(x, dtype=np.float64)) for _ in range(3)]))
    total, rank = float(x.sum(dtype=np.float64)), (2, 3, 3, 20, 20, 1)
    kept: list[Any] = []
    reduce = seconds(lambda: kept.append(tk.ltr(x, rank)))
    before = forget_peak()
    decompose = seconds(lambda: kept.append(tk.ntd(x, rank)))
    extra = peak() - before
    block, fit = kept
    kl = block.kl(x) / total, fit.model.kl(x) / total
    assert math.isclose(fit.loss / total, kl[1], rel_tol=1e-6)
    print(
        f"{x.size:.3g} bytes: LTR {kl[0]:.5f} in {reduce / once:.1f} times numpy.sum, ntd on {fit.levels[-1]} cells "
        f"{kl[1]:.5f} in {decompose / once:.1f} (limit 5), {extra:.0f} MB beside the tensor (limit 1000)"
    )
    return {
        "entries": x.size, "rank": rank, "cells": fit.levels[-1], "sum_seconds": once, "ltr_seconds": reduce,
        "ltr_kl": kl[0], "ntd_seconds": decompose, "ntd_kl": kl[1], "extra_mb": extra,
    }  # fmt: skip


def memory() -> Iterator[Row]:
    """Measure the peak memory of `ntd` beside the tensor, in separate processes: at full and at limited resolution."""
    code = """
import sys, numpy as np, tucket as tk
from benchmarks.measure import forget_peak, peak
kind, finest = sys.argv[1], int(sys.argv[2])
tk.ntd(np.ones((20, 20, 20)), 5, n_iter_max=2)  # load the compiled loops
x = np.random.default_rng(0).integers(1, 100, (400, 500, 300)).astype(kind)
before = forget_peak()
tk.ntd(x, 10, n_iter_max=3, finest=finest or None, multilevel=True)
print((peak() - before) / (x.nbytes / 1e6))
"""
    for kind in ("f8", "u1"):
        for finest in (0, 1 << 22):
            command = [sys.executable, "-c", code, kind, str(finest)]
            done = subprocess.run(command, capture_output=True, text=True, check=True)
            times = float(done.stdout)
            print(
                f"ntd of 60 million {kind}, {finest or 'all'} cells: {times:.2f} times the tensor beside it (limit 3)"
            )
            yield {"dtype": kind, "finest": finest or None, "times": times}


def main() -> None:
    """Measure all cases, save the results, and draw them."""
    result: Row = {"date": date.today().isoformat(), "machine": machine(), "cases": [], "targets": []}
    for name, rank in CASES:
        x = tensor(name)
        if x is None:
            print(f"{name} is left out: its file is missing; set TUCKET_DATA to its folder")
            continue
        print(f"\n{name} {x.shape}, rank {rank}")
        rows = [*ours(x, rank), *peers(x, rank)]
        missed = list(dominated(rows))
        print("points of peers that are not matched:", ", ".join(missed) or "none")
        result["cases"].append({"tensor": name, "shape": x.shape, "rank": rank, "rows": rows, "missed": missed})
        if name == "AttFace":
            result["targets"] += targets(x, rank[0], rows)
    result["memory"] = list(memory())
    result["large"] = large()
    RESULTS.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(f"\nresults saved in {RESULTS}, plot drawn in {draw_ntd(result)}")
    fill()


if __name__ == "__main__":
    main()
