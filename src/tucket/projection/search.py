r"""The search for blocks that keep the most information: a descent over all modes.

The divergence of a tensor P from its projection is the total correlation that the blocks lose, times the total S,
:math:`S \cdot (TC(P) - TC(G))`. With the blocks of all other modes fixed, the blocks of one mode are best where

.. math:: \sum_b \Big( \sum_c \phi(G[b, c]) - \phi(g[b]) \Big), \qquad \phi(v) = v \log v

is largest, with the block sums G of the mode's unfolding F (one row per index, one column for every block of the
others) and their row sums g. For contiguous blocks that is a sum over intervals, and dynamic programming finds the
best. For free blocks, each index moves to the block with the distribution that best fits its row, which never loses
information.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.kernels import kernels_for
from tucket.kernels.algebra import unfold
from tucket.models.statistics import Statistics
from tucket.projection.strategies import BlockStrategy, Segments
from tucket.projection.unfolding import Unfolding, add_rows, information_kept, to_host
from tucket.sources.dense import Array
from tucket.sources.reductions import Unfoldings, block_sums
from tucket.sources.source import Source

MAX_SWEEPS = 50
"""Sweeps of each descent, at most, by default."""

FINER, CHEAP_LOGS = (4, 2), 4_000_000
"""How many times more blocks other descents start with, and maximum logarithms of one of their sweeps."""

LONG_LOGS = 1_000_000_000
"""Logarithms of a sweep from which `TOLERANCE` applies to contiguous blocks too."""

TOLERANCE = 1e-3
"""Minimum relative gain: the search ends when a sweep of free blocks, or a long sweep, gains less information."""

DENSE_CELLS = 1 << 25
"""Cells up to which the unfolding of a sparse tensor is held dense."""


@dataclass
class Search:
    """A search for better blocks of one tensor.

    Attributes
    ----------
    source : Source
        The tensor.
    run : Run
        How to run; its callback gets a `Step` after each sweep, with the divergence then.
    max_sweeps : int
        Sweeps of each descent at most.
    whole : Statistics, optional
        Statistics of the tensor with its moments, for the divergence; by default they are taken in the first pass, if
        the run has a callback.
    """

    source: Source
    run: Run
    max_sweeps: int = MAX_SWEEPS
    whole: Statistics | None = None  # of the tensor: for the divergence that the callback gets
    sweeps: int = field(default=0, init=False)
    descents: int = field(default=0, init=False)

    def best(self, start: Partition, strategies: Sequence[BlockStrategy]) -> Partition:
        """Return better blocks for the modes with a strategy that searches; the others stay as they are.

        They are the best of several descents: one with contiguous blocks, one from there with the strategies
        themselves, and, where a sweep is cheap, some from more blocks that are joined: a descent with just enough
        blocks may split what belongs together and has no block left to part what does not.
        """
        contiguous = [Segments() if each.searches else each for each in strategies]
        free = any(each.searches and not each.contiguous for each in strategies)
        # only a start for free blocks: two sweeps of contiguous ones are enough
        best, kept = self.descend(start, contiguous, min(2, self.max_sweeps) if free else self.max_sweeps)
        if free:
            best, kept = self.descend(best, strategies, self.max_sweeps)
        for finer in self._finer(start, strategies):
            more, _ = self.descend(finer, strategies, self.max_sweeps, is_final=False)
            for order in (1, -1):  # which mode is joined first makes a difference
                joined = self._join(more, range(len(start))[::order], start.rank[::order], strategies)
                other, reached = self.descend(joined, strategies, self.max_sweeps)
                best, kept = (other, reached) if reached > kept else (best, kept)
        return best

    def _finer(self, start: Partition, strategies: Sequence[BlockStrategy]) -> Iterator[Partition]:
        """Yield more blocks of the modes that are searched for, as far as sweeps over them are cheap."""
        work, before = 0, start
        for times in FINER if self.source.in_memory else ():
            finer = start
            for mode, (blocks, strategy) in enumerate(zip(start.modes, strategies)):
                if strategy.searches and blocks.rank > 1:
                    finer = finer._replace(mode, Blocks.uniform(blocks.size, min(blocks.size, times * blocks.rank)))
            more = _work(finer, strategies)
            if finer != before and work + more <= CHEAP_LOGS:
                yield finer
                work += more
            before = finer

    def _join(
        self, partition: Partition, modes: Sequence[int], rank: Sequence[int], strategies: Sequence[BlockStrategy]
    ) -> Partition:
        """Join blocks of some modes, one after another, until they have their rank.

        Each time these are the two blocks of a mode that lose least information.
        """
        from tucket.kernels.cpu import scores

        for mode, wanted in zip(modes, rank):
            if wanted < partition[mode].rank:
                (rows,) = self.unfoldings(partition, [mode])
                core = np.ascontiguousarray(to_host(add_rows(rows, partition[mode])), np.float64)
                firsts = scores.join_pairs(core, wanted, strategies[mode].contiguous)
                groups = np.unique(firsts, return_inverse=True)[1]
                partition = partition._replace(mode, Blocks.from_labels(groups[partition[mode].labels]))
        return partition

    def descend(
        self, partition: Partition, strategies: Sequence[BlockStrategy], sweeps: int, is_final: bool = True
    ) -> tuple[Partition, float]:
        """Improve the blocks, sweep after sweep, until nothing is gained; return them, and the information they keep.

        In memory, where a pass is cheap, the modes take turns, with one pass each. Data outside memory are read once
        per sweep, and all modes change at once. If this keeps less information than the best change of a single mode,
        only that mode changes. So the information never decreases. The callback hears of final blocks only, not of
        those that will be joined.
        """
        modes = [
            mode
            for mode, (strategy, blocks) in enumerate(zip(strategies, partition.modes))
            if strategy.searches and 1 < blocks.rank < blocks.size
        ]
        turns = [[mode] for mode in modes] if self.source.in_memory else [modes]
        exact = all(each.contiguous for each in strategies) and _work(partition, strategies) < LONG_LOGS
        tolerance = 1e-12 if exact else TOLERANCE
        state = _State(partition, set(modes))
        for _ in range(sweeps):
            if not state.stale or not self.run.allows():
                break
            gains = sum(self._turn(state, strategies, turn) for turn in turns if not state.stale.isdisjoint(turn))
            self.sweeps += is_final
            if is_final and self.run.callback is not None and self.whole is not None:
                lost = max(0.0, self.whole.total_correlation() - state.kept)
                self.run.report(self.sweeps, self.whole.total * lost, self.descents)
            if gains <= tolerance * abs(state.kept):
                break
        self.descents += is_final
        return state.best, state.kept

    def _turn(self, state: _State, strategies: Sequence[BlockStrategy], turn: Sequence[int]) -> float:
        """Improve the blocks of some modes in one pass; return the information that was gained."""
        partition = state.partition
        unfolded = self.unfoldings(partition, turn)
        is_known = partition is state.best and state.kept > -math.inf
        now = state.kept if is_known else information_kept(unfolded[0], partition, turn[0], partition[turn[0]])
        if partition is not state.best and now < state.kept:
            state.partition = state.best
            return math.inf
        together, state.best, state.kept, gains = partition, partition, now, 0.0
        for mode, rows in zip(turn, unfolded):
            better = strategies[mode].improve(rows, partition[mode], self.run.workers)
            then = information_kept(rows, partition, mode, better)
            if strategies[mode].contiguous:
                state.stale.discard(mode)  # the best contiguous blocks stay so until those of another mode change
            if then > now:
                state.stale |= {k for k, each in enumerate(state.searched) if each and k != mode}
                together, gains = together._replace(mode, better), gains + then - now
            if then > state.kept:
                state.best, state.kept = partition._replace(mode, better), then
        state.partition = state.best if together == state.best else together
        return gains

    def unfoldings(self, partition: Partition, modes: Sequence[int]) -> list[Unfolding]:
        """Sum the tensor over the blocks of all modes but one, for each of these modes, in one pass.

        The sums are divided by the total, so that no scale of the data is too large or too small.
        """
        cells = {mode: partition[mode].size * math.prod(partition.rank) // partition[mode].rank for mode in modes}
        long = tuple(mode for mode in modes if self.source.sparse and cells[mode] > DENSE_CELLS)
        sparse: list[Any] = self.source.reduce(Unfoldings(partition, long), self.run) if long else []
        found = dict(zip(long, sparse))
        short = [mode for mode in modes if mode not in found]
        cuts = [partition._replace(mode, Blocks.uniform(*[partition[mode].size] * 2)) for mode in short]
        for mode, core in zip(short, self._cores(cuts)):
            found[mode] = unfold(core, mode)
        for rows in found.values():
            rows /= rows.sum() or 1.0
        return [found[mode] for mode in modes]

    def _cores(self, cuts: Sequence[Partition]) -> list[Any]:
        """Return the block sums under several partitions; those of a tensor on a GPU stay there."""
        asks = self.run.callback is not None and self.whole is None
        if not (cuts or asks):
            return []
        if isinstance(self.source, Array) and not asks and self.run.progress is None and self.source.n_chunks == 1:
            core_on_device = kernels_for(self.source.array).core
            cores = [core_on_device(self.source.array, cut) for cut in cuts] if core_on_device else [None]
            if all(core is not None for core in cores):
                return cores
        read = cuts or [Partition.uniform(self.source.shape, 1)]
        sums = block_sums(self.source, read, self.run, 1.0 if asks else None, needs_marginals=asks)
        if asks:
            found = sums[0]
            self.whole = Statistics(read[0], found.core, found.marginals, found.moments, found.kernel)
        return [each.core for each in sums[: len(cuts)]]


@dataclass
class _State:
    """State of a descent: present blocks, best blocks and the information they keep, and modes that may gain."""

    partition: Partition
    stale: set[int]
    best: Partition = field(init=False)
    kept: float = field(default=-math.inf, init=False)
    searched: list[bool] = field(init=False)

    def __post_init__(self) -> None:
        self.best = self.partition
        self.searched = [mode in self.stale for mode in range(len(self.partition))]


def _work(partition: Partition, strategies: Sequence[BlockStrategy]) -> int:
    """Estimate the logarithms of a sweep."""
    core = math.prod(partition.rank)
    return sum(
        core * blocks.size**2 // (2 * blocks.rank) if strategy.contiguous else core * blocks.size
        for blocks, strategy in zip(partition.modes, strategies)
        if strategy.searches
    )
