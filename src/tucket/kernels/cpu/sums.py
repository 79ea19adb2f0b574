"""Block sums of large NumPy arrays: compiled loops read them box by box, and the results are added.

A box is divided into rows: contiguous pieces of memory that a loop reads in sequence.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import Box, slabs
from tucket.base.partition import Partition
from tucket.base.run import ordered_map
from tucket.kernels.cpu import loops
from tucket.kernels.measures import Moments, Sums

Array = NDArray[Any]

NARROW_COLUMNS = 2048
"""Maximum columns of a row that is read whole. Merged modes have at most half as many, so that a float64 row and its
sums fit the first-level cache."""

SHORT_COLUMNS = 64
"""Minimum columns of a row, where possible: shorter rows cost more in overhead."""

SCATTERED_SHARE = 0.25
"""If more than this share of adjacent labels differ, rows are sorted by label, not read in the order of memory."""

TILE_COLUMNS = 1 << 15
"""Columns of a wide row that are read at a time; they fit the second-level cache."""

SLOT_SUMS = 1 << 17
"""Entries of the table that narrow rows are added to before it is folded into the core: 1 MB of float64."""

COPY_ENTRIES = 1 << 20
"""Entries that are copied at a time if the loops cannot read a tensor in place."""

CORE_ENTRIES, CORE_BOX_ENTRIES = 1 << 22, 1 << 24
"""Largest core that every worker may copy, and entries of a box for larger cores."""


def block_sums(tensor: Array, partition: Partition, unit: float | None = None, workers: int = 1) -> Sums:
    """Read the tensor once, in place if possible, for block sums and marginals, and with a unit for moments."""
    ordered = MemoryOrdered.of(tensor, partition)
    core = np.zeros(ordered.ranks)
    marginals = [np.zeros(size) for size in ordered.tensor.shape]
    negative, moments = False, np.zeros(2)

    def sum_box(box: Box) -> tuple[BoxBlocks, BoxSums]:
        blocks = ordered.blocks_in(box)
        return blocks, _sum_box(blocks, ordered.read(box), unit)

    boxes = ordered.boxes(workers, tensor.size if core.size <= CORE_ENTRIES else CORE_BOX_ENTRIES)
    for blocks, sums in ordered_map(sum_box, boxes, workers):
        core[blocks.region] += sums.core
        for marginal, rows, part in zip(marginals, blocks.box, sums.marginals):
            marginal[rows] += part
        moments += sums.moments
        negative |= sums.negative
    back = np.argsort(ordered.order)
    return Sums(
        core if ordered.order == sorted(ordered.order) else np.ascontiguousarray(core.transpose(back)),
        tuple(marginals[mode] for mode in back),
        negative,
        None if unit is None else Moments(*moments.tolist()),
        "numba",
    )


class BoxBlocks(NamedTuple):
    """The blocks that occur in a box of a tensor, numbered from 0 in each mode."""

    box: Box
    region: tuple[Any, ...]  # index of these blocks in the whole core
    labels: list[NDArray[np.intp]]  # block of each index of the box, per mode
    ranks: list[int]


@dataclass(frozen=True, slots=True)
class MemoryOrdered:
    """A tensor with its modes in the order of memory, and the blocks of their indices."""

    tensor: Array
    order: list[int]
    labels: list[NDArray[np.intp]]
    ranks: list[int]
    readable: bool

    @classmethod
    def of(cls, tensor: Array, partition: Partition) -> Self:
        """Transpose a tensor, and view Booleans as bytes."""
        order = memory_order(tensor)
        turned = (tensor.view(np.uint8) if tensor.dtype == bool else tensor).transpose(order)
        modes = [partition[mode] for mode in order]
        # copies are writeable: Numba would compile the loops again for read-only arrays
        labels = [np.array(blocks.labels) for blocks in modes]
        return cls(turned, order, labels, [blocks.rank for blocks in modes], is_readable(turned))

    def boxes(self, workers: int, most: int) -> Iterator[Box]:
        """Cut the tensor into boxes of at most `most` entries, at least one per worker."""
        share = -(-self.tensor.size // workers)
        return slabs(self.tensor.shape, min(most, share) if self.readable else COPY_ENTRIES)

    def blocks_in(self, box: Box) -> BoxBlocks:
        """Find the blocks that occur in a box."""
        labels, seen = [], []
        for label, rows, rank in zip(self.labels, box, self.ranks):
            occurs = np.zeros(rank, np.intp)
            occurs[label[rows]] = 1
            seen.append(np.flatnonzero(occurs))
            labels.append((occurs.cumsum() - 1)[label[rows]] if len(seen[-1]) < rank else label[rows])
        ranks = [len(blocks) for blocks in seen]
        adjacent = all(blocks[-1] - blocks[0] < rank for blocks, rank in zip(seen, ranks))
        region = tuple(slice(blocks[0], blocks[-1] + 1) for blocks in seen) if adjacent else np.ix_(*seen)
        return BoxBlocks(box, region, labels, ranks)

    def read(self, box: Box) -> Array:
        """Return the entries of a box as the loops can read them, copied only if necessary."""
        view = self.tensor[box]
        if self.readable:
            return view
        is_half = view.dtype.kind == "f" and view.itemsize == 2
        native = np.dtype(np.float32) if is_half else view.dtype.newbyteorder("=")
        return np.ascontiguousarray(view, native)


class BoxSums(NamedTuple):
    """Block sums, marginals and moments of one box, and whether an entry is negative."""

    core: NDArray[np.float64]
    marginals: list[NDArray[np.float64]]
    moments: NDArray[np.float64]
    negative: bool


class RowSums(NamedTuple):
    """The arrays that rows are added to, and how to add them."""

    core: NDArray[np.float64]  # shape (blocks of rows, blocks of columns)
    columns: NDArray[np.float64]
    column_labels: NDArray[np.intp]
    dtype: type[np.generic]  # of sums of several rows, before they are added to `core` and `columns`
    limit: int  # number of rows that cannot overflow this dtype
    for_moments: tuple[Any, ...]  # the last three arguments of the loops


def _sum_box(blocks: BoxBlocks, tensor: Array, unit: float | None) -> BoxSums:
    split = sum_split(tensor, blocks.labels, blocks.ranks)
    core = np.zeros((math.prod(blocks.ranks[:split]), math.prod(blocks.ranks[split:])))
    columns = np.zeros(math.prod(tensor.shape[split:]))
    column_labels = merge(blocks.labels[split:], blocks.ranks[split:])
    # 32-bit sums of small integers are faster
    is_small = tensor.dtype.kind in "iu" and tensor.itemsize <= 2
    kind, limit = (np.int32, 1 << (31 - 8 * tensor.itemsize)) if is_small else (np.float64, 1 << 62)
    moments, table = np.zeros(2), None
    if unit is not None and tensor.itemsize == 1:
        values = np.arange(256.0)
        table = values * np.log(np.maximum(values, 1) / unit)
    for_moments = table, None if unit is None else moments, 1 / (unit or 1.0)
    sum_rows = _sum_narrow_rows if len(columns) <= NARROW_COLUMNS else _sum_wide_rows
    into = RowSums(core, columns, column_labels, kind, limit, for_moments)
    marginals, negative = sum_rows(blocks, tensor, split, into)
    marginals += _marginals(columns.reshape(tensor.shape[split:]))
    return BoxSums(core.reshape(blocks.ranks), marginals, moments, negative)


def _sum_narrow_rows(blocks: BoxBlocks, tensor: Array, split: int, into: RowSums) -> tuple[list[Array], bool]:
    """Add all rows in the order of memory; return the marginals of the modes before `split`."""
    core, columns, column_labels, kind, limit, for_moments = into
    lead, last = split - 1, blocks.labels[split - 1]
    flat, offsets, steps = Rows.of(tensor, lead)
    lead_labels = merge(blocks.labels[:lead], blocks.ranks[:lead]) * blocks.ranks[lead]
    sums = _aligned_zeros(max(1, min(len(core), SLOT_SUMS // len(columns))), len(columns), kind)
    slots, owners = np.full(len(core), -1), np.empty(len(sums), np.intp)
    lead_sums, row_sums = np.zeros(len(lead_labels)), np.zeros(tensor.shape[lead])
    negative = loops.sum_narrow_rows(
        flat, offsets, lead_labels, np.uint64(steps[lead]), last, column_labels, _edges(column_labels),
        limit, sums, slots, owners, core, lead_sums, row_sums, columns, *for_moments,
    )  # fmt: skip
    return [*_marginals(lead_sums.reshape(tensor.shape[:lead])), row_sums], negative


def _sum_wide_rows(blocks: BoxBlocks, tensor: Array, split: int, into: RowSums) -> tuple[list[Array], bool]:
    """Add rows block by block, a tile of columns at a time; return the marginals of the modes before `split`."""
    core, columns, column_labels, kind, limit, for_moments = into
    flat, offsets, _ = Rows.of(tensor, split)
    labels = merge(blocks.labels[:split], blocks.ranks[:split])
    order = np.argsort(labels, kind="stable")
    starts = np.append(0, np.cumsum(np.bincount(labels, minlength=len(core))))
    row_sums, negative = np.zeros(len(labels)), False
    for low in range(0, len(columns), TILE_COLUMNS):
        tile = slice(low, low + TILE_COLUMNS)
        sums = _aligned_zeros(1, len(columns[tile]), kind)[0, : len(columns[tile])]
        negative |= loops.sum_wide_rows(
            flat, offsets + np.uint64(low), order, starts, column_labels[tile], _edges(column_labels[tile]),
            limit, sums, core, row_sums, columns[tile], *for_moments,
        )  # fmt: skip
    return _marginals(row_sums.reshape(tensor.shape[:split])), negative


def _edges(labels: NDArray[np.intp]) -> NDArray[np.uint64]:
    """Return the first index of every run of equal labels, and the number of labels."""
    inner = np.flatnonzero(labels[1:] != labels[:-1]) + 1
    return np.concatenate(([0], inner, [len(labels)])).astype(np.uint64)


def _marginals(sums: NDArray[np.float64]) -> list[NDArray[np.float64]]:
    # three axes at most, since NumPy is slow on many short ones
    shape = sums.shape
    return [sums.reshape(math.prod(shape[:axis]), shape[axis], -1).sum(axis=(0, 2)) for axis in range(sums.ndim)]


def _aligned_zeros(rows: int, width: int, dtype: type[np.generic]) -> Array:
    """Return zeros with rows that begin on cache lines and are at least `width` long."""
    lane = 64 // np.dtype(dtype).itemsize
    stride = -(-width // lane) * lane
    memory = np.zeros(rows * stride + lane, dtype)
    skip = -memory.ctypes.data % 64 // memory.itemsize
    return memory[skip : skip + rows * stride].reshape(rows, stride)


class Rows(NamedTuple):
    """A tensor as rows: its first modes number the rows, the others the columns."""

    flat: NDArray[Any]  # the memory from the first to the last entry
    offsets: NDArray[np.uint64]  # first position of each row in `flat`
    steps: list[int]  # distance in `flat` between neighbours along each mode; 0 for a mode of size 1

    @classmethod
    def of(cls, tensor: NDArray[Any], split: int, writeable: bool = False) -> Self:
        """View a readable tensor as rows; its modes from `split` on must be contiguous."""
        steps = [stride // tensor.itemsize if size > 1 else 0 for stride, size in zip(tensor.strides, tensor.shape)]
        extent = 1 + sum((size - 1) * step for size, step in zip(tensor.shape, steps))
        flat = np.lib.stride_tricks.as_strided(tensor, (extent,), (tensor.itemsize,), writeable=writeable)
        ramps = [np.arange(size, dtype=np.uint64) * np.uint64(step) for size, step in zip(tensor.shape[:split], steps)]
        return cls(flat, reduce(lambda a, b: np.add.outer(a, b).ravel(), ramps, np.zeros(1, np.uint64)), steps)


def memory_order(tensor: NDArray[Any]) -> list[int]:
    """List the modes from the longest stride to the shortest; modes of size 1 come first."""
    return sorted(range(tensor.ndim), key=lambda mode: (tensor.shape[mode] > 1, -abs(tensor.strides[mode])))


def is_readable(tensor: NDArray[Any]) -> bool:
    """Say whether the loops can read a tensor without a copy; its modes must be in memory order."""
    native = tensor.dtype.isnative and tensor.dtype != np.float16 and tensor.flags.aligned
    steps = [stride for stride, size in zip(tensor.strides, tensor.shape) if size > 1]
    forward = all(step > 0 and step % tensor.itemsize == 0 for step in steps)
    first = _contiguous_from(tensor)
    return native and forward and (first == 0 or math.prod(tensor.shape[first:]) >= SHORT_COLUMNS)


def short_split(tensor: NDArray[Any]) -> int:
    """Return how many modes number the rows, so that rows are as long as the first-level cache allows."""
    lengths = _row_lengths(tensor)
    for least, most in ((SHORT_COLUMNS, NARROW_COLUMNS // 2), (0, NARROW_COLUMNS)):
        for split, length in lengths.items():
            if least <= length <= most:
                return split
    return tensor.ndim - 1


def sum_split(tensor: NDArray[Any], labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> int:
    """Return how many modes number the rows that are summed by label.

    Short rows are read in the order of memory, which is fast if adjacent rows mostly share a label. Otherwise, or if
    short rows are not possible, long rows are read four at a time by label.
    """
    shape, lengths, split = tensor.shape, _row_lengths(tensor), short_split(tensor)
    adjacent = labels[split - 1]
    scattered = np.count_nonzero(adjacent[1:] != adjacent[:-1]) > SCATTERED_SHARE * shape[split - 1]
    if scattered or not SHORT_COLUMNS <= lengths[split] <= NARROW_COLUMNS:
        for longer in reversed(lengths):
            fours = math.prod(shape[:longer]) >= 4 * math.prod(ranks[:longer])
            if lengths[longer] > NARROW_COLUMNS and fours:
                return longer
    return split


def merge(labels: Sequence[NDArray[np.intp]], ranks: Sequence[int]) -> NDArray[np.intp]:
    """Return the label of every combination of indices of several modes, with labels in C order."""
    merged = np.zeros(1, np.intp)
    for label, rank in zip(labels, ranks):
        merged = np.add.outer(merged * rank, label).ravel()
    return merged


def _contiguous_from(tensor: NDArray[Any]) -> int:
    """Return the first mode from which on the tensor is contiguous."""
    step = tensor.itemsize
    for mode in reversed(range(tensor.ndim)):
        if tensor.shape[mode] > 1 and tensor.strides[mode] != step:
            return mode + 1
        step *= tensor.shape[mode]
    return 0


def _row_lengths(tensor: NDArray[Any]) -> dict[int, int]:
    """Return the length of a row for each possible number of modes that number the rows, longest first."""
    first = max(1, _contiguous_from(tensor))
    return {split: math.prod(tensor.shape[split:]) for split in range(first, tensor.ndim)}
