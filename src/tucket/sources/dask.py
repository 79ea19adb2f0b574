"""dask arrays: each chunk is reduced where it is, and only the results travel and are merged in a tree."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.boxes import Box, shape_of
from tucket.base.checks import check_real, check_shape
from tucket.base.run import Progress, Run
from tucket.sources.dense import SMALL_BYTES
from tucket.sources.errors import name_box
from tucket.sources.source import Chunk, Entries, Reduction, Source
from tucket.sources.sparse import from_sparse

FAN_IN = 8
"""Results that one task merges."""


class Dask(Source):
    """A dask array, reduced by the current scheduler."""

    distributed = True
    nbytes: int
    n_chunks: int

    def __init__(self, array: Any, name: str = "x", axes: Axes | None = None) -> None:
        from dask.array.utils import meta_from_array

        if any(math.isnan(size) for size in array.shape):
            raise ValueError(
                f"{name} has chunks of unknown size (shape {array.shape}); "
                f"compute the sizes first, as with {name}.compute_chunk_sizes()"
            )
        check_real(array.dtype, name, type(array).__name__)
        check_shape(array.shape, name)
        self.array, self.shape, self.axes, self.name = array, array.shape, axes, name
        self.sparse = hasattr(meta_from_array(array), "todense")
        self.nbytes, self.n_chunks = int(array.nbytes), int(array.npartitions)

    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:  # noqa: ARG002
        """Yield the chunks, computed one by one."""
        ends = [np.cumsum([0, *sizes]).tolist() for sizes in self.array.chunks]
        boxes = itertools.product(*([slice(a, b) for a, b in itertools.pairwise(each)] for each in ends))
        for block, box in zip(self.array.to_delayed().ravel(), boxes):
            if all(rows.start < rows.stop for rows in box):
                yield _as_chunk(block.compute(), box, self.shape)

    def reduce(self, reduction: Reduction[Any], run: Run) -> Any:
        """Reduce the array on the current scheduler, and return only the result."""
        result = self.delayed(reduction).compute()
        if run.progress is not None:
            run.progress(Progress(self.n_chunks, self.n_chunks, self.nbytes, self.nbytes, self.nbytes))
        return result

    def load_if_small(self) -> Source:
        """Return the same array in fewer chunks, kept in the memory of the workers, if it is small."""
        if self.nbytes > SMALL_BYTES:
            return self
        return Dask(self.array.rechunk(block_size_limit=SMALL_BYTES // 4).persist(), self.name, self.axes)

    def delayed(self, reduction: Any, finish: Callable[[Any], Any] | None = None) -> Any:
        """Return the result as a delayed object, after `finish` if it is given."""
        from dask.delayed import delayed

        # one task per chunk, fused with those that make it; each result is an array of one object
        parts = self.array.map_blocks(
            _reduce_block,
            reduction,
            self.shape,
            dtype=object,
            chunks=tuple((1,) * count for count in self.array.numblocks),
            meta=np.empty((0,) * self.array.ndim, object),
        )
        level = list(parts.to_delayed().ravel())
        shared = delayed(reduction, traverse=False)
        merge, total = delayed(_merge, traverse=False), delayed(_total, traverse=False)
        while len(level) > 1:
            level = [merge(shared, *level[first : first + FAN_IN]) for first in range(0, len(level), FAN_IN)]
        return total(shared, level[0], finish)


def _reduce_block(block: Any, reduction: Reduction[Any], shape: tuple[int, ...], block_info: Any = None) -> Any:
    """Reduce one chunk; dask gives its place in the array as `block_info`."""
    out = np.empty((1,) * len(shape), object)
    box = tuple(slice(int(a), int(b)) for a, b in block_info[0]["array-location"])
    chunk = _as_chunk(block, box, shape)
    if block.size:
        out.flat[0] = reduction.of(chunk, 1)  # the scheduler has threads of its own
    return out


def _as_chunk(block: Any, box: Box, shape: tuple[int, ...]) -> Chunk | Entries:
    """Return a computed chunk, or refuse one that is not what the array declares."""
    name, declared = f"chunk {name_box('x', box)}", shape_of(box)
    if block.shape != declared:
        raise ValueError(f"{name} came with shape {block.shape}; it should be {declared}, as the array declares")
    check_real(block.dtype, name, type(block).__name__)
    if np.ma.is_masked(block):
        raise TypeError(
            f"{name} has masked entries; fill them with estimates, as with dask.array.ma.filled: "
            f"zeros are data, and would bias the model"
        )
    if not hasattr(block, "todense"):
        return Chunk(np.asarray(block), box)
    entries = from_sparse(block, name).entries
    coords = [indices.astype(np.intp) + rows.start for indices, rows in zip(entries.coords, box)]
    return Entries(coords, entries.values, shape)


def _merge(reduction: Reduction[Any], *parts: Any) -> Any:
    """Merge results; those of chunks come in arrays of one object, which is None for an empty chunk."""
    bare = [part.item() if isinstance(part, np.ndarray) and part.dtype == object else part for part in parts]
    results = [part for part in bare if part is not None]
    return reduction.merge(results) if len(results) > 1 else next(iter(results), None)


def _total(reduction: Reduction[Any], part: Any, finish: Callable[[Any], Any] | None) -> Any:
    total = reduction.total([_merge(reduction, part)])
    return total if finish is None else finish(total)
