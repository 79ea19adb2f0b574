"""Passes over the entries of a sparse tensor: piece by piece, and compiled if there are many."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import runs
from tucket.base.partition import Partition
from tucket.base.run import ordered_map
from tucket.kernels import measures
from tucket.kernels.measures import Moments, Sums

PIECE_ENTRIES = 1 << 14
"""Entries that are converted and added at a time; they fit the second-level cache."""

THREAD_ENTRIES, VALUE_ENTRIES = 1 << 18, 1 << 17
"""Entries per additional thread, of those that are summed, and of those at which a model is computed."""

COMPILED_ENTRIES = 1 << 14
"""Entries from which a compiled loop is faster, including the import of Numba."""


def entry_sums(
    coords: Sequence[NDArray[Any]],
    values: NDArray[Any],
    partition: Partition,
    unit: float | None = None,
    workers: int = 1,
    needs_marginals: bool = True,
) -> Sums:
    """Read entries once, for block sums and marginals, and with a unit for moments, as `block_sums` does.

    For moments, no index may occur twice. Marginals that are not needed stay 0. Each worker reads a share.
    """
    shape, rank = partition.shape, partition.rank
    # each thread has its own sums, which must be added in the end
    workers = min(workers, 1 + len(values) // max(THREAD_ENTRIES, math.prod(rank) + sum(shape)))
    offsets, steps = _places(partition)
    if len(values) < COMPILED_ENTRIES:
        add, kernel = _add_entries, "numpy"
    else:
        from tucket.kernels.cpu import loops

        add, kernel = loops.add_entries, "numba"

    def sum_share(share: int) -> tuple[NDArray[np.float64], NDArray[np.float64], bool, Moments]:
        marginals, core = np.zeros(sum(shape)), np.zeros(math.prod(rank))
        cells, piece_coords = np.empty(PIECE_ENTRIES, np.int64), np.empty((len(shape), PIECE_ENTRIES), np.int64)
        negative, moments = False, Moments(0.0, 0.0)
        edges = np.linspace(0, len(values), workers + 1).astype(np.intp)
        for low in range(edges[share], edges[share + 1], PIECE_ENTRIES):
            piece = slice(low, min(low + PIECE_ENTRIES, edges[share + 1]))
            weights = values[piece].astype(np.float64, copy=False)
            for mode, indices in enumerate(coords):
                piece_coords[mode, : len(weights)] = indices[piece]
            negative |= bool((weights < 0).any())
            add(piece_coords, weights, offsets, steps, marginals if needs_marginals else None, core, cells)
            if unit is not None:
                moments = moments.plus(measures.moments(weights, unit))
        return marginals, core, negative, moments

    with np.errstate(all="ignore"):  # the caller checks the total for NaN and overflow
        marginals, cores, negative, moments = zip(*ordered_map(sum_share, range(workers), workers))
        parts = np.split(reduce(np.add, marginals), np.cumsum(shape)[:-1])
        core = reduce(np.add, cores).reshape(rank)
    total = None if unit is None else Moments(*map(sum, zip(*moments)))
    return Sums(core, tuple(part.copy() for part in parts), any(negative), total, kernel)


def block_model_at(
    coords: Sequence[NDArray[Any]],
    partition: Partition,
    core: NDArray[Any],
    weights: Sequence[NDArray[Any]],
    workers: int = 1,
) -> NDArray[np.float64]:
    """Return the values of a block model at some entries, `coords[k]` in mode k; each worker computes a share."""
    out, workers = np.empty(len(coords[0])), min(workers, 1 + len(coords[0]) // VALUE_ENTRIES)
    if len(out) < COMPILED_ENTRIES:
        out[:] = core[tuple(blocks.labels[indices] for blocks, indices in zip(partition.modes, coords))]
        for vector, indices in zip(weights, coords):
            out *= vector[indices]
        return out
    from tucket.kernels.cpu import loops

    offsets, steps = _places(partition)
    joined, flat = np.concatenate(weights, dtype=np.float64), core.ravel().astype(np.float64, copy=False)

    def fill(share: slice) -> None:
        cells, piece_coords = np.empty(PIECE_ENTRIES, np.int64), np.empty((len(coords), PIECE_ENTRIES), np.int64)
        for piece in runs(share.stop - share.start, PIECE_ENTRIES):
            some = slice(share.start + piece.start, share.start + piece.stop)
            for mode, indices in enumerate(coords):
                piece_coords[mode, : some.stop - some.start] = indices[some]
            loops.block_model_values(piece_coords, offsets, steps, joined, flat, cells, out[some])

    list(ordered_map(fill, runs(len(out), -(-len(out) // workers)), workers))
    return out


def find_unknown(values: NDArray[Any], most: int) -> NDArray[np.intp] | None:
    """Return the places, in C order, of False, or of numbers that are not finite; None if more than `most`."""
    flat = values.reshape(-1)
    if flat.dtype.kind not in "bf":
        return np.empty(0, np.intp)
    if flat.size < COMPILED_ENTRIES or not flat.dtype.isnative or flat.dtype.itemsize not in (1, 4, 8):
        places = np.flatnonzero(~(flat if flat.dtype == np.bool else np.isfinite(flat)))
        return None if len(places) > most else places
    from tucket.kernels.cpu import loops

    found, count = np.empty(most + 1, np.intp), 0
    if flat.dtype == np.bool:
        count = loops.find_false(flat[: flat.size // 8 * 8].view(np.uint64), flat, most, found)
    else:
        count = loops.find_not_finite(flat, most, found)
    return None if count > most else found[:count].copy()


def _places(partition: Partition) -> tuple[NDArray[np.uint64], NDArray[Any]]:
    """Return where arrays of all modes in sequence hold each mode, and each index's step in the flat core.

    Index i of mode k is at offsets[k] + i.
    """
    offsets = np.cumsum([0, *partition.shape[:-1]]).astype(np.uint64)
    strides = np.cumprod([1, *partition.rank[:0:-1]])[::-1]
    kind = np.int32 if math.prod(partition.rank) < 2**31 else np.int64
    return offsets, np.concatenate([blocks.labels * stride for blocks, stride in zip(partition.modes, strides)]).astype(
        kind
    )


def _add_entries(
    coords: NDArray[np.int64],
    values: NDArray[np.float64],
    offsets: NDArray[np.uint64],
    steps: NDArray[Any],
    marginals: NDArray[np.float64] | None,
    core: NDArray[np.float64],
    cells: NDArray[np.int64],
) -> None:
    """Do the same as `loops.add_entries` in plain NumPy, which needs no import."""
    cells = cells[: len(values)]
    cells[:] = 0
    for mode, offset in enumerate(offsets):
        at = coords[mode, : len(values)] + int(offset)
        if marginals is not None:
            np.add.at(marginals, at, values)
        cells += steps[at]
    np.add.at(core, cells, values)
