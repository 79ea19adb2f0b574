"""Streams: slabs of a tensor that come one after another and grow one of its modes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from tucket.base.axes import find_mode
from tucket.base.blocks import as_index
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.sparse import Sparse

__all__ = ["Stream"]


class Stream:
    """Slabs of a tensor, each following the one before along a mode.

    A plain iterator of slabs is taken for a stream along mode 0. If it can be read but once, so can the stream.

    Parameters
    ----------
    slabs : iterable of arrays, or of anything else that can be reduced
        All of the same shape but for the mode that grows.
    mode : int or str
        The mode that grows, by its number or its name.

    Examples
    --------
    >>> nights = ([[night, 1], [2, 3]] for night in range(3))
    >>> [slab.shape for slab, _ in Stream(nights, mode=1)]
    [(2, 2), (2, 2), (2, 2)]
    """

    def __init__(self, slabs: Iterable[Any], mode: int | str = 0) -> None:
        if not isinstance(slabs, Iterable):
            raise TypeError(f"slabs: got a {type(slabs).__name__}; give an iterable of arrays")
        if not isinstance(mode, str) and as_index(mode) is None:
            raise TypeError(f"mode: cannot use {mode!r} of type {type(mode).__name__}; give a number or a name")
        self._slabs, self.mode, self._is_read = slabs, mode, False

    def __iter__(self) -> Iterator[tuple[Source, int]]:
        """Yield the slabs that are not empty, each checked against the first, and the mode that they grow."""
        from tucket.sources.as_source import as_source

        if self._is_read and isinstance(self._slabs, Iterator):
            raise ValueError(
                "the slabs can be read but once, and were; collect their statistics and go on with these, "
                "or give a Stream of something that can be read again, such as a list"
            )
        self._is_read, first = True, None
        for number, given in enumerate(self._slabs):
            if 0 in (tuple(given.shape) if hasattr(given, "shape") else np.shape(given)):
                continue
            slab = as_source(given, f"slab {number}")
            try:
                mode = find_mode(self.mode, slab.axes, len(slab.shape))
            except IndexError as error:
                raise ValueError(f"slab {number} has shape {slab.shape}: {error}") from None
            first = first or slab.shape
            if without(slab.shape, mode) != without(first, mode) or len(slab.shape) != len(first):
                raise ValueError(
                    f"slab {number} has shape {slab.shape}, but the first has {first}; "
                    f"give slabs that differ in mode {self.mode} alone"
                )
            yield slab, mode

    @classmethod
    def of(cls, slabs: Stream | Iterator[Any]) -> Stream:
        """Return a stream: a plain iterator is one along mode 0."""
        return slabs if isinstance(slabs, Stream) else cls(slabs)

    def filling(self, shape: tuple[int, ...]) -> Source:
        """Return a source of a known shape, which the slabs must fill."""
        return Filling(self, shape)


def without(shape: tuple[int, ...], mode: int) -> tuple[int, ...]:
    """Return the sizes of all modes but one."""
    return shape[:mode] + shape[mode + 1 :]


class Filling(Source):
    """A tensor of known shape, filled by slabs; its axes are known when they have been read."""

    def __init__(self, stream: Stream, shape: tuple[int, ...]) -> None:
        self.stream, self.shape = stream, shape

    @property
    def nbytes(self) -> None:
        """Not known before the slabs have come."""
        return

    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:
        """Yield the chunks of the slabs, where they are in the whole."""
        mode, end, number, axes = 0, 0, -1, None
        for number, (slab, mode) in enumerate(self.stream):
            start, end = end, end + slab.shape[mode]
            if without(slab.shape, mode) != without(self.shape, mode) or end > self.shape[mode]:
                raise ValueError(
                    f"slab {number} has shape {slab.shape} and starts at index {start} of mode {mode}; "
                    f"it does not fit the shape {self.shape}"
                )
            axes = axes.append(slab.axes, mode) if axes and slab.axes else slab.axes if number == 0 else None
            if isinstance(slab, Sparse):
                yield from slab.at(mode, start, self.shape).chunks(distinct)
            else:
                with closing(slab.chunks(distinct)) as chunks:
                    for chunk in chunks:
                        yield _shifted(chunk, mode, start, self.shape)
        if end != self.shape[mode]:
            raise ValueError(
                f"the {number + 1} slabs fill {end} of the {self.shape[mode]} indices of mode {mode} of shape "
                f"{self.shape}; give as many as there are"
            )
        self.axes = axes


def _shifted(chunk: Chunk | Entries, mode: int, start: int, shape: tuple[int, ...]) -> Chunk | Entries:
    if isinstance(chunk, Entries):
        indices = chunk.coords[mode].astype(np.intp) + start
        return Entries([*chunk.coords[:mode], indices, *chunk.coords[mode + 1 :]], chunk.values, shape)
    rows = chunk.box[mode]
    moved = slice(rows.start + start, rows.stop + start)
    return Chunk(chunk.array, (*chunk.box[:mode], moved, *chunk.box[mode + 1 :]))
