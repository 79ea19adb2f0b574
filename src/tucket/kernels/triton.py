"""The passes over tensors in the memory of a GPU: each reads or writes every entry once.

A tensor is seen as rows: its last modes, as many as make a row long enough, and one row for each index of the others.
The rows of one block of these others are a group, and a program takes a chunk of a group's rows and a tile of columns.
It adds the rows up, and each row by itself; from the sums of groups and of rows all that is wanted follows. No two
programs write to the same place, so that the same sums come out each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from itertools import accumulate
from threading import Lock
from typing import Any

import numpy as np
import torch
import triton
import triton.language as tl
from numpy.typing import NDArray

from tucket.blocks import Blocks
from tucket.kernels.sums import Moments, Sums
from tucket.partition import Partition

__all__ = ["Found", "block_sums", "divergence_sums", "project", "residual", "write"]

ROW = 512
"""Columns from which a row is long enough."""

LONG = 1 << 14
"""Columns beyond which no row is made by putting modes together."""

CHUNK = 512
"""Rows of a chunk, unless there are very many; of entries of one or two bytes half as many."""

CHUNKS = 1 << 14
"""Chunks, beside one a group, that are enough to keep all processors busy: with more rows, chunks are longer."""

ROOM = 1 << 25
"""Sums of chunks, in float64, that are held at a time."""

WIDE, WHOLE, SINGLE = 0, 1, 2
"""How a tile is added up: in float64, in 32-bit integers, in float32. Tiles are added in float64 in any case."""


@triton.jit
def locate_rows(rows, group_of, bounds, groups, tables, orders, D: tl.constexpr, C: tl.constexpr):
    """List the rows of each chunk: the places of a group are the product of the indices of its blocks."""
    chunk = tl.program_id(0)
    first = tl.load(bounds + 2 * chunk)
    count = tl.load(bounds + 2 * chunk + 1)
    begin = tl.load(groups + 2 * chunk)  # where the chunk begins within its group
    group = tl.load(groups + 2 * chunk + 1)
    for start in range(0, count, C):
        place = start + tl.arange(0, C)
        rest = begin + place
        row = tl.zeros([C], tl.int64)
        code = group
        for mode in tl.static_range(D):  # from the last outer mode to the first
            rank = tl.load(tables + 4 * mode)
            block = tl.load(tables + 4 * mode + 1) + 2 * (code % rank)
            code = code // rank
            lead = tl.load(tables + block)
            size = tl.load(tables + block + 1)
            index = tl.load(orders + lead + rest % size, mask=place < count, other=0)
            rest = rest // size
            row += index * tl.load(tables + 4 * mode + 2)
        tl.store(rows + first + place, row, mask=place < count)
        tl.store(group_of + row, group, mask=place < count)


@triton.jit
def load_rows(x, rows, offsets, first, last, cols, inside, stride, R: tl.constexpr, GAPS: tl.constexpr):
    """Load some rows of a tile; return their numbers and which of them there are, too."""
    places = first + tl.arange(0, R)
    there = places < last
    row = tl.load(rows + places, mask=there, other=0).to(tl.int64)
    begin = tl.load(offsets + row, mask=there, other=0) if GAPS else row * stride
    values = tl.load(x + begin[:, None] + cols[None, :], mask=there[:, None] & inside[None, :], other=0)
    return row, there, values


@triton.jit
def sum_rows(
    x, rows, offsets, bounds, partial, row_sums, lows, moments, n_rows, columns, stride, step, per_unit, tiles,
    R: tl.constexpr, N: tl.constexpr, KIND: tl.constexpr, GAPS: tl.constexpr, FAR: tl.constexpr, MANY: tl.constexpr,
    SIGNED: tl.constexpr, MOMENTS: tl.constexpr,
):  # fmt: skip
    """Add up the rows of a chunk, and each of them by itself."""
    program = tl.program_id(0)
    chunk = (program // tiles).to(tl.int64)
    tile = program % tiles
    column = (tile.to(tl.int64) if FAR else tile) * N + tl.arange(0, N)
    inside = column < columns
    cols = column * step
    first = tl.load(bounds + 2 * chunk)
    last = first + tl.load(bounds + 2 * chunk + 1)
    if not MANY:
        first = first.to(tl.int32)
        last = last.to(tl.int32)
    total = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64 if KIND == 0 else tl.float32)
    logs = tl.zeros([N], tl.float64)
    squares = tl.zeros([N], tl.float64)
    later, later_there, ahead = load_rows(x, rows, offsets, first, last, cols, inside, stride, R, GAPS)
    for start in range(first, last, R):
        row, there, v = later, later_there, ahead
        # the next rows are on their way while these are added up
        later, later_there, ahead = load_rows(x, rows, offsets, start + R, last, cols, inside, stride, R, GAPS)
        if KIND == 0:
            w = v.to(tl.float64)
        elif KIND == 1:
            w = v.to(tl.int32)
        else:
            w = v.to(tl.float32)
        total += tl.sum(w, 0).to(tl.float64)
        tl.store(row_sums + tile.to(tl.int64) * n_rows + row, tl.sum(w, 1).to(tl.float64), mask=there)
        if SIGNED:
            low = tl.minimum(low, tl.min(v, 0).to(low.dtype))
        if MOMENTS:
            f = w.to(tl.float64) if KIND == 0 else w.to(tl.float32)
            ratio = f * tl.load(per_unit).to(f.dtype)
            ratio = tl.maximum(ratio, 1e-300 if KIND == 0 else 2e-38)  # whose logarithm times 0 is 0
            logs += tl.sum(f * tl.log2(ratio), 0).to(tl.float64)
            if MOMENTS == 2:
                g = f.to(tl.float64)
                squares += tl.sum(g * g, 0)
    tl.store(partial + chunk * columns + column, total, mask=inside)
    if SIGNED:
        tl.store(lows + program, tl.min(low, 0).to(tl.float64))
    if MOMENTS:
        tl.store(moments + 2 * program, tl.sum(logs, 0))
        tl.store(moments + 2 * program + 1, tl.sum(squares, 0))


@triton.jit
def add_chunks(partial, bounds, sums, columns, tiles, N: tl.constexpr):
    """Add up the chunks of each group, in order."""
    program = tl.program_id(0).to(tl.int64)
    group, tile = program // tiles, program % tiles
    column = tile * N + tl.arange(0, N)
    inside = column < columns
    total = tl.zeros([N], tl.float64)
    for chunk in range(tl.load(bounds + group), tl.load(bounds + group + 1)):
        total += tl.load(partial + chunk * columns + column, mask=inside, other=0)
    tl.store(sums + group * columns + column, total, mask=inside)


@triton.jit
def add_groups(sums, into, groups, columns, G: tl.constexpr, N: tl.constexpr):
    """Add up all groups: the sum of each column."""
    column = tl.program_id(0).to(tl.int64) * N + tl.arange(0, N)
    inside = column < columns
    total = tl.zeros([G, N], tl.float64)
    for first in range(0, groups, G):
        group = first + tl.arange(0, G)
        there = (group < groups)[:, None] & inside[None, :]
        total += tl.load(sums + group.to(tl.int64)[:, None] * columns + column[None, :], mask=there, other=0)
    tl.store(into + column, tl.sum(total, 0), mask=inside)


@triton.jit
def add_last(table, into, rows, length, R: tl.constexpr, N: tl.constexpr):
    """Add up each row of a table."""
    row = tl.program_id(0).to(tl.int64) * R + tl.arange(0, R)
    total = tl.zeros([R, N], tl.float64)
    for first in range(0, length, N):
        place = first + tl.arange(0, N)
        there = (row < rows)[:, None] & (place < length)[None, :]
        total += tl.load(table + row[:, None] * length + place[None, :], mask=there, other=0)
    tl.store(into + row, tl.sum(total, 1), mask=row < rows)


@triton.jit
def fold_columns(sums, into, order, ends, columns, codes, N: tl.constexpr):
    """Add up the columns of each block, for every group."""
    program = tl.program_id(0).to(tl.int64)
    group, code = program // codes, program % codes
    first = tl.load(ends + code)
    last = tl.load(ends + code + 1)
    total = tl.zeros([N], tl.float64)
    for start in range(first, last, N):
        place = start + tl.arange(0, N)
        column = tl.load(order + place, mask=place < last, other=0)
        total += tl.load(sums + group * columns + column, mask=place < last, other=0)
    tl.store(into + program, tl.sum(total, 0))


@triton.jit
def share_blocks(marginals, into, order, ends, N: tl.constexpr):
    """Divide the marginal of each index by that of its block, of whatever mode; where there is no mass, put 0."""
    block = tl.program_id(0)
    first = tl.load(ends + block)
    last = tl.load(ends + block + 1)
    total = tl.zeros([N], tl.float64)
    for start in range(first, last, N):
        place = start + tl.arange(0, N)
        index = tl.load(order + place, mask=place < last, other=0)
        total += tl.load(marginals + index, mask=place < last, other=0)
    mass = tl.sum(total, 0)
    for start in range(first, last, N):
        place = start + tl.arange(0, N)
        index = tl.load(order + place, mask=place < last, other=0)
        value = tl.load(marginals + index, mask=place < last, other=0)
        tl.store(into + index, tl.where(mass > 0, value / tl.where(mass > 0, mass, 1), 0), mask=place < last)


@triton.jit
def compare_rows(
    x, rows, offsets, bounds, groups, table, weights, found, lows, columns, stride, step, scale, tiles,
    R: tl.constexpr, N: tl.constexpr, GAPS: tl.constexpr, FAR: tl.constexpr, MANY: tl.constexpr,
    SIGNED: tl.constexpr,
):  # fmt: skip
    """Add up the squares of tensor - model and of the tensor, over a scale."""
    program = tl.program_id(0)
    chunk = (program // tiles).to(tl.int64)
    tile = program % tiles
    column = (tile.to(tl.int64) if FAR else tile) * N + tl.arange(0, N)
    inside = column < columns
    cols = column * step
    first = tl.load(bounds + 2 * chunk)
    last = first + tl.load(bounds + 2 * chunk + 1)
    if not MANY:
        first = first.to(tl.int32)
        last = last.to(tl.int32)
    group = tl.load(groups + 2 * chunk + 1)
    model = tl.load(table + group * columns + column, mask=inside, other=0)
    residual = tl.zeros([N], tl.float64)
    norm = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64)
    for start in range(first, last, R):
        row, there, v = load_rows(x, rows, offsets, start, last, cols, inside, stride, R, GAPS)
        w = v.to(tl.float64) * tl.load(scale)
        difference = w - tl.load(weights + row, mask=there, other=0)[:, None] * model[None, :]
        residual += tl.sum(difference * difference, 0)
        norm += tl.sum(w * w, 0)
        if SIGNED:
            low = tl.minimum(low, tl.min(v, 0).to(tl.float64))
    tl.store(found + 2 * program, tl.sum(residual, 0))
    tl.store(found + 2 * program + 1, tl.sum(norm, 0))
    if SIGNED:
        tl.store(lows + program, tl.min(low, 0).to(tl.float64))


@triton.jit
def spread_core(core, code_of, of_column, into, columns, codes, tiles, N: tl.constexpr):
    """Write a row of the model for each group: the entry of a column's block times its weight."""
    program = tl.program_id(0)
    group = (program // tiles).to(tl.int64)
    column = (program % tiles).to(tl.int64) * N + tl.arange(0, N)
    inside = column < columns
    code = tl.load(code_of + column, mask=inside, other=0)
    value = tl.load(core + group * codes + code, mask=inside, other=0).to(tl.float64)
    weight = tl.load(of_column + column, mask=inside, other=0).to(tl.float64)
    tl.store(into + group * columns + column, value * weight, mask=inside)


@triton.jit
def write_rows(
    out, offsets, group_of, table, weights, n_rows, columns, stride, step, tiles,
    R: tl.constexpr, N: tl.constexpr, GAPS: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Write the model, in the order of memory: the weight of a row times its group's row of the table."""
    program = tl.program_id(0)
    tile = program % tiles
    column = (tile.to(tl.int64) if FAR else tile) * N + tl.arange(0, N)
    inside = column < columns
    cols = column * step
    row = (program // tiles).to(tl.int64) * R + tl.arange(0, R)
    there = row < n_rows
    begin = tl.load(offsets + row, mask=there, other=0) if GAPS else row * stride
    group = tl.load(group_of + row, mask=there, other=0).to(tl.int64)
    both = there[:, None] & inside[None, :]
    model = tl.load(table + group[:, None] * columns + column[None, :], mask=both, other=0)
    values = tl.load(weights + row, mask=there, other=0)[:, None] * model
    tl.store(out + begin[:, None] + cols[None, :], values.to(out.dtype.element_ty), mask=both, cache_modifier=".cs")


@dataclass(frozen=True)
class Rows:
    """A tensor as rows: its modes in the order of memory, and how many of them come before a row."""

    tensor: torch.Tensor
    order: tuple[int, ...]
    split: int
    modes: tuple[Blocks, ...]

    @classmethod
    def of(cls, tensor: torch.Tensor, partition: Partition) -> Rows:
        """Turn a tensor so that its last mode is the one whose neighbours lie closest.

        Modes of size 1, whose strides mean nothing, come first.
        """
        strides, shape = tensor.stride(), tensor.shape
        order = tuple(sorted(range(tensor.ndim), key=lambda mode: (shape[mode] != 1, -strides[mode], mode)))
        turned = tensor.permute(order)
        split = tensor.ndim - 1
        columns = turned.shape[-1]
        while split > 0 and columns < ROW and columns * turned.shape[split - 1] <= LONG and _merges(turned, split - 1):
            split -= 1
            columns *= turned.shape[split]
        return cls(turned, order, split, tuple(partition[mode] for mode in order))

    @property
    def outer(self) -> tuple[Blocks, ...]:
        """The blocks of the modes before a row."""
        return self.modes[: self.split]

    @property
    def inner(self) -> tuple[Blocks, ...]:
        """The blocks of the modes of a row."""
        return self.modes[self.split :]

    @property
    def n_rows(self) -> int:
        """How many rows there are."""
        return math.prod(blocks.size for blocks in self.outer)

    @property
    def columns(self) -> int:
        """How long a row is."""
        return math.prod(blocks.size for blocks in self.inner)

    @property
    def stride(self) -> int:
        """How far it is from one row to the next, where that is always the same."""
        return int(self.tensor.stride(self.split - 1)) if self.split else 0

    @property
    def step(self) -> int:
        """How far it is from one column to the next."""
        return int(self.tensor.stride(-1))

    @property
    def far(self) -> bool:
        """Whether the columns of a row are further apart than 32 bits can count."""
        return self.columns * self.step >= 2**31

    @cached_property
    def gaps(self) -> bool:
        """Whether the modes before a row do not follow one another in memory."""
        return not all(_merges(self.tensor, mode) for mode in range(self.split - 1))


def _offsets(seen: Rows, plan: Plan) -> torch.Tensor:
    """Return where each row begins, where that must be looked up; else anything."""
    device = seen.tensor.device
    if not seen.gaps:
        return plan.rows
    begins = torch.zeros((), dtype=torch.int64, device=device)
    for mode, blocks in enumerate(seen.outer):
        begins = begins[..., None] + torch.arange(blocks.size, device=device) * seen.tensor.stride(mode)
    return begins.reshape(-1)


def _merges(turned: torch.Tensor, mode: int) -> bool:
    """Say whether a mode goes on where the next one ends."""
    strides, shape = turned.stride(), turned.shape
    return bool(shape[mode] == 1 or strides[mode] == strides[mode + 1] * shape[mode + 1])


class Plan:
    """How a tensor of some layout is read under some blocks: tables of numbers, which stay on the device."""

    def __init__(self, seen: Rows, device: torch.device) -> None:
        outer, inner = seen.outer, seen.inner
        sizes = [blocks.sizes for blocks in outer]
        members = np.ones(1, np.int64)
        for each in sizes:
            members = np.multiply.outer(members, each).reshape(-1)
        self.n_groups, self.n_rows, self.columns = len(members), int(members.sum()), seen.columns
        least = CHUNK if seen.tensor.dtype.itemsize > 2 else CHUNK // 2
        length = least * -(-self.n_rows // (least * CHUNKS))
        parts = -(-members // length)
        group = np.repeat(np.arange(len(members)), parts)
        begin = (np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)) * length
        count = np.minimum(length, members[group] - begin)
        first = (np.cumsum(members) - members)[group] + begin
        self.n_chunks = len(group)
        codes = np.zeros(1, np.int64)
        for blocks in inner:
            codes = (codes[:, None] * blocks.rank + blocks.labels).reshape(-1)
        self.n_blocks = sum(blocks.rank for blocks in seen.modes)
        self.n_codes = math.prod(blocks.rank for blocks in inner)
        whole = np.cumsum(np.bincount(codes, minlength=self.n_codes))
        parcel = [
            np.stack((first, count), 1), np.stack((begin, group), 1), np.append(0, np.cumsum(parts)),
            *_tables(outer, sizes), np.argsort(codes, kind="stable"), np.append(0, whole), *_members(seen.modes), codes,
        ]  # fmt: skip
        self.bounds, self.groups, self.ends, tables, orders, self.order, self.codes, *rest = _send(parcel, device)
        self.members, self.member_ends, self.code_of = rest
        self.many = self.n_rows >= 2**31 - CHUNK
        self.rows = torch.empty(self.n_rows, dtype=torch.int64 if self.many else torch.int32, device=device)
        self.group_of = torch.empty_like(self.rows)
        locate_rows[(self.n_chunks,)](
            self.rows, self.group_of, self.bounds, self.groups, tables, orders, D=len(outer), C=CHUNK
        )
        if device.type == "cuda":  # others may use it, on streams that know nothing of this one
            torch.cuda.current_stream(device).synchronize()


PLANS = 16
"""Plans that are kept: whoever reads one tensor mostly reads others like it."""

_plans: dict[Any, Plan] = {}
_lock = Lock()


def _plan(seen: Rows) -> Plan:
    """Return a plan, made now or before."""
    cuts = tuple((blocks.size, blocks.contiguous, blocks._cuts.tobytes()) for blocks in seen.modes)
    key = seen.tensor.device, seen.tensor.dtype.itemsize > 2, seen.split, cuts
    with _lock:
        found = _plans.get(key)
        if found is None:
            while len(_plans) >= PLANS:
                del _plans[next(iter(_plans))]
            found = _plans[key] = Plan(seen, seen.tensor.device)
    return found


def _tables(outer: Sequence[Blocks], sizes: Sequence[NDArray[np.intp]]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List, from the last mode to the first, rank, where its blocks are told of, and step; and indices by blocks."""
    head, tail, orders = [], [], []
    told, listed, step = 4 * len(outer), 0, 1
    for blocks, counts in zip(reversed(outer), reversed(sizes)):
        head += [blocks.rank, told, step, 0]
        leads = listed + np.cumsum(counts) - counts
        tail.append(np.stack((leads, counts), 1).reshape(-1))
        orders.append(np.arange(blocks.size) if blocks.contiguous else np.argsort(blocks.labels, kind="stable"))
        told, listed, step = told + 2 * blocks.rank, listed + blocks.size, step * blocks.size
    joined = np.concatenate([np.array(head, np.int64), *tail]) if outer else np.zeros(1, np.int64)
    return joined, np.concatenate(orders) if outer else np.zeros(1, np.int64)


def _members(modes: Sequence[Blocks]) -> tuple[NDArray[Any], NDArray[Any]]:
    """List the indices of all modes, one after another, by blocks; and where each block ends."""
    starts = np.cumsum([0, *(blocks.size for blocks in modes)])
    orders = [start + np.argsort(blocks.labels, kind="stable") for start, blocks in zip(starts, modes)]
    return np.concatenate(orders), np.append(0, np.cumsum(np.concatenate([blocks.sizes for blocks in modes])))


def _send(arrays: Sequence[NDArray[Any]], device: torch.device) -> list[torch.Tensor]:
    """Bring small arrays of integers to the device, all together."""
    flat = torch.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]).astype(np.int64, copy=False))
    return list(flat.to(device).split([array.size for array in arrays]))


def _tile(columns: int, best: tuple[int, int, int]) -> dict[str, int]:
    """Return rows and columns of a tile, and the warps that work on it, like those that were measured to be fastest."""
    rows, most, warps = best
    width = min(most, max(32, triton.next_power_of_2(columns)))
    return {"R": min(64, rows * most // width), "N": width, "num_warps": warps}


def _best(dtype: torch.dtype, kind: int, moments: bool) -> tuple[int, int, int]:
    if kind == WIDE:
        return (1, 512, 4) if moments else (1, 1024, 1)
    if moments:
        return 2, 256, 1
    return {1: (4, 512, 1), 2: (4, 2048, 4)}.get(dtype.itemsize, (4, 1024, 4))


def _kind(dtype: torch.dtype) -> int:
    if dtype.is_floating_point and dtype.itemsize <= 4:
        return SINGLE
    return WHOLE if dtype.itemsize <= 2 else WIDE


def _signed(dtype: torch.dtype) -> bool:
    return bool(dtype.is_floating_point or dtype.is_signed)


def block_sums(tensor: torch.Tensor, partition: Partition, unit: float | None) -> Sums:
    """Read the tensor once, for its block sums and marginals, and for its moments if given a unit."""
    tensor = _bytes(tensor)
    kind = _kind(tensor.dtype)
    with _on(tensor):
        sums = _sum(tensor, partition, unit, kind)
        if kind == SINGLE and not _is_finite(sums):  # perhaps a row or a logarithm was too much for float32
            sums = _sum(tensor, partition, unit, WIDE)
    return sums


def _is_finite(sums: Sums) -> bool:
    with np.errstate(all="ignore"):
        parts = [*(part.sum() for part in (sums.core, *sums.marginals)), *(sums.moments or ())]
    return bool(np.isfinite(parts).all())


def _on(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Launch kernels on the device of a tensor, which need not be the current one."""
    return torch.cuda.device(tensor.device) if tensor.is_cuda else nullcontext()


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    """Return truth values as the bytes that they are."""
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _sum(tensor: torch.Tensor, partition: Partition, unit: float | None, kind: int) -> Sums:
    """Sum on the device, and bring all to the host at once."""
    per_unit = None if unit is None else _number(1.0 / unit, tensor.device)
    return Found(tensor, partition, kind, per_unit, 2).to_sums()


def divergence_sums(tensor: torch.Tensor, partition: Partition, core: torch.Tensor) -> tuple[Found, torch.Tensor]:
    """Set the sums that a divergence needs under way, with entries counted in a unit that suits them.

    The inverse of that unit, a power of two, is on the device too. The squares are not summed.
    """
    tensor = _bytes(tensor)
    with _on(tensor):
        mean = core.sum(dtype=torch.float64) / tensor.numel()
        per_unit = torch.where(mean > 0, torch.exp2(-torch.log2(mean).round()), 1.0).reshape(1)
        return Found(tensor, partition, _kind(tensor.dtype), per_unit, 1), per_unit


def project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
    """Return the core and the weights of the projection, on the device; None if the sums are not fit for it.

    All is under way before the host looks at anything.
    """
    tensor = _bytes(tensor)
    with _on(tensor):
        return _project(tensor, partition)


def _project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
    found = Found(tensor, partition, _kind(tensor.dtype))
    plan, order = found.plan, found.seen.order
    weights = torch.empty(sum(partition.shape), dtype=torch.float64, device=tensor.device)
    core, of_modes = found.packed[: found.ends[0]], found.packed[found.ends[0] : found.ends[-2]]
    share_blocks[(plan.n_blocks,)](of_modes, weights, plan.members, plan.member_ends, N=128, num_warps=1)
    low, total = torch.stack((found.packed[found.ends[-2]], found.packed[: found.ends[-2]].sum())).tolist()
    if low < 0 or not math.isfinite(total):
        return None
    by_mode = weights.split([blocks.size for blocks in found.seen.modes])
    back = [order.index(mode) for mode in range(len(order))]
    return core.reshape(found.core_shape).permute(back).contiguous(), [by_mode[place] for place in back]


class Found:
    """What one pass over a tensor finds, still on the device: core, marginals, least entry and moments, in a row."""

    def __init__(
        self,
        tensor: torch.Tensor,
        partition: Partition,
        kind: int,
        per_unit: torch.Tensor | None = None,
        n_moments: int = 0,
    ) -> None:
        self.seen, device, signed = Rows.of(tensor, partition), tensor.device, _signed(tensor.dtype)
        seen, plan = self.seen, _plan(self.seen)
        self.plan, self.core_shape = plan, [blocks.rank for blocks in seen.modes]
        n_core, n_inner = plan.n_groups * plan.n_codes, len(seen.inner)
        cuts = [n_core, *(blocks.size for blocks in seen.modes), 1, 2]
        self.ends = list(accumulate(cuts[:-1]))
        self.packed = torch.empty(self.ends[-1] + 2, dtype=torch.float64, device=device)
        core, *marginals, low, moments = self.packed.split(cuts)
        self.has_moments = per_unit is not None
        sums, row_sums, lows, moment = self._rows(kind, signed, per_unit, n_moments)
        fold_columns[(n_core,)](sums, core, plan.order, plan.codes, plan.columns, plan.n_codes, N=128, num_warps=4)
        of_columns = marginals[-1] if n_inner == 1 else torch.empty(plan.columns, dtype=torch.float64, device=device)
        _add_groups(sums, of_columns, plan.n_groups, plan.columns)
        _marginals(row_sums, marginals[: seen.split])
        if n_inner > 1:
            _marginals(of_columns, marginals[seen.split :])
        torch.amin(lows, 0, True, out=low)
        if per_unit is not None:
            torch.sum(moment, 0, out=moments)

    def to_sums(self) -> Sums:
        """Bring all to the host, at once."""
        core, *marginals, low, moments = np.split(self.packed.cpu().numpy(), self.ends)
        back = [self.seen.order.index(mode) for mode in range(len(marginals))]
        turned = np.ascontiguousarray(core.reshape(self.core_shape).transpose(back))
        found = Moments(float(moments[0]) * math.log(2.0), float(moments[1])) if self.has_moments else None
        return Sums(turned, tuple(marginals[place] for place in back), bool(low[0] < 0), found, "triton")

    def _rows(self, kind: int, signed: bool, per_unit: torch.Tensor | None, n_moments: int) -> tuple[torch.Tensor, ...]:
        """Return the sums of groups and rows, the least entries, and the moments."""
        seen, plan = self.seen, self.plan
        width = max(1, ROOM // plan.n_chunks)
        if width >= plan.columns:
            return _sum_part(seen, plan, slice(0, plan.columns), kind, signed, per_unit, n_moments)
        new = partial(torch.zeros, dtype=torch.float64, device=seen.tensor.device)
        sums, row_sums, lows, moments = new((plan.n_groups, plan.columns)), new(plan.n_rows), new(1), new((1, 2))
        for start in range(0, plan.columns, width):  # rows so long that they are summed part by part
            part = slice(start, min(start + width, plan.columns))
            sums[:, part], more, least, some = _sum_part(seen, plan, part, kind, signed, per_unit, n_moments)
            row_sums += more
            lows, moments = torch.minimum(lows, least.amin()), moments + some.sum(0)
        return sums, row_sums, lows, moments


def _add_groups(sums: torch.Tensor, into: torch.Tensor, groups: int, columns: int) -> None:
    add_groups[(-(-columns // 8),)](sums, into, groups, columns, G=128, N=8, num_warps=4)


def _marginals(values: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
    """Sum a table over all modes but one, for each of these: from the last, which is then summed away."""
    for place in range(len(into) - 1, 0, -1):
        size = len(into[place])
        before = values.numel() // size
        _add_groups(values, into[place], before, size)
        shorter = into[0] if place == 1 else torch.empty(before, dtype=torch.float64, device=values.device)
        add_last[(-(-before // 4),)](values, shorter, before, size, R=4, N=256, num_warps=4)
        values = shorter
    if len(into) == 1:
        into[0].copy_(values)


def _sum_part(
    seen: Rows, plan: Plan, part: slice, kind: int, signed: bool, per_unit: torch.Tensor | None, n_moments: int
) -> tuple[torch.Tensor, ...]:
    """Return the sums of each group over some columns, of each row, the least entries, and the moments."""
    device, count = seen.tensor.device, part.stop - part.start
    tile = _tile(count, _best(seen.tensor.dtype, kind, per_unit is not None))
    tiles = -(-count // tile["N"])
    programs = plan.n_chunks * tiles
    rooms = [
        plan.n_chunks * count,
        tiles * plan.n_rows,
        programs if signed else 1,
        2 if per_unit is None else 2 * programs,
    ]
    room = torch.empty(sum(rooms), dtype=torch.float64, device=device)
    by_chunk, by_tile, lows, moments = room.split(rooms)
    if not signed:
        lows.zero_()
    sum_rows[(programs,)](
        _from(seen.tensor, part.start * seen.step), plan.rows, _offsets(seen, plan), plan.bounds, by_chunk, by_tile,
        lows, moments, plan.n_rows, count, seen.stride, seen.step, room if per_unit is None else per_unit, tiles,
        KIND=kind, GAPS=seen.gaps, FAR=seen.far, MANY=plan.many, SIGNED=signed,
        MOMENTS=0 if per_unit is None else n_moments, **tile,
    )  # fmt: skip
    sums = torch.empty((plan.n_groups, count), dtype=torch.float64, device=device)
    pieces = -(-count // 256)
    add_chunks[(plan.n_groups * pieces,)](by_chunk, plan.ends, sums, count, pieces, N=256, num_warps=2)
    row_sums = by_tile if tiles == 1 else by_tile.reshape(tiles, plan.n_rows).sum(0)
    return sums, row_sums, lows, moments.reshape(-1, 2)


def _number(value: float, device: torch.device) -> torch.Tensor:
    """Return a number of float64 for a kernel, to which a plain one would go as float32."""
    return torch.full((1,), value, dtype=torch.float64, device=device)


def _from(tensor: torch.Tensor, offset: int) -> torch.Tensor:
    """Return a view that begins later in memory."""
    return tensor.as_strided((1,), (1,), tensor.storage_offset() + offset) if offset else tensor


def _table(seen: Rows, plan: Plan, core: Any, weights: Sequence[Any]) -> tuple[torch.Tensor, torch.Tensor]:
    """Return a row of the model for each group, without the weights of rows, and these."""
    device = seen.tensor.device
    turned = _tensor(core, device).permute(seen.order).contiguous()
    by_mode = [_tensor(weights[mode], device) for mode in seen.order]
    of_rows = _product(by_mode[: seen.split]) if seen.split else torch.ones(1, dtype=torch.float64, device=device)
    table = torch.empty((plan.n_groups, plan.columns), dtype=torch.float64, device=device)
    tiles = -(-plan.columns // 512)
    spread_core[(plan.n_groups * tiles,)](
        turned, plan.code_of, _product(by_mode[seen.split :]), table, plan.columns, plan.n_codes, tiles, N=512
    )
    return table, of_rows


def _tensor(array: Any, device: torch.device) -> torch.Tensor:
    return array if torch.is_tensor(array) else torch.from_numpy(np.array(array)).to(device)


def _product(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the products of the entries of vectors, in float64, flat."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = (product.double()[:, None] * vector).reshape(-1)
    return product


def residual(
    tensor: torch.Tensor, core: Any, partition: Partition, weights: Sequence[Any], scale: float = 1.0
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and tensor, over a scale, and whether any entry is negative."""
    tensor = _bytes(tensor)
    with _on(tensor):
        seen, device = Rows.of(tensor, partition), tensor.device
        plan = _plan(seen)
        table, of_rows = _table(seen, plan, core / scale, weights)
        signed, tile = _signed(tensor.dtype), _tile(seen.columns, (4, 512, 2))
        tiles = -(-seen.columns // tile["N"])
        found = torch.empty((plan.n_chunks * tiles, 2), dtype=torch.float64, device=device)
        lows = torch.zeros(len(found) if signed else 1, dtype=torch.float64, device=device)
        compare_rows[(len(found),)](
            seen.tensor, plan.rows, _offsets(seen, plan), plan.bounds, plan.groups, table, of_rows, found, lows,
            seen.columns, seen.stride, seen.step, _number(1.0 / scale, device), tiles,
            GAPS=seen.gaps, FAR=seen.far, MANY=plan.many, SIGNED=signed, **tile,
        )  # fmt: skip
        difference, norm, low = torch.cat([found.sum(0), lows.amin(0, True)]).tolist()
        return difference, norm, low < 0


def write(out: torch.Tensor, core: Any, partition: Partition, weights: Sequence[Any]) -> None:
    """Write the tensor of a block model to an array."""
    with _on(out):
        seen = Rows.of(out, partition)
        plan = _plan(seen)
        table, of_rows = _table(seen, plan, core, weights)
        tile = _tile(seen.columns, (4, 1024, 2))
        tiles = -(-seen.columns // tile["N"])
        write_rows[(-(-plan.n_rows // tile["R"]) * tiles,)](
            seen.tensor, _offsets(seen, plan), plan.group_of, table, of_rows, plan.n_rows,
            seen.columns, seen.stride, seen.step, tiles, GAPS=seen.gaps, FAR=seen.far, **tile,
        )  # fmt: skip
