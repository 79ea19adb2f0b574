"""A tensor as the updates read it: piece by piece, in float64, in a unit in which no square overflows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.base.boxes import runs, slabs
from tucket.base.threads import in_order
from tucket.kernels.algebra import Matrix, join, multiply, multiply_all

__all__ = ["Data", "Work"]

Result = TypeVar("Result")

Work = Callable[..., tuple[Matrix, ...]]
"""A function of data, numbers and arrays that looks at no value of an array."""

PIECE = 1 << 17
"""Entries that are read at a time: as float64 they fit the second-level cache."""

HELD = 1 << 21
"""Sums that a worker holds before they are summed along a further mode."""

SHARE, ROW_SHARE = 1 << 17, 1 << 16
"""Entries, and products of a sweep over rows of a factor, from which another thread pays for starting it."""


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

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def take(self, array: NDArray[Any]) -> Matrix:
        """Bring a small array of the host's where the tensor is."""
        return array

    def take_all(self, arrays: Sequence[NDArray[Any]]) -> list[Matrix]:
        """Do so with several."""
        return list(arrays)

    def bring(self, arrays: Sequence[Matrix]) -> list[NDArray[Any]]:
        """Bring small arrays to the host."""
        return list(arrays)

    def expand(self, blocks: Blocks, rows: Matrix) -> Matrix:
        """Repeat the row of each block for every index of it."""
        return blocks.expand(rows)

    def about(self, tensor: NDArray[Any]) -> Self:
        """Return another tensor of the host's in the same unit."""
        return replace(self, tensor=tensor)

    def whole(self) -> Matrix:
        """Return all entries as floats, in the unit."""
        return np.asarray(self.tensor * np.float64(self.scale))

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
        return sum(found[1:], start=found[0]) if 0 in matrices else join(found)

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

    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix, a row for each index of the first modes: some rows at a time, until the next.

        They come with what of all rows they are.
        """
        read, first = Reader(self), 0
        width = math.prod(self.shape[split:])
        for box in slabs(self.shape[:split], max(1, PIECE // width)) if split else [()]:
            rows = np.ascontiguousarray(read(self.tensor[box])).reshape(-1, width)
            yield slice(first, first + len(rows)), rows
            first += len(rows)

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Return work on this tensor, numbers and arrays as a function of more arrays, to be called often."""
        return partial(work, self, *numbers, *fixed)

    def ratios(self, part: Matrix, model: Matrix) -> tuple[Matrix, float]:
        """Divide entries by those of a model, which may be overwritten; 0 where it has no mass to speak of.

        Return also the sum of P log(P / Q), infinity where there is mass but none of the model's.
        """
        from tucket.kernels.cpu.updates import ratios

        logs, lost = ratios(part.reshape(-1), model.reshape(-1))
        return model, math.inf if lost > 0 else logs

    def descend_rows(self, targets: Matrix, gram: Matrix, rows: Matrix, sweeps: int, tolerance: float) -> Matrix:
        """Lower each row's a N a / 2 - a m over a >= 0, entry after entry: see the compiled loop of that name."""
        from tucket.kernels.cpu.updates import descend_rows

        goals, found = np.ascontiguousarray(targets), rows.copy()
        workers = min(self.workers, 1 + rows.size * len(gram) // ROW_SHARE)

        def work(some: slice) -> None:
            descend_rows(goals[some], gram, found[some], sweeps, tolerance)

        for _ in in_order(work, runs(len(rows), -(-len(rows) // workers)), workers):
            pass
        return found


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
