"""The passes over large tensors: boxes of memory to the compiled loops, their results added."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tucket.kernels import cpu
from tucket.kernels.rows import (
    NARROW,
    Rows,
    is_readable,
    memory_order,
    merge,
    row_length,
    short_split,
    sum_split,
)
from tucket.kernels.sums import Moments, Sums
from tucket.kernels.threads import in_order
from tucket.partition import Partition
from tucket.sources.dense import slabs

__all__ = ["block_sums", "residual", "write"]

Array = NDArray[Any]
Box = tuple[slice, ...]

TILE = 1 << 15
"""Columns of a long row that are handled at a time: few enough for the second-level cache, and for a sum of
16-bit numbers to fit 32 bits."""

SEATS = 1 << 17
"""Sums that short rows may be added to before they are folded: 1 MB of float64."""

COPY = 1 << 20
"""Entries that are copied at a time where a tensor cannot be read as it lies."""

MODEL_ROWS = 1 << 12
"""Rows of a box for which a part of the model is expanded."""

CORE, CORE_BOX = 1 << 22, 1 << 24
"""Entries of a core that each worker may keep a copy of, and of the boxes that a larger one is summed by."""


def block_sums(tensor: Array, partition: Partition, workers: int, with_moments: bool) -> Sums:
    """Read the tensor once, where it lies, for its block sums and marginals."""
    turned = Turned.of(tensor, partition)
    core = np.zeros(turned.ranks)
    marginals = [np.zeros(size) for size in turned.tensor.shape]
    negative, moments = False, np.zeros(2)

    def sum_box(box: Box) -> tuple[Part, BoxSums]:
        part = turned.part(box)
        return part, _sum_part(part, turned.read(box), with_moments)

    boxes = turned.boxes(workers, tensor.size if core.size <= CORE else CORE_BOX)
    for part, sums in in_order(sum_box, boxes, workers):
        core[part.region] += sums.core
        for marginal, where, piece in zip(marginals, part.box, sums.marginals):
            marginal[where] += piece
        moments += sums.moments
        negative |= sums.negative
    back = np.argsort(turned.order)
    return Sums(
        np.ascontiguousarray(core.transpose(back)),
        tuple(marginals[place] for place in back),
        negative,
        Moments(*moments.tolist()) if with_moments else None,
        "numba",
    )


def write(out: Array, core: Array, partition: Partition, weights: Sequence[Array], workers: int) -> None:
    """Write the tensor of a model to `out`."""
    turned = Turned.of(out, partition)
    core, weights = core.transpose(turned.order), [weights[mode] for mode in turned.order]

    def write_box(box: Box) -> None:
        target = turned.tensor[box]
        rows = target if turned.readable else np.empty(target.shape, core.dtype)
        for tile in _model_tiles(turned.part(box), rows, core, weights):
            cpu.spread(*tile)
        if rows is not target:
            target[...] = rows

    boxes = turned.boxes(workers, MODEL_ROWS * row_length(turned.tensor))
    for _ in in_order(write_box, boxes, workers):
        pass


def residual(
    tensor: Array, core: Array, partition: Partition, weights: Sequence[Array], workers: int
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and of the tensor, and whether any entry is negative."""
    turned = Turned.of(tensor, partition)
    core, weights = core.transpose(turned.order), [weights[mode] for mode in turned.order]

    def compare(box: Box) -> tuple[float, float, bool]:
        tiles = _model_tiles(turned.part(box), turned.read(box), core, weights)
        residuals, squares, below = zip(*(cpu.misfit(*tile) for tile in tiles))
        return sum(residuals), sum(squares), any(below)

    boxes = turned.boxes(workers, MODEL_ROWS * row_length(turned.tensor))
    residuals, squares, below = zip(*in_order(compare, boxes, workers))
    return sum(residuals), sum(squares), any(below)


class Part(NamedTuple):
    """A box of a tensor: its labels, counted from the first that occurs, and its place in the core."""

    box: Box
    region: Box
    labels: list[NDArray[np.intp]]
    ranks: list[int]


