"""How a tensor in the memory of a GPU is read under some blocks: as rows, and by tables that stay on the device."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from threading import Lock
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tucket.blocks import Blocks
from tucket.kernels.triton import locate_rows
from tucket.partition import Partition

__all__ = ["Plan", "Rows", "offsets_of", "plan_of"]

ROW = 512
"""Columns from which a row is long enough."""

LONG = 1 << 14
"""Columns beyond which no row is made by putting modes together."""

CHUNK = 512
"""Rows of a chunk, unless there are very many; of entries of one or two bytes half as many."""

CHUNKS = 1 << 14
"""Chunks, beside one a group, that are enough to keep all processors busy: with more rows, chunks are longer."""


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


def offsets_of(seen: Rows, plan: Plan) -> torch.Tensor:
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
        even = -(-members // parts)
        group = np.repeat(np.arange(len(members)), parts)
        begin = (np.arange(len(group)) - np.repeat(np.cumsum(parts) - parts, parts)) * even[group]
        count = np.minimum(even[group], members[group] - begin)
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


def plan_of(seen: Rows) -> Plan:
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
