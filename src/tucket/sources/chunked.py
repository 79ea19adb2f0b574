"""Arrays larger than memory, read in boxes of whole chunks: zarr, HDF5, NetCDF and images."""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from contextlib import closing
from typing import Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.boxes import Box, grid, shape_of
from tucket.base.checks import check_real, check_shape
from tucket.base.run import Run, prefetch
from tucket.sources.dense import SMALL_BYTES, Array
from tucket.sources.errors import name_box
from tucket.sources.source import Chunk, Reduction, Result, Source

MEMORY_BYTES = 1 << 28
"""Bytes that reading may take by default."""

BOXES_HELD = 4
"""Boxes in memory at a time, at most."""

BOX_BYTES = 1 << 24
"""Bytes per box, unless a single chunk has more: larger boxes are not faster."""


class Chunked(Source):
    """An array with a shape and a dtype that threads read ahead by slicing, in boxes of whole chunks.

    Each chunk is decoded once. `chunks` is the size of the stored chunks, `memory` the bytes that reading may take, and
    `closing` the file to close in the end.
    """

    nbytes: int
    n_chunks: int

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
        self.memory = MEMORY_BYTES if memory is None else memory
        self.step = _whole_chunks(self.shape, chunks, self.dtype.itemsize, memory, name)
        self.nbytes = self.size * int(self.dtype.itemsize)
        self.n_chunks = math.prod([-(-size // step) for size, step in zip(self.shape, self.step)])

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the boxes, prefetched."""
        yield from prefetch(self._read, grid(self.shape, self.step), BOXES_HELD // 2)

    def reduce(self, reduction: Reduction[Result], run: Run) -> Result:
        """Reduce box by box: each thread reduces the box that it has read, while it is in the cache."""

        def work(box: Box) -> tuple[int, Result]:
            chunk = self._read(box)
            return chunk.nbytes, reduction.of(chunk, 1)

        # one more than there are processors, as some wait for the disk
        found = prefetch(work, grid(self.shape, self.step), min(run.workers + 1, BOXES_HELD))
        with closing(self._reported(found, run)) as results:
            return reduction.total(results)

    def _read(self, box: Box) -> Chunk:
        name, shape = name_box(self.name, box), shape_of(box)
        try:
            part = np.asarray(self.array[box])
        except Exception as error:  # every reader has errors of its own
            raise ValueError(f"{name} cannot be read: {error}") from error
        if part.shape != shape or part.dtype.kind != self.dtype.kind:
            raise ValueError(
                f"{name} was read as {part.dtype} of shape {part.shape}; it should be {self.dtype} of shape {shape}"
            )
        return Chunk(part, box)

    def load_if_small(self) -> Source:
        """Return the array in memory, if it is small."""
        if self.nbytes > min(SMALL_BYTES, self.memory // 2):
            return self
        array = np.empty(self.shape, self.dtype)
        for part, box in self.chunks(False):
            array[box] = part
        return Array(array, self.axes)

    def close(self) -> None:
        """Close the file, if there is one."""
        if self.closing is not None:
            self.closing.close()

    def _note(self) -> str:
        return f" of {self.dtype}, in {self.n_chunks:,} chunks of at most {self.step}"


def _whole_chunks(
    shape: tuple[int, ...], chunks: Sequence[int] | None, itemsize: int, memory: int | None, name: str
) -> tuple[int, ...]:
    """Choose the size of a box: as many whole chunks as fit, those along the last modes first."""
    chunks = (1,) * len(shape) if chunks is None else chunks
    step = [min(size, max(1, int(chunk))) for size, chunk in zip(shape, chunks)]
    least, most = BOXES_HELD * math.prod(step) * itemsize, MEMORY_BYTES if memory is None else memory
    if least > most:
        if memory is not None:
            raise ValueError(
                f"memory: got {memory:,} bytes, but {name} is stored in chunks of {least // BOXES_HELD:,} bytes, "
                f"and {BOXES_HELD} of them are in memory at a time; give at least {least:,}"
            )
        return tuple(step)
    for mode in reversed(range(len(shape))):
        fit = min(most // BOXES_HELD, BOX_BYTES) // (math.prod(step) * itemsize)
        step[mode] = min(shape[mode], step[mode] * max(1, fit))
    return tuple(step)
