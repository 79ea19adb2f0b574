r"""Levels, from coarse to fine: each is a small tensor of block sums, at a known distance from the whole tensor.

Every mode has a measure: the number of indices for least squares, their mass for the divergence. Let a model spread
the sum of each block over the indices of the block in proportion to the measure. It is determined by its block sums H.
Its distance from the tensor P, with block sums G, is exactly

.. math:: D(P; Q) = D(P; \hat{P}) + D(G; H)

Here :math:`\hat{P}` is the tensor's own block sums, spread in the same way. For the divergence it is the projection of
LTR, and the equation is the Pythagorean theorem. For least squares it holds the block averages, and D(G; H) divides
each squared difference by the size of the block. So a decomposition of G is one of P, and a start for the next level.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends import NUMPY
from tucket.base.partition import Partition, single_indices
from tucket.base.run import Run
from tucket.decomposition.data import Data, backend_of, data_of
from tucket.decomposition.losses import FREE, Fixed, Loss
from tucket.decomposition.losses.ls import LeastSquares
from tucket.kernels.algebra import Matrix, Parts, quotient
from tucket.kernels.measures import error_ratio, power_of_two
from tucket.models.model import Model
from tucket.models.statistics import Statistics, read
from tucket.projection.search import Search
from tucket.projection.strategies import Clusters
from tucket.projection.unfolding import information_in
from tucket.sources.dense import Array
from tucket.sources.source import Source
from tucket.sources.sparse import Sparse

COARSEST_CELLS, DEVICE_COARSEST_CELLS = 1 << 19, 1 << 22
"""Maximum number of cells of the coarsest level, on the host and on a device."""

SKETCH_CELLS = 1 << 22
"""Number of cells of the sketch on which the decomposition of a large tensor begins, or ends."""

MIN_KEPT_SHARE = 0.5
"""Share of the information that a coarser level must keep to be of use."""

MIN_MASS_SHARE = 1e-60
"""Share of the total mass; a non-empty block with less mass is weighted as if it had this share."""

SEARCH_PRODUCTS = 1 << 34
"""Maximum cost of a search for the blocks of one mode, in products; a costlier mode keeps blocks of neighbours."""


@dataclass(frozen=True)
class Level:
    """A tensor under some partition: its block sums, and the measure of the blocks of each mode.

    Attributes
    ----------
    masses, measures : sequences of arrays
        The measure of the blocks of each mode, as NumPy arrays and as arrays on the device of the data.
    offset : float
        The distance, in the loss, of the tensor from its own block sums, spread over their indices.
    kept : float
        The total correlation of the block sums.
    squares : LeastSquares
        The squared distance of models from the block sums, in the metric of the measure.
    """

    partition: Partition
    data: Data
    masses: tuple[NDArray[np.float64], ...]
    kept: float
    by_mass: bool
    fixed: Fixed
    offset: float = 0.0

    @property
    def offset_of_squares(self) -> float:
        """The offset as a squared distance in the metric; for a divergence, an approximation to second order."""
        if self.offset == 0 or not self.by_mass:
            return self.offset
        return 2 * self.offset / float(self.masses[0].sum()) ** (len(self.masses) - 1)

    def relative_error(self, distance: float) -> float:
        """Return the relative error of the whole tensor in the metric, given a squared distance from the block sums."""
        offset = self.offset_of_squares
        return error_ratio(distance + offset, self.squares.norm + offset)

    @cached_property
    def squares(self) -> LeastSquares:
        """The squared distance of models from the block sums, in the metric."""
        # very small masses are raised a little, since the squares of their weights would overflow
        roots = [np.sqrt(np.where(m > 0, np.maximum(m, MIN_MASS_SHARE * m.sum()), 0.0)) for m in self.masses]
        metric = [np.divide(1, r, where=r > 0, out=np.zeros_like(r)) for r in roots]
        return LeastSquares(self.data, self.data.place_all(metric), self.data.place_all(roots), self.fixed)

    @cached_property
    def measures(self) -> list[Matrix]:
        """The measure of the blocks of each mode."""
        return self.data.place_all(self.masses)

    def prolong(self, factors: Sequence[Matrix], fine: Level) -> list[Matrix]:
        """Spread the rows of the factors over the blocks of a finer level."""
        if fine is self:
            return list(factors)
        modes = fine.partition.quotient(self.partition).modes
        return [
            kernels.expand_blocks(quotient(factor, coarse[:, None]), blocks) * measure[:, None]
            for factor, coarse, blocks, measure in zip(factors, self.measures, modes, fine.measures)
        ]

    def restrict(self, model: Model) -> Parts:
        """Return the block sums of a model of the whole tensor, as a model."""
        factors = zip(self.partition.modes, model.dense_factors())
        core = self.data.place(model.core * np.float64(self.data.scale))
        return core, [self.data.place(blocks.sum(factor)) for blocks, factor in factors]


class Pyramid:
    """A tensor and its levels, coarsest first, in the measure of a loss.

    Each level is a coarsening of the statistics, except the level of single indices, which is the tensor itself. The
    total is in the unit of the data.
    """

    def __init__(
        self,
        source: Source,
        statistics: Statistics,
        partitions: Sequence[Partition],
        loss: Loss,
        run: Run,
        fixed: Fixed,
    ) -> None:
        mean = statistics.total / (len(source.entries.values) if isinstance(source, Sparse) else source.size)
        self.scale = unit_scale(mean) if backend_of(source).has_float64 else 1 / power_of_two(mean, 1000)
        self.data, self.statistics, self.loss = data_of(source, self.scale, run), statistics, loss
        self.fixed = fixed
        self.total, self.information = statistics.total * self.scale, statistics.total_correlation()
        self.whole = self._level(single_indices(self.data.shape))
        levels = [
            self.whole if partition == self.whole.partition else self._level(partition) for partition in partitions
        ]
        # passes over data that are not in memory cost so much that any coarser level is of use
        least = MIN_KEPT_SHARE * self.information if self.data.is_in_memory else 0.0
        self.levels = [level for level in levels[:-1] if level.kept >= least] + levels[-1:]

    def _level(self, partition: Partition) -> Level:
        if self.loss.by_mass:
            marginals = self.statistics.marginals
            masses = tuple(blocks.sum(m) * self.scale for blocks, m in zip(partition.modes, marginals))
        else:
            masses = tuple(sizes.astype(np.float64) for sizes in partition.block_sizes)
        if all(blocks.is_whole for blocks in partition.modes):
            return Level(partition, self.data, masses, self.information, self.loss.by_mass, self.fixed)
        core = self.statistics.coarsen(partition).core
        level = Level(
            partition, self.data.with_tensor(core), masses, information_in(core), self.loss.by_mass, self.fixed
        )
        return replace(level, offset=max(0.0, self.loss.offset(level, self)))

    def square_sum(self) -> float:
        """Return the sum of the squares of the tensor, in the unit of the data."""
        if self.scale == 1.0 and self.statistics.moments:
            return self.statistics.moments.v_squared
        return self.data.square_sum([self.data.place(np.ones(size)) for size in self.data.shape])


def make_pyramid(
    source: Source,
    rank: Sequence[int],
    finest: Partition | int | None,
    coarse: bool,
    loss: Loss,
    run: Run,
    fixed: Fixed = FREE,
) -> Pyramid:
    """Read a tensor and make its levels: only the finest one, or coarser ones too if `coarse` is set.

    The finest level has the blocks `finest`, or at most `finest` cells; with None it has one cell per entry.
    """
    shape, whole, has_levels = source.shape, single_indices(source.shape), coarse and loss.has_levels
    if isinstance(finest, int) and finest < source.size:
        statistics = sketch(source, rank, finest, run)
        return Pyramid(source, statistics, [statistics.partition], loss, run, fixed)
    if has_levels and finest is None and not source.in_memory and source.size > SKETCH_CELLS:
        statistics = sketch(source, rank, SKETCH_CELLS, run)
        return Pyramid(source, statistics, [statistics.partition, whole], loss, run, fixed)
    last = finest if isinstance(finest, Partition) else whole
    most = COARSEST_CELLS if backend_of(source) is NUMPY else DEVICE_COARSEST_CELLS
    partitions = list(coarsenings(last, rank, most)) if has_levels else [last]
    if source.sparse:  # the block sums of a level are a dense array, even if most blocks are empty
        partitions[1:] = [each for each in partitions[1:] if math.prod(each.rank) <= SKETCH_CELLS]
    seen = next((partition for partition in partitions if partition != whole), Partition.uniform(shape, 1))
    return Pyramid(source, read(source, seen, run, moments=True), partitions[::-1], loss, run, fixed)


def unit_scale(mean: float) -> float:
    """Return 1, or a power of two that scales the mean to about 1 if powers of entries could leave float64."""
    return 1.0 if 1e-10 < mean < 1e10 else 1 / power_of_two(mean, 1000)


def halve(size: int, rank: int) -> int:
    """Return half of a number of blocks, rounded up, but no less than the rank."""
    return min(size, max(rank, -(-size // 2)))


def coarsenings(partition: Partition, rank: Sequence[int], most: int) -> Iterator[Partition]:
    """Yield a partition and ever coarser ones, until one has at most `most` cells.

    Each step joins neighbouring blocks of every mode in pairs, but leaves at least as many blocks as its rank.
    """
    while True:
        yield partition
        sizes = tuple(map(halve, partition.rank, rank))
        if math.prod(partition.rank) <= most or sizes == partition.rank:
            return
        partition = partition.compose(Partition.uniform(partition.rank, sizes))


def sketch_sizes(shape: Sequence[int], rank: Sequence[int], most: int) -> list[int]:
    """Return numbers of blocks with at most `most` cells: halve all modes at once, then one mode at a time."""
    sizes = list(shape)
    while math.prod(smaller := list(map(halve, sizes, rank))) >= most and smaller != sizes:
        sizes = smaller
    while math.prod(sizes) > most and sizes != list(rank):
        mode = max(range(len(sizes)), key=lambda k: sizes[k] / rank[k])
        sizes[mode] = halve(sizes[mode], rank[mode])
    return sizes


def sketch(source: Source, rank: Sequence[int], most: int, run: Run) -> Statistics:
    """Return the statistics of a large tensor under at most `most` cells that keep much of its information.

    This takes four passes. The first sums blocks of neighbours, from which a few useful blocks per mode are found. The
    next two sum each mode, index by index, over these few blocks of the other modes, to find similar indices. The last
    one sums blocks of similar indices.
    """
    shape = source.shape
    uniform = Partition.uniform(shape, sketch_sizes(shape, rank, most))
    plain = read(source, uniform, run, moments=True)
    quick, start = [Clusters(one_by_one_logs=0)] * len(shape), Partition.uniform(uniform.rank, rank)
    few = uniform.compose(Search(Array(plain.core), Run(run.workers)).descend(start, quick, 2)[0])
    fine, modes = uniform, [mode for mode, size in enumerate(shape) if uniform[mode].rank < size]
    for is_second in (False, True):
        seen = few
        for mode, rows in zip(modes, Search(source, run).unfoldings(seen, modes)):
            few = few._replace(mode, quick[0].improve(rows, few[mode], run.workers))
            if is_second and math.prod(rows.shape) * uniform[mode].rank <= SEARCH_PRODUCTS:
                fine = fine._replace(mode, quick[0].improve(rows, uniform[mode], run.workers))
    found = read(source, fine, run)
    if information_in(found.core) < information_in(plain.core):
        return plain
    return replace(found, moments=plain.moments)
