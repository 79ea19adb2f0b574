r"""Coarse to fine: a tensor through ever finer blocks, each view a small tensor at a known distance to the whole.

Let every mode have a measure: for least squares the number of indices, for the divergence their mass. A model that
spreads what it puts on a block over the block's indices in proportion to the measure is given by its block sums H,
and its distance from the tensor P, with block sums G, is exactly

.. math:: D(P; Q) = D(P; \hat{P}) + D(G; H)

with :math:`\hat{P}` the tensor's own block sums, spread in the same way: for the divergence the projection of LTR
(Pythagoras), for least squares the block averages, where sums count by the inverse number of their indices. So a
decomposition of G is one of P, and a start for the next finer level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import home_of
from tucket.base.partition import Partition, single_indices
from tucket.decomposition.data.device import AnyData, data_of
from tucket.decomposition.losses.ls import LeastSquares
from tucket.kernels.algebra import Matrix, Parts, quotient
from tucket.models.collect import collect
from tucket.models.metrics import total_correlation
from tucket.models.model import Model
from tucket.models.statistics import Statistics
from tucket.projection.search import Limits, descend, reassign, tensor_correlation, unfoldings
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array

__all__ = ["FULL", "SKETCH", "Level", "Pyramid", "make_pyramid", "to_unit"]

COARSEST, FAR_COARSEST = 1 << 19, 1 << 22
"""Cells up to which a level is not seen through a coarser one first, on the host and on a device."""

KEPT = 0.5
"""Share of the information that a coarser level must keep to be of use."""

FAINT = 1e-60
"""Share of the whole mass below which a block is weighed as if it had that much."""

FULL, SKETCH = 1 << 27, 1 << 22
"""Entries up to which a tensor is decomposed to its single indices unless told otherwise, and the cells else."""

SEARCH = 1 << 34
"""Products up to which the blocks of a mode are searched for; more indices than that stay with their neighbours."""


@dataclass(frozen=True)
class Level:
    """A tensor under some partition: its block sums, and the measure of the blocks of each mode.

    The measures are on the host, as masses, and where the data are. `offset` is the distance of the whole tensor from
    its own blocks, spread out: a divergence, or a squared one. `kept` is the total correlation of the block sums, and
    `by_mass` says which of the measures it is.
    """

    partition: Partition
    data: AnyData
    masses: tuple[NDArray[np.float64], ...]
    offset: float
    kept: float
    by_mass: bool

    @property
    def offset_of_squares(self) -> float:
        """The offset as a squared distance in the metric: of a divergence near enough, to second order."""
        if not self.by_mass:
            return self.offset
        return 2 * self.offset / float(self.masses[0].sum()) ** (len(self.masses) - 1)

    @cached_property
    def squares(self) -> LeastSquares:
        """The squared distance of models from the block sums, in the metric."""
        return LeastSquares(self.data, self.metric)

    @cached_property
    def measures(self) -> list[Matrix]:
        """The measure of the blocks of each mode."""
        return self.data.take_all(self.masses)

    @cached_property
    def metric(self) -> list[Matrix]:
        """Weights of the blocks of each mode by which a difference of sums counts: none without measure."""
        return self.data.take_all([np.divide(1, r, where=r > 0, out=np.zeros_like(r)) for r in self._roots()])

    @cached_property
    def roots(self) -> list[Matrix]:
        """What undoes the metric."""
        return self.data.take_all(self._roots())

    def _roots(self) -> list[NDArray[np.float64]]:
        # so much less than the rest counts as a little more, lest the squares of its weight overflow
        return [np.sqrt(np.where(m > 0, np.maximum(m, FAINT * m.sum()), 0.0)) for m in self.masses]

    def prolong(self, factors: Sequence[Matrix], fine: Level) -> list[Matrix]:
        """Spread the rows of the factors over the blocks of a finer level."""
        if fine is self:
            return list(factors)
        modes = fine.partition.quotient(self.partition).modes
        return [
            self.data.expand(blocks, quotient(factor, coarse[:, None])) * measure[:, None]
            for factor, coarse, blocks, measure in zip(factors, self.measures, modes, fine.measures)
        ]

    def restrict(self, model: Model) -> Parts:
        """Return the block sums of a model of the whole tensor, as a model."""
        take, factors = self.data.take, zip(self.partition.modes, model.dense_factors())
        core = take(model.core * np.float64(self.data.scale))
        return core, [take(blocks.sum(factor)) for blocks, factor in factors]


class Pyramid:
    """A tensor and its levels, from the coarsest, measured by mass or by number of indices.

    The statistics are those of some partition, and the levels' are no finer, but for that of single indices, the
    tensor itself. `total` is in the unit of the data.
    """

    def __init__(
        self, tensor: Any, statistics: Statistics, partitions: Sequence[Partition], by_mass: bool, workers: int
    ) -> None:
        home, mean = home_of(tensor), statistics.total / math.prod(tensor.shape)
        self.scale = unit_scale(mean) if home is None or home.has_float64() else to_unit(mean)
        self.data = data_of(tensor, self.scale, workers)
        self.statistics, self.by_mass, self.total = statistics, by_mass, statistics.total * self.scale
        self.information = tensor_correlation(statistics)
        self.whole = self._level(single_indices(self.data.shape))
        levels = [
            self.whole if partition == self.whole.partition else self._level(partition) for partition in partitions
        ]
        self.levels = [level for level in levels[:-1] if level.kept >= KEPT * self.information] + levels[-1:]

    def _level(self, partition: Partition) -> Level:
        if self.by_mass:
            marginals = self.statistics.marginals
            masses = tuple(blocks.sum(m) * self.scale for blocks, m in zip(partition.modes, marginals))
        else:
            masses = tuple(sizes.astype(np.float64) for sizes in partition.block_sizes)
        if all(blocks.is_whole for blocks in partition.modes):
            return Level(partition, self.data, masses, 0.0, self.information, self.by_mass)
        core = self.statistics.coarsen(partition).core
        level = Level(partition, self.data.about(core), masses, 0.0, total_correlation(core), self.by_mass)
        lost = self.total * (self.information - level.kept) if self.by_mass else self._square_sum() - level.squares.norm
        return replace(level, offset=max(0.0, lost))

    def _square_sum(self) -> float:
        if self.scale == 1.0 and self.statistics.moments:
            return self.statistics.moments.v_squared
        return self.data.square_sum([self.data.take(np.ones(size)) for size in self.data.shape])


def make_pyramid(
    tensor: Any,
    rank: Sequence[int],
    finest: Partition | int | None,
    coarse: bool,
    by_mass: bool,
    workers: int,
) -> Pyramid:
    """Look at a tensor for its levels, down to the finest, with coarser ones or without.

    The finest has these blocks, or at most so many cells, or else a cell for every entry.
    """
    shape = tuple(tensor.shape)
    whole = single_indices(shape)
    if isinstance(finest, int) and finest < math.prod(shape):
        statistics = sketch(tensor, rank, finest, workers)
        return Pyramid(tensor, statistics, [statistics.partition], by_mass, workers)
    last = finest if isinstance(finest, Partition) else whole
    most = COARSEST if isinstance(tensor, np.ndarray) else FAR_COARSEST
    partitions = list(coarser_and_coarser(last, rank, most)) if coarse else [last]
    seen = next((partition for partition in partitions if partition != whole), Partition.uniform(shape, 1))
    statistics = collect(tensor, seen, moments=True, workers=workers)
    return Pyramid(tensor, statistics, partitions[::-1], by_mass, workers)


def unit_scale(mean: float) -> float:
    """Return 1, or the power of two that brings entries to the size of 1, if their powers might leave float64."""
    return 1.0 if 1e-10 < mean < 1e10 else to_unit(mean)


def to_unit(mean: float) -> float:
    """Return the power of two, within float64, that brings entries of some mean to the size of 1."""
    return 2.0 ** min(1000, -round(math.log2(mean))) if mean else 1.0


def halve(size: int, rank: int) -> int:
    """Return half of a number of blocks, rounded up, but no less than the rank."""
    return min(size, max(rank, -(-size // 2)))


def coarser_and_coarser(partition: Partition, rank: Sequence[int], most: int) -> Iterator[Partition]:
    """Yield a partition and ever coarser ones, until one has at most so many cells.

    Neighbouring blocks of every mode are joined in pairs, but to no less than its rank.
    """
    while True:
        yield partition
        sizes = tuple(map(halve, partition.rank, rank))
        if math.prod(partition.rank) <= most or sizes == partition.rank:
            return
        partition = partition.compose(Partition.uniform(partition.rank, sizes))


def sketch_sizes(shape: Sequence[int], rank: Sequence[int], most: int) -> list[int]:
    """Halve the modes, all at once as long as that is not too much, then one by one, to at most so many cells."""
    sizes = list(shape)
    while math.prod(smaller := list(map(halve, sizes, rank))) >= most and smaller != sizes:
        sizes = smaller
    while math.prod(sizes) > most and sizes != list(rank):
        mode = max(range(len(sizes)), key=lambda k: sizes[k] / rank[k])
        sizes[mode] = halve(sizes[mode], rank[mode])
    return sizes


def sketch(tensor: Any, rank: Sequence[int], most: int, workers: int) -> Statistics:
    """Return the statistics of a large tensor under about so many cells that keep much of its information.

    Four looks. One at blocks of neighbours, which tells of few blocks of every mode that are of some use; two at
    each mode whole against the few blocks of the others, which tell which of its indices are alike; and one at the
    blocks of those.
    """
    shape = tuple(tensor.shape)
    uniform = Partition.uniform(shape, sketch_sizes(shape, rank, most))
    plain = collect(tensor, uniform, moments=True, workers=workers)
    start = Partition.uniform(uniform.rank, rank)
    few = uniform.compose(descend(Array(plain.core), start, [reassign] * len(shape), Limits(sweeps=2), workers)[0])
    fine, modes = uniform, [mode for mode, size in enumerate(shape) if uniform[mode].rank < size]
    for is_second in (False, True):
        seen = few
        for mode, rows in zip(modes, unfoldings(as_source(tensor), seen, modes, workers)):
            few = few.replace(mode, reassign(rows, few[mode], workers))
            if is_second and math.prod(rows.shape) * uniform[mode].rank <= SEARCH:
                fine = fine.replace(mode, reassign(rows, uniform[mode], workers))
    found = collect(tensor, fine, workers=workers)
    if total_correlation(found.core) < total_correlation(plain.core):
        return plain
    return replace(found, moments=plain.moments)
