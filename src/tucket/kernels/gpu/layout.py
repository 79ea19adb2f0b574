"""How a tensor in GPU memory is read: as rows, sorted by group, with tables that stay on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cached_property
from itertools import accumulate
from threading import Lock
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.kernels.gpu.loops import sort_indices

ROW_COLUMNS = 512
"""Minimum columns of a row, where possible. The sizes in this file were tuned on an H200."""

LONG_COLUMNS, LONGEST_COLUMNS = 1 << 14, 1 << 24
"""Maximum columns of a row of merged modes; the second one holds if the row would otherwise be narrow."""

NARROW_COLUMNS = 16
"""Columns below which a row is narrow."""

PASS_ROWS = 1 << 24
"""Maximum rows per pass, which bounds the memory for their tables and sums."""

CHUNK_ROWS = 512
"""Rows of a chunk, unless there are very many rows."""

FULL_CHUNKS = 1 << 14
"""Chunks that keep all processors busy; with more rows, chunks become longer."""

LATE_SHARE, LATE_DIVISOR = 0.1, 4
"""Share of the rows, at the end, with chunks shorter by this factor, so that all processors finish together."""

PIECE_COLUMNS = 1024
"""Maximum columns of one block that are added at a time."""

TABLE_ENTRIES = 1 << 25
"""Maximum entries of a float64 table of sums, or of an expanded core: 256 MB."""

SHORT_CHUNK_ROWS, WIDE_BLOCK_COLUMNS = 16, 16
"""Rows are summed over blocks of columns first, and groups of rows afterwards, if chunks have fewer rows and pieces of
blocks at least as many columns, on average."""


class RowView(NamedTuple):
    """A tensor as rows: its last modes in memory order are the columns of a row, the other modes number the rows."""

    order: tuple[int, ...]  # the modes in memory order; the last one has the shortest stride
    shape: tuple[int, ...]  # in this order
    strides: tuple[int, ...]
    split: int  # how many modes number the rows
    columns: int
    multiple: int  # the largest power of two, at most 16, that divides the columns and all distances of rows
    unit: int  # unit of distances of rows: the multiple, or 1 if Triton itself finds that 16 divides them
    stride: int  # distance between neighbouring rows, in units, if it is constant
    step: int  # distance between neighbouring columns
    has_gaps: bool  # whether distances of rows differ
    int64_columns: bool  # whether an offset within a row needs 64 bits

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int]) -> RowView:
        """Merge the last modes until a row is long enough; modes of size 1, with arbitrary strides, come first."""
        order = tuple(sorted(range(len(shape)), key=lambda mode: (shape[mode] != 1, -strides[mode], mode)))
        shape, strides = tuple(shape[mode] for mode in order), tuple(strides[mode] for mode in order)
        # whether a mode and the next one could be merged
        merges = [
            shape[mode] == 1 or strides[mode] == strides[mode + 1] * shape[mode + 1] for mode in range(len(shape) - 1)
        ]
        split, columns = len(shape) - 1, shape[-1]
        while split > 0 and columns < ROW_COLUMNS and merges[split - 1]:
            if columns * shape[split - 1] > (LONG_COLUMNS if columns >= NARROW_COLUMNS else LONGEST_COLUMNS):
                break
            split -= 1
            columns *= shape[split]
        has_gaps = not all(merges[: max(0, split - 1)])
        multiple = math.gcd(16, columns, *strides[:split])
        unit, step = multiple if has_gaps else multiple % 16 or 1, strides[-1]
        stride, int64_columns = strides[split - 1] // unit if split else 0, columns * max(1, step) >= 2**31
        return cls(order, shape, strides, split, columns, multiple, unit, stride, step, has_gaps, int64_columns)


class Batch(NamedTuple):
    """Chunks of rows that one launch sums, and their groups."""

    first_chunk: int
    last_chunk: int  # one after the last
    first_group: int
    last_group: int
    ends: torch.Tensor  # edges of the groups as numbers of chunks, counted from `first_chunk`


class GroupedIndices:
    """All combinations of indices of some modes, sorted by group and cut into chunks of one group.

    A group is a combination of blocks, one per mode. Indices and groups count in C order.
    """

    def __init__(
        self,
        modes: Sequence[Blocks],
        device: torch.device,
        longest: int,
        late_share: float = 0.0,
        late_divisor: int = 1,
    ) -> None:
        sizes = [blocks.sizes for blocks in modes]
        members = np.ones(1, np.int64)
        for each in sizes:
            members = np.multiply.outer(members, each).reshape(-1)
        before = np.cumsum(members) - members
        self.count, self.n_groups = int(members.sum()), len(members)
        lengths = np.where(before < (1 - late_share) * self.count, longest, -(-longest // late_divisor))
        parts = -(-members // lengths)
        even = -(-members // parts)
        group = np.repeat(np.arange(len(members)), parts)
        begin = (np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)) * even[group]
        edges, self.host_ends = np.append(before[group] + begin, self.count), np.append(0, np.cumsum(parts))
        self.n_chunks, self.longest, self.most_chunks = len(group), int(np.diff(edges).max()), int(parts.max())
        sent = _send([edges, self.host_ends, np.stack((begin, group), 1), *_tables(modes, sizes)], device)
        # ends[g] to ends[g + 1] - 1 are the chunks of group g; `chunks` has (begin within its group, group) per chunk
        self.chunk_edges, self.ends, self.chunks, tables, orders = sent
        self.device, self.int64 = device, self.count >= 2**31 - CHUNK_ROWS
        self.sorted = torch.empty(self.count, dtype=torch.int64 if self.int64 else torch.int32, device=device)
        self.group_of = torch.empty_like(self.sorted)
        sort_indices[(self.n_chunks,)](
            self.sorted, self.group_of, self.chunk_edges, self.chunks, tables, orders, D=len(modes), C=CHUNK_ROWS
        )
        self.listed = None if _is_sorted(modes) else self.sorted  # None if all indices are sorted already

    def batches(self, columns: int) -> list[Batch]:
        """Divide the chunks into batches with tables of sums that fit in memory; mostly one batch is enough."""
        step = max(2, TABLE_ENTRIES // columns // 2 * 2)  # even: slices of the chunk edges stay aligned to 16 bytes
        if step >= self.n_chunks:
            return [Batch(0, self.n_chunks, 0, self.n_groups, self.ends)]
        ranges = []
        for first in range(0, self.n_chunks, step):
            last = min(first + step, self.n_chunks)
            low, high = np.searchsorted(self.host_ends, first, "right") - 1, np.searchsorted(self.host_ends, last)
            ranges.append((first, last, int(low), int(high)))
        ends = [self.host_ends[low : high + 1].clip(first, last) - first for first, last, low, high in ranges]
        return [Batch(*each, sent) for each, sent in zip(ranges, _send(ends, self.device))]


class Layout:
    """How tensors of one shape and strides are read under a partition: tables that stay on the device."""

    def __init__(self, view: RowView, partition: Partition, device: torch.device) -> None:
        self.view, self.modes = view, tuple(partition[mode] for mode in view.order)
        self.back = [view.order.index(mode) for mode in range(len(view.order))]
        outer, inner = self.modes[: view.split], self.modes[view.split :]
        n_rows = int(np.prod([blocks.size for blocks in outer], dtype=np.int64))
        longest = CHUNK_ROWS * -(-n_rows // (CHUNK_ROWS * FULL_CHUNKS))
        self.offsets = _offsets(view, device) if view.has_gaps else None
        self.rows = GroupedIndices(outer, device, longest, LATE_SHARE, LATE_DIVISOR)
        self.columns = GroupedIndices(inner, device, PIECE_COLUMNS)
        self.size = self.rows.count + self.columns.count + sum(view.shape)
        # if set, the layout of the tensor of sums per row and piece of columns, which are computed first
        self.row_sums_layout: Layout | None = None
        n_pieces = self.columns.n_chunks
        are_short = n_rows < SHORT_CHUNK_ROWS * self.rows.n_chunks
        if are_short and WIDE_BLOCK_COLUMNS * n_pieces <= self.columns.count and n_rows * n_pieces <= TABLE_ENTRIES:
            self.all_rows = GroupedIndices([Blocks.uniform(n_rows, 1)], device, longest)
            pieces = Blocks.from_starts(n_pieces, self.columns.host_ends[:-1])
            sums = torch.empty((pieces.size, *view.shape[: view.split]), device="meta")
            self.row_sums_layout = Layout(RowView.of(sums.shape, sums.stride()), Partition((pieces, *outer)), device)
            self.size += n_rows + self.row_sums_layout.size
        read = self.rows if self.row_sums_layout is None else self.all_rows
        self.batches = read.batches(view.columns)

    @cached_property
    def mode_indices(self) -> GroupedIndices:
        """The indices of all modes in sequence, grouped by block."""
        return GroupedIndices([_concatenated(self.modes)], self.rows.sorted.device, PIECE_COLUMNS)


KEPT_LAYOUTS, KEPT_ENTRIES = 16, 1 << 26
"""Maximum layouts that are kept for reuse, and entries of all their tables."""

_layouts: dict[Any, Layout] = {}
_lock = Lock()


def layout_of(tensor: torch.Tensor, partition: Partition) -> Layout:
    """Return a new or kept layout for the current stream; tables of another stream could be freed too early."""
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None
    key = tensor.device, stream, tensor.shape, tensor.stride(), partition
    with _lock:
        layout = _layouts.get(key)
        if layout is None:
            layout = Layout(RowView.of(tensor.shape, tensor.stride()), partition, tensor.device)
            _layouts[key] = layout
            kept = _layouts.values()
            while len(kept) > KEPT_LAYOUTS or (len(kept) > 1 and sum(each.size for each in kept) > KEPT_ENTRIES):
                _layouts.pop(next(iter(_layouts)))
    return layout


def _is_sorted(modes: Sequence[Blocks]) -> bool:
    """Say whether all combinations of indices, in C order, are sorted by group.

    This holds if the first mode with a block of several indices has contiguous blocks, and later modes have one block.
    """
    cut = next((mode for mode, blocks in enumerate(modes) if not blocks.is_whole), len(modes))
    return all(blocks.contiguous for blocks in modes[cut : cut + 1]) and all(b.rank == 1 for b in modes[cut + 1 :])


def _offsets(view: RowView, device: torch.device) -> torch.Tensor:
    """Return the offset of each row, in units."""
    begins = torch.zeros((), dtype=torch.int64, device=device)
    for size, stride in zip(view.shape[: view.split], view.strides):
        begins = begins[..., None] + torch.arange(size, device=device) * (stride // view.unit)
    return begins.reshape(-1)


def _concatenated(modes: Sequence[Blocks]) -> Blocks:
    """Return the blocks of several modes as blocks of one mode, in sequence."""
    size, rank = sum(blocks.size for blocks in modes), sum(blocks.rank for blocks in modes)
    if all(blocks.contiguous for blocks in modes):
        leads = accumulate((blocks.size for blocks in modes), initial=0)
        return Blocks(size, rank, True, np.concatenate([blocks.starts + lead for blocks, lead in zip(modes, leads)]))
    leads = accumulate((blocks.rank for blocks in modes), initial=0)
    return Blocks(size, rank, False, np.concatenate([blocks.labels + lead for blocks, lead in zip(modes, leads)]))


def _tables(modes: Sequence[Blocks], sizes: Sequence[NDArray[np.intp]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return two arrays that describe the blocks of modes to `sort_indices`.

    The first begins with four numbers per mode, from the last mode to the first: the rank, the position of its blocks
    in this array, the number of combinations of later modes, and whether its blocks are not contiguous. Two numbers per
    block follow: its first index and its size. The second array lists the indices of blocks that are not contiguous,
    sorted by block; the first index of such a block is a position there.
    """
    head, tail, orders = [], [], [np.zeros(1, np.int64)]
    position, listed, step = 4 * len(modes), 1, 1
    for blocks, counts in zip(reversed(modes), reversed(sizes)):
        head += [blocks.rank, position, step, int(not blocks.contiguous)]
        leads = np.cumsum(counts) - counts
        if not blocks.contiguous:
            leads += listed
            orders.append(np.argsort(blocks.labels, kind="stable"))
            listed += blocks.size
        tail.append(np.stack((leads, counts), 1).reshape(-1))
        position, step = position + 2 * blocks.rank, step * blocks.size
    return np.concatenate([np.array(head, np.int64), *tail]), np.concatenate(orders)


def _send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """Copy small arrays of integers to the device, in one transfer."""
    flat = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]).astype(np.int64, copy=False))
    return list(flat.to(device).split([array.size for array in arrays]))
