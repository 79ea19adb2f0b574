r"""Decomposition of tensors with gaps, or with exposure, from coarse to fine.

A model that spreads the sum of each block over its indices in proportion to a measure is determined by its block sums
H. What it expects of the block sums G of the tensor is A H, with the block's mean exposure A in this measure. Its
distance from what is known is that of H from G, with exposure A, plus an offset that does not depend on H. So a
decomposition of the block sums is one of the tensor, and a start for the next level.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.base.partition import Partition, single_indices
from tucket.base.run import Run
from tucket.decomposition.data import known_data
from tucket.decomposition.data.known import KnownArray
from tucket.decomposition.data.pairs import PairArray
from tucket.decomposition.descent import COARSE_PATIENCE, FIRST_PATIENCE, Descent, Patience
from tucket.decomposition.levels import COARSEST_CELLS, SKETCH_CELLS, coarsenings, unit_scale
from tucket.decomposition.losses import Loss, Problem
from tucket.decomposition.starts import SMALL_CORE_ENTRIES
from tucket.kernels.algebra import Matrix, Parts, quotient, to_mixture, weigh
from tucket.models.tucker import Tucker
from tucket.projection.observed_search import ObservedSearch, weigh_exposure
from tucket.projection.plan import make_plan
from tucket.projection.proportional import ROUNDING, estimate_observed, project_observed
from tucket.projection.search import MAX_SWEEPS
from tucket.sources.dense import Array
from tucket.sources.observed import Observed
from tucket.sources.reductions import block_sums

RANDOM_STARTS = 2
"""Random models that are tried beside the blocks of LTR, if the core is small."""

MAX_OFFSET_SHARE = 0.5
"""Share of the distance from the measure itself that the offset of a level may have; else the level is of no use."""


@dataclass(frozen=True)
class ObservedLevel:
    """What is known of a tensor, under some partition.

    Attributes
    ----------
    observed : Observed
        The block sums and their mean exposures.
    measures : list of arrays
        The measure of the blocks of each mode.
    offset : float
        What is to be added to the distance on this level.
    """

    partition: Partition
    observed: Observed
    measures: list[NDArray[np.float64]]
    problem: Problem
    offset: float = 0.0

    def prolong(self, parts: Parts, fine: ObservedLevel) -> Parts:
        """Spread the rows of the factors over the blocks of a finer level."""
        modes = fine.partition.quotient(self.partition).modes
        return parts[0], [
            blocks.expand(quotient(factor, coarse[:, None])) * measure[:, None]
            for factor, blocks, coarse, measure in zip(parts[1], modes, self.measures, fine.measures)
        ]


class Ladder:
    """The levels of what is known of a tensor, coarsest first, in the measure of a loss.

    Attributes
    ----------
    mass : float
        The total that the rank-1 model expects, in the unit of the iterations.
    norm : float
        The distance of a model of zeros.
    """

    def __init__(self, observed: Observed, rank: Sequence[int], loss: Loss, run: Run, has_levels: bool) -> None:
        self.observed, self.loss, self.run = observed, loss, run
        one = Partition.uniform(observed.shape, 1)
        self.rank1 = rank1 = project_observed(observed, one, run)
        total = block_sums(observed.x, [one], run, needs_marginals=False)[0].core.item()
        self.scale = unit_scale(total / math.prod(observed.shape))
        self.mass = rank1.core.item() * self.scale
        self.measures = [weights if loss.by_mass else np.ones(len(weights)) for weights in rank1.weights]
        known, single = known_data(observed, self.scale, run), single_indices(observed.shape)
        self.whole = ObservedLevel(single, observed, self.measures, loss.observed(known, self.measures, self.mass))
        self.levels = [*self._coarse_levels(rank), self.whole] if has_levels and self.mass > 0 else [self.whole]

    @cached_property
    def norm(self) -> float:
        """The distance of a model of zeros, where it is finite."""
        if self.loss.by_mass:
            return math.inf
        rank = (1,) * len(self.measures)
        return self.whole.problem.distance((np.zeros(rank), [measure[:, None] for measure in self.measures]))

    def value(self, level: ObservedLevel, distance: float) -> float:
        """Return the loss of what is known, given a distance on a level."""
        return self.loss.observed_value(distance + level.offset, self.norm, self.scale)

    def _coarse_levels(self, rank: Sequence[int]) -> list[ObservedLevel]:
        """Return the levels that keep much of what is known, coarsest first."""
        partitions = list(coarsenings(self.whole.partition, rank, COARSEST_CELLS))[1:]
        partitions = [each for each in partitions if math.prod(each.rank) <= SKETCH_CELLS]
        if not partitions:
            return []
        sums, exposed = self._read(partitions[0])
        last, most, levels = partitions[0], self.whole.problem.distance(self._base(self.measures)), []
        for partition in partitions:
            for mode, blocks in enumerate(last.quotient(partition).modes):
                sums, exposed = blocks.sum(sums, mode), blocks.sum(exposed, mode)
            level, last = self._level(partition, sums, exposed), partition
            offset = max(0.0, most - level.problem.distance(self._base(level.measures)))
            if offset <= MAX_OFFSET_SHARE * most:
                levels.append(replace(level, offset=offset))
        return levels[::-1]

    def _base(self, measures: Sequence[Matrix]) -> Parts:
        """Return the model that is the measure itself."""
        core = np.full((1,) * len(measures), self.mass)
        return core, [measure[:, None] / measure.sum() for measure in measures]

    def _read(self, partition: Partition) -> tuple[Matrix, Matrix]:
        """Return the block sums, and those of the exposure times the measure."""
        weighed = weigh_exposure(self.observed, self.measures)
        sums, exposed = (
            block_sums(source, [partition], self.run, needs_marginals=False)[0].core
            for source in (self.observed.x, weighed)
        )
        if self.observed.is_complement:
            whole = reduce(np.multiply.outer, map(Blocks.sum, partition.modes, self.measures))
            exposed = np.where(whole - exposed > ROUNDING * whole, whole - exposed, 0.0)
        return sums, exposed

    def _level(self, partition: Partition, sums: Matrix, exposed: Matrix) -> ObservedLevel:
        measures = list(map(Blocks.sum, partition.modes, self.measures))
        mean = weigh(exposed, {mode: quotient(np.ones(len(m)), m) for mode, m in enumerate(measures)})
        roots = {} if self.loss.by_mass else {mode: measure**-0.5 for mode, measure in enumerate(measures)}
        x = np.where(mean > 0, weigh(sums, roots), 0.0)
        known = KnownArray(PairArray(x, self.scale, self.run.workers, exposure=mean), float(mean.max()))
        problem = self.loss.observed(known, measures, self.mass)
        return ObservedLevel(partition, Observed(Array(sums), Array(mean)), measures, problem)


def decompose_observed(
    descent: Descent, observed: Observed, init: str | Tucker, rank: tuple[int, ...], loss: Loss
) -> tuple[Parts, list[tuple[int, ...]]]:
    """Return the best model of what is known, and the levels that led there.

    It is the best of several starts on the coarsest level, followed down.
    """
    run = replace(descent.run, callback=None, progress=None, rng=descent.run.generator())
    ladder = Ladder(observed, rank, loss, run, has_levels=isinstance(init, str))
    if isinstance(init, Tucker):
        parts = _improve(descent, ladder, init)
    elif ladder.mass == 0:
        descent.record(0, 0.0)
        parts = np.zeros(rank), [np.zeros((size, r)) for size, r in zip(observed.shape, rank)]
    else:
        parts = _go_down(descent, ladder, list(_starts(ladder, init, rank, run)))
    return (parts[0] / ladder.scale, parts[1]), [level.partition.rank for level in ladder.levels]


def _lower(
    descent: Descent, ladder: Ladder, depth: int, parts: Parts, patience: Patience, rival: float = math.inf
) -> tuple[Parts, float]:
    """Lower the loss on one level."""
    level = ladder.levels[depth]
    found, reached = descent.follow(level.problem, parts, depth, partial(ladder.value, level), patience, rival=rival)
    descent.least = min(descent.least, reached)
    return found, reached


def _improve(descent: Descent, ladder: Ladder, given: Tucker) -> Parts:
    """Continue from a given model; never return a worse one."""
    parts = to_mixture(given.core * np.float64(ladder.scale), [np.asarray(f, np.float64) for f in given.factors])
    before = ladder.value(ladder.whole, ladder.whole.problem.distance(parts))
    found, reached = _lower(descent, ladder, 0, parts, descent.patience)
    if reached <= before:
        return found
    descent.record(0, before)
    return parts


def _go_down(descent: Descent, ladder: Ladder, starts: Sequence[Callable[[], Parts]]) -> Parts:
    """Return the best model that the starts lead to within the budget."""
    levels = ladder.levels
    tried: list[tuple[Parts, float]] = []
    is_over = len(levels) == len(starts) == 1
    for start in starts:
        if tried and descent.is_late:
            break
        rival = min((reached for _, reached in tried), default=math.inf)
        tried.append(_lower(descent, ladder, 0, start(), descent.patience if is_over else FIRST_PATIENCE, rival))
    parts, _ = min(tried, key=itemgetter(1))
    for depth, level in enumerate(levels):
        if depth:
            parts = levels[depth - 1].prolong(parts, level)
        is_last = level is levels[-1]
        if not (descent.is_late or is_over) and (depth or is_last):
            parts, _ = _lower(descent, ladder, depth, parts, descent.patience if is_last else COARSE_PATIENCE)
    return parts


def _starts(ladder: Ladder, init: str, rank: tuple[int, ...], run: Run) -> Iterator[Callable[[], Parts]]:
    """Yield functions that make a model of the coarsest level."""
    level = ladder.levels[0]
    if init in ("auto", "ltr"):
        yield partial(_from_blocks, ladder, level, rank, run)
    if init == "random" or (init == "auto" and math.prod(rank) <= SMALL_CORE_ENTRIES):
        for _ in range(1 if init == "random" else RANDOM_STARTS):
            yield partial(_random, ladder, level, rank, run)


def _from_blocks(ladder: Ladder, level: ObservedLevel, rank: tuple[int, ...], run: Run) -> Parts:
    """Return the model of the best blocks, softened."""
    known = level.observed
    is_whole = level is ladder.whole
    rank1 = ladder.rank1 if is_whole else project_observed(known, Partition.uniform(known.shape, 1), run)
    plan = make_plan("clusters", rank, 0, single_indices(known.shape))
    blocks = ObservedSearch(known, run, MAX_SWEEPS, rank1).best(plan.start, plan.strategies)
    model = estimate_observed(known, blocks, run)
    return level.problem.soften((model.core * ladder.scale, model.dense_factors()))


def _random(ladder: Ladder, level: ObservedLevel, rank: tuple[int, ...], run: Run) -> Parts:
    rng = run.generator()
    factors = [rng.random((len(measure), r)) * measure[:, None] for measure, r in zip(level.measures, rank)]
    core, factors = to_mixture(rng.random(rank), factors)
    return core * (ladder.mass / core.sum()), factors
