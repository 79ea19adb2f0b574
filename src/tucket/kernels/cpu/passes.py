"""The passes over large tensors: boxes of memory to the compiled loops, their results added."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import Box, slabs
from tucket.base.partition import Partition
from tucket.base.threads import in_order
from tucket.kernels.cpu import loops as cpu
from tucket.kernels.cpu.rows import (
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

__all__ = ["block_sums", "residual", "write"]

Array = NDArray[Any]

TILE = 1 << 15
"""Columns of a long row that are handled at a time: few enough for the second-level cache, and for a sum of
16-bit numbers to fit 32 bits."""

SEATS = 1 << 17
"""Sums that short rows may be added to before they are folded: 1 MB of float64."""

COPY = 1 << 20
"""Entries that are copied at a time where a tensor cannot be read as it lies."""

MODEL_ROWS, MODEL_BOX = 1 << 12, 1 << 18
"""Rows of a box for which a part of the model is expanded, or entries where rows are short."""

CORE, CORE_BOX = 1 << 22, 1 << 24
"""Entries of a core that each worker may keep a copy of, and of the boxes that a larger one is summed by."""


def block_sums(tensor: Array, partition: Partition, workers: int, unit: float | None) -> Sums:
    """Read the tensor once, where it lies, for its block sums and marginals, and for its moments if given a unit."""
    turned = Turned.of(tensor, partition)
    core = np.zeros(turned.ranks)
    marginals = [np.zeros(size) for size in turned.tensor.shape]
    negative, moments = False, np.zeros(2)

    def sum_box(box: Box) -> tuple[Part, BoxSums]:
        part = turned.part(box)
        return part, _sum_part(part, turned.read(box), unit)

    boxes = turned.boxes(workers, tensor.size if core.size <= CORE else CORE_BOX)
    for part, sums in in_order(sum_box, boxes, workers):
        core[part.region] += sums.core
        for marginal, where, piece in zip(marginals, part.box, sums.marginals):
            marginal[where] += piece
        moments += sums.moments
        negative |= sums.negative
    back = np.argsort(turned.order)
    return Sums(
        core if turned.order == sorted(turned.order) else np.ascontiguousarray(core.transpose(back)),
        tuple(marginals[place] for place in back),
        negative,
        None if unit is None else Moments(*moments.tolist()),
        "numba",
    )


def write(out: Array, core: Array, partition: Partition, weights: Sequence[Array], workers: int) -> None:
    """Write the tensor of a model to `out`."""
    turned = Turned.of(out, partition)
    core, weights = core.transpose(turned.order), [weights[mode] for mode in turned.order]

    def write_box(box: Box) -> None:
        target = turned.tensor[box]
        rows = target if turned.readable else np.empty(target.shape, target.dtype)
        for tile in _model_tiles(turned.part(box), rows, core, weights, writeable=True):
            cpu.spread(*tile)
        if rows is not target:
            target[...] = rows

    boxes = turned.boxes(workers, max(MODEL_BOX, MODEL_ROWS * row_length(turned.tensor)))
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

    boxes = turned.boxes(workers, max(MODEL_BOX, MODEL_ROWS * row_length(turned.tensor)))
    residuals, squares, below = zip(*in_order(compare, boxes, workers))
    return sum(residuals), sum(squares), any(below)


class Part(NamedTuple):
    """A box of a tensor: the labels that occur in it, numbered anew, and their place in the core."""

    box: Box
    region: tuple[Any, ...]
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
        labels = [np.array(blocks.labels) for blocks in modes]  # all writeable: one type, one compilation
        return cls(turned, order, labels, [blocks.rank for blocks in modes], is_readable(turned))

    def boxes(self, workers: int, most: int) -> Iterator[Box]:
        """Cut the tensor into boxes of at most so many entries, and at least one for each worker."""
        share = -(-self.tensor.size // workers)
        return slabs(self.tensor.shape, min(most, share) if self.readable else COPY)

    def part(self, box: Box) -> Part:
        """Describe a box."""
        labels, seen = [], []
        for label, where, rank in zip(self.labels, box, self.ranks):
            occurs = np.zeros(rank, np.intp)
            occurs[label[where]] = 1
            seen.append(np.flatnonzero(occurs))
            labels.append((occurs.cumsum() - 1)[label[where]] if len(seen[-1]) < rank else label[where])
        ranks = [len(these) for these in seen]
        runs = all(these[-1] - these[0] < rank for these, rank in zip(seen, ranks))
        region = tuple(slice(these[0], these[-1] + 1) for these in seen) if runs else np.ix_(*seen)
        return Part(box, region, labels, ranks)

    def read(self, box: Box) -> Array:
        """Return the entries of a box in a form that the loops can read: copied only if they must be."""
        view = self.tensor[box]
        if self.readable:
            return view
        is_half = view.dtype.kind == "f" and view.itemsize == 2
        native = np.dtype(np.float32) if is_half else view.dtype.newbyteorder("=")
        return np.ascontiguousarray(view, native)


class BoxSums(NamedTuple):
    """Block sums and marginals of one box."""

    core: NDArray[np.float64]
    marginals: list[NDArray[np.float64]]
    moments: NDArray[np.float64]
    negative: bool


def _sum_part(part: Part, tensor: Array, unit: float | None) -> BoxSums:
    split = sum_split(tensor, part.labels, part.ranks)
    columns = np.zeros(math.prod(tensor.shape[split:]))
    column_labels = merge(part.labels[split:], part.ranks[split:])
    core = np.zeros((math.prod(part.ranks[:split]), math.prod(part.ranks[split:])))
    # small integers are added as integers, as often as their sum surely fits
    is_small = tensor.dtype.kind in "iu" and tensor.itemsize <= 2
    kind, limit = (np.int32, 1 << (31 - 8 * tensor.itemsize)) if is_small else (np.float64, 1 << 62)
    moments = None if unit is None else np.zeros(2)
    table = None if unit is None or tensor.itemsize > 1 else _v_log_v_of_bytes(unit)
    inverse = 1 / (unit or 1.0)
    if len(columns) <= NARROW:
        flat, offsets, steps = Rows.of(tensor, split - 1)
        lead_labels = merge(part.labels[: split - 1], part.ranks[: split - 1]) * part.ranks[split - 1]
        sums = _aligned_zeros(max(1, min(len(core), SEATS // len(columns))), len(columns), kind)
        seats, owners = np.full(len(core), -1), np.empty(len(sums), np.intp)
        lead_sums, row_sums = np.zeros(len(lead_labels)), np.zeros(tensor.shape[split - 1])
        negative = cpu.narrow(
            flat, offsets, lead_labels, np.uint64(steps[split - 1]), part.labels[split - 1], column_labels,
            _edges(column_labels), limit, sums, seats, owners, core, lead_sums, row_sums, columns, table, moments,
            inverse,
        )  # fmt: skip
        marginals = [*_marginals(lead_sums.reshape(tensor.shape[: split - 1])), row_sums]
    else:
        flat, offsets, _ = Rows.of(tensor, split)
        labels = merge(part.labels[:split], part.ranks[:split])
        order = np.argsort(labels, kind="stable")
        starts = np.append(0, np.cumsum(np.bincount(labels, minlength=len(core))))
        row_sums, negative = np.zeros(len(labels)), False
        for low in range(0, len(columns), TILE):
            tile = slice(low, low + TILE)
            sums = _aligned_zeros(1, len(columns[tile]), kind)[0, : len(columns[tile])]
            negative |= cpu.wide(
                flat, offsets + np.uint64(low), order, starts, column_labels[tile],
                _edges(column_labels[tile]), limit, sums, core, row_sums, columns[tile], table, moments, inverse,
            )  # fmt: skip
        marginals = _marginals(row_sums.reshape(tensor.shape[:split]))
    marginals += _marginals(columns.reshape(tensor.shape[split:]))
    return BoxSums(core.reshape(part.ranks), marginals, np.zeros(2) if moments is None else moments, negative)


def _model_tiles(
    part: Part, tensor: Array, core: Array, weights: Sequence[Array], writeable: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield a box as rows of memory, and the model there: a row's label and weight, a label's row."""
    split = short_split(tensor)
    flat, offsets, _ = Rows.of(tensor, split, writeable)
    labels, column_labels = (merge(part.labels[a:b], part.ranks[a:b]) for a, b in ((0, split), (split, None)))
    # the scale of the core comes first, so that products of small weights do not vanish before it
    scale = float(core.max()) or 1.0
    parts = [weight[where] for weight, where in zip(weights, part.box)]
    heights, widths = (_outer(some, math.sqrt(scale)) for some in (parts[:split], parts[split:]))
    flat_core = core[part.region].reshape(-1, math.prod(part.ranks[split:])) / np.float64(scale)
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
    return [sums.reshape(math.prod(shape[:axis]), shape[axis], -1).sum(axis=(0, 2)) for axis in range(sums.ndim)]


def _outer(vectors: Sequence[Array], scale: float) -> NDArray[np.float64]:
    """Return the outer product of a number and vectors, flat, in float64."""
    product = np.full(1, scale)
    for vector in vectors:
        product = np.multiply.outer(product, vector).ravel()
    return product


def _aligned_zeros(rows: int, width: int, dtype: type[np.generic]) -> Array:
    """Return zeros whose every row begins a cache line, and may be longer than asked."""
    lane = 64 // np.dtype(dtype).itemsize
    stride = -(-width // lane) * lane
    memory = np.zeros(rows * stride + lane, dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + rows * stride].reshape(rows, stride)


def _v_log_v_of_bytes(unit: float) -> NDArray[np.float64]:
    values = np.arange(256.0)
    return np.asarray(values * np.log(np.maximum(values, 1) / unit))
