"""Runs of neighbours that keep the most information, by dynamic programming over intervals."""

from __future__ import annotations

import math
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, get_backend
from tucket.base.blocks import Blocks
from tucket.base.run import ordered_map
from tucket.projection.strategies.strategy import BlockStrategy
from tucket.projection.unfolding import Unfolding, add_rows, is_sparse, to_host

EXACT_LOGS = 10_000_000
"""Logarithms up to which all intervals of a mode are scored exactly."""

THREAD_LOGS = 1_000_000
"""Logarithms from which another thread is worth starting."""

SKETCH_INDICES = 512
"""Longest mode for which all intervals are scored; a longer one is first reduced to this many uniform blocks."""

DENSE_CELLS = 1 << 25
"""Maximum cells of the dense array that a sparse unfolding is reduced to."""


class Segments(BlockStrategy):
    """Contiguous blocks of largest score."""

    searches: ClassVar[bool] = True

    def improve(self, unfolding: Unfolding, blocks: Blocks, workers: int) -> Blocks:
        """Return the same number of contiguous blocks, with the largest score for fixed blocks of the other modes.

        For modes of moderate size they are exactly the best. For longer modes the score is first approximated by the
        chi-square statistic, on a sketch if necessary; then every block start is refined at full resolution.
        """
        from tucket.kernels.cpu import scores

        size, rank = unfolding.shape[0], blocks.rank
        if is_sparse(unfolding):  # reduce it to as many uniform blocks as fit in a dense array
            grid = Blocks.uniform(size, min(size, max(rank, DENSE_CELLS // unfolding.shape[1])))
            return grid._compose(self.improve(add_rows(unfolding, grid), Blocks.uniform(grid.rank, rank), workers))
        if unfolding.dtype != get_backend(unfolding).xp.float64:  # differences of running sums need all digits
            unfolding = to_host(unfolding).astype(np.float64)
        prefix = _running_sums(unfolding)
        rows = to_host(prefix)
        if rank > SKETCH_INDICES:  # too many blocks to score all intervals
            start = blocks if blocks.contiguous else Blocks.uniform(size, rank)
            return Blocks.from_starts(size, scores.polish(rows, start.starts.copy(), 2 * size // rank))
        cells = min(size, SKETCH_INDICES)
        grid_starts = np.arange(cells + 1) * size // cells
        exact = cells**2 * rows.shape[1] // 2 <= EXACT_LOGS
        intervals = _exact(rows[grid_starts], workers) if exact else _chi_square(prefix, grid_starts)
        starts = grid_starts[scores.best_chain(intervals, rank)]
        if cells < size or not exact:
            starts = scores.polish(rows, starts, 2 * (size // cells + 1))
        return Blocks.from_starts(size, starts)


def _running_sums(rows: Any) -> Any:
    """Return the cumulative sums of the rows, from 0 to the sum of all."""
    backend = get_backend(rows)
    if backend is not NUMPY:
        return backend.xp.cumulative_sum(rows, axis=0, include_initial=True)
    sums = np.zeros((len(rows) + 1, rows.shape[1]))
    np.cumsum(rows, axis=0, out=sums[1:])  # in less than half of the time of numpy.cumulative_sum
    return sums


def _exact(prefix: NDArray[np.float64], workers: int) -> NDArray[np.float64]:
    """Score every interval."""
    from tucket.kernels.cpu import scores

    workers = min(workers, 1 + len(prefix) * prefix.size // 2 // THREAD_LOGS)
    table = np.zeros((len(prefix),) * 2)
    for _ in ordered_map(lambda first: scores.score_intervals(prefix, table, first, workers), range(workers), workers):
        pass
    return table


def _chi_square(prefix: Any, grid: NDArray[np.intp]) -> NDArray[np.float64]:
    r"""Score every interval from one place of a grid to another by :math:`\sum_c G[c]^2 / (g\, n[c])`.

    With the column totals n, that is the exact score to second order. For all intervals at once it follows from the
    inner products of the running sums, which are taken where these are.
    """
    backend, sums, totals = get_backend(prefix), prefix, prefix[-1, :]
    xp = backend.xp
    if len(grid) < prefix.shape[0]:
        sums = xp.take(prefix, backend.from_numpy(grid), axis=0)
    scaled, mass = sums / xp.sqrt(xp.where(totals > 0, totals, 1.0)), xp.sum(sums, axis=1)
    products, masses = scaled @ scaled.T, mass - mass[:, None]
    corner = xp.linalg.diagonal(products)
    scores = (corner + corner[:, None] - 2 * products) / xp.where(masses > 0, masses, math.inf)
    return np.asarray(to_host(scores))
