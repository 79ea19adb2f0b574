"""Unfoldings: one row per index of a mode, one column per combination of the other modes' blocks.

An unfolding is an array of any backend, or a SciPy sparse matrix where a dense one would be too long.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends import NUMPY, get_backend
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.kernels.algebra import reshape
from tucket.kernels.measures import information

Unfolding = Any


def is_sparse(unfolding: Unfolding) -> bool:
    """Say whether an unfolding is a SciPy sparse matrix."""
    return hasattr(unfolding, "tocsr")


def to_host(unfolding: Unfolding) -> Unfolding:
    """Return an unfolding in the memory of the host."""
    backend = get_backend(unfolding)
    return unfolding if backend is NUMPY else backend.to_numpy(unfolding)


def count_entries(unfolding: Unfolding) -> int:
    """Count the entries; for a sparse unfolding, only the stored ones."""
    return int(unfolding.nnz) if is_sparse(unfolding) else math.prod(unfolding.shape)


def add_rows(rows: Unfolding, blocks: Blocks) -> Any:
    """Sum the rows of an unfolding over blocks."""
    if not is_sparse(rows):
        if get_backend(rows) is not NUMPY:
            return kernels.sum_blocks(rows, blocks)
        whole = Blocks.uniform(rows.shape[1], rows.shape[1])
        return kernels.block_sums(rows, Partition((blocks, whole))).core
    from scipy.sparse import csr_array

    ones = np.ones(blocks.size)
    indicator = csr_array((ones, blocks.labels, np.arange(blocks.size + 1)), shape=(blocks.size, blocks.rank))
    sums: NDArray[np.float64] = (indicator.T @ rows).toarray()
    return sums


def information_kept(rows: Unfolding, partition: Partition, mode: int, blocks: Blocks) -> float:
    """Return the information that a partition keeps with other blocks in one mode, given its unfolding."""
    others = [rank for k, rank in enumerate(partition.rank) if k != mode]
    return information_in(reshape(add_rows(rows, blocks), (blocks.rank, *others)))


def information_in(core: Any) -> float:
    """Return the total correlation of block sums, which need no check; 0 for zero sums."""
    with np.errstate(all="ignore"):
        found = float(information(core))
    return max(0.0, found) if math.isfinite(found) else 0.0
