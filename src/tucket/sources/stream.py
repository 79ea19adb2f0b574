"""Streams: slabs of a tensor that arrive one after another and extend one of its modes."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Iterator
from contextlib import closing
from typing import Any

import numpy as np

from tucket.base.axes import Axes, find_mode
from tucket.base.checks import as_index
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.sparse import Sparse


class Stream:
    """Slabs of a tensor that follow each other along one mode.

    Functions that take a stream treat a plain iterator of slabs as a stream along mode 0.

    Parameters
    ----------
    slabs : iterable of arrays or sources
        The slabs, of the same shape except in the mode that grows. A stream of an iterator can be read only once.
    mode : int or str, default 0
        The mode that grows, by its number or its name.

    Raises
    ------
    TypeError
        If `slabs` is not iterable, or `mode` is neither a number nor a name.
    ValueError
        While it is read: if a slab does not fit the first one, or if an iterator is read a second time.

    See Also
    --------
    collect : Statistics of a stream of unknown length.

    Examples
    --------
    Visitors in the morning, at noon and in the evening, day by day:

    >>> import tucket as tk
    >>> weekday, weekend = [[8, 9, 1]], [[1, 2, 7]]
    >>> week = tk.Stream([weekday] * 5 + [weekend] * 2)
    >>> tk.collect(week, (None, 2))
    Statistics(shape=(7, 3), rank=(7, 2), total=110, kernel='numpy')
    """

    def __init__(self, slabs: Iterable[Any], mode: int | str = 0) -> None:
        if not isinstance(slabs, Iterable):
            raise TypeError(f"slabs: got a {type(slabs).__name__}; give an iterable of arrays")
        if not isinstance(mode, str) and as_index(mode) is None:
            raise TypeError(f"mode: cannot use {mode!r} of type {type(mode).__name__}; give a number or a name")
        self._slabs, self.mode, self._is_read = slabs, mode, False

    def __iter__(self) -> Iterator[tuple[Source, int]]:
        """Yield each slab that is not empty and fits the first, and the mode that grows."""
        from tucket.sources.as_source import as_source

        if self._is_read and isinstance(self._slabs, Iterator):
            raise ValueError(
                "the slabs can be read only once, and have been read; collect statistics of them and use these, "
                "or give a Stream of something that can be read again, such as a list"
            )
        self._is_read, first = True, None
        for number, item in enumerate(self._slabs):
            if 0 in (tuple(item.shape) if hasattr(item, "shape") else np.shape(item)):
                continue
            slab = as_source(item, f"slab {number}")
            try:
                mode = find_mode(self.mode, slab.axes, len(slab.shape))
            except IndexError as error:
                raise ValueError(f"slab {number} has shape {slab.shape}: {error}") from None
            first = first or slab.shape
            if _other_sizes(slab.shape, mode) != _other_sizes(first, mode) or len(slab.shape) != len(first):
                raise ValueError(
                    f"slab {number} has shape {slab.shape}, but the first has {first}; "
                    f"give slabs that differ only in mode {self.mode}"
                )
            yield slab, mode

    def _outline(self) -> tuple[tuple[int, ...], Axes | None, bool]:
        """Return the shape of the whole, its axes, and whether all slabs are sparse."""
        if isinstance(self._slabs, Iterator):
            raise TypeError(
                "x is a stream that can be read only once, and this reads it several times; "
                "give a Stream of something that can be read again, such as a list"
            )
        shape: tuple[int, ...] = ()
        axes, are_sparse = None, True
        for slab, mode in self:
            axes = _joined_axes(axes, slab, mode, is_first=not shape)
            are_sparse &= slab.sparse
            grown = shape[mode] + slab.shape[mode] if shape else slab.shape[mode]
            shape = (*slab.shape[:mode], grown, *slab.shape[mode + 1 :])
        if not shape:
            raise ValueError("the stream holds no slab; give at least one with at least one index")
        return shape, axes, are_sparse


def as_stream(slabs: Stream | Iterator[Any]) -> Stream:
    """Return a stream; a plain iterator becomes one along mode 0."""
    return slabs if isinstance(slabs, Stream) else Stream(slabs)


def _other_sizes(shape: tuple[int, ...], mode: int) -> tuple[int, ...]:
    """Return the sizes of all modes but one."""
    return shape[:mode] + shape[mode + 1 :]


class StreamSource(Source):
    """A tensor of known shape, filled by slabs; its axes are known once the slabs have been read."""

    def __init__(self, stream: Stream, shape: tuple[int, ...] | None = None) -> None:
        self.stream = stream
        if shape is None:
            self.shape, self.axes, self.sparse = stream._outline()
        else:
            self.shape = shape

    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:
        """Yield the chunks of the slabs at their places in the whole."""
        mode, end, number, axes = 0, 0, -1, None
        for number, (slab, mode) in enumerate(self.stream):
            start, end = end, end + slab.shape[mode]
            if _other_sizes(slab.shape, mode) != _other_sizes(self.shape, mode) or end > self.shape[mode]:
                raise ValueError(
                    f"slab {number} has shape {slab.shape} and starts at index {start} of mode {mode}; "
                    f"it does not fit the shape {self.shape}"
                )
            axes = _joined_axes(axes, slab, mode, is_first=number == 0)
            if isinstance(slab, Sparse):
                yield from slab.at(mode, start, self.shape).chunks(distinct)
            else:
                with closing(slab.chunks(distinct)) as chunks:
                    for chunk in chunks:
                        yield _shifted(chunk, mode, start, self.shape)
        if end != self.shape[mode]:
            raise ValueError(
                f"the {number + 1} slabs fill {end} of the {self.shape[mode]} indices of mode {mode} of shape "
                f"{self.shape}; give slabs that fill it"
            )
        self.axes = self.axes or axes


def _joined_axes(axes: Axes | None, slab: Source, mode: int, *, is_first: bool) -> Axes | None:
    """Return the axes of the slabs so far, given those of the slabs before."""
    if is_first:
        return slab.axes
    return axes._append(slab.axes, mode) if axes and slab.axes else None


def _shifted(chunk: Chunk | Entries, mode: int, start: int, shape: tuple[int, ...]) -> Chunk | Entries:
    """Move a chunk along a mode."""
    if isinstance(chunk, Chunk):
        rows = chunk.box[mode]
        moved = slice(rows.start + start, rows.stop + start)
        return Chunk(chunk.array, (*chunk.box[:mode], moved, *chunk.box[mode + 1 :]))
    indices = chunk.coords[mode].astype(np.intp) + start
    return Entries([*chunk.coords[:mode], indices, *chunk.coords[mode + 1 :]], chunk.values, shape)
