"""Free groups of indices: each index in the block with the distribution that fits its row best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, get_backend
from tucket.base.blocks import Blocks
from tucket.kernels.measures import v_log_v
from tucket.projection.strategies.strategy import BlockStrategy
from tucket.projection.unfolding import Unfolding, add_rows, count_entries, is_sparse, to_host

LONG_LOGS = 1_000_000_000
"""Logarithms from which all indices are moved only once."""

ROUNDS = 5
"""Maximum number of times that all indices of a mode are moved before the next mode."""

FORBIDDEN, FORBIDDEN_FLOAT32 = -1e300, -1e30
"""Stands for log 0: below all logarithms, but finite, so that 0 times it is 0; in float64 and in float32."""

CHUNK_SCORES = 1 << 22
"""Scores of indices against blocks that are held at a time."""


@dataclass(frozen=True)
class Clusters(BlockStrategy):
    """Free groups of indices, moved first all at once and then one by one.

    Attributes
    ----------
    one_by_one_logs : int
        Logarithms up to which indices are moved one by one.
    """

    searches: ClassVar[bool] = True
    contiguous: ClassVar[bool] = False

    one_by_one_logs: int = 20_000_000

    def improve(self, unfolding: Unfolding, blocks: Blocks, workers: int) -> Blocks:  # noqa: ARG002
        """Move every index to the block that fits it best, and again, until none moves."""
        logs, labels = count_entries(unfolding) * blocks.rank, blocks.labels
        for _ in range(ROUNDS if logs < LONG_LOGS else 1):
            moved = _move_all(unfolding, labels, blocks.rank)
            if np.array_equal(moved, labels):
                break
            labels = moved
        if logs <= self.one_by_one_logs and not is_sparse(unfolding):
            labels = _move_one_by_one(to_host(unfolding), labels)
        return Blocks.from_labels(labels)


def _move_one_by_one(unfolding: NDArray[Any], labels: NDArray[np.intp]) -> NDArray[np.intp]:
    """Move each index in turn, where another block gains more than its own loses: moving all at once may miss it."""
    from tucket.kernels.cpu import scores

    labels = labels.copy()
    rows = np.ascontiguousarray(unfolding)
    scores.move_one_by_one(rows, labels, add_rows(rows, Blocks.from_labels(labels)), np.bincount(labels))
    return labels


def _move_all(unfolding: Unfolding, labels: NDArray[np.intp], rank: int) -> NDArray[np.intp]:
    """Move every index at once to the block with the distribution that fits its row best.

    A block that is left empty takes the index that fits its own block worst.
    """
    core = add_rows(unfolding, Blocks.from_labels(labels))
    xp = get_backend(core).xp
    mass = xp.sum(core, axis=1, keepdims=True)
    # a row with mass in a column cannot move to a block without mass there
    never = FORBIDDEN if core.dtype == xp.float64 else FORBIDDEN_FLOAT32
    logs = xp.where(core > 0, _log(xp, core) - _log(xp, mass), never)
    moved, fits = np.empty_like(labels), np.empty(len(labels))
    step = max(1, CHUNK_SCORES // rank)
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
    """Return the block that fits each row best, and how well it and the row's own block do, as NumPy arrays."""
    fit, backend = unfolding @ logs.T, get_backend(logs)
    if backend is NUMPY:
        each, best = np.arange(len(fit)), fit.argmax(axis=1)
        return best, fit[each, best], fit[each, labels]
    xp = backend.xp
    best = xp.argmax(fit, axis=1)
    own = xp.take_along_axis(fit, backend.from_numpy(labels)[:, None], axis=1)[:, 0]
    found = backend.to_numpy(xp.stack([xp.astype(best, fit.dtype), xp.max(fit, axis=1), own]))
    return found[0].astype(np.intp), found[1], found[2]


def _refill(unfolding: Unfolding, labels: NDArray[np.intp], fits: NDArray[np.float64], rank: int) -> NDArray[np.intp]:
    """Give each empty block the index that fits its own block worst, among indices not alone in their blocks."""
    members = np.bincount(labels, minlength=rank)
    if members.all():
        return labels
    rows = to_host(unfolding)
    if is_sparse(rows):
        terms = rows.copy()
        terms.data = v_log_v(rows.data)
    else:
        terms = v_log_v(rows)
    own = terms.sum(axis=1) - v_log_v(rows.sum(axis=1))  # what a block of its own would score
    worst = iter(np.argsort(fits - own, kind="stable"))
    for empty in np.flatnonzero(members == 0):
        index = next(i for i in worst if members[labels[i]] > 1)
        members[labels[index]] -= 1
        labels[index], members[empty] = empty, 1
    return labels
