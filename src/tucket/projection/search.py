r"""Blocks that keep the most information.

The divergence of a tensor P from its projection is what the blocks hide of its total correlation,
:math:`S \cdot (TC(P) - TC(G))`. With the blocks of all other modes fixed, the blocks of one mode are best where

.. math:: \sum_b \Big( \sum_c \phi(G[b, c]) - \phi(g[b]) \Big), \qquad \phi(v) = v \log v

is largest, with the block sums G of the mode's unfolding F (one row an index, one column for every block of the
others) and their row sums g. For contiguous blocks that is a sum over intervals, and dynamic programming finds the
best; for free blocks each index moves to the block whose distribution fits its row best, which never loses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends.home import home_of, namespace_of
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.base.threads import check_workers, in_order
from tucket.kernels import foreign, pure
from tucket.kernels.algebra import reshape, unfold
from tucket.models.metrics import total_correlation
from tucket.models.statistics import Statistics
from tucket.sources.foreign import Foreign
from tucket.sources.reductions import Unfoldings, block_sums
from tucket.sources.source import Report, Source

__all__ = [
    "Limits",
    "Step",
    "clusters",
    "count_entries",
    "descend",
    "reassign",
    "search",
    "segments",
    "tensor_correlation",
    "unfoldings",
    "v_log_v",
]

EXACT = 10_000_000
"""Logarithms up to which all intervals of a mode are scored exactly."""

SHARE = 1_000_000
"""Logarithms from which another thread pays for starting it."""

SINGLE = 20_000_000
"""Logarithms up to which indices are moved one by one."""

SKETCH = 512
"""Longest mode whose intervals are all looked at; a longer one is looked at through so many uniform blocks."""

RESTARTS, CHEAP = 8, 500_000
"""Random starts at most, and the logarithms that one sweep of all of them may cost."""

LONG = 1_000_000_000
"""Logarithms of a sweep from which it is taken with less care."""

TOLERANCE = 1e-3
"""A sweep of free blocks, or a long one, that gains less than this share of the information kept is the last."""

FORBIDDEN, FORBIDDEN_SINGLE = -1e300, -1e30
"""A logarithm below all others, which times no mass is still none, in float64 and in float32."""

CHUNK = 1 << 22
"""Scores of indices against blocks that are held at a time."""

DENSE = 1 << 25
"""Cells of an unfolding of a sparse tensor up to which it is held dense."""

Unfolding = Any
"""An array of one row an index and one column for every block of the other modes, also of another library's; or a
sparse matrix of SciPy's."""


