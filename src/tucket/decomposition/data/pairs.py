"""Entries together with their exposure, as a decomposition of a tensor with gaps reads them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket.decomposition.data.array import ArrayData
from tucket.kernels.algebra import Matrix


class Pair(NamedTuple):
    """A part of a tensor, 0 where nothing is known, and the exposure of its cells."""

    x: NDArray[Any]
    exposure: NDArray[Any]

    @property
    def nbytes(self) -> int:
        """Bytes that were read for it."""
        return self.x.nbytes


@dataclass(frozen=True, slots=True)
class PairArray(ArrayData):
    """A NumPy array, with the exposure of its cells."""

    exposure: NDArray[Any] = field(kw_only=True)

    def _some(self, rows: slice) -> PairArray:
        return replace(self, tensor=self.tensor[rows], exposure=self.exposure[rows], workers=1)

    def rows(self, split: int) -> Iterator[tuple[slice, Any]]:
        """Yield the entries and their exposure, as pairs of matrices."""
        exposures = ArrayData(self.exposure).rows(split)
        for (some, x), (_, exposure) in zip(ArrayData.rows(self, split), exposures):
            yield some, Pair(x, exposure)

    def fill(self, core: Matrix, factors: Sequence[Matrix], most: float) -> tuple[ArrayData, float]:
        """Return the array filled by a model, and the squared distance of what is known: see `Known.fill`."""
        from tucket.kernels.cpu.updates import fill_unknown

        filled = np.empty(self.shape)
        split, outer, inner = self._halves(core, factors)

        def write(rows: slice, data: Any) -> float:
            total, out = 0.0, filled[rows].reshape(-1, len(inner))
            for some, part, _, model in data.pieces(split, outer[rows, ...] if split else outer, inner):
                total += fill_unknown(part.x.reshape(-1), part.exposure.reshape(-1), most, model.reshape(-1))
                out[some] = model
            return total

        whole = slice(0, len(filled))
        distance = sum(self.each(write)) if split else write(whole, self)
        return ArrayData(filled, 1.0, self.workers), distance
