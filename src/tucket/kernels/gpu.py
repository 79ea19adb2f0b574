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
from functools import partial
from itertools import accumulate
from typing import Any

import numpy as np
import torch
import triton

from tucket.kernels.gpu_plan import Plan, Rows, offsets_of, plan_of
from tucket.kernels.sums import Moments, Sums
from tucket.kernels.triton import (
    add_chunks,
    add_groups,
    add_last,
    compare_rows,
    descend,
    fold_columns,
    share_blocks,
    spread_core,
    sum_rows,
    write_rows,
)
from tucket.partition import Partition

__all__ = [
    "Found",
    "block_sums",
    "core",
    "descend_rows",
    "divergence_sums",
    "on_device_of",
    "project",
    "residual",
    "write",
]

ROOM = 1 << 25
"""Sums of chunks, in float64, that are held at a time."""

WIDE, WHOLE, SINGLE = 0, 1, 2
"""How a tile is added up: in float64, in 32-bit integers, in float32. Tiles are added in float64 in any case."""


def _tile(columns: int, best: tuple[int, int, int]) -> dict[str, int]:
    """Return rows and columns of a tile, and the warps that work on it, like those that were measured to be fastest."""
    rows, most, warps = best
    width = min(most, max(32, triton.next_power_of_2(columns)))
    return {"R": min(64, rows * most // width), "N": width, "num_warps": warps}


def _best(dtype: torch.dtype, kind: int, moments: bool) -> tuple[int, int, int]:
    if kind == WIDE:
        return (1, 512, 4) if moments else (2, 1024, 2)
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
    with on_device_of(tensor):
        sums = _sum(tensor, partition, unit, kind)
        if kind == SINGLE and not _is_finite(sums):  # perhaps a row or a logarithm was too much for float32
            sums = _sum(tensor, partition, unit, WIDE)
    return sums


def _is_finite(sums: Sums) -> bool:
    with np.errstate(all="ignore"):
        parts = [*(part.sum() for part in (sums.core, *sums.marginals)), *(sums.moments or ())]
    return bool(np.isfinite(parts).all())


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Launch kernels on the device of a tensor, which need not be the current one."""
    is_here = not tensor.is_cuda or tensor.device.index == torch.cuda.current_device()
    return nullcontext() if is_here else torch.cuda.device(tensor.device)


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
    with on_device_of(tensor):
        mean = core.sum(dtype=torch.float64) / tensor.numel()
        per_unit = torch.where(mean > 0, torch.exp2(-torch.log2(mean).round()), 1.0).reshape(1)
        return Found(tensor, partition, _kind(tensor.dtype), per_unit, 1), per_unit


def project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
    """Return the core and the weights of the projection, on the device; None if the sums are not fit for it.

    All is under way before the host looks at anything.
    """
    tensor = _bytes(tensor)
    with on_device_of(tensor):
        return _project(tensor, partition)


def _project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor]] | None:
    found = Found(tensor, partition, _kind(tensor.dtype))
    plan = found.plan
    weights = torch.empty(sum(partition.shape), dtype=torch.float64, device=tensor.device)
    of_modes = found.packed[found.ends[0] : found.ends[-2]]
    share_blocks[(plan.n_blocks,)](of_modes, weights, plan.members, plan.member_ends, N=128, num_warps=1)
    core, by_mode = found.core(), weights.split([blocks.size for blocks in found.seen.modes])
    parts = core, [by_mode[place] for place in found.back()]
    return parts if found.is_fine() else None


def core(tensor: torch.Tensor, partition: Partition) -> torch.Tensor | None:
    """Return the block sums, on the device; None if they are not fit for use."""
    tensor = _bytes(tensor)
    with on_device_of(tensor):
        found = Found(tensor, partition, _kind(tensor.dtype))
        return found.core() if found.is_fine() else None


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
        seen, plan = self.seen, plan_of(self.seen)
        self.plan, self.core_shape = plan, [blocks.rank for blocks in seen.modes]
        sums, row_sums, lows, moment = self._rows(kind, signed, per_unit, n_moments)  # all else is prepared meanwhile
        n_core, n_inner = plan.n_groups * plan.n_codes, len(seen.inner)
        cuts = [n_core, *(blocks.size for blocks in seen.modes), 1, 2]
        self.ends = list(accumulate(cuts[:-1]))
        self.packed = torch.empty(self.ends[-1] + 2, dtype=torch.float64, device=device)
        core, *marginals, low, moments = self.packed.split(cuts)
        self.has_moments = per_unit is not None
        fold_columns[(n_core,)](sums, core, plan.order, plan.codes, plan.columns, plan.n_codes, N=128, num_warps=4)
        of_columns = marginals[-1] if n_inner == 1 else torch.empty(plan.columns, dtype=torch.float64, device=device)
        _add_groups(sums, of_columns, plan.n_groups, plan.columns)
        _marginals(row_sums, marginals[: seen.split])
        if n_inner > 1:
            _marginals(of_columns, marginals[seen.split :])
        torch.amin(lows, 0, True, out=low)
        if per_unit is not None:
            torch.sum(moment, 0, out=moments)

    def is_fine(self) -> bool:
        """Say whether no entry is negative, and all sums are finite; the host waits for this."""
        low, total = torch.stack((self.packed[self.ends[-2]], self.packed[: self.ends[-2]].sum())).tolist()
        return low >= 0 and math.isfinite(total)

    def back(self) -> list[int]:
        """Return the place of each mode of the tensor among those that were read."""
        return [self.seen.order.index(mode) for mode in range(len(self.seen.order))]

    def core(self) -> torch.Tensor:
        """Return the block sums, on the device."""
        return self.packed[: self.ends[0]].reshape(self.core_shape).permute(self.back()).contiguous()

    def to_sums(self) -> Sums:
        """Bring all to the host, at once."""
        core, *marginals, low, moments = np.split(self.packed.cpu().numpy(), self.ends)
        back = self.back()
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
    by_chunk, by_tile, lows, moments = torch.split_with_sizes(room, rooms)
    if not signed:
        lows.zero_()
    sum_rows[(programs,)](
        _from(seen.tensor, part.start * seen.step), plan.rows, offsets_of(seen, plan), plan.bounds, by_chunk, by_tile,
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
    with on_device_of(tensor):
        seen, device = Rows.of(tensor, partition), tensor.device
        plan = plan_of(seen)
        table, of_rows = _table(seen, plan, core / scale, weights)
        signed, tile = _signed(tensor.dtype), _tile(seen.columns, (4, 512, 2))
        tiles = -(-seen.columns // tile["N"])
        found = torch.empty((plan.n_chunks * tiles, 2), dtype=torch.float64, device=device)
        lows = torch.zeros(len(found) if signed else 1, dtype=torch.float64, device=device)
        compare_rows[(len(found),)](
            seen.tensor, plan.rows, offsets_of(seen, plan), plan.bounds, plan.groups, table, of_rows, found, lows,
            seen.columns, seen.stride, seen.step, _number(1.0 / scale, device), tiles,
            GAPS=seen.gaps, FAR=seen.far, MANY=plan.many, SIGNED=signed, **tile,
        )  # fmt: skip
        difference, norm, low = torch.cat([found.sum(0), lows.amin(0, True)]).tolist()
        return difference, norm, low < 0


def write(out: torch.Tensor, core: Any, partition: Partition, weights: Sequence[Any]) -> None:
    """Write the tensor of a block model to an array."""
    with on_device_of(out):
        seen = Rows.of(out, partition)
        plan = plan_of(seen)
        table, of_rows = _table(seen, plan, core, weights)
        tile = _tile(seen.columns, (4, 1024, 2))
        tiles = -(-seen.columns // tile["N"])
        write_rows[(-(-plan.n_rows // tile["R"]) * tiles,)](
            seen.tensor, offsets_of(seen, plan), plan.group_of, table, of_rows, plan.n_rows,
            seen.columns, seen.stride, seen.step, tiles, GAPS=seen.gaps, FAR=seen.far, **tile,
        )  # fmt: skip


def descend_rows(
    targets: torch.Tensor, gram: torch.Tensor, rows: torch.Tensor, sweeps: int, tolerance: float
) -> torch.Tensor:
    """Lower each row's a N a / 2 - a m over a >= 0, entry after entry: see the compiled loop of the host."""
    count, rank = rows.shape
    width = triton.next_power_of_2(rank)
    found = torch.empty((count, rank), dtype=torch.float64, device=rows.device)
    with on_device_of(rows):
        descend[(count,)](
            targets.contiguous(), gram.contiguous(), rows.contiguous(), found, rank, sweeps,
            _number(tolerance, rows.device), N=width, num_warps=min(8, max(1, width // 128)),
        )  # fmt: skip
    return found
