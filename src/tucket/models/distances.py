"""How far a tensor is from a model, chunk by chunk: divergence and squares."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import home_of
from tucket.base.boxes import Box, from_frame, slabs
from tucket.base.threads import in_order
from tucket.kernels import foreign
from tucket.models import metrics
from tucket.sources.reductions import Scalars, check_chunk
from tucket.sources.source import Chunk, Entries

if TYPE_CHECKING:
    from tucket.models.model import Model

__all__ = ["Divergence", "Squares", "abroad", "are_entries", "check_chunk_values"]


@dataclass(frozen=True)
class Divergence(Scalars):
    """The divergence from a model, and how many chunks were boxes, and how many entries.

    Of entries, the model's total is left to be added.
    """

    model: Model
    workers: int

    def of(self, chunk: Chunk | Entries) -> NDArray[np.float64]:
        """Return the divergence of one chunk."""
        model = self.model
        if isinstance(chunk, Entries):
            check_chunk_values(chunk)
            terms = sum(self._of_entries(chunk, some) for some in slabs(chunk.values.shape, FEW))
            return np.array([terms, 0.0, 1.0])
        if not isinstance(chunk.array, np.ndarray):
            found_abroad, negative = foreign.divergence(chunk.array, abroad(model, chunk))
            check_chunk(chunk, not (negative or math.isnan(found_abroad)))
            return np.array([found_abroad, 1.0, 0.0])
        array = check_chunk_values(chunk).array
        found = in_order(
            lambda box: metrics.kl_sum(array[box], model[from_frame(box, chunk.box)]), slabs(array.shape), self.workers
        )
        return np.array([sum(found), 1.0, 0.0])

    def _of_entries(self, chunk: Entries, some: Box) -> float:
        values, found = chunk.values[some], self.model._at([indices[some] for indices in chunk.coords])
        return metrics.kl_sum(values, found) - float(found.sum())


@dataclass(frozen=True)
class Squares(Scalars):
    """A scale; over its square, the squares of tensor - model and tensor; how many chunks were boxes and entries.

    Of entries, the squares of the model there are taken off, to be added with all others of the model.
    """

    model: Model
    workers: int
    most: float

    def of(self, chunk: Chunk | Entries) -> NDArray[np.float64]:
        """Return them for one chunk."""
        if isinstance(chunk, Chunk):
            return np.array([*self.model._misfit(chunk, self.most, self.workers), 1.0, 0.0])
        check_chunk_values(chunk)
        scale = max(float(chunk.values.max(initial=0)), self.most) or 1.0
        residual, norm = 0.0, 0.0
        for some in slabs(chunk.values.shape, FEW):
            values, found = chunk.values[some], self.model._at([indices[some] for indices in chunk.coords])
            residual += metrics.square_sum(values, found, scale) - metrics.square_sum(found, 0, scale)
            norm += metrics.square_sum(values, 0, scale)
        return np.array([scale, residual, norm, 0.0, 1.0])

    def total(self, results: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Add them, by the largest scale."""
        scale, sums, kinds = 0.0, np.zeros(2), np.zeros(2)
        for own, residual, norm, *kind in results:
            top = max(scale, own)
            sums = sums * (scale / top) ** 2 + np.array([residual, norm]) * (own / top) ** 2
            scale, kinds = top, kinds + kind
        return np.array([scale, *sums, *kinds])


def abroad(model: Model, chunk: Chunk) -> Callable[[Box], Any]:
    """Return what brings the part of a model in a box of a chunk to where the chunk is."""
    home = home_of(chunk.array)
    assert home is not None
    return lambda box: home.take(model[from_frame(box, chunk.box)])


def are_entries(boxes: float, entries: float) -> bool:
    """Say whether a tensor came as entries, to which the rest of the model must be added."""
    if boxes and entries:
        raise TypeError(f"x came in {boxes:.0f} dense and {entries:.0f} sparse chunks; give all of one kind")
    return entries > 0


FEW = 1 << 12
"""Entries of a sparse tensor at which a model is evaluated at a time."""


def check_chunk_values(chunk: Any) -> Any:
    """Return a chunk if all its entries are finite and not negative."""
    values = chunk.array if isinstance(chunk, Chunk) else chunk.values
    # neither comparison holds for NaN, which is the least and the largest entry where there is one
    check_chunk(chunk, not values.size or bool(values.min() >= 0 and values.max() < np.inf))
    return chunk