def segments(unfolding: Unfolding, blocks: Blocks, workers: int = 1) -> Blocks:
    """Return as many contiguous blocks of one mode, of largest score with those of the other modes fixed.

    Exactly so for modes of moderate size. For others by the chi-square approximation of the score, of a sketch
    if need be, and then by moving every start at full resolution; never worse than what is given.
    """
    from tucket.kernels.cpu import scores

    size, rank = unfolding.shape[0], blocks.rank
    if _is_sparse(unfolding):  # seen through as many uniform blocks as can be held dense
        grid = Blocks.uniform(size, min(size, max(rank, DENSE // unfolding.shape[1])))
        start = Blocks.uniform(grid.rank, rank)
        return grid.compose(segments(add_rows(unfolding, grid), start, workers))
    if unfolding.dtype != namespace_of(unfolding).float64:  # which differences of running sums are in need of
        unfolding = _here(unfolding).astype(np.float64)
    prefix = _running_sums(unfolding)
    rows = _here(prefix)
    if rank > SKETCH:  # too many blocks to look at all intervals
        start = blocks if blocks.contiguous else Blocks.uniform(size, rank)
        return Blocks.from_starts(size, scores.polish(rows, start.starts.copy(), 2 * size // rank))
    cells = min(size, SKETCH)
    grid = np.arange(cells + 1) * size // cells
    exact = cells**2 * rows.shape[1] // 2 <= EXACT
    intervals = _exact(rows[grid], workers) if exact else _chi_square(prefix, grid)
    starts = grid[scores.best_chain(intervals, rank)]
    if cells < size or not exact:
        starts = scores.polish(rows, starts, 2 * (size // cells + 1))
    return Blocks.from_starts(size, starts)


def _running_sums(rows: Any) -> Any:
    """Return the sums of the rows before each, and of all."""
    if not isinstance(rows, np.ndarray):
        return namespace_of(rows).cumulative_sum(rows, axis=0, include_initial=True)
    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])  # in less than half of the time of numpy.cumulative_sum
    return sums


def _exact(prefix: NDArray[np.float64], workers: int) -> NDArray[np.float64]:
    """Score every interval."""
    from tucket.kernels.cpu import scores

    workers = min(workers, 1 + len(prefix) * prefix.size // 2 // SHARE)
    table = np.zeros((len(prefix),) * 2)
    for _ in in_order(lambda first: scores.score_intervals(prefix, table, first, workers), range(workers), workers):
        pass
    return table


def _chi_square(prefix: Any, grid: NDArray[np.intp]) -> NDArray[np.float64]:
    r"""Score every interval from one place of a grid to another by :math:`\sum_c G[c]^2 / (g\, n[c])`.

    With the column totals n, that is what the exact score is to second order. It follows for all intervals at once from
    the inner products of the running sums, which are taken where these are.
    """
    home, xp, sums, totals = home_of(prefix), namespace_of(prefix), prefix, prefix[-1, :]
    if len(grid) < prefix.shape[0]:
        sums = xp.take(prefix, grid if home is None else home.take(grid), axis=0)
    scaled, mass = sums / xp.sqrt(xp.where(totals > 0, totals, 1.0)), xp.sum(sums, axis=1)
    products, masses = scaled @ scaled.T, mass - mass[:, None]
    corner = xp.linalg.diagonal(products)
    scores: NDArray[np.float64] = _here(
        (corner + corner[:, None] - 2 * products) / xp.where(masses > 0, masses, math.inf)
    )
    return scores


def clusters(unfolding: Unfolding, blocks: Blocks, workers: int = 1) -> Blocks:
    """Move indices of one mode, first all at once and then one by one, to the blocks that fit them best.

    Never worse than what is given.
    """
    found = reassign(unfolding, blocks, workers)
    if count_entries(unfolding) * blocks.rank > SINGLE:
        return found
    return found if _is_sparse(unfolding) else Blocks.from_labels(_move_one_by_one(_here(unfolding), found.labels))


def reassign(unfolding: Unfolding, blocks: Blocks, workers: int = 1) -> Blocks:  # noqa: ARG001
    """Move every index of one mode to the block that fits it best, and again, until none moves.

    Never worse than what is given. A block that is left empty takes the index that fits its own block worst.
    """
    labels = blocks.labels
    for _ in range(5 if count_entries(unfolding) * blocks.rank < LONG else 1):
        moved = _reassign(unfolding, labels, blocks.rank)
        if np.array_equal(moved, labels):
            break
        labels = moved
    return Blocks.from_labels(labels)


def _move_one_by_one(unfolding: Unfolding, labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Move each index in turn where its block's gain exceeds its own one's loss, which all at once may not see."""
    from tucket.kernels.cpu import scores

    labels = labels.copy()
    rows = np.ascontiguousarray(unfolding)
    scores.move_one_by_one(rows, labels, add_rows(rows, Blocks.from_labels(labels)), np.bincount(labels))
    return labels


def _reassign(unfolding: Unfolding, labels: NDArray[np.intp], rank: int) -> NDArray[np.intp]:
    """Move every index at once to the block whose distribution fits its row best."""
    core = add_rows(unfolding, Blocks.from_labels(labels))
    xp = namespace_of(core)
    mass = xp.sum(core, axis=1, keepdims=True)
    # a block without mass there is no choice for a row that has some
    never = FORBIDDEN if core.dtype == xp.float64 else FORBIDDEN_SINGLE
    logs = xp.where(core > 0, _log(xp, core) - _log(xp, mass), never)
    moved, fits = np.empty_like(labels), np.empty(len(labels))
    step = max(1, CHUNK // rank)
    for first in range(0, len(labels), step):
        rows = slice(first, min(first + step, len(labels)))
        best, top, own = _fits(unfolding[rows, :], logs, labels[rows])
        moves = top - own > 1e-12 * np.abs(own)
        moved[rows] = np.where(moves, best, labels[rows])
        fits[rows] = np.where(moves, top, own)
    return _refill(unfolding, moved, fits, rank)


def _log(xp: Any, values: Any) -> Any:
    return xp.log(xp.where(values > 0, values, 1.0))


def _fits(unfolding: Unfolding, logs: Any, labels: NDArray[np.intp]) -> tuple[NDArray[Any], ...]:
    """Return the block that fits each row best, and how well it and the row's own one do; these come to the host."""
    fit, home = unfolding @ logs.T, home_of(logs)
    if home is None:
        each, best = np.arange(len(fit)), fit.argmax(axis=1)
        return best, fit[each, best], fit[each, labels]
    xp = home.xp
    best = xp.argmax(fit, axis=1)
    own = xp.take_along_axis(fit, home.take(labels.copy())[:, None], axis=1)[:, 0]
    found = foreign.bring(xp.stack([xp.astype(best, fit.dtype), xp.max(fit, axis=1), own]))
    return found[0].astype(np.intp), found[1], found[2]


def _is_sparse(unfolding: Unfolding) -> bool:
    return not isinstance(unfolding, np.ndarray) and home_of(unfolding) is None


def _here(unfolding: Unfolding) -> Unfolding:
    """Return an unfolding on the host."""
    return unfolding if home_of(unfolding) is None else foreign.bring(unfolding)


def count_entries(unfolding: Unfolding) -> int:
    """Count the entries, of a sparse one those that are not zero."""
    return int(unfolding.size) if home_of(unfolding) is None else math.prod(unfolding.shape)


def _refill(unfolding: Unfolding, labels: NDArray[np.intp], fits: NDArray[np.float64], rank: int) -> NDArray[np.intp]:
    """Give each empty block the index that its own block describes worst, of those not alone in theirs."""
    members = np.bincount(labels, minlength=rank)
    if members.all():
        return labels
    unfolding = _here(unfolding)
    mass = unfolding.sum(axis=1)
    terms = v_log_v(unfolding) if isinstance(unfolding, np.ndarray) else unfolding._with_data(v_log_v(unfolding.data))
    own = terms.sum(axis=1) - v_log_v(mass)  # what a block of its own would score
    worst = iter(np.argsort(fits - own, kind="stable"))
    for empty in np.flatnonzero(members == 0):
        index = next(i for i in worst if members[labels[i]] > 1)
        members[labels[index]] -= 1
        labels[index], members[empty] = empty, 1
    return labels


def add_rows(rows: Unfolding, blocks: Blocks) -> Any:
    """Sum the rows of an unfolding over blocks."""
    if isinstance(rows, np.ndarray):
        whole = Blocks.uniform(*[rows.shape[1]] * 2)
        return kernels.block_sums(rows, Partition((blocks, whole))).core
    if (home := home_of(rows)) is not None:
        return pure.sum_mode(home, rows, blocks, 0)
    from scipy.sparse import csr_array

    ones = np.ones(blocks.size)
    indicator = csr_array((ones, blocks.labels, np.arange(blocks.size + 1)), shape=(blocks.size, blocks.rank))
    sums: NDArray[np.float64] = (indicator.T @ rows).toarray()
    return sums


def kept_by(rows: Unfolding, partition: Partition, mode: int, blocks: Blocks) -> float:
    """Return the information that a partition keeps with other blocks in one mode, given its unfolding."""
    others = [rank for k, rank in enumerate(partition.rank) if k != mode]
    core = add_rows(rows, blocks)
    return total_correlation(reshape(core, (blocks.rank, *others)))


def tensor_correlation(statistics: Statistics) -> float:
    """Return the total correlation of the tensor, or, without its moments, of its block sums."""
    if statistics.moments is None or statistics.total == 0:
        return total_correlation(statistics.core)
    total = statistics.total
    marginals = sum(v_log_v(marginal / total).sum() for marginal in statistics.marginals)
    return float(statistics.moments.v_log_v / total - math.log(total) - marginals)


def v_log_v(values: Any) -> Any:
    """Return v log v of each value, 0 for 0."""
    values = np.asarray(values, np.float64)
    return values * np.log(values, where=values > 0, out=np.zeros_like(values))


Step = Callable[[Unfolding, Blocks, int], Blocks]


class Limits(NamedTuple):
    """When to stop, and whom to tell: `callback(sweep, total correlation kept)` after every sweep."""

    sweeps: int = 50
    deadline: float = math.inf
    callback: Callable[[int, float], object] | None = None

    def allow(self, sweep: int) -> bool:
        """Say whether one more sweep may begin."""
        return sweep < self.sweeps and time.monotonic() < self.deadline


def search(
    source: Source,
    start: Partition,
    steps: Sequence[Step | None],
    rng: np.random.Generator,
    limits: Limits,
    workers: int | None,
    progress: Report | None = None,
) -> Partition:
    """Return better blocks for the modes that have a step; the others stay as they are.

    The best of several descents: from the start by contiguous blocks, on from there by the steps themselves,
    and, where a sweep is cheap, from random starts.
    """
    contiguous = [step and segments for step in steps]
    free = contiguous != list(steps)
    # only a start for free blocks: two sweeps of contiguous ones are enough
    first = limits._replace(sweeps=min(2, limits.sweeps)) if free else limits
    best, kept = descend(source, start, contiguous, first, workers, progress)
    if free:
        best, kept = descend(source, best, steps, limits, workers, progress)
    restarts = min(RESTARTS, CHEAP // max(1, _work(start, steps))) if source.in_memory else 0
    for _ in range(restarts):
        drawn = start
        for mode, step in enumerate(steps):
            if step:
                drawn = drawn.replace(mode, Blocks.random(drawn[mode].size, drawn[mode].rank, rng))
        other, more = descend(source, drawn, steps, limits, workers, progress)
        if more > kept:
            best, kept = other, more
    return best


def _work(partition: Partition, steps: Sequence[Step | None]) -> int:
    """Estimate the logarithms of a sweep."""
    core = math.prod(partition.rank)
    return sum(
        core * blocks.size**2 // (2 * blocks.rank) if step is segments else core * blocks.size
        for blocks, step in zip(partition.modes, steps)
        if step
    )


def descend(
    source: Source,
    partition: Partition,
    steps: Sequence[Step | None],
    limits: Limits,
    workers: int | None,
    progress: Report | None = None,
) -> tuple[Partition, float]:
    """Improve the blocks, sweep after sweep, until nothing is gained; return them, and the information they keep.

    In memory, where a pass costs little, the modes take their turns, a pass each. What lies elsewhere is read once
    a sweep, and all modes move at once. Together they may keep less than the best of them moved alone, whose gain
    is known; then it alone moves. So nothing is ever lost.
    """
    modes = [mode for mode, step in enumerate(steps) if step and 1 < partition[mode].rank < partition[mode].size]
    turns = [[mode] for mode in modes] if source.in_memory else [modes]
    exact = all(step in (None, segments) for step in steps) and _work(partition, steps) < LONG
    tolerance = 1e-12 if exact else TOLERANCE
    best, kept, sweep, threads = partition, -math.inf, 0, check_workers(workers)
    stale = set(modes)  # contiguous blocks that are the best stay so until those of another mode change
    while stale and limits.allow(sweep):
        sweep, gains = sweep + 1, 0.0
        for turn in turns:
            if stale.isdisjoint(turn):
                continue
            unfolded = unfoldings(source, partition, turn, workers, progress)
            known = partition is best and kept > -math.inf
            now = kept if known else kept_by(unfolded[0], partition, turn[0], partition[turn[0]])
            if partition is not best and now < kept:
                partition, gains = best, math.inf
                continue
            together, best, kept = partition, partition, now
            for mode, rows in zip(turn, unfolded):
                step, blocks = steps[mode], partition[mode]
                assert step is not None
                better = step(rows, blocks, threads)
                then = kept_by(rows, partition, mode, better)
                stale -= {mode} if step is segments else set()
                if then > now:
                    stale |= set(modes) - {mode}
                    together, gains = together.replace(mode, better), gains + then - now
                if then > kept:
                    best, kept = partition.replace(mode, better), then
            partition = best if together == best else together
        if limits.callback:
            limits.callback(sweep, kept)
        if gains <= tolerance * abs(kept):
            break
    return best, kept


def unfoldings(
    source: Source,
    partition: Partition,
    modes: Sequence[int],
    workers: int | None,
    progress: Report | None = None,
) -> list[Unfolding]:
    """Sum the tensor over the blocks of all modes but one, for each of these, in one pass.

    The sums are shares of the whole: then no scale is too large or too small.
    """
    cells = {mode: partition[mode].size * math.prod(partition.rank) // partition[mode].rank for mode in modes}
    long = tuple(mode for mode in modes if source.sparse and cells[mode] > DENSE)
    sparse: list[Any] = source.reduce(Unfoldings(partition, long), progress) if long else []
    found = dict(zip(long, sparse))
    short = [mode for mode in modes if mode not in found]
    cuts = [partition.replace(mode, Blocks.uniform(*[partition[mode].size] * 2)) for mode in short]
    for mode, core in zip(short, _cores(source, cuts, workers, progress)):
        found[mode] = unfold(core, mode)
    for rows in found.values():
        rows /= rows.sum() or 1.0
    return [found[mode] for mode in modes]


def _cores(source: Source, cuts: Sequence[Partition], workers: int | None, progress: Report | None) -> list[Any]:
    """Return the block sums under several partitions: those of a tensor on a GPU stay there."""
    if progress is None and isinstance(source, Foreign) and source.n_chunks == 1:
        cores = [foreign.core_there(source.array, cut) for cut in cuts]
        if all(core is not None for core in cores):
            return cores
    return [sums.core for sums in block_sums(source, cuts, workers, progress=progress)] if cuts else []
