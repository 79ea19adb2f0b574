"""How a tensor in the memory of a GPU is read under some blocks: as rows, and by tables that stay on the device."""

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
from tucket.kernels.gpu.loops import locate

__all__ = ["Places", "Plan", "Rows", "plan_of"]

ROW = 512
"""Columns from which a row is long enough."""

LONG, LONGEST = 1 << 14, 1 << 24
"""Columns beyond which no row is made by putting modes together; and if one of them alone would be all too short."""

NARROW = 16
"""Columns below which a row is all too short."""

ROWS = 1 << 24
"""Rows that are read at a time, since their tables and sums are held beside the tensor."""

CHUNK = 512
"""Rows of a chunk, unless there are very many."""

CHUNKS = 1 << 14
"""Chunks, beside one a group, that are enough to keep all processors busy: with more rows, chunks are longer."""

LATE, SHORTER = 0.1, 4
"""Share of the rows, the last that are read, whose chunks are so many times shorter: all processors end together."""

PIECE = 1024
"""Columns of one block that are added up at a time."""

ROOM = 1 << 25
"""Sums of chunks, in float64, that are held at a time."""

SHORT, WIDE = 16, 16
"""Rows of a chunk below which, and columns of a block from which, rows are added up before groups of them."""


class Rows(NamedTuple):
    """How a tensor is seen as rows, by how its entries lie in memory."""

    order: tuple[int, ...]  # its modes: last the one whose neighbours lie closest
    shape: tuple[int, ...]  # and strides, of the modes in this order
    strides: tuple[int, ...]
    split: int  # how many modes come before a row
    columns: int  # the length of a row
    multiple: int  # the power of two, up to 16, that divides this length and all steps from row to row
    unit: int  # what rows are measured in, so that the compiler knows of the multiple: 16 of a stride it sees by itself
    stride: int  # how many units it is from one row to the next, where that is always the same
    step: int  # how far it is from one column to the next
    gaps: bool  # whether the modes before a row do not follow one another in memory
    far: bool  # whether the columns of a row are further apart than 32 bits can count

    @classmethod
    def of(cls, shape: Sequence[int], strides: Sequence[int]) -> Rows:
        """See as a row as many of the last modes as make it long enough.

        Modes of size 1, whose strides mean nothing, come first.
        """
        order = tuple(sorted(range(len(shape)), key=lambda mode: (shape[mode] != 1, -strides[mode], mode)))
        shape, strides = tuple(shape[mode] for mode in order), tuple(strides[mode] for mode in order)
        # whether a mode goes on where the next one ends
        merges = [
            shape[mode] == 1 or strides[mode] == strides[mode + 1] * shape[mode + 1] for mode in range(len(shape) - 1)
        ]
        split, columns = len(shape) - 1, shape[-1]
        while split > 0 and columns < ROW and merges[split - 1]:
            if columns * shape[split - 1] > (LONG if columns >= NARROW else LONGEST):
                break
            split -= 1
            columns *= shape[split]
        gaps = not all(merges[: max(0, split - 1)])
        multiple = math.gcd(16, columns, *strides[:split])
        unit, step = multiple if gaps else multiple % 16 or 1, strides[-1]
        stride = strides[split - 1] // unit if split else 0
        return cls(
            order, shape, strides, split, columns, multiple, unit, stride, step, gaps, columns * max(1, step) >= 2**31
        )


class Band(NamedTuple):
    """Some chunks of rows that are summed at a time: from one to another, of the groups from one to another."""

    first: int
    last: int
    low: int
    high: int
    ends: torch.Tensor  # where the chunks of each of these groups end, from the first on


