"""What one pass over a tensor in the memory of a GPU finds: its block sums, marginals and moments.

A tensor is seen as rows: its last modes, as many as make a row long enough, and one row for each index of the others.
The rows of one block of these others are a group, and a program takes a chunk of a group's rows and a tile of columns.
It adds the rows up, and each row by itself; from the sums of groups and of rows all that is wanted follows. Where
groups are of few rows, tiles are pieces of one block of columns instead, and their sums of rows are a small tensor,
summed likewise. No two programs write to the same place, so that the same sums come out each time.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, partial
from itertools import accumulate
from typing import Any, NamedTuple

import numpy as np
import torch
import triton

from tucket.kernels.gpu.loops import add_chunks, fold, sum_rows
from tucket.kernels.gpu.plan import Band, Places, Plan, Rows
from tucket.kernels.sums import Moments, Sums

__all__ = ["SINGLE", "WHOLE", "WIDE", "Found", "fold_blocks", "kind_of", "tile_of"]

WIDE, WHOLE, SINGLE = 0, 1, 2
"""How a tile is added up: in float64, in 32-bit integers, in float32. Tiles are added in float64 in any case."""


FAST = torch.version.cuda is not None and isinstance(sum_rows, triton.JITFunction)
"""Whether kernels are compiled for a GPU of NVIDIA's, and may use its instructions."""