@dataclass(frozen=True, slots=True)
class Turned:
    """A tensor with its modes in the order of memory, and the labels of their indices."""

    tensor: Array
    order: list[int]
    labels: list[NDArray[np.intp]]
    ranks: list[int]
    readable: bool

    @classmethod
    def of(cls, tensor: Array, partition: Partition) -> Self:
        """Turn a tensor; a bool is read as the byte it is."""
        order = memory_order(tensor)
        turned = (tensor.view(np.uint8) if tensor.dtype == bool else tensor).transpose(order)
        modes = [partition[mode] for mode in order]
        return cls(turned, order, [m.labels for m in modes], [m.rank for m in modes], is_readable(turned))

    def boxes(self, workers: int, most: int) -> Iterator[Box]:
        """Cut the tensor into boxes of at most so many entries, and at least one for each worker."""
        share = -(-self.tensor.size // workers)
        return slabs(self.tensor.shape, min(most, share) if self.readable else COPY)

    def part(self, box: Box) -> Part:
        """Describe a box."""
        labels = [label[where] for label, where in zip(self.labels, box)]
        lowest = [int(label.min()) for label in labels]
        ranks = [int(label.max()) - low + 1 for label, low in zip(labels, lowest)]
        return Part(
            box,
            tuple(slice(low, low + rank) for low, rank in zip(lowest, ranks)),
            [label - low if low else label for label, low in zip(labels, lowest)],
            ranks,
        )

    def read(self, box: Box) -> Array:
        """Return the entries of a box in a form that the loops can read: copied only if they must be."""
        view = self.tensor[box]
        if self.readable:
            return view
        native = np.float32 if view.dtype == np.float16 else view.dtype.newbyteorder("=")
        return np.ascontiguousarray(view, native)


class BoxSums(NamedTuple):
    """Block sums and marginals of one box."""

    core: NDArray[np.float64]
    marginals: list[NDArray[np.float64]]
    moments: NDArray[np.float64]
    negative: bool


def _sum_part(part: Part, tensor: Array, with_moments: bool) -> BoxSums:
    split = sum_split(tensor, part.labels, part.ranks)
    columns = np.zeros(math.prod(tensor.shape[split:]))
    column_labels = merge(part.labels[split:], part.ranks[split:])
    core = np.zeros((math.prod(part.ranks[:split]), math.prod(part.ranks[split:])))
    # small integers are added as integers, as often as their sum surely fits
    is_small = tensor.dtype.kind in "iu" and tensor.itemsize <= 2
    kind, limit = (np.int32, 1 << (31 - 8 * tensor.itemsize)) if is_small else (np.float64, 1 << 62)
    moments = np.zeros(2) if with_moments else None
    table = _V_LOG_V if with_moments and tensor.itemsize == 1 else None
    if len(columns) <= NARROW:
        flat, offsets = Rows.of(tensor, split - 1)
        step = np.uint64(tensor.strides[split - 1] // tensor.itemsize)
        lead = merge(part.labels[: split - 1], part.ranks[: split - 1]) * part.ranks[split - 1]
        sums = _aligned_zeros(max(1, min(len(core), SEATS // len(columns))), len(columns), kind)
        seats, owners = np.full(len(core), -1), np.empty(len(sums), np.intp)
        lead_sums, row_sums = np.zeros(len(lead)), np.zeros(tensor.shape[split - 1])
        negative = cpu.narrow(
            flat, offsets, lead, step, part.labels[split - 1], column_labels, _edges(column_labels), limit,
            sums, seats, owners, core, lead_sums, row_sums, columns, table, moments,
        )  # fmt: skip
        marginals = [*_marginals(lead_sums.reshape(tensor.shape[: split - 1])), row_sums]
    else:
        flat, offsets = Rows.of(tensor, split)
        labels = merge(part.labels[:split], part.ranks[:split])
        order = np.argsort(labels, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(labels, minlength=len(core))))
        row_sums, negative = np.zeros(len(labels)), False
        for low in range(0, len(columns), TILE):
            tile = slice(low, low + TILE)
            sums = _aligned_zeros(1, len(columns[tile]), kind)[0, : len(columns[tile])]
            negative |= cpu.wide(
                flat, offsets + np.uint64(low), order, starts, column_labels[tile],
                _edges(column_labels[tile]), limit, sums, core, row_sums, columns[tile], table, moments,
            )  # fmt: skip
        marginals = _marginals(row_sums.reshape(tensor.shape[:split]))
    marginals += _marginals(columns.reshape(tensor.shape[split:]))
    return BoxSums(core.reshape(part.ranks), marginals, np.zeros(2) if moments is None else moments, negative)


def _model_tiles(
    part: Part, tensor: Array, core: Array, weights: Sequence[Array]
) -> Iterator[tuple[Any, ...]]:
    """Yield a box as rows of memory, and the model there: a row's label and weight, a label's row."""
    split = short_split(tensor)
    flat, offsets = Rows.of(tensor, split, writeable=tensor.flags.writeable)
    labels, column_labels = (merge(part.labels[a:b], part.ranks[a:b]) for a, b in ((0, split), (split, None)))
    heights, widths = (
        _outer([weight[where] for weight, where in zip(weights[a:b], part.box[a:b])])
        for a, b in ((0, split), (split, None))
    )
    flat_core = core[part.region].reshape(-1, int(np.prod(part.ranks[split:], dtype=np.intp)))
    for low in range(0, len(column_labels), TILE):
        tile = slice(low, low + TILE)
        columns = flat_core.take(column_labels[tile], axis=1) * widths[tile]
        yield flat, offsets + np.uint64(low), labels, heights, columns


def _edges(labels: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return where runs of equal labels begin, and where the last one ends."""
    inner = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return np.concatenate(([0], inner, [len(labels)])).astype(np.uint64)


def _marginals(sums: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    # three axes at most: NumPy is slow on many short ones
    shape = sums.shape
    return [
        sums.reshape(math.prod(shape[:axis]), shape[axis], -1).sum(axis=(0, 2)) for axis in range(sums.ndim)
    ]


def _outer(vectors: Sequence[Array]) -> Array:
    """Return the outer product of vectors, flat."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = np.multiply.outer(product, vector).ravel()
    return product


def _aligned_zeros(rows: int, width: int, dtype: type[np.generic]) -> Array:
    """Return zeros whose every row begins a cache line, and may be longer than asked."""
    lane = 64 // np.dtype(dtype).itemsize
    stride = -(-width // lane) * lane
    memory = np.zeros(rows * stride + lane, dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + rows * stride].reshape(rows, stride)


_BYTES = np.arange(256.0)
_V_LOG_V = _BYTES * np.log(np.maximum(_BYTES, 1))
