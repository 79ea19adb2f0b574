"""An array of another library as a decomposition reads it: on its device, where all results stay, slab by slab."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from tucket.backends import Backend
from tucket.base.boxes import runs, slabs
from tucket.decomposition.data.array import ArrayData
from tucket.decomposition.data.data import Work
from tucket.decomposition.nearest import eigenvalue_bound, nearest
from tucket.kernels.algebra import Matrix, at_least, join, least_of, multiply, multiply_all, share

Result = TypeVar("Result")

SLAB_ENTRIES = 1 << 24
"""Entries that are worked on at a time."""

NOTHING, NOTHING_FLOAT32 = 1e-280, 1e-28
"""Model entries up to this size count as zero, since division by them could overflow: in float64, in float32."""

RECORDED_ENTRIES = 1 << 22
"""Largest tensor, in entries, that is copied for a recording: launching the kernels takes longer than the copy."""

ROW_STEPS = 15
"""Gradient steps for the rows of a factor where no kernel for coordinate descent is available."""


@dataclass(frozen=True, slots=True)
class DeviceData(ArrayData):
    """An array of any library, on its device; computations use the widest floats of the device."""

    tensor: Any
    backend: Backend
    scale: float = 1.0
    workers: int = 1

    def each(self, work: Callable[[slice, Any], Result]) -> list[Result]:
        """Do some work on all indices of the first mode at once."""
        return [work(slice(0, self.shape[0]), self)]

    def _read(self, part: Any) -> Matrix:
        """Return some entries as floats, in the unit."""
        entries = self.backend.as_float(part)
        return entries if self.scale == 1.0 else entries * self.scale

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""
        return self._contract(self.tensor, matrices)

    def _contract(self, part: Any, matrices: Mapping[int, Matrix]) -> Matrix:
        inner, width = {mode - 1: matrix for mode, matrix in matrices.items() if mode}, math.prod(part.shape[1:])
        shifted = {mode + 1: matrix for mode, matrix in inner.items()}
        pieces, total = [], None
        for some in runs(part.shape[0], SLAB_ENTRIES // width):
            if width <= SLAB_ENTRIES:
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
        total, square = 0.0, self.backend.xp.square
        for box in slabs(self.shape, SLAB_ENTRIES):
            weights = {k: square(vector[rows])[:, None] for k, (vector, rows) in enumerate(zip(metric, box))}
            total = total + multiply_all(square(self._read(self.tensor[box])), weights)
        return float(self.backend.xp.reshape(total, ()))

    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""
        moved = replace(self, tensor=self.backend.xp.moveaxis(self.tensor, mode, -1))
        return sum(rows.T @ rows for _, rows in moved.rows(len(self.shape) - 1))

    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix, a row for each index of the first modes: some rows at a time."""
        width, first = math.prod(self.shape[split:]), 0
        for box in slabs(self.shape[:split], max(1, SLAB_ENTRIES // width)) if split else [()]:
            rows = self.backend.xp.reshape(self._read(self.tensor[(*box, ...)]), (-1, width))
            yield slice(first, first + rows.shape[0]), rows
            first += rows.shape[0]

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Bind work to this tensor, some numbers and arrays; return a function of the other arrays, for many calls.

        On a GPU the work is recorded. The recording for a small tensor is replayed for later tensors like it.
        """
        if self.backend.kernels != "cuda":
            return partial(work, self, *numbers, *fixed)
        from tucket.kernels.gpu.recorded import Recorded, recording_of

        if self.size > RECORDED_ENTRIES:
            return Recorded(partial(work, self, *numbers, *fixed))
        known = work, numbers, replace(self, tensor=None)
        return lambda *arrays: recording_of(_on_another, known, self.tensor, *fixed, *arrays)

    def ratios(self, part: Matrix, model: Matrix) -> tuple[Matrix, Matrix]:
        """Divide entries by those of a model; 0 where the model is negligible."""
        xp = self.backend.xp
        least = least_of(model.dtype)
        is_used = xp.astype(model > (NOTHING if least < NOTHING else NOTHING_FLOAT32), model.dtype)
        found = share(part * is_used, model)
        logs = xp.sum(part * xp.log(at_least(found, least)))
        return found, xp.where(xp.sum(part * (1 - is_used)) > 0, math.inf, logs)

    def descend_rows(self, targets: Matrix, gram: Matrix, rows: Matrix, sweeps: int, tolerance: float) -> Matrix:
        """Lower the objective of each row: on a GPU entry after entry, elsewhere all entries at once."""
        if self.backend.kernels == "cuda":
            from tucket.kernels.gpu.passes import descend_rows

            return descend_rows(targets, gram, rows, sweeps, tolerance)
        return nearest(targets, lambda some: some @ gram, eigenvalue_bound(gram), rows, ROW_STEPS)[0]


def _on_another(work: Work, numbers: tuple[int, ...], blank: DeviceData, tensor: Any, *arrays: Matrix) -> Any:
    """Do some work on another tensor than the one that it was recorded with."""
    return work(replace(blank, tensor=tensor), *numbers, *arrays)
