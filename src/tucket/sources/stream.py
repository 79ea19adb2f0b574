"""Streams: slabs of a tensor that come one after another and grow one of its modes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from tucket.sources.source import Chunk, Entries, Source

__all__ = ["Stream"]


class Stream:
    """Slabs of a tensor, each following the one before along a mode.

    A plain iterator of slabs is taken for a stream along mode 0. If it can be read but once, so can the stream.

    Parameters
    ----------
    slabs : iterable of arrays, or of anything else that can be reduced
        All of the same shape but for the mode that grows.
    mode : int
        The mode that grows.

    Examples
    --------
    >>> nights = ([[night, 1], [2, 3]] for night in range(3))
    >>> [slab.shape for slab in Stream(nights, mode=1)]
    [(2, 2), (2, 2), (2, 2)]
    """

    def __init__(self, slabs: Iterable[Any], mode: int = 0) -> None:
        if not isinstance(slabs, Iterable):
            raise TypeError(f"slabs: got a {type(slabs).__name__}; give an iterable of arrays")
        self._slabs, self.mode, self._is_read = slabs, mode, False

    def __iter__(self) -> Iterator[Source]:
        """Yield the slabs that are not empty, each checked against the first."""
        from tucket.sources import as_source

        if self._is_read and isinstance(self._slabs, Iterator):
            raise ValueError(
                "the slabs can be read but once, and were; collect their statistics and go on with these, "
                "or give a Stream of something that can be read again, such as a list"
            )
        self._is_read, first = True, None
        for number, slab in enumerate(self._slabs):
            shape = tuple(slab.shape) if hasattr(slab, "shape") else np.shape(slab)
            first = first or shape
            if not -len(shape) <= self.mode < len(shape):
                raise ValueError(f"slab {number} has shape {shape}; it has no mode {self.mode} that could grow")
            if len(shape) != len(first) or self._others(shape) != self._others(first):
                raise ValueError(
                    f"slab {number} has shape {shape}, but slab 0 has {first}; "
                    f"give slabs that differ in mode {self.mode} alone"
                )
            if shape[self.mode]:
                yield as_source(slab, f"slab {number}")

    def _others(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        mode = self.mode % len(shape)
        return shape[:mode] + shape[mode + 1 :]

    def filling(self, shape: tuple[int, ...]) -> Source:
        """Return a source of a known shape, which the slabs must fill."""
        return Filling(self, shape)


class Filling(Source):
    """A tensor of known shape, filled by slabs."""

    def __init__(self, stream: Stream, shape: tuple[int, ...]) -> None:
        self.stream, self.shape = stream, shape

    @property
    def nbytes(self) -> None:
        """Not known before the slabs have come."""
        return

    def chunks(self, distinct: bool) -> Iterator[Chunk | Entries]:
        """Yield the chunks of the slabs, where they are in the whole."""
        mode, end, number = self.stream.mode % len(self.shape), 0, -1
        for number, slab in enumerate(self.stream):
            start, end = end, end + slab.shape[mode] if len(slab.shape) == len(self.shape) else 0
            fits = self.stream._others(slab.shape) == self.stream._others(self.shape)
            if not fits or end > self.shape[mode]:
                raise ValueError(
                    f"slab {number} has shape {slab.shape} and starts at index {start} of mode {mode}; "
                    f"it does not fit the shape {self.shape}"
                )
            for chunk in slab.chunks(distinct):
                yield _shifted(chunk, mode, start, self.shape)
        if end != self.shape[mode]:
            raise ValueError(
                f"the {number + 1} slabs fill {end} of the {self.shape[mode]} indices of mode {mode} of shape "
                f"{self.shape}; give as many as there are"
            )


def _shifted(chunk: Chunk | Entries, mode: int, start: int, shape: tuple[int, ...]) -> Chunk | Entries:
    if isinstance(chunk, Entries):
        indices = chunk.coords[mode].astype(np.intp) + start
        return Entries([*chunk.coords[:mode], indices, *chunk.coords[mode + 1 :]], chunk.values, shape)
    rows = chunk.box[mode]
    moved = slice(rows.start + start, rows.stop + start)
    return Chunk(chunk.array, (*chunk.box[:mode], moved, *chunk.box[mode + 1 :]))
