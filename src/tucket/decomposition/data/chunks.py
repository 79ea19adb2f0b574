"""A source as a decomposition reads it: every contraction is one pass, to which each chunk adds its part.

Chunks may be on other machines: only the factors are sent there, and only sums as small as the factors come back.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, NoReturn

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import Box, hull, into_frame, shape_of, whole
from tucket.base.run import Run
from tucket.decomposition.data.array import ArrayData
from tucket.decomposition.data.data import Data, Terms
from tucket.decomposition.data.entries import EntriesData
from tucket.decomposition.data.pairs import Pair, PairArray
from tucket.kernels.algebra import Matrix
from tucket.sources.source import Chunk, Entries, Reduction, Source

HELD_ENTRIES = 1 << 24
"""Largest contraction, in entries, that is kept in memory to save passes."""


class Part(NamedTuple):
    """What a chunk adds to an array, and where."""

    array: NDArray[np.float64]
    box: Box


@dataclass(frozen=True, slots=True)
class PartSums(Reduction[list[Part]]):
    """Sums over all chunks, in arrays of given shapes; `work` finds those of a chunk from its data and its box."""

    work: Callable[[Data, Box], list[Part]]
    shapes: Sequence[tuple[int, ...]]
    scale: float

    @property
    def distinct(self) -> bool:
        """True: entries with the same index must be added first, since logarithms and squares are not additive."""
        return True

    def of(self, chunk: Chunk | Entries, workers: int) -> list[Part]:
        """Return what one chunk adds."""
        if isinstance(chunk, Chunk):
            return self.work(_dense_data(chunk.array, self.scale, workers), chunk.box)
        if not len(chunk.values):
            return [Part(np.zeros((0,) * len(shape)), (slice(0, 0),) * len(shape)) for shape in self.shapes]
        box = tuple(slice(int(indices.min()), int(indices.max()) + 1) for indices in chunk.coords)
        coords = [indices - indices.dtype.type(rows.start) for indices, rows in zip(chunk.coords, box)]
        return self.work(EntriesData(Entries(coords, chunk.values, shape_of(box)), self.scale, workers), box)

    def merge(self, results: Sequence[list[Part]]) -> list[Part]:
        """Add what some chunks add: the result covers the smallest box that holds all."""
        merged = []
        for parts in zip(*results):
            box = hull([part.box for part in parts])
            merged.append(_add(Part(np.zeros(shape_of(box)), box), parts))
        return merged

    def total(self, results: Iterable[list[Part]]) -> list[Part]:
        """Add what all chunks add, as it comes."""
        totals = [Part(np.zeros(shape), whole(shape)) for shape in self.shapes]
        for parts in results:
            totals = [_add(total, [part]) for total, part in zip(totals, parts)]
        return totals


def _dense_data(array: Any, scale: float, workers: int) -> ArrayData:
    """Return a chunk, with the exposure of its cells if it has one, as data."""
    if isinstance(array, Pair):
        return PairArray(array.x, scale, workers, exposure=array.exposure)
    return ArrayData(array, scale, workers)


def _add(room: Part, parts: Iterable[Part]) -> Part:
    for part in parts:
        room.array[into_frame(part.box, room.box)] += part.array
    return room


class SourceData(Data):
    """A source that is read again for every contraction."""

    is_in_memory = False

    def __init__(self, source: Source, scale: float, run: Run) -> None:
        self._source, self.scale, self.workers, self.run = source, scale, run.workers, run

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return self._source.shape

    @property
    def source(self) -> Source:
        """The source."""
        return self._source

    def with_tensor(self, tensor: NDArray[Any]) -> ArrayData:
        """Return data about another tensor in the same unit."""
        return ArrayData(tensor, self.scale, self.workers)

    def _sums(self, work: Any, *shapes: tuple[int, ...]) -> list[Matrix]:
        return [part.array for part in self._source.reduce(PartSums(work, shapes, self.scale), self.run)]

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""
        shape = tuple(matrices[mode].shape[1] if mode in matrices else size for mode, size in enumerate(self.shape))
        return self._sums(partial(_contract, matrices), shape)[0]

    def can_hold(self, entries: int) -> bool:
        """Say whether a contraction of so many entries is worth its memory."""
        return entries <= HELD_ENTRIES

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""
        return float(self._sums(partial(_square_sum, metric), ())[0])

    def singular_vectors(self, mode: int, rank: int) -> NoReturn:  # noqa: ARG002
        """Raise an error, since this would need all entries at once."""
        raise ValueError(
            f"init: singular vectors of {self._source!r} need it in memory; give another init, or leave multilevel out"
        )

    def slopes(self, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of <R, Q> with respect to core and factors, with weights R and model Q."""
        work = partial(_slopes, core, factors, terms)
        by_core, *by_factor, total = self._sums(work, core.shape, *(factor.shape for factor in factors), ())
        return by_core, by_factor, float(total)


def _contract(matrices: Mapping[int, Matrix], data: Data, box: Box) -> list[Part]:
    part = data.contract({mode: matrix[box[mode]] for mode, matrix in matrices.items()})
    return [Part(part, tuple(_all(n) if k in matrices else box[k] for k, n in enumerate(part.shape)))]


def _square_sum(metric: Sequence[Matrix], data: Data, box: Box) -> list[Part]:
    return [Part(np.array(data.square_sum([vector[rows] for vector, rows in zip(metric, box)])), ())]


def _slopes(core: Matrix, factors: Sequence[Matrix], terms: Terms, data: Data, box: Box) -> list[Part]:
    some = [factor[rows] for factor, rows in zip(factors, box)]
    by_core, by_factor, total = data.slopes(core, some, terms)
    parts = [Part(slopes, (rows, _all(slopes.shape[1]))) for slopes, rows in zip(by_factor, box)]
    return [Part(by_core, whole(core.shape)), *parts, Part(np.array(total), ())]


def _all(size: int) -> slice:
    return slice(0, size)