class Places:
    """The indices of some modes, in all combinations: sorted by their blocks, and those of each block cut into chunks.

    Blocks of several modes together make a group.
    """

    def __init__(
        self, modes: Sequence[Blocks], device: torch.device, longest: int, late: float = 0.0, shorter: int = 1
    ) -> None:
        sizes = [blocks.sizes for blocks in modes]
        members = np.ones(1, np.int64)
        for each in sizes:
            members = np.multiply.outer(members, each).reshape(-1)
        before = np.cumsum(members) - members
        self.count, self.n_groups = int(members.sum()), len(members)
        lengths = np.where(before < (1 - late) * self.count, longest, -(-longest // shorter))
        parts = -(-members // lengths)
        even = -(-members // parts)
        group = np.repeat(np.arange(len(members)), parts)
        begin = (np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)) * even[group]
        cuts, ends = np.append(before[group] + begin, self.count), np.append(0, np.cumsum(parts))
        self.n_chunks, self.longest = len(group), int(np.diff(cuts).max())
        self.most, self.bounds = int(parts.max()), ends  # chunks of one group at most, and where those of each begin
        parcel = [cuts, ends, np.stack((begin, group), 1), *_tables(modes, sizes)]
        self.cuts, self.ends, self.groups, tables, orders = _send(parcel, device)
        self.device, self.many = device, self.count >= 2**31 - CHUNK
        self.sorted = torch.empty(self.count, dtype=torch.int64 if self.many else torch.int32, device=device)
        self.group_of = torch.empty_like(self.sorted)
        locate[(self.n_chunks,)](
            self.sorted, self.group_of, self.cuts, self.groups, tables, orders, D=len(modes), C=CHUNK
        )
        self.listed = None if _are_in_order(modes) else self.sorted  # None: they are in order as they are

    def bands(self, columns: int) -> list[Band]:
        """Return the chunks in bands, whose sums of rows of this length there is room for: mostly in one."""
        step = max(2, ROOM // columns // 2 * 2)  # even: tables that begin there lie as they do at their beginning
        if step >= self.n_chunks:
            return [Band(0, self.n_chunks, 0, self.n_groups, self.ends)]
        edges = []
        for first in range(0, self.n_chunks, step):
            last = min(first + step, self.n_chunks)
            low, high = np.searchsorted(self.bounds, first, "right") - 1, np.searchsorted(self.bounds, last)
            edges.append((first, last, int(low), int(high)))
        ends = [self.bounds[low : high + 1].clip(first, last) - first for first, last, low, high in edges]
        return [Band(*edge, sent) for edge, sent in zip(edges, _send(ends, self.device))]


class Plan:
    """How a tensor of some layout is read under some blocks: tables of numbers, which stay on the device."""

    def __init__(self, seen: Rows, partition: Partition, device: torch.device) -> None:
        self.seen, self.modes = seen, tuple(partition[mode] for mode in seen.order)
        self.back = [seen.order.index(mode) for mode in range(len(seen.order))]
        outer, inner = self.modes[: seen.split], self.modes[seen.split :]
        n_rows = int(np.prod([blocks.size for blocks in outer], dtype=np.int64))
        longest = CHUNK * -(-n_rows // (CHUNK * CHUNKS))
        self.offsets = _offsets(seen, device) if seen.gaps else None
        self.rows = Places(outer, device, longest, LATE, SHORTER)
        self.columns = Places(inner, device, PIECE)
        self.size = self.rows.count + self.columns.count + sum(seen.shape)
        self.rows_first: Plan | None = None  # how sums of rows are summed further, where these are taken first
        n_pieces = self.columns.n_chunks
        if n_rows < SHORT * self.rows.n_chunks and WIDE * n_pieces <= self.columns.count and n_rows * n_pieces <= ROOM:
            self.all_rows = Places([Blocks.uniform(n_rows, 1)], device, longest)
            pieces = Blocks.from_starts(n_pieces, self.columns.bounds[:-1])
            sums = torch.empty((pieces.size, *seen.shape[: seen.split]), device="meta")
            self.rows_first = Plan(Rows.of(sums.shape, sums.stride()), Partition((pieces, *outer)), device)
            self.size += n_rows + self.rows_first.size
        read = self.rows if self.rows_first is None else self.all_rows
        self.bands = read.bands(seen.columns)

    @cached_property
    def members(self) -> Places:
        """The indices of each mode by their blocks, mode after mode."""
        return Places([_joined(self.modes)], self.rows.sorted.device, PIECE)


PLANS, ENTRIES = 16, 1 << 26
"""Plans that are kept, and entries of all their tables: whoever reads one tensor mostly reads others like it."""

_plans: dict[Any, Plan] = {}
_lock = Lock()


def plan_of(tensor: torch.Tensor, partition: Partition) -> Plan:
    """Return a plan, made now or before: for the current stream, which reads its tables before they are used anew."""
    stream = torch.cuda.current_stream(tensor.device).cuda_stream if tensor.is_cuda else None
    key = tensor.device, stream, tensor.shape, tensor.stride(), partition
    with _lock:
        found = _plans.get(key)
        if found is None:
            found = Plan(Rows.of(tensor.shape, tensor.stride()), partition, tensor.device)
            _plans[key] = found
            while len(_plans) > PLANS or (len(_plans) > 1 and sum(plan.size for plan in _plans.values()) > ENTRIES):
                _plans.pop(next(iter(_plans)))
    return found


def _are_in_order(modes: Sequence[Blocks]) -> bool:
    """Say whether the indices of some modes, in all combinations, lie block by block as they are.

    After the first mode with a block of several indices, which must be neighbours, no mode may be cut.
    """
    cut = next((mode for mode, blocks in enumerate(modes) if not blocks.is_whole), len(modes))
    return all(blocks.contiguous for blocks in modes[cut : cut + 1]) and all(b.rank == 1 for b in modes[cut + 1 :])


def _offsets(seen: Rows, device: torch.device) -> torch.Tensor:
    """Return where each row begins, in units."""
    begins = torch.zeros((), dtype=torch.int64, device=device)
    for size, stride in zip(seen.shape[: seen.split], seen.strides):
        begins = begins[..., None] + torch.arange(size, device=device) * (stride // seen.unit)
    return begins.reshape(-1)


def _joined(modes: Sequence[Blocks]) -> Blocks:
    """Return the blocks of modes as those of one, in which their indices follow one another."""
    size, rank = sum(blocks.size for blocks in modes), sum(blocks.rank for blocks in modes)
    if all(blocks.contiguous for blocks in modes):
        leads = accumulate((blocks.size for blocks in modes), initial=0)
        return Blocks(size, rank, True, np.concatenate([blocks.starts + lead for blocks, lead in zip(modes, leads)]))
    leads = accumulate((blocks.rank for blocks in modes), initial=0)
    return Blocks(size, rank, False, np.concatenate([blocks.labels + lead for blocks, lead in zip(modes, leads)]))


def _tables(modes: Sequence[Blocks], sizes: Sequence[NDArray[np.intp]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List, from the last mode to the first, rank, where its blocks are told of, step, and whether its blocks are free.

    Of each block where it begins and how long it is: in its mode, or, if it is free, in a list of indices by blocks.
    """
    head, tail, orders = [], [], [np.zeros(1, np.int64)]
    told, listed, step = 4 * len(modes), 1, 1
    for blocks, counts in zip(reversed(modes), reversed(sizes)):
        head += [blocks.rank, told, step, int(not blocks.contiguous)]
        leads = np.cumsum(counts) - counts
        if not blocks.contiguous:
            leads += listed
            orders.append(np.argsort(blocks.labels, kind="stable"))
            listed += blocks.size
        tail.append(np.stack((leads, counts), 1).reshape(-1))
        told, step = told + 2 * blocks.rank, step * blocks.size
    return np.concatenate([np.array(head, np.int64), *tail]), np.concatenate(orders)


def _send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """Bring small arrays of integers to the device, all together."""
    flat = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]).astype(np.int64, copy=False))
    return list(flat.to(device).split([array.size for array in arrays]))
