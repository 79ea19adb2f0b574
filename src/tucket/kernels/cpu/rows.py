"""How a tensor lies in memory: as rows, runs of neighbours that a kernel can read one after another."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

__all__ = ["NARROW", "Rows", "is_readable", "memory_order", "merge", "row_length", "short_split", "sum_split"]

NARROW = 2048
"""Longest row that is read whole. Modes are merged to at most half of it, so that a row of float64 and its
sums fit the first-level cache."""

SHORT = 64
"""Shortest row worth the overhead of a loop, if there is a choice."""

RESTLESS = 0.25
"""Share of neighbours with different labels from which rows are better sorted by label than read in order."""


class Rows(NamedTuple):
    """A tensor as rows: its first modes number the rows, the others their columns.

    Attributes
    ----------
    flat : array
        The memory from the tensor's first to its last entry.
    offsets : array of uint64
        Where each row begins.
    steps : list of int
        How far apart neighbours are along each mode; 0 along a mode of one index.
    """

    flat: NDArray[Any]
    offsets: NDArray[np.uint64]
    steps: list[int]

    @classmethod
    def of(cls, tensor: NDArray[Any], split: int, writeable: bool = False) -> Self:
        """View a readable tensor, whose modes from `split` on are contiguous, as rows."""
        steps = [stride // tensor.itemsize if size > 1 else 0 for stride, size in zip(tensor.strides, tensor.shape)]
        extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, steps))
        flat = np.lib.stride_tricks.as_strided(tensor, (extent,), (tensor.itemsize,), writeable=writeable)
        ramps = [np.arange(size, dtype=np.uint64) * np.uint64(step) for size, step in zip(tensor.shape[:split], steps)]
        return cls(flat, reduce(lambda a, b: np.add.outer(a, b).ravel(), ramps, np.zeros(1, np.uint64)), steps)


def memory_order(tensor: NDArray[Any]) -> list[int]:
    """List the modes from the longest stride to the shortest; those of one index first."""
    return sorted(range(tensor.ndim), key=lambda mode: (tensor.shape[mode] > 1, -abs(tensor.strides[mode])))


def is_readable(tensor: NDArray[Any]) -> bool:
    """Say whether a kernel can read the tensor, its modes in memory order, where it lies."""
    plain = tensor.dtype.isnative and tensor.dtype != np.float16 and tensor.flags.aligned
    steps = [stride for stride, size in zip(tensor.strides, tensor.shape) if size > 1]
    forward = all(step > 0 and step % tensor.itemsize == 0 for step in steps)
    first = _contiguous_from(tensor)
    return plain and forward and (first == 0 or math.prod(tensor.shape[first:]) >= SHORT)


def short_split(tensor: NDArray[Any]) -> int:
    """Choose how many modes number the rows so that rows are as long as the first-level cache allows."""
    lengths = _row_lengths(tensor)
    for least, most in ((SHORT, NARROW // 2), (0, NARROW)):
        for split, length in lengths.items():
            if least <= length <= most:
                return split
    return tensor.ndim - 1


def row_length(tensor: NDArray[Any]) -> int:
    """Return the length of the rows of `short_split`."""
    return math.prod(tensor.shape[short_split(tensor) :])


def sum_split(tensor: NDArray[Any], labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> int:
    """Choose how many modes number the rows for summing them by label.

    Short rows in the order of memory are best where neighbours share a label; long ones, four of one label at
    a time, where neighbours do not, or where the modes are too short or too long for short rows.
    """
    shape, lengths, split = tensor.shape, _row_lengths(tensor), short_split(tensor)
    neighbours = labels[split - 1]
    restless = np.count_nonzero(neighbours[1:] != neighbours[:-1]) > RESTLESS * shape[split - 1]
    if restless or not SHORT <= lengths[split] <= NARROW:
        for longer in reversed(lengths):
            fours = math.prod(shape[:longer]) >= 4 * math.prod(ranks[:longer])
            if lengths[longer] > NARROW and fours:
                return longer
    return split


def merge(labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> NDArray[np.intp]:
    """Return the labels of several modes together, numbered as their blocks lie in C order."""
    merged = np.zeros(1, np.intp)
    for label, rank in zip(labels, ranks):
        merged = np.add.outer(merged * rank, label).ravel()
    return merged


def _contiguous_from(tensor: NDArray[Any]) -> int:
    """Return the first mode from which on the tensor is contiguous."""
    step = tensor.itemsize
    for mode in reversed(range(tensor.ndim)):
        if tensor.shape[mode] > 1 and tensor.strides[mode] != step:
            return mode + 1
        step *= tensor.shape[mode]
    return 0


def _row_lengths(tensor: NDArray[Any]) -> dict[int, int]:
    """Return the length of a row for every possible number of modes that number the rows, longest first."""
    first = max(1, _contiguous_from(tensor))
    return {split: math.prod(tensor.shape[split:]) for split in range(first, tensor.ndim)}
