"""Arrays of dask's: chunks are reduced where they are, and their sums are added by a tree; nothing else travels."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator, Iterator, Sequence
from typing import Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.sources.dense import SMALL, check_real, check_shape
from tucket.sources.source import Chunk, Entries, Progress, Reduction, Report, Source, on_one_thread
from tucket.sources.sparse import from_sparse

__all__ = ["Dask"]

FAN_IN = 8
"""Sums that are added at a time."""


class Dask(Source):
    """An array of dask's, reduced by whatever scheduler is current."""

    def __init__(self, array: Any, name: str = "x", axes: Axes | None = None) -> None:
        if any(math.isnan(size) for size in array.shape):
            raise ValueError(
                f"{name} has chunks of unknown size (shape {array.shape}); "
                f"find them out first, as with {name}.compute_chunk_sizes()"
            )
        check_real(array.dtype, name, type(array).__name__)
        check_shape(array.shape, name)
        self.array, self.shape, self.axes, self.name = array, array.shape, axes, name
        self.sparse = hasattr(array._meta, "todense")

    @property
    def nbytes(self) -> int:
        """Bytes of the array, once computed."""
        return int(self.array.nbytes)

    @property
    def n_chunks(self) -> int:
        """Chunks of the array."""
        return int(self.array.npartitions)

    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:  # noqa: ARG002
        """Yield the chunks, brought here one by one."""
        for block, box in zip(self.array.to_delayed().ravel(), self._boxes()):
            if all(rows.start < rows.stop for rows in box):
                yield _as_chunk(block.compute(), box, self.shape)

    def _boxes(self) -> Iterator[Box]:
        ends = [np.cumsum([0, *sizes]).tolist() for sizes in self.array.chunks]
        return itertools.product(*([slice(a, b) for a, b in itertools.pairwise(each)] for each in ends))

    def reduce(self, reduction: Reduction[Any], progress: Report | None = None) -> Any:
        """Find out something of the tensor on the current scheduler, and bring only that here."""
        found = self.delayed(reduction).compute()
        if progress is not None:
            progress(Progress(self.n_chunks, self.n_chunks, self.nbytes, self.nbytes, self.nbytes))
        return found

    def held(self) -> Source:
        """Return the same array in fewer chunks, kept where the work is done, if it is small."""
        if self.nbytes > SMALL:
            return self
        return Dask(self.array.rechunk(block_size_limit=SMALL // 4).persist(), self.name, self.axes)

    def delayed(self, reduction: Any, finish: Callable[[Any], Any] | None = None) -> Any:
        """Return a delayed object that is to become what is asked for."""
        from dask.delayed import delayed

        reduction = on_one_thread(reduction)  # the scheduler has threads of its own
        # one task a chunk, together with what makes the chunk; its result stands in an array of one object
        parts = self.array.map_blocks(
            _reduce_block,
            reduction,
            self.shape,
            dtype=object,
            chunks=tuple((1,) * count for count in self.array.numblocks),
            meta=np.empty((0,) * self.array.ndim, object),
        )
        level = list(parts.to_delayed().ravel())
        how = delayed(reduction, traverse=False)
        merge, total = delayed(_merge, traverse=False), delayed(_total, traverse=False)
        while len(level) > 1:
            level = [merge(how, *level[first : first + FAN_IN]) for first in range(0, len(level), FAN_IN)]
        return total(how, level[0], finish)


def _reduce_block(block: Any, reduction: Reduction[Any], shape: tuple[int, ...], block_info: Any = None) -> Any:
    """Reduce one chunk, which is told where in the whole it is."""
    out = np.empty((1,) * len(shape), object)
    box = tuple(slice(int(a), int(b)) for a, b in block_info[0]["array-location"])
    chunk = _as_chunk(block, box, shape)
    if block.size:
        out.flat[0] = reduction.of(chunk)
    return out


def _as_chunk(block: Any, box: Box, shape: tuple[int, ...]) -> Chunk | Entries:
    """Return what a task of dask's has made, if it is what was said of it."""
    name = f"chunk x[{', '.join(f'{rows.start}:{rows.stop}' for rows in box)}]"
    wanted = tuple(rows.stop - rows.start for rows in box)
    if block.shape != wanted:
        raise ValueError(f"{name} came with shape {block.shape}; it should be {wanted}, as the array says")
    check_real(block.dtype, name, type(block).__name__)
    if np.ma.is_masked(block):
        raise TypeError(f"{name} has masked entries; fill them first, as with dask.array.ma.filled")
    if not hasattr(block, "todense"):
        return Chunk(np.asarray(block), box)
    found = from_sparse(block, name).entries
    coords = [indices.astype(np.intp) + rows.start for indices, rows in zip(found.coords, box)]
    return Entries(coords, found.values, shape)


def _known(parts: Sequence[Any]) -> list[Any]:
    """Return the results of chunks, bare or in an array of one; an empty chunk has none."""
    bare = [part.item() if isinstance(part, np.ndarray) and part.dtype == object else part for part in parts]
    return [part for part in bare if part is not None]


def _merge(reduction: Reduction[Any], *parts: Any) -> Any:
    known = _known(parts)
    return reduction.merge(known) if known else None


def _total(reduction: Reduction[Any], part: Any, finish: Callable[[Any], Any] | None) -> Any:
    total = reduction.total(_known([part]))
    return total if finish is None else finish(total)
