r"""The projection of a tensor with gaps: the nearest member of a bingo space, for a known exposure.

What is lowered is the divergence of what is observed,

.. math:: D = \sum_i x_i \log \frac{x_i}{E_i Q_i} - x_i + E_i Q_i

With fixed blocks the logarithm of Q is linear in those of the core and of the weights, so that D is convex, and its
least value is the only one. There the observed block sums and marginals of E Q are those of the tensor. Iterative
proportional fitting leads there: it multiplies the core and the weights by what the sums lack. Done for all of them at
once, a cycle is one pass over the exposure. Where that would raise D, the core and the weights of each mode take turns
from then on, which never does. Either way the cycles are accelerated (Anderson).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.kernels.algebra import quotient, weigh
from tucket.models.block_tucker import BlockTucker
from tucket.models.expected import TimesModel
from tucket.models.statistics import read_observed
from tucket.sources.observed import Observed
from tucket.sources.reductions import block_sums
from tucket.sources.source import Source
from tucket.sources.transformed import Transformed

TOLERANCE = 1e-10
"""Share of the total by which sums of the model may miss those of the tensor in the end."""

CYCLES, MEMORY = 500, 6
"""Cycles at most, and how many of the last ones show the way on."""

FAST = 0.1
"""Cycles that shrink the gaps by more than this need no acceleration, and no look at the divergence."""

WINDOW, GAIN = 10, 1e-15
"""Cycles that end the fitting if they lower the divergence together by less than this share of the total: the best
weights may be infinitely far where the tensor has zeros."""

LONGEST = 10.0
"""Change of a logarithm in one step, at most."""

ROUNDING = 1e-14
"""Share of the total by which the divergence may rise by rounding errors."""

Vector = NDArray[np.float64]


class Sums(NamedTuple):
    """Block sums, and for each mode the sums over all others."""

    core: Vector
    marginals: tuple[Vector, ...]

    @property
    def parts(self) -> tuple[Vector, ...]:
        """The core and the marginals."""
        return self.core, *self.marginals


@dataclass(frozen=True)
class Cycle:
    """A model, the sums that are expected under it and those of the tensor, and the largest gap between these."""

    model: BlockTucker
    expected: Sums
    sums: Sums
    gap: float

    @cached_property
    def divergence(self) -> float:
        """Divergence of what is observed, up to a constant."""
        found = float(self.expected.core.sum()) - _times_log(self.sums.core, self.model.core)
        return found - sum(map(_times_log, self.sums.marginals, self.model.weights))


def project_observed(observed: Observed, partition: Partition, run: Run) -> BlockTucker:
    """Return the projection of a tensor with gaps onto the bingo space of a partition.

    A block or an index without known cells keeps what the model of rank 1 says of it.
    """
    fitting = Fitting(observed, partition, run)
    if fitting.total == 0:
        return fitting.nothing()
    if not fitting.has_unseen:
        return fitting.run_from(fitting.begin())
    whole = Partition.uniform(partition.shape, 1)
    if partition == whole:
        return fitting.run_from(fitting.begin())
    return fitting.with_unseen(fitting.run_from(fitting.begin()), project_observed(observed, whole, run))


def estimate_observed(observed: Observed, partition: Partition, run: Run) -> BlockTucker:
    """Return a model near the projection: with the mean of every block, and of every index."""
    fitting = Fitting(observed, partition, run)
    return fitting.begin() if fitting.total else fitting.nothing()


class Fitting:
    """A tensor with gaps under a partition: its sums, those that a model expects, and the way to the best model."""

    def __init__(self, observed: Observed, partition: Partition, run: Run) -> None:
        self.observed, self.partition, self.run = observed, partition, run
        known = read_observed(observed, partition, run)
        assert known.exposure is not None
        self.sums, self.exposure = (Sums(each.core, each.marginals) for each in (known, known.exposure))
        self.total, self.cycles = known.total, 0

    def _read(self, source: Source) -> Sums:
        found = block_sums(source, [self.partition], self.run)[0]
        return Sums(found.core, tuple(found.marginals))

    @property
    def has_unseen(self) -> bool:
        """Whether there is a block, or an index, without known cells."""
        return not all((sums > 0).all() for sums in self.exposure.parts)

    def nothing(self) -> BlockTucker:
        """Return the model of a tensor without mass."""
        return BlockTucker._of(
            np.zeros(self.partition.rank), self.partition, map(np.zeros, self.partition.shape), self.observed.x.axes
        )

    def begin(self) -> BlockTucker:
        """Return a model with the mean of every block, and weights by the mean of every index."""
        core = quotient(self.sums.core, self.exposure.core)
        weights = [
            np.where(exposure > 0, quotient(marginal, exposure), self.total / self.exposure.core.sum())
            for marginal, exposure in zip(self.sums.marginals, self.exposure.marginals)
        ]
        core = core * self.partition._cells()
        return self._model(np.where(self.exposure.core > 0, core, 1.0), weights)

    def _model(self, core: Vector, weights: Sequence[Vector]) -> BlockTucker:
        """Return a model with weights that sum to 1 in every block."""
        shares = [kernels.shares(vector, blocks) for vector, blocks in zip(weights, self.partition.modes)]
        return BlockTucker._of(core, self.partition, shares, self.observed.x.axes)

    def _scaled(self, core: Vector, weights: Sequence[Vector]) -> BlockTucker:
        """Return the same model with weights that sum to 1 in every block."""
        sums = [blocks.sum(vector) for blocks, vector in zip(self.partition.modes, weights)]
        shares = [
            vector / blocks.expand(np.where(mass > 0, mass, 1.0))
            for blocks, vector, mass in zip(self.partition.modes, weights, sums)
        ]
        return BlockTucker._of(weigh(core, dict(enumerate(sums))), self.partition, shares, self.observed.x.axes)

    def expected(self, model: BlockTucker) -> Sums:
        """Return the sums that are expected under a model, in one pass over the exposure."""
        found = self._read(Transformed(self.observed.part, TimesModel(model)))
        if not self.observed.is_complement:
            return found
        whole, pairs = (model.core, *self._marginals(model)), zip(found.parts, self.exposure.parts)
        core, *marginals = (
            np.where(seen > 0, np.maximum(every - hidden, 0), 0.0) for every, (hidden, seen) in zip(whole, pairs)
        )
        return Sums(core, tuple(marginals))

    def _marginals(self, model: BlockTucker) -> Iterator[Vector]:
        """Yield the marginals of a model with weights that sum to 1 in every block."""
        for mode, (blocks, weights) in enumerate(zip(self.partition.modes, model.weights)):
            masses = model.core.sum(axis=tuple(k for k in range(model.core.ndim) if k != mode))
            yield blocks.expand(masses) * weights

    def look(self, model: BlockTucker) -> Cycle:
        """Return a model with the sums that are expected under it."""
        expected = self.expected(model)
        self.cycles += 1
        gaps = [float(np.abs(a - b).sum()) for a, b in zip(expected.parts, self.sums.parts)]
        return Cycle(model, expected, self.sums, max(gaps) / self.total)

    def run_from(self, model: BlockTucker) -> BlockTucker:
        """Return the best model, from another one."""
        best, path, cycle, shrinks = self.look(model), Path(), self._at_once, 1.0
        lately = [math.inf] * WINDOW
        while best.gap > TOLERANCE and self.cycles < CYCLES and self._gains(lately, best):
            plain = cycle(best)
            if shrinks < FAST and shrinks * best.gap < TOLERANCE:
                return plain
            found = self.look(plain if shrinks < FAST else self._accelerated(path, best, plain))
            shrinks = found.gap / best.gap
            if shrinks >= FAST and not self._is_better(found, best) and len(path.steps) > 1:
                found = self.look(plain)
            if shrinks < FAST:
                best = found
            elif self._is_better(found, best):
                best, lately = found, [*lately[1:], best.divergence]
            elif cycle == self._at_once:
                path, cycle = Path(), self._in_turn
            else:
                break  # nothing is left to gain but rounding errors
        return best.model

    def _gains(self, lately: Sequence[float], best: Cycle) -> bool:
        """Say whether the last cycles have lowered the divergence."""
        return lately[0] == math.inf or lately[0] - best.divergence > GAIN * self.total

    def _is_better(self, found: Cycle, best: Cycle) -> bool:
        """Say whether a model is as good as another, up to rounding errors."""
        return found.divergence <= best.divergence + ROUNDING * self.total

    def _accelerated(self, path: Path, cycle: Cycle, plain: BlockTucker) -> BlockTucker:
        """Go on along the way of the last cycles, given where this one ends."""
        now, masses = _logs(cycle.model), np.concatenate([part.ravel() for part in cycle.expected.parts])
        steps = path.further(now, _logs(plain), np.sqrt(masses / self.total)) - now
        then, parts, first = np.exp(now + np.clip(steps, -LONGEST, LONGEST)), [], 0
        for part in plain.parts:
            parts.append(np.where(part > 0, then[first : first + part.size].reshape(part.shape), 0.0))
            first += part.size
        return self._scaled(parts[0], parts[1:])

    def _at_once(self, cycle: Cycle) -> BlockTucker:
        """Multiply the core and the weights at once; the weights by what their blocks do not lack already."""
        model, expected, weights = cycle.model, cycle.expected, []
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, model.weights)):
            others = tuple(k for k in range(len(model.weights)) if k != mode)
            lack = _ratio(self.sums.core.sum(axis=others), expected.core.sum(axis=others))
            ratio = _ratio(self.sums.marginals[mode], expected.marginals[mode])
            weights.append(vector * ratio / blocks.expand(np.where(lack > 0, lack, 1.0)))
        return self._scaled(model.core * _ratio(self.sums.core, expected.core), weights)

    def _in_turn(self, cycle: Cycle) -> BlockTucker:
        """Multiply the core, and then the weights of each mode, each by what the sums lack then."""
        model = self._model(cycle.model.core * _ratio(self.sums.core, cycle.expected.core), cycle.model.weights)
        for mode, marginal in enumerate(self.sums.marginals):
            now = self.expected(model).marginals[mode]
            weights = list(model.weights)
            weights[mode] = weights[mode] * _ratio(marginal, now)
            model = self._scaled(model.core, weights)
        return model

    def with_unseen(self, model: BlockTucker, rank1: BlockTucker) -> BlockTucker:
        """Return a model with what another one says of the blocks and indices without known cells."""
        core, weights, factors = model.core, [], {}
        for mode, (blocks, own, other, exposure) in enumerate(
            zip(self.partition.modes, model.weights, rank1.weights, self.exposure.marginals)
        ):
            seen = np.where(exposure > 0, other, 0.0)
            share = _ratio(blocks.sum(seen), blocks.sum(other))  # of each block, what is seen
            known = kernels.shares(np.where(exposure > 0, own, 0.0), blocks)
            weights.append(np.where(exposure > 0, known * share[blocks.labels], kernels.shares(other, blocks)))
            inside = blocks.sum(np.where(exposure > 0, own, 0.0))
            factors[mode] = np.where(share > 0, quotient(inside, share), 1.0)
        core = weigh(core, factors)
        masses = reduce(np.multiply.outer, [blocks.sum(w) for blocks, w in zip(self.partition.modes, rank1.weights)])
        core = np.where(self.exposure.core > 0, core, rank1.core.item() * masses)
        return self._scaled(core, weights)


class Path:
    """Where the last cycles went, and where they lead (Anderson acceleration)."""

    def __init__(self) -> None:
        self.ends: list[Vector] = []
        self.steps: list[Vector] = []

    def further(self, start: Vector, end: Vector, weights: Vector) -> Vector:
        """Return where to go from here, given where a cycle starts and ends."""
        self.ends, self.steps = [*self.ends[-MEMORY:], end], [*self.steps[-MEMORY:], end - start]
        if len(self.steps) == 1:
            return end
        changes = np.stack([(step - self.steps[-1]) * weights for step in self.steps[:-1]], axis=1)
        shares = np.linalg.lstsq(changes, -self.steps[-1] * weights, rcond=1e-12)[0]
        return np.asarray(end + sum(share * (other - end) for share, other in zip(shares, self.ends)))


def _logs(model: BlockTucker) -> Vector:
    parts = np.concatenate([part.ravel() for part in model.parts])
    return np.log(np.where(parts > 0, parts, 1.0))


def _ratio(wanted: Vector, now: Vector) -> Vector:
    """Divide sums by those that are expected; 1 where nothing is expected."""
    return np.divide(wanted, now, where=now > 0, out=np.ones_like(now))


def _times_log(sums: Vector, values: Vector) -> float:
    """Sum masses times the logarithms of what the model has there: -inf where it has nothing."""
    seen = sums > 0
    with np.errstate(divide="ignore"):
        return float((sums[seen] * np.log(values[seen])).sum())
