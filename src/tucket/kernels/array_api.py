"""Passes over arrays of any library that follows the array API standard, slab by slab."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import get_backend
from tucket.base.blocks import Blocks
from tucket.base.boxes import Box, slabs
from tucket.base.partition import Partition
from tucket.base.run import ordered_map
from tucket.kernels import measures
from tucket.kernels.measures import Moments, Sums

SLAB_ENTRIES = 1 << 24
"""Entries of a slab on a device, which are converted to float64."""


def block_sums(tensor: Any, partition: Partition, unit: float | None = None, workers: int = 1) -> Sums:  # noqa: ARG001
    """Read the tensor on its device, and copy block sums, marginals and moments to the host."""
    backend, core = get_backend(tensor), np.zeros(partition.rank)
    marginals = tuple(np.zeros(size) for size in partition.shape)
    negative, moments = False, Moments(0.0, 0.0)
    for box in slabs(partition.shape, SLAB_ENTRIES):
        part, (inside, blocks) = tensor[box], partition._within(box)
        with np.errstate(all="ignore"):  # where the library is NumPy underneath
            sums, by_mode = traced_sums(part, inside)
            core[blocks] += backend.to_numpy(sums)
            for marginal, rows, some in zip(marginals, box, by_mode):
                marginal[rows] += backend.to_numpy(some)
            negative = negative or has_negative(part)
            if unit is not None:
                moments = moments.plus(measures.moments(part, unit))
    low_precision = not backend.has_float64
    return Sums(core, marginals, negative, None if unit is None else moments, "array API", low_precision)


def traced_sums(x: Any, partition: Partition) -> tuple[Any, list[Any]]:
    """Return block sums and marginals as arrays of the library, which can be traced: no value is read."""
    backend = get_backend(x)
    core, marginals = backend.as_float(x), []
    for mode, blocks in enumerate(partition.modes):
        others = tuple(other for other in range(len(partition)) if other != mode)
        marginals.append(backend.xp.sum(core, axis=others) if others else core)
        core = sum_blocks(core, blocks, mode)
    return core * 1, marginals  # never return the given array


def sum_blocks(part: Any, blocks: Blocks, mode: int) -> Any:
    """Sum an array over the blocks of a mode."""
    if blocks.is_whole:
        return part
    backend, last = get_backend(part), part.ndim - 1
    permute = backend.xp.permute_dims  # torch.vmap does not support moveaxis
    moved = permute(part, (*(axis for axis in range(last + 1) if axis != mode), mode))
    total = backend.sum_groups(moved, blocks.labels, blocks.rank)
    return permute(total, (*range(mode), last, *range(mode, last)))


def expand_blocks(part: Any, blocks: Blocks, mode: int) -> Any:
    """Repeat the entry of each block for every index of the block, along a mode."""
    backend = get_backend(part)
    return part if blocks.is_whole else backend.xp.take(part, backend.from_numpy(blocks.labels), axis=mode)


def shares(vector: Any, blocks: Blocks) -> Any:
    """Return the share of each index in the mass of its block; 0 in a block without mass."""
    xp = get_backend(vector).xp
    mass = expand_blocks(sum_blocks(vector, blocks, 0), blocks, 0)
    return xp.where(mass > 0, vector, 0.0) / xp.where(mass > 0, mass, 1.0)


def expand(core: Any, labels: Sequence[NDArray[np.intp]], weights: Sequence[Any]) -> Any:
    """Return the tensor of a block model at some indices, given their labels and weights."""
    backend = get_backend(core)
    for mode, (some, vector) in enumerate(zip(labels, weights)):
        row = backend.xp.reshape(vector, (-1,) + (1,) * (len(labels) - mode - 1))
        core = backend.xp.take(core, backend.from_numpy(some), axis=mode) * row
    return core


def residual(
    tensor: Any, core: Any, partition: Partition, weights: Sequence[Any], scale: float = 1.0, workers: int = 1
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and tensor, divided by a scale, and whether an entry is negative."""
    backend = get_backend(tensor)
    middle, *vectors = (backend.as_float(backend.from_numpy(np.array(part))) for part in (core, *weights))

    def part_of(box: Box) -> Any:
        labels = [blocks._labels_at(rows) for blocks, rows in zip(partition.modes, box)]
        return expand(middle, labels, [vector[rows] for vector, rows in zip(vectors, box)])

    return misfit(tensor, part_of, scale, workers)


