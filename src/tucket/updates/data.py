"""A tensor as the updates read it: piece by piece, in float64, in a unit in which no square overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.kernels.threads import in_order
from tucket.sources.dense import slabs

__all__ = ["Box", "Data", "Matrix", "Parts", "multiply", "multiply_all", "runs", "unfold", "without"]

Matrix = NDArray[np.float64]
Parts = tuple[Matrix, list[Matrix]]  # of a Tucker model: its core and factors
Box = tuple[slice, ...]
Result = TypeVar("Result")

PIECE = 1 << 17
"""Entries that are read at a time: as float64 they fit the second-level cache."""

HELD = 1 << 21
"""Sums that a worker holds before they are summed along a further mode."""

SHARE = 1 << 17
"""Entries from which another thread pays for starting it."""


@dataclass(frozen=True, slots=True)
class Data:
    """A tensor, the power of two that its entries are multiplied by when they are read, and how many may read."""

    tensor: NDArray[Any]
    scale: float = 1.0
    workers: int = 1

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return self.tensor.shape

    def each(self, work: Callable[[slice, Data], Result]) -> list[Result]:
        """Do some work on runs of indices of the first mode, a run each worker, and return the results in order."""
        workers = min(self.workers, len(self.tensor), 1 + self.tensor.size // SHARE)
        pieces = runs(len(self.tensor), -(-len(self.tensor) // workers))
        return list(in_order(lambda rows: work(rows, Data(self.tensor[rows], self.scale)), pieces, workers))

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""

        def work(rows: slice, part: Data) -> Matrix:
            return _contract(part.tensor, Reader(self), {k: m if k else m[rows] for k, m in matrices.items()})

        found = self.each(work)
        return sum(found[1:], start=found[0]) if 0 in matrices else np.concatenate(found)

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""

        def work(rows: slice, part: Data) -> float:
            read, weights = Reader(self), [np.square(vector)[:, None] for vector in metric]
            weights[0] = weights[0][rows]
            total = 0.0
            for box in slabs(part.shape, PIECE):
                squares = np.square(read(part.tensor[box]))
                total += multiply_all(squares, {k: weight[box[k]] for k, weight in enumerate(weights)}).item()
            return total

        return sum(self.each(work))

    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""
        turned = Data(np.moveaxis(self.tensor, mode, -1), self.scale, self.workers)
        nothing = np.zeros((self.shape[mode],) * 2)

        def work(_: object, part: Data) -> Matrix:
            return sum((rows.T @ rows for _, rows in part.rows(part.tensor.ndim - 1)), start=nothing)

        return sum(turned.each(work), start=nothing) if self.tensor.ndim > 1 else work(None, turned)

    def rows(self, split: int) -> Iterator[tuple[Box, Matrix]]:
        """Yield boxes of the first modes, each with the entries there, a row for each index, until the next."""
        read = Reader(self)
        width = math.prod(self.shape[split:])
        for box in slabs(self.shape[:split], max(1, PIECE // width)) if split else [()]:
            yield box, np.ascontiguousarray(read(self.tensor[box])).reshape(-1, width)


class Reader:
    """Reads parts of a tensor as float64: as they lie if they are, else into one and the same place of memory."""

    def __init__(self, data: Data) -> None:
        self.scale, self.copies = data.scale, data.tensor.dtype != np.float64 or data.scale != 1.0
        self.memory = np.empty(0)

    def __call__(self, part: NDArray[Any]) -> Matrix:
        """Return the entries, which may be there only until the next part is read."""
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
        for some in runs(len(held), PIECE // width):
            piece = part[rows][some]
            if width <= PIECE:
                held[some] = multiply_all(read(piece), {mode + 1: matrix for mode, matrix in inner.items()})
            else:
                held[some] = _contract(piece[0], read, inner)
        return held

    if 0 not in matrices:
        return collect(slice(0, len(part)))
    groups = runs(len(part), HELD // math.prod(sizes))
    products = (multiply(collect(rows), matrices[0][rows], 0) for rows in groups)
    return sum(products, start=np.zeros((matrices[0].shape[1], *sizes)))


def runs(size: int, most: int) -> Iterator[slice]:
    """Cut indices into runs of at most so many, and at least one.

    Examples
    --------
    >>> list(runs(5, 2))
    [slice(0, 2, None), slice(2, 4, None), slice(4, 5, None)]
    """
    step = max(1, most)
    return (slice(first, min(first + step, size)) for first in range(0, size, step))


def multiply(part: Matrix, matrix: Matrix, mode: int) -> Matrix:
    """Sum along one mode against the columns of a matrix, whose number becomes the size of the mode."""
    before, size, after = math.prod(part.shape[:mode]), part.shape[mode], math.prod(part.shape[mode + 1 :])
    shape = (*part.shape[:mode], matrix.shape[1], *part.shape[mode + 1 :])
    if after == 1:  # one product instead of many
        return (part.reshape(before, size) @ matrix).reshape(shape)
    return (matrix.T @ part.reshape(before, size, after)).reshape(shape)


def multiply_all(part: Matrix, matrices: Mapping[int, Matrix]) -> Matrix:
    """Sum along several modes; the one that shrinks most goes first, so that the next has least to do."""
    for mode in sorted(matrices, key=lambda mode: matrices[mode].shape[1] / matrices[mode].shape[0]):
        part = multiply(part, matrices[mode], mode)
    return part


def without(matrices: Mapping[int, Matrix], mode: int) -> dict[int, Matrix]:
    """Return all of these but that of one mode."""
    return {k: matrix for k, matrix in matrices.items() if k != mode}


def unfold(part: Matrix, mode: int) -> Matrix:
    """Return a tensor as a matrix, with a row for each index of one mode."""
    return np.moveaxis(part, mode, 0).reshape(part.shape[mode], -1)
