"""Arrays too large for memory, read in boxes made of whole chunks: zarr, HDF5, NetCDF, images."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.boxes import Box, grid
from tucket.base.threads import ahead, check_workers
from tucket.sources.dense import SMALL, Array, check_real, check_shape
from tucket.sources.source import Chunk, Reduction, Report, Result, Source, on_one_thread

__all__ = ["MEMORY", "Chunked"]

MEMORY = 1 << 28
"""Bytes that reading may take unless told otherwise."""

HELD = 4
"""Boxes in memory at a time, at most."""

BOX = 1 << 24
"""Bytes of a box at most, unless a single chunk has more: there is nothing to gain by larger ones."""


class Chunked(Source):
    """Anything with a shape, a dtype and boxes to be read: `array[box]`.

    Boxes are made of whole chunks, so that none is decoded twice, and are read ahead of the work on them.

    Parameters
    ----------
    array
        What is read; it must bear to be read by several threads.
    chunks : one int a mode, or None
        The chunks it is stored in, if any.
    axes, name
        Names and labels of the modes, and what the array is called in errors.
    memory : int
        Bytes that reading may take.
    closing
        What to close in the end.
    """

    def __init__(
        self,
        array: Any,
        chunks: Sequence[int] | None = None,
        axes: Axes | None = None,
        name: str = "x",
        memory: int | None = None,
        closing: Any = None,
    ) -> None:
        self.shape = tuple(int(size) for size in array.shape)
        self.dtype = np.dtype(array.dtype)
        check_real(self.dtype, name, type(array).__name__)
        check_shape(self.shape, name)
        self.array, self.axes, self.name, self.closing = array, axes, name, closing
        self.memory = MEMORY if memory is None else memory
        self.step = _whole_chunks(self.shape, chunks, self.dtype.itemsize, memory, name)

    @property
    def nbytes(self) -> int:
        """Bytes of the array, once decoded."""
        return self.size * int(self.dtype.itemsize)

    @property
    def n_chunks(self) -> int:
        """Boxes that are read."""
        return math.prod([-(-size // step) for size, step in zip(self.shape, self.step)])

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the boxes, read ahead."""
        yield from ahead(self._read, grid(self.shape, self.step), HELD // 2)

    def reduce(self, reduction: Reduction[Result], progress: Report | None = None) -> Result:
        """Find out something of the tensor: each thread reads a box, and works on it while it is in its cache."""
        workers = check_workers(getattr(reduction, "workers", 1))
        alone = on_one_thread(reduction)

        def work(box: Box) -> tuple[int, Result]:
            chunk = self._read(box)
            return chunk.nbytes, alone.of(chunk)

        # one more than can be busy, since some wait for the disk
        found = ahead(work, grid(self.shape, self.step), min(workers + 1, HELD))
        with closing(self._told_of(found, progress)) as results:
            return reduction.total(results)

    def _read(self, box: Box) -> Chunk:
        where = ", ".join(f"{rows.start}:{rows.stop}" for rows in box)
        try:
            part = np.asarray(self.array[box])
        except Exception as error:  # every reader has errors of its own
            raise ValueError(f"{self.name}[{where}] cannot be read: {error}") from error
        shape = tuple(rows.stop - rows.start for rows in box)
        if part.shape != shape or part.dtype.kind != self.dtype.kind:
            raise ValueError(
                f"{self.name}[{where}] was read as {part.dtype} of shape {part.shape}; it should be {self.dtype} "
                f"of shape {shape}: the data and what is said of them do not agree"
            )
        return Chunk(part, box)

    def held(self) -> Source:
        """Return the array in memory, if it is small."""
        if self.nbytes > min(SMALL, self.memory // 2):
            return self
        array = np.empty(self.shape, self.dtype)
        for part, box in self.chunks(False):
            array[box] = part
        return Array(array, self.axes)

    def close(self) -> None:
        """Close the file, if one was opened."""
        if self.closing is not None:
            self.closing.close()

    def _note(self) -> str:
        return f" of {self.dtype}, in {self.n_chunks:,} chunks of at most {self.step}"


def _whole_chunks(
    shape: tuple[int, ...], chunks: Sequence[int] | None, itemsize: int, memory: int | None, name: str
) -> tuple[int, ...]:
    """Choose how many chunks of each mode to read at once: as many as fit, of the last modes first."""
    chunks = (1,) * len(shape) if chunks is None else chunks
    step = [min(size, max(1, int(chunk))) for size, chunk in zip(shape, chunks)]
    least, most = HELD * math.prod(step) * itemsize, MEMORY if memory is None else memory
    if least > most:
        if memory is not None:
            raise ValueError(
                f"memory: got {memory:,} bytes, but {name} is stored in chunks of {least // HELD:,} bytes, "
                f"{HELD} of which are held at a time; give at least {least:,}"
            )
        return tuple(step)
    for mode in reversed(range(len(shape))):
        fit = min(most // HELD, BOX) // (math.prod(step) * itemsize)
        step[mode] = min(shape[mode], step[mode] * max(1, fit))
    return tuple(step)
