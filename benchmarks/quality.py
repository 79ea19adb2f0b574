"""How good the end of a default `ntd` is beside long runs from chance: python -m benchmarks.quality [--again] [tensor].

Long runs take most of the time; they are kept in the results, and repeated only with --again.
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
from numpy.typing import NDArray

import tucket as tk
from benchmarks.made import MADE
from benchmarks.measure import machine, seconds
from benchmarks.ntd import tensor

RESULTS = Path(__file__).parent / "results" / "quality.json"

LOSSES = ("kl", "ls")

LONG_RUNS, LONG_SECONDS, LARGE_CORE, FEW_RUNS = 10, 60.0, 1 << 15, 3
"""Long runs per tensor and seconds of each at most; and the core from which fewer runs must do."""

Array = NDArray[Any]
Row = dict[str, Any]

REAL: Mapping[str, tuple[str, tuple[int, ...]]] = {
    "digits": ("digits", (40, 4, 4)),
    "Adult": ("Adult", (4, 4, 3, 4, 3, 2, 2)),
    "Hangzhou": ("Hangzhou", (8, 5, 12)),
    "MovieLens": ("MovieLens, 16 films a block", (10, 10, 5)),
    "AttFace 10": ("AttFace", (10, 10, 10)),
    "AttFace 40": ("AttFace", (40, 40, 40)),
}


def cases() -> dict[str, tuple[Callable[[], Array | None], tuple[int, ...]]]:
    """Return what makes or reads each tensor, and its rank, small tensors first."""
    return {**MADE, **{name: (partial(tensor, file), rank) for name, (file, rank) in REAL.items()}}


def long_runs(x: Array, rank: tuple[int, ...], loss: Any, kept: Row) -> Row:
    """Decompose from chance, with patience, as far as that is not yet done."""
    unit = float(x.sum(dtype=np.float64)) if loss == "kl" else 1.0
    for seed in range(len(kept["losses"]), FEW_RUNS if math.prod(rank) >= LARGE_CORE else LONG_RUNS):
        fit = tk.ntd(
            x, rank, loss=loss, init="random", multilevel=False, rng=seed,
            n_iter_max=1_000_000, tol=1e-7, budget=LONG_SECONDS, workers=1,
        )  # fmt: skip
        print(f"  {loss}, long run {seed}: {fit.loss / unit:.5f} in {fit.seconds:.1f} s, {fit.stopped}", flush=True)
        kept["losses"].append(fit.loss / unit)
        kept["seconds"].append(fit.seconds)
    return kept


def hals(x: Array, rank: tuple[int, ...], loss: str, limit: float) -> Row:
    """Give TensorLy's least squares as many iterations as fit the time, and one at least."""
    from tensorly.decomposition import non_negative_tucker_hals

    run = partial(non_negative_tucker_hals, x.astype(np.float64), list(rank), tol=0, random_state=0)
    run(n_iter_max=1)
    first, more = seconds(lambda: run(n_iter_max=1)), seconds(lambda: run(n_iter_max=3))
    count = max(1, int(1 + (limit - first) / max(1e-4, (more - first) / 2)))
    found: list[Any] = []
    took = seconds(lambda: found.append(tk.Tucker(*run(n_iter_max=count))))
    return {"loss": measured(found[0], x, loss), "seconds": took, "iterations": count}


def measured(model: Any, x: Array, loss: str) -> float | None:
    """Return the loss of a model, divided by the total of the tensor if it is a divergence."""
    value = model.kl(x) / float(x.sum(dtype=np.float64)) if loss == "kl" else model.relative_error(x)
    return value if math.isfinite(value) else None


def measure(x: Array, rank: tuple[int, ...], loss: Any, long: Row) -> Row:
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
    }  # fmt: skip


def line(name: str, loss: str, row: Row) -> str:
    """Return a row of the table; ! where the default ends above 1.01 of the best long run."""
    ends, default = row["long"]["losses"], row["default"]
    best, median = (f"{of(ends):9.5f}" if ends else " " * 9 for of in (min, np.median))
    mark = "!" if ends and default["loss"] > 1.01 * min(ends) else " "
    mark += "^" if loss == "kl" and default["loss"] > row["ltr"]["loss"] else " "
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
            rows = saved["cases"].setdefault(name, {"shape": x.shape, "rank": rank})
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
        print("! more than 1.01 of the best long run, ^ above LTR")


if __name__ == "__main__":
    main()
