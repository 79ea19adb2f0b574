"""The pass over the entries of a sparse tensor: pieces of them to a loop, compiled if there are many."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.partition import Partition
from tucket.base.threads import in_order
from tucket.kernels import numpy as plain
from tucket.kernels.sums import Moments, Sums

__all__ = ["entry_sums"]

PIECE = 1 << 14
"""Entries that are converted and added at a time: few enough for the second-level cache."""

MANY = 1 << 14
"""Entries from which compiled loops pay for loading their compiler."""

Add = Callable[..., None]


def entry_sums(
    coords: Sequence[NDArray[Any]], values: NDArray[Any], partition: Partition, workers: int, unit: float | None
) -> Sums:
    """Give each worker a share of the entries and sums of its own, and add these."""
    shape, rank = partition.shape, partition.rank
    # all modes in one array, one after another: first[k] + i is index i of mode k
    first = np.cumsum([0, *shape[:-1]]).astype(np.uint64)
    strides = np.cumprod([1, *rank[:0:-1]])[::-1]
    kind = np.int32 if math.prod(rank) < 2**31 else np.int64
    steps = np.concatenate([blocks.labels * stride for blocks, stride in zip(partition.modes, strides)]).astype(kind)
    if len(values) < MANY:
        add, kernel = _add, "numpy"
    else:
        from tucket.kernels.cpu import entries

        add, kernel = entries.add, "numba"

    def sum_share(share: int) -> tuple[NDArray[np.float64], NDArray[np.float64], bool, Moments]:
        marginals, core = np.zeros(sum(shape)), np.zeros(math.prod(rank))
        places, block = np.empty(PIECE, np.int64), np.empty((len(shape), PIECE), np.int64)
        negative, moments = False, Moments(0.0, 0.0)
        edges = np.linspace(0, len(values), workers + 1).astype(np.intp)
        for low in range(edges[share], edges[share + 1], PIECE):
            piece = slice(low, min(low + PIECE, edges[share + 1]))
            weights = values[piece].astype(np.float64, copy=False)
            for mode, indices in enumerate(coords):
                block[mode, : len(weights)] = indices[piece]
            negative |= bool((weights < 0).any())
            add(block, weights, first, steps, marginals, core, places)
            if unit is not None:
                moments = moments.plus(plain.moments(weights, unit))
        return marginals, core, negative, moments

    with np.errstate(all="ignore"):  # NaN and overflow show in the total, where they are explained
        shares = list(in_order(sum_share, range(workers), workers))
        marginals, core = sum(share[0] for share in shares), sum(share[1] for share in shares)
    negative = any(share[2] for share in shares)
    moments = Moments(*map(sum, zip(*(share[3] for share in shares))))
    parts = np.split(np.asarray(marginals), np.cumsum(shape)[:-1])
    return Sums(
        np.asarray(core).reshape(rank),
        tuple(part.copy() for part in parts),
        negative,
        None if unit is None else moments,
        kernel,
    )


def _add(
    coords: NDArray[np.int64],
    values: NDArray[np.float64],
    first: NDArray[np.uint64],
    steps: NDArray[Any],
    marginals: NDArray[np.float64],
    core: NDArray[np.float64],
    places: NDArray[np.int64],
) -> None:
    """Add entries by NumPy's own scatter: slower, but there is nothing to warm up."""
    places = places[: len(values)]
    places[:] = 0
    for mode, offset in enumerate(first):
        at = coords[mode, : len(values)] + int(offset)
        np.add.at(marginals, at, values)
        places += steps[at]
    np.add.at(core, places, values)
