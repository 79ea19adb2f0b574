"""Tensors with gaps: how well hidden cells are predicted, and what gaps cost: python -m benchmarks.gaps [case].

Every case runs in its own process. Some known cells are hidden, each method is fitted to the rest, and its predictions
are compared with what was hidden. Ranks are fixed in advance, such that all models of a tensor hold about equally many
numbers, or they are chosen by cells that are held out of what the method may see; never by the hidden cells.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from functools import partial, reduce
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk
from benchmarks.blocks import DATA, load
from benchmarks.cases import Pair
from benchmarks.entries import Entries, read, report
from benchmarks.gap_methods import LOSSES, Array, Setting, methods, warm_up
from benchmarks.measure import compare, forget_peak, machine, peak, rows_of, seconds
from benchmarks.pages import fill

RESULTS = Path(__file__).parent / "results" / "gaps.json"

SHARES = (20, 40, 60)
"""Percent of the cells that are hidden."""

REPEATS = 5
"""Times that a tenth of the known cells of a small tensor is hidden."""

MIX = 1e-4
"""Share of the rank-1 model that is mixed into each model of counts before its divergence is measured, so that no cell
is impossible."""

UNIFORM = 0.01
"""Share of each marginal of that rank-1 model that is spread evenly."""

SHRINKAGE = (5.0, 5.0)
"""Ratings that the means of films and of users are shrunk by."""

STARS = (0.5, 5.0)
"""Least and largest rating. All predictions are brought into this range."""

FACE_RANKS = (2, 4, 6, 8, 10, 12, 16, 20, 30, 40)
"""Ranks of a cross-validation with five folds."""

Row = dict[str, Any]


HANGZHOU = Setting((20, 10, 20), (12, 6, 16), 19, [(4, 3, 6), (8, 5, 12), (12, 6, 16), (16, 8, 24), (20, 10, 30)], 1, 1)
KINETIC = Setting(
    (8, 7, 7, 8), (8, 6, 6, 8), 23, [(2, 2, 2, 2), (4, 4, 4, 4), (6, 4, 4, 6), (8, 6, 6, 8), (12, 8, 8, 12)], 3, 3
)
RESPONSES = Setting(
    (4, 3, 4, 3), (3, 3, 3, 3), 5, [(2, 2, 2, 2), (3, 3, 3, 3), (4, 3, 4, 4), (6, 4, 6, 5), (9, 4, 9, 7)], 0, 2
)


def hangzhou() -> Array | None:
    """Return the passengers of each station, day and ten minutes, or None if the file is missing."""
    x = load("Hangzhou")
    return None if x is None else np.asarray(x, np.float64)


def array(name: str) -> Array | None:
    """Return an array of a file, with 0 for what is negative, or None if the file is missing."""
    file = DATA / name
    if not file.exists():
        print(f"{name} is missing; set TUCKET_DATA to its folder")
        return None
    return np.asarray(np.maximum(np.load(file), 0.0))


def some_cells(shape: tuple[int, ...], share: float, rng: np.random.Generator) -> NDArray[np.bool]:
    """Choose single cells."""
    return rng.random(shape) < share


def some_fibres(shape: tuple[int, ...], mode: int, share: float, rng: np.random.Generator) -> NDArray[np.bool]:
    """Choose whole fibres along a mode."""
    ends = (*shape[:mode], 1, *shape[mode + 1 :])
    return np.broadcast_to(rng.random(ends) < share, shape).copy()


def errors(filled: Array, x: Array, hidden: NDArray[np.bool]) -> Row:
    """Return the root mean squared error over hidden cells, and the mean relative error where they are above 0."""
    found, truth = filled[hidden], x[hidden]
    seen = truth > 0
    return {
        "rmse": math.sqrt(np.mean((found - truth) ** 2)),
        "relative": float(np.mean(np.abs(found[seen] / truth[seen] - 1))),
    }


def fills(x: Array, hidden: NDArray[np.bool], setting: Setting) -> Iterator[Row]:
    """Measure each method on a tensor, of which some known cells are hidden."""
    y = np.where(hidden, np.nan, x)
    for name, method in methods(setting).items():
        began = time.perf_counter()
        filled, rank = method(y)
        took = time.perf_counter() - began
        yield report({"method": name, "rank": rank, "seconds": took, **errors(filled, x, hidden)})


def share_of(x: Array | None, setting: Setting, share: float, mode: int | None = None) -> Iterator[Row]:
    """Measure all methods with a share of the cells hidden, or of the fibres along a mode."""
    if x is None:
        return
    rng = np.random.default_rng(0)
    hidden = some_cells(x.shape, share, rng) if mode is None else some_fibres(x.shape, mode, share, rng)
    warm_up(np.where(hidden, np.nan, x), setting)
    yield from fills(x, hidden, setting)


def tenths(x: Array | None, setting: Setting, repeats: int = REPEATS) -> Iterator[Row]:
    """Measure all methods with a tenth of the known cells hidden, several times, and average."""
    if x is None:
        return
    known, runs = np.isfinite(x), []
    warm_up(x, setting)
    for seed in range(repeats):
        hidden = known & some_cells(x.shape, 0.1, np.random.default_rng(seed))
        runs.append(list(fills(x, hidden, setting)))
    for same in zip(*runs):
        means = {key: float(np.mean([row[key] for row in same])) for key in ("seconds", "rmse", "relative")}
        spread = float(np.std([row["rmse"] for row in same], ddof=1)) if repeats > 1 else 0.0
        yield {"method": same[0]["method"], "rank": [row["rank"] for row in same], **means, "spread": spread}


def some(entries: Entries, kept: NDArray[np.bool]) -> Entries:
    """Return some of the entries."""
    coords, values, shape = entries
    return [indices[kept] for indices in coords], values[kept], shape


def two_way_means(entries: Entries, coords: Sequence[Array]) -> Array:
    """Predict ratings by the mean, plus what films and then users differ from it; both are shrunk a little."""
    at, values, shape = entries
    mean = values.mean()
    predicted, rest = np.full(len(coords[0]), mean), values - mean
    for mode, ratings in zip((1, 0), SHRINKAGE):
        sums, counts = (np.bincount(at[mode], weights, shape[mode]) for weights in (rest, None))
        differences = sums / (counts + ratings)
        predicted, rest = predicted + differences[coords[mode]], rest - differences[at[mode]]
    return np.asarray(predicted)


def ratings(entries: Entries | None, rank: Any = (2, 2, 1), choices: Sequence[Any] = ()) -> Iterator[Row]:
    """Measure how well a tenth of all ratings is predicted from the others."""
    if entries is None:
        return
    is_held = some_cells((len(entries[1]),), 0.1, np.random.default_rng(0))
    train, (coords, truth, _) = some(entries, ~is_held), some(entries, is_held)
    x = tk.from_entries(*train)
    for loss in LOSSES:
        tk.ntd(x, rank, loss=loss, observed="stored", n_iter_max=1)  # loads the compiled loops

    def best(**options: Any) -> Any:
        return tk.cross_validate(x, choices, observed="stored", folds=3, **options).best()

    predictions: Mapping[str, Callable[[], tuple[Any, Any]]] = {
        "mean of user and film": lambda: (None, two_way_means(train, coords)),
        "ltr": lambda: _rated(tk.ltr(x, rank, observed="stored"), coords),
        "ltr, best of four ranks": lambda: _rated(tk.ltr(x, best(), observed="stored"), coords),
        "ntd": lambda: _rated(tk.ntd(x, rank, observed="stored"), coords),
        "ntd, best of four ranks": lambda: _rated(tk.ntd(x, best(method="ntd"), observed="stored"), coords),
        "ntd, least squares": lambda: _rated(tk.ntd(x, rank, loss="ls", observed="stored"), coords),
        "ntd, least squares, best of four ranks": lambda: _rated(
            tk.ntd(x, best(method="ntd", loss="ls"), loss="ls", observed="stored"), coords
        ),
    }
    for name, predict in predictions.items():
        began = time.perf_counter()
        found_rank, found = predict()
        took = time.perf_counter() - began
        lack = np.clip(found, *STARS) - truth
        rmse, mae = math.sqrt(np.mean(lack**2)), float(np.abs(lack).mean())
        yield report({"method": name, "rank": found_rank, "seconds": took, "rmse": rmse, "mae": mae})


def _rated(model: Any, coords: Sequence[Array]) -> tuple[Any, Array]:
    return model.rank, model.predict(coords)


@dataclass(frozen=True)
class HiddenCounts:
    """Cells of a sparse tensor of counts that are hidden, with a model that makes none of them impossible."""

    coords: Sequence[Array]
    counts: Array
    rank1: tk.Tucker

    def divergence(self, model: Any) -> float:
        """Return the divergence of the hidden cells, divided by their sum."""
        expected = (1 - MIX) * model.predict(self.coords) + MIX * self.rank1.predict(self.coords)
        seen = self.counts > 0
        terms = self.counts[seen] * np.log(self.counts[seen] / expected[seen])
        return float((terms.sum() - self.counts.sum() + expected.sum()) / self.counts.sum())


def smooth(model: tk.BlockTucker) -> tk.Tucker:
    """Return a rank-1 model with some of each marginal spread evenly."""
    factors = [(1 - UNIFORM) * weights + UNIFORM / len(weights) for weights in model.weights]
    return tk.Tucker(model.core, [factor[:, None] for factor in factors])


def counts_at(entries: Entries, places: NDArray[np.intp]) -> Array:
    """Return the counts in some cells, given by their sorted places in C order."""
    coords, values, shape = entries
    at = np.ravel_multi_index(list(coords), shape)
    nearest = np.minimum(np.searchsorted(places, at), len(places) - 1)
    held, found = places[nearest] == at, np.zeros(len(places))
    found[nearest[held]] = values[held]
    return found


def events(entries: Entries | None, rank: tuple[int, ...], budgets: Sequence[float | None]) -> Iterator[Row]:
    """Measure how well a tenth of all cells of a sparse tensor is predicted, zeros among them."""
    from tucket.sources.observed import observe

    if entries is None:
        return
    shape = entries[2]
    x, known = tk.from_entries(*entries), ~some_cells(shape, 0.1, np.random.default_rng(0))
    places = np.flatnonzero(~known)
    coords = [indices.astype(np.int32) for indices in np.unravel_index(places, shape)]
    rank1 = tk.ltr(x, 1, observed=known)
    tk.ntd(x, rank, observed=known, n_iter_max=1)  # loads the compiled loops
    hidden = HiddenCounts(coords, counts_at(entries, places), smooth(rank1))
    reading = float(np.median([seconds(lambda: observe(x, known)) for _ in range(3)]))
    yield report({"method": "reading the mask", "seconds": reading, "cells": len(places)})
    yield report({"method": "rank 1", "seconds": seconds(lambda: tk.ltr(x, 1, observed=known)),
                  "held_out": hidden.divergence(rank1)})  # fmt: skip
    fits: dict[str, Callable[[], Any]] = {"ltr": lambda: tk.ltr(x, rank, observed=known)}
    for budget in budgets:
        name = "ntd" if budget is None else f"ntd, budget {budget:g} s"
        fits[name] = partial(tk.ntd, x, rank, observed=known, budget=budget)
    for name, fit in fits.items():
        began = time.perf_counter()
        model = fit()
        took = time.perf_counter() - began
        its = getattr(model, "n_iterations", None)
        yield report({"method": name, "seconds": took, "held_out": hidden.divergence(model), "its": its})


def made() -> Array:
    """Return 27 million numbers with some structure."""
    rng = np.random.default_rng(0)
    parts = [rng.gamma(1.0, size=(300, 6)) for _ in range(3)]
    x = reduce(np.multiply.outer, [part.sum(axis=1) for part in parts])
    x *= rng.gamma(2.0, size=x.shape)
    return np.asarray(x)


def costs(name: str, x: Array | None, rank: Any) -> Iterator[Row]:
    """Compare `ltr` of blocks that are fixed in advance, with a hundredth of the cells hidden and with none."""
    if x is None:
        return
    known = ~some_cells(x.shape, 0.01, np.random.default_rng(0))
    whole = partial(tk.ltr, x, rank, blocks="uniform")
    gaps = partial(whole, observed=known)
    memory = {"whole_mb": extra(whole), "gaps_mb": extra(gaps), "tensor_mb": x.nbytes / 1e6}
    times = compare(Pair(gaps, whole))
    yield report({"tensor": name, "shape": x.shape, "seconds": times.seconds, "ratio": times.ratio, **memory})


def extra(call: Callable[[], Any]) -> float:
    """Return the peak memory of a call, beside what is held before; a first call loads the compiled loops."""
    call()
    before = forget_peak()
    call()
    return peak() - before


def cost() -> Iterator[Row]:
    """Measure what gaps cost in three tensors."""
    yield from costs("AttFace", load("AttFace"), 10)
    yield from costs("Hangzhou", hangzhou(), (8, 5, 12))
    yield from costs("made", made(), 10)


def cross_validation(x: Array | None, ranks: Sequence[int] = FACE_RANKS) -> Iterator[Row]:
    """Measure the choice among ten ranks by five folds."""
    if x is None:
        return
    tk.ltr(x, 2, observed=np.arange(x.size).reshape(x.shape) % 10 > 0)  # loads the compiled loops
    kept: list[Any] = []
    took = seconds(lambda: kept.append(tk.cross_validate(x, ranks)))
    yield report({"ranks": len(ranks), "folds": 5, "seconds": took, "best": kept[0].best()})


TENSORS: Mapping[str, tuple[Callable[[], Array | None], Setting, int]] = {
    "hangzhou": (hangzhou, HANGZHOU, 2),
    "kinetic": (partial(array, "kinetic.npy"), KINETIC, 0),
}
"""Tensors, how they are treated, and the mode that whole fibres are hidden along."""


def hide(name: str, share: float, has_fibres: bool) -> Iterator[Row]:
    """Measure all methods with a share of a tensor hidden."""
    make, setting, mode = TENSORS[name]
    return share_of(make(), setting, share, mode if has_fibres else None)


CASES: dict[str, Callable[[], Iterator[Row]]] = {
    **{
        f"{name}-{kind}-{share}": partial(hide, name, share / 100, kind == "fibres")
        for name in TENSORS
        for kind in ("cells", "fibres")
        for share in SHARES
    },
    "responses": lambda: tenths(array("il2_response.npy"), RESPONSES),
    "ratings": lambda: ratings(read("movielens_small.npz"), choices=[1, (2, 2, 1), (2, 2, 2), (4, 4, 1)]),
    "uber5": lambda: events(read("uber5.npz"), (10, 10, 5, 10, 10), (8.0, 20.0, None)),
    "cost": cost,
    "cross-validation": lambda: cross_validation(load("AttFace")),
}


def main() -> None:
    """Measure all cases, or some, and save the results after each."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.gaps", description=__doc__)
    parser.add_argument("cases", nargs="*", choices=[*CASES, []], help="all by default")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(list(CASES[options.cases[0]]())))
        return
    result = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for case in options.cases or CASES:
        print(case, flush=True)
        if rows := rows_of("benchmarks.gaps", case):
            result |= {"date": date.today().isoformat(), "machine": machine(), case: rows}
            RESULTS.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(f"results saved in {RESULTS}")
    fill()


if __name__ == "__main__":
    main()
