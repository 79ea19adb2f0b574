"""A NumPy array as a decomposition reads it: piece by piece, by several threads."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import runs, slabs
from tucket.base.run import ordered_map
from tucket.decomposition.data.array import ArrayData
from tucket.decomposition.data.data import HostData
from tucket.kernels.algebra import Matrix, join, multiply, multiply_all

Result = TypeVar("Result")

PIECE_ENTRIES = 1 << 17
"""Entries that are read at a time: as float64 they fit the second-level cache."""

HELD_SUMS = 1 << 21
"""Sums that a worker holds before they are summed along a further mode."""

THREAD_ENTRIES = 1 << 17
"""Entries from which another thread is worth starting."""


@dataclass(frozen=True, slots=True)
class DenseData(HostData, ArrayData):
    """A NumPy array."""

    tensor: NDArray[Any]
    scale: float = 1.0
    workers: int = 1

    def each(self, work: Callable[[slice, Any], Result]) -> list[Result]:
        """Do some work on runs of indices of the first mode, one run per worker."""
        workers = min(self.workers, len(self.tensor), 1 + self.tensor.size // THREAD_ENTRIES)
        pieces = runs(len(self.tensor), -(-len(self.tensor) // workers))
        return list(ordered_map(lambda rows: work(rows, self._some(rows)), pieces, workers))

    def _some(self, rows: slice) -> DenseData:
        """Return some indices of the first mode, for one thread."""
        return DenseData(self.tensor[rows], self.scale)

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""

        def work(rows: slice, part: DenseData) -> Matrix:
            return _contract(part.tensor, Reader(self), {k: m if k else m[rows] for k, m in matrices.items()})

        found = self.each(work)
        return sum(found[1:], start=found[0]) if 0 in matrices else join(found)

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""

        def work(rows: slice, part: DenseData) -> float:
            read, weights = Reader(self), [np.square(vector)[:, None] for vector in metric]
            weights[0] = weights[0][rows]
            total = 0.0
            for box in slabs(part.shape, PIECE_ENTRIES):
                squares = np.square(read(part.tensor[box]))
                total += multiply_all(squares, {k: weight[box[k]] for k, weight in enumerate(weights)}).item()
            return total

        return sum(self.each(work))

    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""
        moved = DenseData(np.moveaxis(self.tensor, mode, -1), self.scale, self.workers)
        nothing = np.zeros((self.shape[mode],) * 2)

        def work(_: object, part: DenseData) -> Matrix:
            return sum((rows.T @ rows for _, rows in part.rows(part.tensor.ndim - 1)), start=nothing)

        return sum(moved.each(work), start=nothing) if self.tensor.ndim > 1 else work(None, moved)

    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix, some rows at a time; the rows are valid until the next ones are read."""
        read, first = Reader(self), 0
        width = math.prod(self.shape[split:])
        for box in slabs(self.shape[:split], max(1, PIECE_ENTRIES // width)) if split else [()]:
            rows = np.ascontiguousarray(read(self.tensor[box])).reshape(-1, width)
            yield slice(first, first + len(rows)), rows
            first += len(rows)


class Reader:
    """Reads parts of a tensor as float64: in place if they are float64, else by a copy into one reused buffer."""

    def __init__(self, data: DenseData) -> None:
        self.scale, self.copies = data.scale, data.tensor.dtype != np.float64 or data.scale != 1.0
        self.memory = np.empty(0)

    def __call__(self, part: NDArray[Any]) -> Matrix:
        """Return the entries, which may be valid only until the next part is read."""
        if not self.copies:
            return part
        if self.memory.size < part.size:
            self.memory = np.empty(part.size)
        copy = self.memory[: part.size].reshape(part.shape)
        np.copyto(copy, part)
        if self.scale != 1.0:
            copy *= self.scale
        return copy


def _contract(part: NDArray[Any], read: Reader, matrices: Mapping[int, Matrix]) -> Matrix:
    """Contract a part of a tensor: its other modes piece by piece, then the first, for many of its indices at once."""
    inner = {mode - 1: matrix for mode, matrix in matrices.items() if mode}
    sizes = [inner[mode].shape[1] if mode in inner else size for mode, size in enumerate(part.shape[1:])]
    width = math.prod(part.shape[1:])

    def collect(rows: slice) -> Matrix:
        held = np.empty((rows.stop - rows.start, *sizes))
        for some in runs(len(held), PIECE_ENTRIES // width):
            piece = part[rows][some]
            if width <= PIECE_ENTRIES:
                held[some] = multiply_all(read(piece), {mode + 1: matrix for mode, matrix in inner.items()})
            else:
                held[some] = _contract(piece[0], read, inner)
        return held

    if 0 not in matrices:
        return collect(slice(0, len(part)))
    groups = runs(len(part), HELD_SUMS // math.prod(sizes))
    products = (multiply(collect(rows), matrices[0][rows], 0) for rows in groups)
    return sum(products, start=np.zeros((matrices[0].shape[1], *sizes)))
