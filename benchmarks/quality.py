"""The final loss of `ntd`, compared with long random runs: python -m benchmarks.quality [--again] [tensor].

Long runs take most of the time. They are saved with the results, and repeated only with --again. The benchmark also
measures how long calls with a budget take.
"""

from __future__ import annotations

import argparse
import json
import math
from collections.abc import Callable, Mapping
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tucket as tk
from benchmarks.entries import read
from benchmarks.made import MADE
from benchmarks.measure import machine, seconds
from benchmarks.ntd import tensor
from benchmarks.pages import fill
from tucket.base.run import single_threaded_blas

RESULTS = Path(__file__).parent / "results" / "quality.json"

LOSSES = ("kl", "ls")

LONG_RUNS, LONG_SECONDS = 10, 60.0
"""Long runs per tensor, and seconds of each at most."""

BUDGETS = (0.1, 1.0, 8.0)
"""Budgets in seconds: a call should take at most 1.1 times its budget, plus .2 s."""

Row = dict[str, Any]

REAL: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "digits": ("digits", (40, 4, 4)),
    "Adult": ("Adult", (4, 4, 3, 4, 3, 2, 2)),
    "Hangzhou": ("Hangzhou", (8, 5, 12)),
    "MovieLens": ("MovieLens, 16 films a block", (10, 10, 5)),
    "AttFace 10": ("AttFace", (10, 10, 10)),
    "AttFace 40": ("AttFace", (40, 40, 40)),
}


def uber5() -> Any:
    """Return the entries of a sparse tensor, or None if its file is missing."""
    entries = read("uber5.npz")
    return entries and tk.from_entries(*entries)


def cases() -> dict[str, tuple[Callable[[], Any], tuple[int, ...]]]:
    """Return a function that makes or reads each tensor, and its rank, small tensors first."""
    real = {name: (partial(tensor, file), rank) for name, (file, rank) in REAL.items()}
    return {**MADE, **real, "uber5": (uber5, (10, 10, 5, 10, 10))}


def total(x: Any) -> float:
    """Return the sum of an array, or of the entries of a source."""
    return float(x.sum(dtype=np.float64)) if isinstance(x, np.ndarray) else float(x.entries.values.sum())


def long_runs(x: Any, rank: tuple[int, ...], loss: Any, kept: Row) -> Row:
    """Add the long runs from random starts that are still missing."""
    unit = total(x) if loss == "kl" else 1.0
    for seed in range(len(kept["losses"]), LONG_RUNS):
        fit = tk.ntd(
            x, rank, loss=loss, init="random", multilevel=False, rng=seed,
            n_iter_max=1_000_000, tol=1e-7, budget=LONG_SECONDS, workers=1,
        )  # fmt: skip
        print(f"  {loss}, long run {seed}: {fit.loss / unit:.5f} in {fit.seconds:.1f} s, {fit.stopped}", flush=True)
        kept["losses"].append(fit.loss / unit)
        kept["seconds"].append(fit.seconds)
    return kept


def hals(x: Any, rank: tuple[int, ...], loss: str, limit: float) -> Row:
    """Run TensorLy's HALS for as many iterations as fit in the time, but at least one."""
    from tensorly.decomposition import non_negative_tucker_hals

    dense = x.astype(np.float64) if isinstance(x, np.ndarray) else x.to_numpy()
    run, count = partial(non_negative_tucker_hals, dense, list(rank), tol=0, random_state=0), 1
    found: list[Any] = []
    with single_threaded_blas:
        while (took := seconds(lambda: found.append(run(n_iter_max=count)))) < 0.8 * limit:  # noqa: B023
            count = max(count + 1, min(8 * count, int(count * limit / took)))
    return {"loss": measured(tk.Tucker(*found[-1]), x, loss), "seconds": took, "iterations": count}


def measured(model: Any, x: Any, loss: str) -> float | None:
    """Return the loss of a model, divided by the total of the tensor if it is a divergence."""
    value = model.kl(x) / total(x) if loss == "kl" else model.relative_error(x)
    return value if math.isfinite(value) else None