@lru_cache(maxsize=256)
def tile_of(columns: int, rows: int, best: tuple[int, int, int]) -> dict[str, int]:
    """Return rows and columns of a tile, and the warps that work on it, like those that were measured to be fastest.

    A tile is as wide as they are, if that fits the columns well; each thread has as many entries in any case.
    """
    high, most, warps = best
    fitting = (wide for wide in (2048, 1024, 512, 256, 128) if wide <= most and -columns % wide <= columns // 10)
    width = next(fitting, min(most, 256, max(32, triton.next_power_of_2(columns))))
    fewer = max(1, warps * width // most)
    high = min(64, high * most * fewer // (warps * width), triton.next_power_of_2(rows))
    return {"R": high, "N": width, "num_warps": fewer}


LOOSE = 2, 1024, 2
"""The tile for entries that are read one at a time, as rows begin anywhere."""


@lru_cache(maxsize=256)
def _best(dtype: torch.dtype, kind: int, seen: Rows, moments: bool) -> tuple[int, int, int]:
    if kind == WIDE:
        return (1, 512, 4) if moments else (2, 1024, 4)
    if moments:
        return (4, 512, 4) if dtype.itemsize == 4 else (4, 256, 1)
    if seen.multiple * dtype.itemsize < 16:
        return LOOSE
    if dtype.itemsize == 2 and -seen.columns % 2048 <= seen.columns // 10:
        return 4, 2048, 4
    return (4, 512, 1) if dtype.itemsize == 1 else (4, 1024, 4)


def kind_of(dtype: torch.dtype) -> int:
    """Return how tiles of a type are added up, unless that turns out to be too rough."""
    if dtype.is_floating_point and dtype.itemsize <= 4:
        return SINGLE
    return WHOLE if dtype.itemsize <= 2 else WIDE


class Telegram:
    """A few numbers on their way from the device to the host, ahead of all that the device is told to do after them."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.copy = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
        self.copy.copy_(numbers, non_blocking=True)
        self.sent = torch.cuda.Event()
        self.sent.record()

    def read(self) -> torch.Tensor:
        """Wait for them."""
        self.sent.synchronize()
        return self.copy


class Found:
    """What one pass over a tensor finds, still on the device: core, marginals, least entry and moments, in a row."""

    def __init__(
        self,
        tensor: torch.Tensor,
        plan: Plan,
        kind: int,
        per_unit: torch.Tensor | None = None,
        n_moments: int = 0,
        watched: bool = False,
    ) -> None:
        self.plan, self.has_moments, self.is_rough = plan, per_unit is not None, kind != WIDE
        summed = _sum(tensor, plan, plan.bands[0], kind, per_unit, n_moments)  # the rest is prepared meanwhile
        split, n_core = plan.seen.split, plan.rows.n_groups * plan.columns.n_groups
        cuts = [n_core, *plan.seen.shape, 2, 2]
        self.ends = list(accumulate(cuts[:-1]))
        self.packed = torch.empty(self.ends[-1] + 2, dtype=torch.float64, device=tensor.device)
        core, *self.marginals, self.checked, moments = self.packed.split(cuts)
        outer, inner = self.marginals[:split], self.marginals[split:]
        of_columns = inner[0] if len(inner) == 1 else torch.empty_like(summed.table[0])
        row_sums, self.news = summed.rows, None
        if len(plan.bands) == 1:
            torch.amin(summed.checks, 1, out=self.checked)
            self.news = Telegram(self.checked) if watched and tensor.is_cuda else None
            if plan.rows_first is None:
                fold_blocks(summed.table, plan.columns, core)
            _add_rows(summed.table, of_columns)
            if self.has_moments:
                torch.sum(summed.moments, 1, out=moments)
        else:
            self.packed.zero_()
            of_columns.zero_()
            for band in plan.bands:
                if band is not plan.bands[0]:
                    del summed  # there is room for one at a time
                    summed = _sum(tensor, plan, band, kind, per_unit, n_moments, row_sums)
                torch.minimum(self.checked, summed.checks.amin(1), out=self.checked)
                if plan.rows_first is None:
                    parts = core.reshape(plan.rows.n_groups, -1)[band.low : band.high]
                    parts += fold_blocks(summed.table, plan.columns).reshape(parts.shape)
                of_columns += _add_rows(summed.table, torch.empty_like(of_columns))
                if self.has_moments:
                    moments += summed.moments.sum(1)
        if plan.rows_first is None:
            _marginals(row_sums, outer)
        else:
            found = Found(row_sums.reshape(-1, *plan.seen.shape[:split]), plan.rows_first, WIDE)
            core.copy_(found.core().movedim(0, -1).reshape(-1))
            for ours, place in zip(outer, found.plan.back[1:]):
                ours.copy_(found.marginals[place])
        if len(inner) > 1:
            _marginals(of_columns, inner)

    def is_fine(self) -> bool:
        """Say whether no entry is negative, and no sum too large; the host waits for this, but not for all sums."""
        low, spare = (self.checked if self.news is None else self.news.read()).tolist()
        return bool(low >= 0 and spare >= 0)

    def core(self) -> torch.Tensor:
        """Return the block sums, on the device."""
        return self.packed[: self.ends[0]].reshape(self._shape()).permute(self.plan.back).contiguous()

    def to_sums(self) -> Sums:
        """Bring all to the host, at once."""
        core, *marginals, checked, moments = np.split(self.packed.cpu().numpy(), self.ends)
        back = self.plan.back
        turned = np.ascontiguousarray(core.reshape(self._shape()).transpose(back))
        found = Moments(float(moments[0]) * math.log(2.0), float(moments[1])) if self.has_moments else None
        by_mode = tuple(marginals[place] for place in back)
        return Sums(turned, by_mode, bool(checked[0] < 0), found, "triton", self.is_rough)

    def _shape(self) -> list[int]:
        return [blocks.rank for blocks in self.plan.modes]


class Summed(NamedTuple):
    """What one launch finds, of a band: the sums of its groups and rows, what is to be checked, and the moments."""

    table: torch.Tensor
    rows: torch.Tensor  # of all bands, in each tile
    checks: torch.Tensor
    moments: torch.Tensor


def _sum(
    tensor: torch.Tensor,
    plan: Plan,
    band: Band,
    kind: int,
    per_unit: torch.Tensor | None,
    n_moments: int,
    row_sums: torch.Tensor | None = None,
) -> Summed:
    """Sum a band; where there are several, the sums of rows go where those of the first have gone."""
    seen, rows, columns = plan.seen, plan.rows, plan.columns
    new, pieces = partial(torch.empty, dtype=torch.float64, device=tensor.device), plan.rows_first is not None
    if pieces:
        rows, tiles = plan.all_rows, columns.n_chunks
        tile = tile_of(triton.next_power_of_2(columns.longest), rows.longest, LOOSE)
    else:
        tile = tile_of(seen.columns, rows.longest, _best(tensor.dtype, kind, seen, per_unit is not None))
        tiles = -(-seen.columns // tile["N"])
    if row_sums is None and len(plan.bands) > 1:
        row_sums = new(tiles * rows.count)
    n_chunks, n_groups = band.last - band.first, band.high - band.low
    programs = n_chunks * tiles
    rooms = [2 * programs, 2 * programs, tiles * rows.count if row_sums is None else 0, n_chunks * seen.columns]
    room = new(sum(rooms))
    sum_rows[(programs,)](
        tensor, rows.sorted, plan.offsets, rows.cuts[band.first :] if band.first else rows.cuts,
        columns.cuts if pieces else None, columns.listed if pieces else None, room, row_sums, per_unit,
        rows.count, seen.columns // seen.unit, seen.stride, seen.step, tiles,
        KIND=kind, UNIT=seen.unit, FAR=seen.far, MANY=rows.many, SIGNED=tensor.dtype.is_signed,
        MOMENTS=0 if per_unit is None else n_moments, FAST=FAST and kind != WIDE, **tile,
    )  # fmt: skip
    checks, moments, by_row, by_chunk = room.split(rooms)
    table = by_chunk.reshape(-1, seen.columns)
    if n_chunks > n_groups:
        table = new((n_groups, seen.columns))
        _add_chunks(by_chunk, band.ends, table, n_groups, seen.columns, rows.most)
    return Summed(table, by_row if row_sums is None else row_sums, checks.reshape(2, -1), moments.reshape(2, -1))


def fold_blocks(table: torch.Tensor, columns: Places, into: torch.Tensor | None = None) -> torch.Tensor:
    """Sum the columns of each block, in every row of a table: those of long blocks piece by piece."""
    new = partial(torch.empty, dtype=torch.float64, device=table.device)
    into = new(len(table) * columns.n_groups) if into is None else into
    by_piece = into if columns.n_chunks == columns.n_groups else new(len(table) * columns.n_chunks)
    _fold_once(table, by_piece, columns.cuts, columns.longest, columns.listed)
    if by_piece is not into:
        _fold_once(by_piece.reshape(len(table), -1), into, columns.ends, columns.most)
    return into


def _fold_once(
    table: torch.Tensor, into: torch.Tensor, ends: torch.Tensor, longest: int, places: torch.Tensor | None = None
) -> None:
    """Sum the columns of each piece, of which the longest is told: listed, or one after another."""
    rows, columns = table.shape
    pieces = len(ends) - 1
    width = min(128, triton.next_power_of_2(longest))
    some = 512 // width
    stripes = -(-pieces // some)
    fold[(rows * stripes,)](table, into, places, ends, columns, pieces, stripes, longest, P=some, N=width, num_warps=4)


def _add_rows(values: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Sum a table, whose last mode this is, over all else."""
    columns = len(into)
    before = values.numel() // columns
    if before == 1:
        into.copy_(values.reshape(-1))
    elif before > 4096 or columns < 512:
        torch.sum(values.reshape(before, columns), 0, out=into)
    else:
        _add_chunks(values, before, into, 1, columns, before)
    return into


def _add_chunks(table: torch.Tensor, ends: Any, into: torch.Tensor, groups: int, columns: int, most: int) -> None:
    """Sum the rows of each group of a table, at most so many, up to its end in a list; of one group, all."""
    # many sums of few rows, or few of many
    highest, size, warps = (4, 512, 4) if groups * columns > 1 << 16 else (512, 4096, 8)
    high = min(highest, triton.next_power_of_2(most))
    stripes = -(-columns // (size // high))
    add_chunks[(groups * stripes,)](
        table, ends, into, columns, stripes, G=high, N=size // high, LISTED=torch.is_tensor(ends), num_warps=warps
    )


def _marginals(values: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
    """Sum a table, whose last modes these are, over all modes but one, for each: from the last, then summed away."""
    for marginal in reversed(into):
        _add_rows(values, marginal)
        if marginal is not into[0]:
            values = values.reshape(-1, len(marginal)).sum(1)
