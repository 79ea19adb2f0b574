"""How a tensor is divided into rows: contiguous pieces of memory that a compiled loop reads in sequence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

NARROW_COLUMNS = 2048
"""Maximum columns of a row that is read whole. Merged modes have at most half as many, so that a float64 row and its
sums fit the first-level cache."""

SHORT_COLUMNS = 64
"""Minimum columns of a row, where possible: shorter rows cost more in overhead."""

SCATTERED_SHARE = 0.25
"""If more than this share of adjacent labels differ, rows are sorted by label, not read in the order of memory."""


class Rows(NamedTuple):
    """A tensor as rows: its first modes number the rows, the others the columns."""

    flat: NDArray[Any]  # the memory from the first to the last entry
    offsets: NDArray[np.uint64]  # first position of each row in `flat`
    steps: list[int]  # distance in `flat` between neighbours along each mode; 0 for a mode of size 1

    @classmethod
    def of(cls, tensor: NDArray[Any], split: int, writeable: bool = False) -> Self:
        """View a readable tensor as rows; its modes from `split` on must be contiguous."""
        steps = [stride // tensor.itemsize if size > 1 else 0 for stride, size in zip(tensor.strides, tensor.shape)]
        extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, steps))
        flat = np.lib.stride_tricks.as_strided(tensor, (extent,), (tensor.itemsize,), writeable=writeable)
        ramps = [np.arange(size, dtype=np.uint64) * np.uint64(step) for size, step in zip(tensor.shape[:split], steps)]
        return cls(flat, reduce(lambda a, b: np.add.outer(a, b).ravel(), ramps, np.zeros(1, np.uint64)), steps)


def memory_order(tensor: NDArray[Any]) -> list[int]:
    """List the modes from the longest stride to the shortest; modes of size 1 come first."""
    return sorted(range(tensor.ndim), key=lambda mode: (tensor.shape[mode] > 1, -abs(tensor.strides[mode])))


def is_readable(tensor: NDArray[Any]) -> bool:
    """Say whether the loops can read a tensor without a copy; its modes must be in memory order."""
    native = tensor.dtype.isnative and tensor.dtype != np.float16 and tensor.flags.aligned
    steps = [stride for stride, size in zip(tensor.strides, tensor.shape) if size > 1]
    forward = all(step > 0 and step % tensor.itemsize == 0 for step in steps)
    first = _contiguous_from(tensor)
    return native and forward and (first == 0 or math.prod(tensor.shape[first:]) >= SHORT_COLUMNS)


def short_split(tensor: NDArray[Any]) -> int:
    """Return how many modes number the rows, so that rows are as long as the first-level cache allows."""
    lengths = _row_lengths(tensor)
    for least, most in ((SHORT_COLUMNS, NARROW_COLUMNS // 2), (0, NARROW_COLUMNS)):
        for split, length in lengths.items():
            if least <= length <= most:
                return split
    return tensor.ndim - 1


def row_length(tensor: NDArray[Any]) -> int:
    """Return the number of columns when rows are divided by `short_split`."""
    return math.prod(tensor.shape[short_split(tensor) :])


def sum_split(tensor: NDArray[Any], labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> int:
    """Return how many modes number the rows that are summed by label.

    Short rows are read in the order of memory, which is fast if adjacent rows mostly share a label. Otherwise, or if
    short rows are not possible, long rows are read four at a time by label.
    """
    shape, lengths, split = tensor.shape, _row_lengths(tensor), short_split(tensor)
    adjacent = labels[split - 1]
    scattered = np.count_nonzero(adjacent[1:] != adjacent[:-1]) > SCATTERED_SHARE * shape[split - 1]
    if scattered or not SHORT_COLUMNS <= lengths[split] <= NARROW_COLUMNS:
        for longer in reversed(lengths):
            fours = math.prod(shape[:longer]) >= 4 * math.prod(ranks[:longer])
            if lengths[longer] > NARROW_COLUMNS and fours:
                return longer
    return split


def merge(labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> NDArray[np.intp]:
    """Return the label of every combination of indices of several modes, with labels in C order."""
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
    """Return the length of a row for each possible number of modes that number the rows, longest first."""
    first = max(1, _contiguous_from(tensor))
    return {split: math.prod(tensor.shape[split:]) for split in range(first, tensor.ndim)}
