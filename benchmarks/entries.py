"""`ntd` of sparse tensors compared with other packages: python -m benchmarks.entries.

Every case runs in its own process, which measures its peak memory. pyttb takes part if it is installed, as by
`pip install .[bench]`. Each peer has at most ten minutes. NNEinFact is not run: for uber5 on an H200, arXiv 2602.02759
reports .199 after 1.2 s, .131 after 3.2 s, and .120 after 8.1 s.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk
from benchmarks.blocks import DATA
from benchmarks.measure import machine, peak, rows_of, seconds
from benchmarks.pages import fill

RESULTS = Path(__file__).parent / "results" / "entries.json"
LIMIT = 600
"""Seconds that a peer may take."""

Entries = tuple[list[NDArray[Any]], NDArray[Any], tuple[int, ...]]
Row = dict[str, Any]


def read(name: str) -> Entries | None:
    """Return coords, values and shape of a file, or None if it is missing."""
    file = DATA / name
    if not file.exists():
        print(f"{name} is missing; set TUCKET_DATA to its folder")
        return None
    with np.load(file) as data:
        coords, shape = data["coords"], tuple(map(int, data["shape"]))
        return [coords[:, mode].copy() for mode in range(len(shape))], data["values"].astype(np.float64), shape


def planted(count: int, shape: tuple[int, ...], groups: int) -> Entries:
    """Return events of several groups, each with its own range of indices in every mode."""
    rng = np.random.default_rng(0)
    group = rng.integers(0, groups, count)
    coords = [
        ((group * step % groups + rng.random(count)) * (size / groups)).astype(np.int32)
        for size, step in zip(shape, (1, 7, 3))
    ]
    return coords, np.ones(count), shape


def report(row: Row) -> Row:
    """Print a row, and return it."""
    print("  ", json.dumps(row), flush=True)
    return row


def fits(entries: Entries, rank: tuple[int, ...], budgets: tuple[float | None, ...]) -> Iterator[Row]:
    """Fit `ltr` and `ntd`."""
    x, total = tk.from_entries(*entries), float(entries[1].sum())
    began = time.perf_counter()
    model = tk.ltr(x, rank)
    yield report({"method": "ltr", "seconds": time.perf_counter() - began, "kl": model.kl(x) / total})
    for budget in budgets:
        began = time.perf_counter()
        fit = tk.ntd(x, rank, budget=budget)
        took = time.perf_counter() - began
        assert math.isclose(fit.kl(x), fit.loss, rel_tol=1e-9)
        yield report(
            {"method": "ntd", "budget": budget, "seconds": took, "kl": fit.loss / total, "its": fit.n_iterations}
        )


def per_iteration(entries: Entries, rank: tuple[int, ...], loss: Any) -> Row:
    """Measure an iteration on single indices, beside `numpy.bincount` of the entries for every mode."""
    coords, values, shape = entries
    once = min(
        seconds(lambda: [np.bincount(indices, values, size) for indices, size in zip(coords, shape)]) for _ in "abc"
    )
    stamps: list[float] = []
    tk.ntd(
        tk.from_entries(*entries), rank, loss=loss, init="random", multilevel=False, n_iter_max=5,
        callback=lambda step: stamps.append(step.seconds),
    )  # fmt: skip
    took = float(np.median(np.diff(stamps)))
    return report({"method": f"an iteration of {loss}", "seconds": took, "bincounts": took / once})


def beside_dense(entries: Entries, rank: tuple[int, ...]) -> Row:
    """Compare an iteration of the divergence on the entries with one on the dense tensor."""
    from tucket.base.run import Run, single_threaded_blas
    from tucket.decomposition.data import ArrayData, data_of
    from tucket.decomposition.losses.kl import Divergence

    source, run = tk.from_entries(*entries), Run.of()
    rng, total = np.random.default_rng(0), float(entries[1].sum())
    core, factors = rng.random(rank), [rng.random(extent) for extent in zip(entries[2], rank)]
    times = []
    for data in (data_of(source, 1.0, run), ArrayData(source.to_numpy(), 1.0, run.workers)):
        problem = Divergence(data, total)
        with single_threaded_blas:
            problem.improve(core, factors)
            times.append(min(seconds(partial(problem.improve, core, factors)) for _ in "abc"))
    return report({"method": "an iteration of kl, of the dense one", "seconds": times[0], "share": times[0] / times[1]})


def pyttb(entries: Entries, components: int) -> Row | None:
    """Fit a CP model by Poisson regression, by pyttb."""
    try:
        import pyttb as ttb
    except ImportError:
        print("   pyttb is left out: it is not installed")
        return None
    coords, values, shape = entries
    tensor = ttb.sptensor(np.stack(coords, axis=1).astype(np.int64), values[:, None], shape)
    began = time.perf_counter()
    model, _, _ = ttb.cp_apr(tensor, components, stoptime=LIMIT, printitn=0)
    took = time.perf_counter() - began
    at = np.ones((len(values), components)) * model.weights
    for indices, factor in zip(coords, model.factor_matrices):
        at *= factor[indices]
    expected, total = at.sum(axis=1), float(values.sum())
    mass = float((model.weights * np.prod([factor.sum(axis=0) for factor in model.factor_matrices], axis=0)).sum())
    kl = float((values * np.log(values / np.maximum(expected, 1e-300))).sum()) - total + mass
    return report({"method": f"pyttb cp_apr, {components} components", "seconds": took, "kl": kl / total})


def tensorly(entries: Entries, rank: tuple[int, ...]) -> Row:
    """Decompose the dense tensor with TensorLy; the first iteration shows how many fit in ten minutes."""
    from tensorly.decomposition import non_negative_tucker_hals

    source, total = tk.from_entries(*entries), float(entries[1].sum())
    dense, kept = source.to_numpy(), []
    decompose = partial(non_negative_tucker_hals, dense, list(rank), tol=0, random_state=0)
    count = max(1, min(30, int(LIMIT / seconds(lambda: decompose(n_iter_max=1)) / 2)))
    took = seconds(lambda: kept.append(decompose(n_iter_max=count)))
    model = tk.Tucker(*kept[-1])
    kl = model.kl(source) / total
    error = model.relative_error(source)
    return report({"method": f"TensorLy HALS, {count} iterations", "seconds": took, "kl": kl, "error": error})


def uber5() -> Iterator[Row | None]:
    """Measure the tensor that NNEinFact is measured on."""
    entries, rank = read("uber5.npz"), (10, 10, 5, 10, 10)
    if entries:
        yield from fits(entries, rank, (2.0, 5.0, None))
        yield {"peak_mb": peak()}
        yield pyttb(entries, 50)
        yield tensorly(entries, rank)


def iteration() -> Iterator[Row | None]:
    """Compare an iteration with one of the dense tensor."""
    entries = read("uber5.npz")
    if entries:
        yield beside_dense(entries, (10, 10, 5, 10, 10))


def movielens() -> Iterator[Row | None]:
    """Measure all ratings of MovieLens."""
    entries = read("movielens_small.npz")
    if entries:
        yield from fits(entries, (10, 10, 5), (1.0, 5.0, None))
        yield pyttb(entries, 10)


def movielens_10() -> Iterator[Row | None]:
    """Measure ratings with as many components in every mode as a CP model of ten has."""
    entries = read("movielens_small.npz")
    if entries:
        yield from fits(entries, (10, 10, 10), (None,))


def large() -> Iterator[Row | None]:
    """Measure ten million events."""
    entries, rank = planted(10**7, (10**6, 10**6, 10**3), 20), (20, 20, 10)
    yield per_iteration(entries, rank, "kl")
    yield {"peak_mb": peak()}
    yield per_iteration(entries, rank, "ls")


CASES: dict[str, Callable[[], Iterator[Row | None]]] = {
    "uber5": uber5,
    "iteration": iteration,
    "movielens": movielens,
    "movielens, 10": movielens_10,
    "large": large,
}


def main() -> None:
    """Measure all cases, or some, and save the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.entries", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all by default")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        rows = [row for row in CASES[options.cases[0]]() if row]
        print(json.dumps(rows))
        return
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    result |= {"date": date.today().isoformat(), "machine": machine()}
    for case in options.cases or CASES:
        print(case, flush=True)
        result[case] = rows_of("benchmarks.entries", case)
    RESULTS.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(f"results saved in {RESULTS}")
    fill()


if __name__ == "__main__":
    main()