def within(x: Any, rank: tuple[int, ...], loss: Any) -> Row:
    """Return the seconds that calls with a budget take."""
    call: Callable[..., Any] = partial(tk.ntd, x, rank, loss=loss, workers=1)
    return {str(budget): seconds(partial(call, budget=budget)) for budget in BUDGETS}


def measure(x: Any, rank: tuple[int, ...], loss: Any, long: Row) -> Row:
    """Measure the default beside LTR, the long runs and TensorLy."""
    tk.ntd(x, rank, loss=loss, n_iter_max=1, workers=1)  # the first call loads the compiled loops
    fit = tk.ntd(x, rank, loss=loss, workers=1)
    blocks: list[Any] = []
    took = seconds(lambda: blocks.append(tk.ltr(x, rank, workers=1)))
    return {
        "default": {
            "loss": measured(fit, x, loss), "seconds": fit.seconds, "iterations": fit.n_iterations,
            "stopped": fit.stopped,
        },
        "ltr": {"loss": measured(blocks[0], x, loss), "seconds": took},
        "hals": hals(x, rank, loss, fit.seconds),
        "long": long,
        "budgets": within(x, rank, loss),
    }  # fmt: skip


def line(name: str, loss: str, row: Row) -> str:
    """Return a row of the table, with marks where a target is missed."""
    ends, default = row["long"]["losses"], row["default"]
    best, median = (f"{of(ends):9.5f}" if ends else " " * 9 for of in (min, np.median))
    mark = "!" if ends and default["loss"] > 1.01 * min(ends) else " "
    mark += "^" if loss == "kl" and default["loss"] > row["ltr"]["loss"] else " "
    mark += "b" if any(took > 1.1 * float(budget) + 0.2 for budget, took in row["budgets"].items()) else " "
    spent = f"{sum(row['long']['seconds']):8.0f} s"
    others = " ".join(f"{row[each]['loss'] or math.nan:9.5f} {row[each]['seconds']:7.2f} s" for each in ("ltr", "hals"))
    return (
        f"{name:18} {loss} {default['loss']:9.5f} {default['seconds']:7.2f} s {mark} {best} {median} {spent} {others}"
    )


def main() -> None:
    """Measure the tensors, save the results after each, and print a table."""
    known = cases()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tensor", nargs="*", metavar="tensor", help=f"one or more of: {', '.join(known)}")
    parser.add_argument("--again", action="store_true", help="repeat the long runs too")
    parser.add_argument("--long", action="store_true", help="only the long runs")
    options = parser.parse_args()
    saved: Row = json.loads(RESULTS.read_text()) if RESULTS.exists() else {"cases": {}}
    table = []
    for name in options.tensor or known:
        make, rank = known[name]
        x = make()
        if x is None:
            print(f"{name} is left out: its file is missing; set TUCKET_DATA to its folder")
            continue
        print(f"{name} {x.shape}, rank {rank}", flush=True)
        for loss in LOSSES:
            rows = saved["cases"].setdefault(name, {"shape": list(x.shape), "rank": rank})
            kept = rows.get(loss, {}).get("long") if not options.again else None
            long = long_runs(x, rank, loss, kept or {"losses": [], "seconds": []})
            rows[loss] = {"long": long} if options.long else measure(x, rank, loss, long)
            if not options.long:
                table.append(line(name, loss, rows[loss]))
                print(table[-1], flush=True)
            saved.update(date=date.today().isoformat(), machine=machine())
            RESULTS.write_text(json.dumps(saved, indent=1, allow_nan=False) + "\n")
    if table:
        head = f"{'tensor':21} {'default':>19}    {'best':>9} {'median':>9} {'long runs':>10} {'LTR':>19} {'HALS':>19}"
        print("", head, *table, sep="\n")
        fill()
        print("! more than 1.01 of the best long run, ^ above LTR, b a budget exceeded by more than a tenth and .2 s")


if __name__ == "__main__":
    main()
