"""A tensor on a device as the updates read it there, slab by slab: all that is computed stays."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import Home, home_of, on_gpu
from tucket.base.blocks import Blocks
from tucket.base.boxes import runs, slabs
from tucket.decomposition.data.dense import Data, Work
from tucket.decomposition.nearest import eigenvalue_bound, nearest
from tucket.kernels import pure
from tucket.kernels.algebra import Matrix, at_least, join, least_of, multiply, multiply_all, share
from tucket.kernels.foreign import SLAB, bring_all

__all__ = ["AnyData", "FarData", "data_of"]

Result = TypeVar("Result")

NOTHING, NOTHING_SINGLE = 1e-280, 1e-28
"""Entries of a model up to which a ratio to them could overflow, in float64 and in float32."""

LIGHT = 1 << 22
"""Entries up to which a tensor is copied for what is recorded: starting kernels takes longer than to copy it."""

ROW_STEPS = 15
"""Steps for the rows of a factor where no compiled loop can take them entry after entry."""


def data_of(tensor: Any, scale: float, workers: int) -> AnyData:
    """Return a tensor as the updates read it, wherever it is."""
    if isinstance(tensor, np.ndarray):
        return Data(tensor, scale, workers)
    there = on_gpu(tensor)  # where all libraries can share memory, and one has it all
    there = tensor if there is None else there
    home = home_of(there)
    assert home is not None
    return FarData(there, home, scale, workers)


@dataclass(frozen=True, slots=True)
class FarData:
    """A tensor of another library, where it lives, and the power of two that its entries are multiplied by.

    It can do what `Data` can, in the widest floating-point type there.
    """

    tensor: Any
    home: Home
    scale: float = 1.0
    workers: int | None = None  # for what is done on the host

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return tuple(self.tensor.shape)

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def take(self, array: Any) -> Matrix:
        """Bring a small array of the host's where the tensor is; one that is there stays."""
        if not isinstance(array, np.ndarray):
            return array
        return pure.as_float(self.home, self.home.take(np.asarray(array, np.float64)))

    def take_all(self, arrays: Sequence[NDArray[Any]]) -> list[Matrix]:
        """Do so with several, of one type."""
        return [pure.as_float(self.home, array) for array in self.home.take_all(arrays)]

    def bring(self, arrays: Sequence[Matrix]) -> list[NDArray[Any]]:
        """Bring small arrays to the host."""
        return bring_all(arrays)

    def expand(self, blocks: Blocks, rows: Matrix) -> Matrix:
        """Repeat the row of each block for every index of it."""
        return rows if blocks.is_whole else self.home.xp.take(rows, self.home.take(blocks.labels.copy()), axis=0)

    def about(self, tensor: NDArray[Any]) -> Self:
        """Return another tensor of the host's in the same unit."""
        return replace(self, tensor=self.take(tensor))

    def whole(self) -> Matrix:
        """Return all entries as floats, in the unit."""
        return self._read(self.tensor)

    def each(self, work: Callable[[slice, Self], Result]) -> list[Result]:
        """Do some work on all indices of the first mode."""
        return [work(slice(0, self.shape[0]), self)]

    def _read(self, part: Any) -> Matrix:
        """Return some entries as floats, in the unit."""
        entries = pure.as_float(self.home, part)
        return entries if self.scale == 1.0 else entries * self.scale

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""
        return self._contract(self.tensor, matrices)

    def _contract(self, part: Any, matrices: Mapping[int, Matrix]) -> Matrix:
        inner, width = {mode - 1: matrix for mode, matrix in matrices.items() if mode}, math.prod(part.shape[1:])
        shifted = {mode + 1: matrix for mode, matrix in inner.items()}
        pieces, total = [], None
        for some in runs(part.shape[0], SLAB // width):
            if width <= SLAB:
                piece = multiply_all(self._read(part[some, ...]), shifted)
            else:
                piece = self._contract(part[some.start, ...], inner)[None, ...]
            if 0 not in matrices:
                pieces.append(piece)
            else:
                more = multiply(piece, matrices[0][some, :], 0)
                total = more if total is None else total + more
        return join(pieces) if total is None else total

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""
        total, square = 0.0, self.home.xp.square
        for box in slabs(self.shape, SLAB):
            weights = {k: square(vector[rows])[:, None] for k, (vector, rows) in enumerate(zip(metric, box))}
            total = total + multiply_all(square(self._read(self.tensor[box])), weights)
        return float(self.home.xp.reshape(total, ()))

    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""
        turned = replace(self, tensor=self.home.xp.moveaxis(self.tensor, mode, -1))
        return sum(rows.T @ rows for _, rows in turned.rows(len(self.shape) - 1))

    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix, a row for each index of the first modes: some rows at a time."""
        width, first = math.prod(self.shape[split:]), 0
        for box in slabs(self.shape[:split], max(1, SLAB // width)) if split else [()]:
            rows = self.home.xp.reshape(self._read(self.tensor[(*box, ...)]), (-1, width))
            yield slice(first, first + rows.shape[0]), rows
            first += rows.shape[0]

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Return work on this tensor, with some numbers and arrays, as a function of more arrays, to be called often.

        On a GPU it is recorded, for a small tensor so that it can be played back with others like it.
        """
        if on_gpu(self.tensor) is None:
            return partial(work, self, *numbers, *fixed)
        from tucket.kernels.gpu.recorded import Recorded, recording_of

        if self.size > LIGHT:
            return Recorded(partial(work, self, *numbers, *fixed))
        known = work, numbers, replace(self, tensor=None)
        return lambda *arrays: recording_of(_anew, known, self.tensor, *fixed, *arrays)

    def ratios(self, part: Matrix, model: Matrix) -> tuple[Matrix, Matrix]:
        """Divide entries by those of a model; 0 where it has no mass to speak of.

        Return also the sum of P log(P / Q), infinity where there is mass but none of the model's.
        """
        xp = self.home.xp
        least = least_of(model.dtype)
        is_used = xp.astype(model > (NOTHING if least < NOTHING else NOTHING_SINGLE), model.dtype)
        found = share(part * is_used, model)
        logs = xp.sum(part * xp.log(at_least(found, least)))
        return found, xp.where(xp.sum(part * (1 - is_used)) > 0, math.inf, logs)

    def descend_rows(self, targets: Matrix, gram: Matrix, rows: Matrix, sweeps: int, tolerance: float) -> Matrix:
        """Lower each row's a N a / 2 - a m over a >= 0: on a GPU as `Data` does, elsewhere all entries at once."""
        if on_gpu(rows) is not None:
            from tucket.kernels.gpu import passes as gpu

            return gpu.descend_rows(targets, gram, rows, sweeps, tolerance)
        return nearest(targets, lambda some: some @ gram, eigenvalue_bound(gram), rows, ROW_STEPS)[0]


def _anew(work: Work, numbers: tuple[int, ...], blank: FarData, tensor: Any, *arrays: Matrix) -> tuple[Matrix, ...]:
    """Do some work on another tensor than the one that it was recorded with."""
    return work(replace(blank, tensor=tensor), *numbers, *arrays)


AnyData = Data | FarData
