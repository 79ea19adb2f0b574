"""Passes over checked arrays and entries. This file chooses the code that runs.

A backend names the module that reads its arrays: `numpy`, `array_api` or `cuda`. The compiled loops of `cpu` read large
NumPy arrays.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tucket.backends import get_backend
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.kernels import array_api
from tucket.kernels.measures import Sums
from tucket.kernels.sparse import block_model_at, entry_sums, find_unknown

__all__ = [
    "Kernels", "block_model_at", "block_sums", "entry_sums", "expand_blocks", "find_unknown", "is_large", "kernels_for",
    "residual", "shares", "sum_blocks", "write",
]  # fmt: skip

COMPILED_ENTRIES = 1 << 16
"""Entries of a dense tensor from which compiled loops are faster: the matrix products of NumPy would use threads then,
which wait for each other."""

THREAD_BYTES = 1 << 24
"""Bytes of a dense tensor per additional thread."""


def is_large(shape: tuple[int, ...]) -> bool:
    """Say whether compiled loops should read a NumPy array: it has many entries, in more than one mode."""
    entries = math.prod(shape)
    return entries >= COMPILED_ENTRIES and max(shape) < entries


@dataclass(frozen=True, slots=True)
class Kernels:
    """The passes over one kind of array; None where a pass does not exist."""

    block_sums: Callable[..., Sums]
    residual: Callable[..., tuple[float, float, bool]] | None = None
    write: Callable[..., None] | None = None
    project: Callable[..., tuple[Any, list[Any], Any]] | None = None
    core: Callable[..., Any] | None = None
    divergence: Callable[..., float | None] | None = None
    piece_entries: Callable[..., int] | None = None


@cache
def _offered(name: str) -> Kernels:
    """Return the passes for a kind of array, by the name in its backend."""
    if name == "numpy":
        from tucket.kernels import numpy

        return Kernels(numpy.block_sums)
    if name == "compiled":
        from tucket.kernels.cpu import model, sums

        return Kernels(sums.block_sums, model.residual, model.write)
    if name == "cuda":
        from tucket.kernels.gpu import passes as cuda

        return Kernels(
            cuda.block_sums, cuda.residual, cuda.write, cuda.project, cuda.core, cuda.divergence_of, cuda.piece_entries
        )
    return Kernels(array_api.block_sums, array_api.residual)


def kernels_for(tensor: Any) -> Kernels:
    """Return the passes for a tensor: the compiled loops for a large NumPy array."""
    name = get_backend(tensor).kernels
    return _offered("compiled" if name == "numpy" and is_large(tensor.shape) else name)


def _threads(workers: int, tensor: Any) -> int:
    return min(workers, 1 + int(getattr(tensor, "nbytes", 0)) // THREAD_BYTES)


def block_sums(tensor: Any, partition: Partition, unit: float | None = None, workers: int = 1) -> Sums:
    """Read the tensor once, for block sums and marginals.

    With a unit, a power of two, also for moments: the sums of v log(v / unit) and v**2 over all entries v.
    """
    return kernels_for(tensor).block_sums(tensor, partition, unit, _threads(workers, tensor))


def residual(
    tensor: Any, core: Any, partition: Partition, weights: Sequence[Any], scale: float = 1.0, workers: int = 1
) -> tuple[float, float, bool] | None:
    """Return the sums of squares of tensor - model and tensor, divided by a scale, and whether an entry is negative.

    Return None if there is no kernel, as for small NumPy arrays.
    """
    found = kernels_for(tensor).residual
    return found and found(tensor, core, partition, weights, scale, _threads(workers, tensor))


def write(out: Any, core: Any, partition: Partition, weights: Sequence[Any], workers: int = 1) -> bool:
    """Write the tensor of a block model to an array; return False if there is no kernel."""
    found = kernels_for(out).write
    if found is None:
        return False
    found(out, core, partition, weights, _threads(workers, out))
    return True


def sum_blocks(part: Any, blocks: Blocks, mode: int = 0) -> Any:
    """Sum an array over the blocks of a mode."""
    return blocks.sum(part, mode) if isinstance(part, np.ndarray) else array_api.sum_blocks(part, blocks, mode)


def expand_blocks(part: Any, blocks: Blocks, mode: int = 0) -> Any:
    """Repeat the entry of each block for every index of the block, along a mode."""
    return blocks.expand(part, mode) if isinstance(part, np.ndarray) else array_api.expand_blocks(part, blocks, mode)


def shares(vector: Any, blocks: Blocks) -> Any:
    """Return the share of each index in the mass of its block; 0 in a block without mass."""
    if not isinstance(vector, np.ndarray):
        return array_api.shares(vector, blocks)
    mass = blocks.expand(blocks.sum(vector))
    return np.divide(vector, mass, where=mass > 0, out=np.zeros_like(vector))