def misfit(
    tensor: Any, part_of: Callable[[Box], Any], scale: float = 1.0, workers: int = 1
) -> tuple[float, float, bool]:
    """Do the same as `residual` for any model, given a function that returns its part in a box."""

    def squares(part: Any, box: Box) -> tuple[float, ...]:
        return tuple(float(measures.square_sum(part, other, scale)) for other in (part_of(box), None))

    residuals, norms, negative = _sum_slabs(tensor, squares, workers)
    return residuals, norms, bool(negative)


def divergence(tensor: Any, part_of: Callable[[Box], Any], workers: int = 1) -> tuple[float, bool]:
    """Return the divergence from a model, given a function from a box to its part, and whether an entry is negative."""
    found, negative = _sum_slabs(tensor, lambda part, box: (float(measures.divergence(part, part_of(box))),), workers)
    return found, bool(negative)


def _sum_slabs(tensor: Any, work: Callable[[Any, Box], tuple[float, ...]], workers: int) -> list[float]:
    """Sum the results of all slabs, and count the slabs with a negative entry."""

    def each(box: Box) -> tuple[float, ...]:
        part = tensor[box]
        with np.errstate(all="ignore"):  # the caller checks the results
            return *work(part, box), float(has_negative(part))

    return [sum(column) for column in zip(*ordered_map(each, _slabs(tensor), workers))]


def _slabs(tensor: Any) -> Iterator[Box]:
    """Cut a tensor into slabs: large on a device, and small for NumPy, so that they fit the cache."""
    shape = tuple(tensor.shape)
    return slabs(shape) if get_backend(tensor).kernels == "numpy" else slabs(shape, SLAB_ENTRIES)


def is_fine(tensor: Any) -> bool:
    """Say whether every entry is finite and not negative."""
    xp = get_backend(tensor).xp
    if not xp.isdtype(tensor.dtype, "real floating"):
        return not any(has_negative(tensor[box]) for box in _slabs(tensor))
    # neither comparison holds for NaN
    return all(
        bool(xp.min(part) >= 0) and bool(xp.max(part) < math.inf) for part in map(tensor.__getitem__, _slabs(tensor))
    )


def largest(tensor: Any) -> float:
    """Return the largest entry."""
    backend = get_backend(tensor)
    # in floats, since not every library can compare integers and Booleans
    return float(np.max([float(backend.xp.max(backend.as_float(tensor[box]))) for box in _slabs(tensor)]))


def first_bad(tensor: Any) -> tuple[tuple[int, ...], float] | None:
    """Return the first entry, in C order, that is negative or not finite: its index and its value."""
    backend = get_backend(tensor)
    for box in _slabs(tensor):
        part = backend.as_float(tensor[box])
        bad = ~((part >= 0) & backend.xp.isfinite(part))
        if bool(backend.xp.any(bad)):
            index = tuple(at + rows.start for at, rows in zip(first_index(bad), box))
            value = backend.detach(tensor[index])
            return index, value.item() if hasattr(value, "item") else float(value)
    return None


def first_index(marked: Any) -> tuple[int, ...]:
    """Return the index of the first true entry."""
    xp = get_backend(marked).xp
    flat = int(xp.argmax(xp.reshape(xp.astype(marked, xp.int8), (-1,))))
    return tuple(int(i) for i in np.unravel_index(flat, tuple(marked.shape)))


def has_negative(part: Any) -> bool:
    """Say whether any entry is negative."""
    xp = get_backend(part).xp
    return xp.isdtype(part.dtype, ("signed integer", "real floating")) and bool(xp.any(part < 0))
