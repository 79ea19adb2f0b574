"""The passes over arrays and entries: checked arrays in, small arrays out. Here it is chosen which code runs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.partition import Partition
from tucket.base.threads import check_workers
from tucket.kernels import numpy as plain
from tucket.kernels.sums import Moments, Sums

__all__ = [
    "LARGE",
    "Moments",
    "Sums",
    "block_sums",
    "check_workers",
    "entry_sums",
    "is_large",
    "read_once",
    "residual",
    "write",
]

LARGE = 1 << 18
"""Entries from which compiled loops pay for loading their compiler."""

ONCE = 1 << 24
"""Entries from which they do so in a process that reads a tensor but once."""

ENTRIES = 1 << 18
"""Entries of a sparse tensor from which another thread pays for starting it."""

SHARE = 1 << 24
"""Bytes of a tensor from which another thread pays for starting it."""


def read_once() -> None:
    """Say that this process will read a tensor but once, so that it takes a large one for loading a compiler to pay."""
    global LARGE
    LARGE = ONCE


def is_large(shape: tuple[int, ...]) -> bool:
    """Say whether a tensor is for the compiled loops: it has many entries, in more than one mode."""
    entries = math.prod(shape)
    return entries >= LARGE and max(shape) < entries


def block_sums(tensor: Any, partition: Partition, workers: int | None = None, unit: float | None = None) -> Sums:
    """Read the tensor once, for its block sums and the marginal of every mode.

    Given a unit, a power of two, also for its moments: v log(v / unit) summed over all entries v, and v**2.
    """
    if workers is not None:
        check_workers(workers)
    if not isinstance(tensor, np.ndarray):
        from tucket.kernels import foreign

        return foreign.block_sums(tensor, partition, unit)
    if not is_large(tensor.shape):
        return plain.block_sums(tensor, partition.modes, unit)
    from tucket.kernels.cpu import passes as compiled

    return compiled.block_sums(tensor, partition, _threads(workers, tensor), unit)


def entry_sums(
    coords: Sequence[NDArray[Any]],
    values: NDArray[Any],
    partition: Partition,
    workers: int | None = None,
    unit: float | None = None,
) -> Sums:
    """Read the entries of a sparse tensor once, for its block sums and the marginal of every mode, and its moments.

    For these no index may occur twice.
    """
    from tucket.kernels import sparse

    # each thread has sums of its own, which must be worth it
    share = max(ENTRIES, math.prod(partition.rank) + sum(partition.shape))
    return sparse.entry_sums(coords, values, partition, min(check_workers(workers), 1 + len(values) // share), unit)


def write(
    out: NDArray[Any],
    core: NDArray[Any],
    partition: Partition,
    weights: Sequence[NDArray[Any]],
    workers: int | None = None,
) -> None:
    """Write the tensor of a block model to a large array."""
    from tucket.kernels.cpu import passes as compiled

    compiled.write(out, core, partition, weights, _threads(workers, out))


def residual(
    tensor: NDArray[Any],
    core: NDArray[Any],
    partition: Partition,
    weights: Sequence[NDArray[Any]],
    workers: int | None = None,
) -> tuple[float, float, bool]:
    """Return the sums of squares of large tensor - model and tensor, and whether any entry is negative."""
    from tucket.kernels.cpu import passes as compiled

    return compiled.residual(tensor, core, partition, weights, _threads(workers, tensor))


def _threads(workers: int | None, tensor: NDArray[Any]) -> int:
    return min(check_workers(workers), 1 + tensor.nbytes // SHARE)
