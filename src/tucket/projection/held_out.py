r"""Ranks chosen by cells that are held out: the best rank predicts best what the fit has not seen.

A share of the known cells is hidden at random, several times. Each rank is fitted to the rest and judged by its loss on
the hidden cells. A model that is too small misses structure, and one that is too large takes noise for structure: both
predict worse. Every rank is judged by the same cells, so that the differences between ranks are known well.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY
from tucket.base.axes import Axes, check_rank_by_mode
from tucket.base.partition import Partition
from tucket.base.run import Run, ordered_map
from tucket.models.block_tucker import BlockTucker
from tucket.models.model import Model
from tucket.projection.cross_validation import CrossValidation, Ranks, Score
from tucket.projection.proportional import project_observed
from tucket.sources.dense import Array
from tucket.sources.observed import Observed, observe
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse, align, distinct_entries

FitRank = Callable[[Observed, Ranks, Run], tuple[Model, float]]
"""Fits a model of some rank to what is known; also returns its loss there, divided by the sum."""

MOST_CELLS = 1 << 22
"""Cells that are held out at a time, at most."""

LEAST_ENTRIES = 20
"""Entries above 0 that held-out cells must have to be expected; with fewer, their loss says little."""

MIXES = (1e-6, 1e-5, 1e-4, 1e-3, 3e-3, 1e-2, 3e-2, 0.1, 0.2, 0.3, 0.5)
"""Shares of the rank-1 model to choose from. A little of it is mixed into a model that is judged by its divergence, so
that no cell is impossible."""

UNIFORM_SHARE = 0.01
"""Share of each marginal of the rank-1 model that is spread evenly, since an index may have been held out wholly."""

FIRST_RANKS = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64, 96, 128)
"""Ranks that are tried for all modes at once."""

WORSE_RANKS = 2
"""Ranks in a row, each with a larger loss than the best, that end the first part of a search."""

GROWTH = 1.3
"""Factor of the second step by which the rank of a single mode is changed; the first one is by 1."""


class Cells(NamedTuple):
    """Some known cells: where they are, what is known of them, and for which exposure."""

    coords: Sequence[NDArray[Any]]
    x: NDArray[np.float64]
    exposure: NDArray[np.float64]


@dataclass(frozen=True)
class Fold:
    """What a fit may see, and the cells that are held out, with the rank-1 model that is mixed in."""

    train: Observed
    cells: Cells
    rank1: BlockTucker

    def losses(self, model: Model, by_mass: bool) -> NDArray[np.float64]:
        """Return the divergence of the held-out cells for each mix, or their squared distance."""
        _, x, exposure = self.cells
        expected = exposure * model._at(self.cells.coords)
        if not by_mass:
            return np.array([((x - expected) ** 2 / exposure).sum()])
        other = exposure * self.rank1._at(self.cells.coords)
        seen = x > 0
        found = []
        for mix in MIXES:
            mixed = (1 - mix) * expected + mix * other
            terms = x[seen] * np.log(x[seen] / mixed[seen])
            found.append(terms.sum() - x.sum() + mixed.sum())
        return np.array(found)


def make_folds(known: Source | Observed, folds: int, share: float, rng: np.random.Generator, run: Run) -> list[Fold]:
    """Hide a share of the known cells at random, several times."""
    split = _split_entries if _is_sparse(known) else _split_array
    cut = Partition.uniform(known.shape, 1)
    made = []
    for train, cells in split(known, folds, share, rng):
        rank1 = project_observed(train, cut, run)
        if not rank1.core.any() or not cells.x.any():
            raise ValueError(
                f"x: it has too few entries above 0 to be split into {share:g} of its known cells and the rest; "
                f"choose the rank yourself"
            )
        weights = [(1 - UNIFORM_SHARE) * w / w.sum() + UNIFORM_SHARE / len(w) for w in rank1.weights]
        made.append(Fold(train, cells, BlockTucker._of(rank1.core, cut, weights)))
    if not made:
        raise ValueError(f"x: a tensor of shape {known.shape} has too few known cells to hold {share:g} of them out")
    return made


def _is_sparse(known: Source | Observed) -> bool:
    return known.x.sparse and known.part.sparse if isinstance(known, Observed) else known.sparse


def draw_places(size: int, share: float, rng: np.random.Generator) -> NDArray[np.intp]:
    """Draw each of some places with the same probability; return them in order."""
    expected = share * size
    gaps = int(expected + 8 * math.sqrt(expected) + 16)
    places = np.cumsum(rng.geometric(share, gaps)) - 1
    while places[-1] < size:
        places = np.concatenate([places, places[-1] + np.cumsum(rng.geometric(share, gaps))])
    return np.asarray(places[: np.searchsorted(places, size)], np.intp)


def _split_array(
    known: Source | Observed, folds: int, share: float, rng: np.random.Generator
) -> Iterator[tuple[Observed, Cells]]:
    """Split what is known of a dense tensor, which is read into memory."""
    source = known.x if isinstance(known, Observed) else known
    x = source.array if isinstance(source, Array) and source.backend is NUMPY else source.to_numpy()
    exposure: Any = np.ones(x.shape, np.bool)
    if isinstance(known, Observed):
        part = known.part.to_numpy()
        exposure = part == 0 if known.is_complement else part
    weights = None if exposure.dtype == np.bool else exposure
    share = min(share, MOST_CELLS / x.size)
    for _ in range(folds):
        places = draw_places(x.size, share, rng)
        places = places[exposure.flat[places] > 0]
        mask = exposure > 0
        mask.flat[places] = False
        train = observe(Array(x, source.axes), mask, weights)
        if isinstance(train, Observed):
            at = np.unravel_index(places, x.shape)
            yield train, Cells(at, x[at].astype(np.float64), exposure[at].astype(np.float64))


def _split_entries(
    known: Source | Observed, folds: int, share: float, rng: np.random.Generator
) -> Iterator[tuple[Observed, Cells]]:
    """Split what is known of a sparse tensor: some of all cells, or some of those that are known if these are few."""
    if isinstance(known, Observed) and not known.is_complement:
        entries, exposure = align(distinct_entries(known.x), distinct_entries(known.part))
        for _ in range(folds):
            is_held = np.zeros(len(exposure), np.bool)
            is_held[draw_places(len(exposure), share, rng)] = True
            is_held &= exposure > 0
            train = Observed(
                _some(entries, ~is_held, entries.values, known.x.axes),
                _some(entries, ~is_held, exposure),
                weights=known.weights,
            )
            cells = [indices[is_held] for indices in entries.coords]
            yield train, Cells(cells, entries.values[is_held].astype(np.float64), exposure[is_held].astype(np.float64))
        return
    source = known.x if isinstance(known, Observed) else known
    entries, shape = distinct_entries(source), known.shape
    size = math.prod(shape)
    share = min(share, MOST_CELLS / size)
    if size >= 2**63 or share * len(entries.values) < LEAST_ENTRIES:
        raise ValueError(
            f"x: {share:.2g} of its {size:,} cells hold too few of its {len(entries.values):,} entries to judge "
            f"a rank; give observed='stored' if all other cells are unknown, or choose the rank yourself"
        )
    at = np.ravel_multi_index(list(entries.coords), shape)
    hidden = np.empty(0, np.intp)
    if isinstance(known, Observed):
        hidden = np.sort(np.ravel_multi_index(list(distinct_entries(known.part).coords), shape))
    for _ in range(folds):
        places = np.setdiff1d(draw_places(size, share, rng), hidden, assume_unique=True)
        is_held = np.isin(at, places, assume_unique=True)
        x = np.zeros(len(places))
        x[np.searchsorted(places, at[is_held])] = entries.values[is_held]
        coords = np.unravel_index(np.union1d(places, hidden), shape)
        holes = Sparse(coords, np.ones(len(coords[0]), np.int8), shape, distinct=True)
        train = Observed(_some(entries, ~is_held, entries.values, source.axes), holes, True)
        yield train, Cells(np.unravel_index(places, shape), x, np.ones(len(places)))


def _some(entries: Entries, kept: NDArray[np.bool], values: NDArray[Any], axes: Axes | None = None) -> Sparse:
    """Return some of the entries, with values of their own."""
    return Sparse([indices[kept] for indices in entries.coords], values[kept], entries.shape, axes, distinct=True)


@dataclass
class RankSearch:
    """A search for the rank that predicts held-out cells best.

    Attributes
    ----------
    by_mass : bool
        Whether the loss is the divergence, or else the relative error.
    run : Run
        How to run; its callback gets a `Step` after each rank, with the mean loss on held-out cells.
    """

    folds: Sequence[Fold]
    fit: FitRank
    by_mass: bool
    run: Run
    axes: Axes | None = None
    scores: dict[Ranks, Score] = field(default_factory=dict)

    @property
    def shape(self) -> Ranks:
        """Size of each mode."""
        return self.folds[0].train.shape

    @cached_property
    def _unit(self) -> float:
        """The mean sum of the held-out cells, or the mean of their squares."""
        sums = [fold.cells.x if self.by_mass else fold.cells.x**2 / fold.cells.exposure for fold in self.folds]
        return float(np.mean([each.sum() for each in sums]))

    def table(self) -> CrossValidation:
        """Return the scores so far."""
        loss = "KL / sum" if self.by_mass else "relative error"
        return CrossValidation(tuple(self.scores.values()), loss, self.axes)

    def score(self, rank: Ranks) -> float:
        """Return the mean loss of a rank on held-out cells."""
        if rank not in self.scores:
            one = replace(self.run, workers=1, callback=None, progress=None, deadline=math.inf)

            def work(fold: Fold) -> tuple[NDArray[np.float64], float, int]:
                model, fitted = self.fit(fold.train, rank, one)
                return fold.losses(model, self.by_mass), fitted, model.n_parameters

            losses, fitted, sizes = zip(*ordered_map(work, self.folds, min(self.run.workers, len(self.folds))))
            self.scores[rank] = self._judge(rank, np.stack(losses) / self._unit, float(np.mean(fitted)), sizes[0])
            self.run.report(len(self.scores), self.scores[rank].loss)
        return self.scores[rank].loss

    def _judge(self, rank: Ranks, losses: NDArray[np.float64], fitted: float, size: int) -> Score:
        """Take for each fold the mix that is best for the other folds."""
        if not self.by_mass:
            return Score(rank, size, tuple(np.sqrt(losses[:, 0]).tolist()), fitted, 0.0)
        others = losses.sum(axis=0) - losses if len(losses) > 1 else losses
        best = others.argmin(axis=1)
        found = losses[np.arange(len(losses)), best]
        return Score(rank, size, tuple(found.tolist()), fitted, float(np.mean(np.take(MIXES, best))))

    def search(self) -> None:
        """Try ever larger ranks of all modes; then change the best one mode by mode, and last trim it."""
        best, worse = self._lowered(1), 0
        least = self.score(best)
        for rank in FIRST_RANKS[1:]:
            wanted = self._lowered(rank)
            if wanted in self.scores or worse == WORSE_RANKS or not self.run.allows():
                break
            found = self.score(wanted)
            worse = 0 if found < least else worse + 1
            best, least = (wanted, found) if found < least else (best, least)
        best = self._settle(best, lambda best, mode: self._along(self._along(best, mode, 1), mode, -1))
        self._settle(best, self._trim)

    def _settle(self, rank: Ranks, change: Callable[[Ranks, int], Ranks]) -> Ranks:
        """Change mode after mode until none changes any more."""
        before = None
        while before != rank:
            before = rank
            for mode in range(len(rank)):
                rank = change(rank, mode)
        return rank

    def _lowered(self, rank: int) -> Ranks:
        return tuple(min(rank, size) for size in self.shape)

    def _along(self, best: Ranks, mode: int, sign: int) -> Ranks:
        """Change the rank of one mode, in growing steps, while that lowers the loss."""
        step = 1
        while 1 <= best[mode] + sign * step <= self.shape[mode]:
            wanted = (*best[:mode], best[mode] + sign * step, *best[mode + 1 :])
            if not self.run.allows() or self.score(wanted) >= self.score(best):
                break
            best, step = wanted, max(1, round(best[mode] * (GROWTH - 1)))
        return best

    def _trim(self, rank: Ranks, mode: int) -> Ranks:
        """Lower the rank of one mode while the loss is as good as the least one, but for its standard error."""
        while rank[mode] > 1:
            wanted = (*rank[:mode], rank[mode] - 1, *rank[mode + 1 :])
            if not self.run.allows():
                break
            self.score(wanted)
            if not self.scores[wanted].is_close_to(self.table().least):
                break
            rank = wanted
        return rank


def check_ranks(ranks: Iterable[Any], axes: Axes | None, shape: tuple[int, ...]) -> list[Ranks]:
    """Return the ranks to compare, each given as for `ltr`."""
    if isinstance(ranks, str) or not isinstance(ranks, Iterable):
        raise TypeError(f"ranks: got {ranks!r}; give a sequence of ranks to compare, such as [2, 4, (4, 8, 8)]")
    found = [check_rank_by_mode(rank, axes, shape) for rank in ranks]
    if not found:
        raise ValueError("ranks: got none; give a sequence of ranks to compare, or leave ranks out")
    return list(dict.fromkeys(found))


FOLDS, SHARE = 5, 0.1
"""Repetitions, and the share of the known cells that each hides, by default."""


def choose_rank(known: Source | Observed, fit: FitRank, by_mass: bool, run: Run) -> Ranks:
    """Return the rank that predicts held-out cells best; with a deadline, the best that half of the time finds."""
    run = replace(run, deadline=(run.began + run.deadline) / 2)
    folds = make_folds(known, FOLDS, SHARE, np.random.default_rng(0), run)
    search = RankSearch(folds, fit, by_mass, run)
    search.search()
    return search.table().best()
