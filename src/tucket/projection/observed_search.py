r"""The search for blocks of a tensor with gaps.

First the ordinary search, on what the unfoldings would be without gaps: each sum of what is observed counts by the
share of the rank-1 model that is exposed there. Then indices move by what is observed alone. With the sums
:math:`F_i[c]` of index i over the blocks c of the other modes, and their exposure :math:`A_i[c]`, weighed by the other
modes' weights, block b fits index i by

.. math:: \sum_c F_i[c] \log G[b, c] - |F_i| \log \sum_c A_i[c] G[b, c]

which takes two matrix products. No such move raises the divergence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.base.run import Run, single_threaded_blas
from tucket.kernels.algebra import quotient, unfold
from tucket.models.block_tucker import BlockTucker
from tucket.models.expected import TimesModel
from tucket.projection.plan import Plan
from tucket.projection.proportional import ROUNDING, project_observed
from tucket.projection.search import Search
from tucket.projection.unfolding import Unfolding
from tucket.sources.observed import Observed
from tucket.sources.reductions import block_sums
from tucket.sources.source import Source
from tucket.sources.sparse import Sparse, distinct_entries
from tucket.sources.transformed import Transformed

SWEEPS, ROUNDS = 20, 5
"""Sweeps over the modes in which indices move by what is observed, at most, and moves of a mode per sweep."""

TOLERANCE = 1e-4
"""Share of the total: a sweep that lowers the divergence by less is the last."""

FORBIDDEN = -1e300
"""A logarithm below all others that is still 0 when it is multiplied by no mass."""

Matrix = NDArray[np.float64]


def search_observed(observed: Observed, plan: Plan, run: Run, max_sweeps: int) -> Partition:
    """Return the best blocks found for a tensor with gaps."""
    if not plan.searches:
        return plan.start
    rank1 = project_observed(observed, Partition.uniform(observed.shape, 1), run)
    free = [mode for mode, each in enumerate(plan.strategies) if each.searches and not each.contiguous]
    with single_threaded_blas:
        found = ObservedSearch(observed, run, max_sweeps, rank1).best(plan.start, plan.strategies)
        return Moves(observed, found, list(rank1.weights), run).improve(free) if free else found


class ObservedSearch(Search):
    """A search on unfoldings that are scaled up to those of a tensor without gaps."""

    def __init__(self, observed: Observed, run: Run, max_sweeps: int, rank1: BlockTucker) -> None:
        super().__init__(observed.x, run, max_sweeps)
        self.observed, self.rank1 = observed, rank1
        self.weighed = weigh_exposure(observed, rank1.weights)
        if isinstance(observed.part, Sparse):  # multiplied once for all unfoldings
            coords, values, shape = distinct_entries(self.weighed)
            self.weighed = Sparse(coords, values, shape, distinct=True)

    def unfoldings(self, partition: Partition, modes: Sequence[int]) -> list[Unfolding]:
        """Return the sums of what is observed, each over the share of the rank-1 model that is exposed there."""
        found = []
        for mode in modes:
            rows, exposed = unfold_observed(self.observed, partition, mode, self.rank1.weights, self.weighed, self.run)
            columns = _columns(partition, mode, self.rank1.weights)
            mean = self.rank1.core.item() * self.rank1.weights[mode][:, None] * columns
            rows = np.where(exposed > 0, quotient(rows * columns, exposed), mean)
            found.append(rows / (rows.sum() or 1.0))
        return found


def weigh_exposure(observed: Observed, weights: Sequence[Matrix]) -> Source:
    """Return the exposure, or what it lacks to 1, times the weights of all modes."""
    product = BlockTucker._of(np.ones((1,) * len(weights)), Partition.uniform(observed.shape, 1), weights)
    return Transformed(observed.part, TimesModel(product))


def unfold_observed(
    observed: Observed, partition: Partition, mode: int, weights: Sequence[Matrix], weighed: Source, run: Run
) -> tuple[Matrix, Matrix]:
    """Return the unfolding of a tensor along a mode, and that of its exposure times the weights of the other modes.

    `weighed` is the exposure times the weights of all modes. An index of weight 0 counts as exposed everywhere.
    """
    cut = partition._replace(mode, Blocks.uniform(*[partition[mode].size] * 2))
    rows, exposed = (
        unfold(block_sums(source, [cut], run, needs_marginals=False)[0].core, mode) for source in (observed.x, weighed)
    )
    exposed = quotient(exposed, weights[mode][:, None])
    if observed.is_complement:
        whole = _columns(partition, mode, weights)
        exposed = whole - exposed
        exposed = np.where(exposed > ROUNDING * whole, exposed, 0.0)
    return rows, exposed


def _columns(partition: Partition, mode: int, weights: Sequence[Matrix]) -> Matrix:
    """Return what the weights of all modes but one put on each combination of their blocks."""
    sums = [blocks.sum(w) for k, (blocks, w) in enumerate(zip(partition.modes, weights)) if k != mode]
    return np.asarray(reduce(np.multiply.outer, sums, np.ones(()))).reshape(1, -1)


@dataclass
class Moves:
    """Moves indices from block to block by what is observed.

    Attributes
    ----------
    partition : Partition
        The blocks now.
    weights : list of arrays
        The weights of all indices, of each mode; not shares of their blocks.
    """

    observed: Observed
    partition: Partition
    weights: list[Matrix]
    run: Run

    def improve(self, modes: Sequence[int]) -> Partition:
        """Move the indices of some modes, sweep after sweep, until little is gained."""
        before = -math.inf
        for _ in range(SWEEPS):
            for mode in modes:
                score, total = self._move(mode)
            if score - before <= TOLERANCE * total or not self.run.allows():
                break
            before = score
        return self.partition

    def _move(self, mode: int) -> tuple[float, float]:
        """Move the indices of one mode; return the logarithm of the likelihood up to a constant, and the total."""
        weighed = weigh_exposure(self.observed, self.weights)
        rows, exposed = unfold_observed(self.observed, self.partition, mode, self.weights, weighed, self.run)
        labels, rank, mass = self.partition[mode].labels, self.partition[mode].rank, rows.sum(axis=1)
        core, each = _rates(rows, exposed * self.weights[mode][:, None], labels), np.arange(len(labels))
        for _ in range(ROUNDS):
            logs = np.where(core > 0, np.log(np.where(core > 0, core, 1.0)), FORBIDDEN)
            expected = exposed @ core.T
            fits = rows @ logs.T - mass[:, None] * np.log(np.where(expected > 0, expected, 1.0))
            best = fits.argmax(axis=1)
            moves = fits[each, best] - fits[each, labels] > 1e-12 * np.abs(fits[each, labels])
            moved = _fill_all(np.where(moves, best, labels), labels, rank)
            own = expected[each, moved]
            self.weights[mode] = np.where(own > 0, quotient(mass, own), self.weights[mode])
            core = _rates(rows, exposed * self.weights[mode][:, None], moved)
            if np.array_equal(moved, labels):
                break
            labels = moved
        self.partition = self.partition._replace(mode, Blocks.from_labels(labels))
        seen = rows > 0
        fitted = (core[labels] * self.weights[mode][:, None])[seen]
        return float(rows[seen] @ np.log(fitted)), float(mass.sum())


def _fill_all(moved: NDArray[np.intp], labels: NDArray[np.intp], rank: int) -> NDArray[np.intp]:
    """Let the indices of blocks that all would leave stay."""
    while not (members := np.bincount(moved, minlength=rank)).all():
        moved = np.where(np.isin(labels, np.flatnonzero(members == 0)), labels, moved)
    return moved


def _rates(rows: Matrix, expected: Matrix, labels: NDArray[np.intp]) -> Matrix:
    """Return the rate of each block in each column: what is observed there over what the weights expect."""
    blocks = Blocks.from_labels(labels)
    return np.asarray(quotient(blocks.sum(rows), blocks.sum(expected)))
