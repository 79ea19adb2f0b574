"""How far a tensor is from a model, chunk by chunk: divergence and squares."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import get_backend
from tucket.base.boxes import Box, from_frame, slabs
from tucket.kernels import array_api, measures
from tucket.sources.reductions import Scalars, check_chunk
from tucket.sources.source import Chunk, Entries

if TYPE_CHECKING:
    from tucket.models.model import Model

SLAB_ENTRIES = 1 << 18
"""Entries of a sparse tensor at which a model is evaluated at a time."""


@dataclass(frozen=True)
class DivergenceFrom(Scalars):
    """The divergence from a model, and how many chunks were boxes, and how many entries.

    For entries, the total of the model is left to be added.
    """

    model: Model

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:
        """Return the divergence of one chunk."""
        if isinstance(chunk, Entries):
            _check_entries(chunk)
            terms = sum(self._of_entries(chunk, some) for some in slabs(chunk.values.shape, SLAB_ENTRIES))
            return np.array([terms, 0.0, 1.0])
        found, negative = array_api.divergence(chunk.array, part_at(self.model, chunk), workers)
        check_chunk(chunk, not negative and not np.isnan(found))
        return np.array([found, 1.0, 0.0])

    def _of_entries(self, chunk: Entries, some: Box) -> float:
        expected = self.model._at([indices[some] for indices in chunk.coords])
        with np.errstate(divide="ignore"):
            return float(measures.divergence(chunk.values[some], expected)) - float(expected.sum())


@dataclass(frozen=True)
class SquaresFrom(Scalars):
    """A scale; over its square, the squares of tensor - model and of the tensor; and the kinds of chunks.

    For entries, the squares of the model there are subtracted, so that all squares of the model can be added.
    """

    model: Model
    most: float

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:
        """Return them for one chunk."""
        if isinstance(chunk, Chunk):
            return np.array([*self.model._misfit(chunk, self.most, workers), 1.0, 0.0])
        _check_entries(chunk)
        scale = max(float(chunk.values.max(initial=0)), self.most) or 1.0
        residual, norm = 0.0, 0.0
        for some in slabs(chunk.values.shape, SLAB_ENTRIES):
            values, expected = chunk.values[some], self.model._at([indices[some] for indices in chunk.coords])
            residual += measures.square_sum(values, expected, scale) - measures.square_sum(expected, None, scale)
            norm += measures.square_sum(values, None, scale)
        return np.array([scale, residual, norm, 0.0, 1.0])

    def total(self, results: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Add them, by the largest scale."""
        scale, sums, kinds = 0.0, np.zeros(2), np.zeros(2)
        for own, residual, norm, *kind in results:
            top = max(scale, own)
            sums = sums * (scale / top) ** 2 + np.array([residual, norm]) * (own / top) ** 2
            scale, kinds = top, kinds + kind
        return np.array([scale, *sums, *kinds])


def part_at(model: Model, chunk: Chunk) -> Callable[[Box], Any]:
    """Return a function from a box of a chunk to the model there, where the chunk is."""
    backend = get_backend(chunk.array)
    return lambda box: backend.from_numpy(model[from_frame(box, chunk.box)])


def is_sparse(boxes: float, entries: float) -> bool:
    """Say whether a tensor came as entries, so that the rest of the model must be added."""
    if boxes and entries:
        raise TypeError(f"x came in {boxes:.0f} dense and {entries:.0f} sparse chunks; give all of one kind")
    return entries > 0


def _check_entries(entries: Entries) -> None:
    """Refuse entries that are negative or not finite."""
    values = entries.values
    # neither comparison holds for NaN, which is the least and the largest entry where there is one
    check_chunk(entries, not values.size or bool(values.min() >= 0 and values.max() < np.inf))
