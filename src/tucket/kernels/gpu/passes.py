"""The passes over tensors in the memory of a GPU: each reads or writes every entry once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import triton

from tucket.base.partition import Partition
from tucket.kernels.gpu.found import SINGLE, WIDE, Found, fold_blocks, kind_of, tile_of
from tucket.kernels.gpu.loops import compare_rows, descend, spread_core, write_rows
from tucket.kernels.gpu.plan import ROOM, Plan, plan_of
from tucket.kernels.sums import CLOSE, Sums

__all__ = [
    "block_sums",
    "core",
    "descend_rows",
    "divergence",
    "divergence_of",
    "on_device_of",
    "project",
    "residual",
    "write",
]


TINY, HUGE = 2.0**-90, 2.0**127
"""Mean of entries, as they are or in their unit, below which so many may be too small for float32 that it is felt;
and their total in that unit from which one of them may be too large for it."""


def block_sums(tensor: torch.Tensor, partition: Partition, unit: float | None) -> Sums:
    """Read the tensor once, for its block sums and marginals, and for its moments if given a unit."""
    tensor = _bytes(tensor)
    kind = kind_of(tensor.dtype)
    with on_device_of(tensor):
        sums = _sum(tensor, partition, unit, kind)
        # perhaps a row or a logarithm was too much for float32, or too little
        if (kind == SINGLE and not _is_finite(sums)) or (kind != WIDE and _is_too_rough(sums, unit)):
            sums = _sum(tensor, partition, unit, WIDE)
    return sums


def _is_too_rough(sums: Sums, unit: float | None) -> bool:
    """Say whether the modes of a tensor know hardly anything of each other, by moments in a unit, or it is all tiny."""
    total = float(sums.core.sum())
    if sums.moments is None or unit is None or not 0 < total < math.inf:
        return False
    count = math.prod(len(marginal) for marginal in sums.marginals)
    if total < TINY * max(1.0, unit) * count or total / HUGE >= unit:
        return True
    shares = (marginal[marginal > 0] / total for marginal in sums.marginals)
    apart = sum(float(share @ np.log(share)) for share in shares)
    return sums.moments.v_log_v / total - math.log(total / unit) - apart < CLOSE


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
    return Found(tensor, plan_of(tensor, partition), kind, per_unit, 2).to_sums()


def divergence_of(
    tensor: torch.Tensor, partition: Partition, core: torch.Tensor, weights: Sequence[torch.Tensor]
) -> float | None:
    """Return the divergence of a tensor from a model; None if the tensor is not fit for that, or sums are too large."""
    for kind in (kind_of(tensor.dtype), WIDE):
        found, low, total, in_unit = divergence(tensor, partition, core, weights, kind).tolist()
        is_rough = found < CLOSE * total or total < TINY * tensor.numel() or in_unit >= HUGE
        if kind == WIDE or low < 0 or not is_rough:
            break
    return max(0.0, found) if math.isfinite(found) and low >= 0 else None


def divergence(
    tensor: torch.Tensor, partition: Partition, core: torch.Tensor, weights: Sequence[torch.Tensor], kind: int
) -> torch.Tensor:
    """Set the divergence of a tensor from a model under way: that, the least entry if below 0, and the total.

    Then the total in a unit of the size of the model's entries.
    """
    tensor = _bytes(tensor)
    with on_device_of(tensor):
        # logarithms of entries in a unit of their own size are small, and so is what rounding does to them
        size = torch.frexp(core.sum(dtype=torch.float64)).exponent - round(math.log2(tensor.numel()))
        per_unit = torch.exp2(-size.double().clamp(min=-1022)).reshape(1)
        plan = plan_of(tensor, partition)
        found, order = Found(tensor, plan, kind, per_unit, 1), plan.seen.order
        total, vectors = core.permute(order).double(), [weights[mode].double() for mode in order]
        sums, parts = found.packed[: found.ends[0]].reshape(total.shape), [*found.marginals]
        logs = [torch.xlogy(sums, total * per_unit), *map(torch.xlogy, parts, vectors)]
        for mass in reversed(fold_blocks(torch.cat(vectors)[None], plan.members).split(total.shape)):
            total = (total * mass).sum(-1)
        low, moment = found.checked[0], found.packed[-2]
        mass = sums.sum()
        rest = total - mass - torch.stack([each.sum() for each in logs]).sum()
        return torch.stack((moment * math.log(2.0) + rest, low, mass, mass * per_unit[0]))


def project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor], Found]:
    """Return the core and the weights of the projection, on the device, and the sums that they are made of.

    All is under way then, and nothing is waited for.
    """
    tensor = _bytes(tensor)
    with on_device_of(tensor):
        plan = plan_of(tensor, partition)
        found = Found(tensor, plan, kind_of(tensor.dtype), watched=True)
        core = found.core()
        of_modes = found.packed[found.ends[0] : found.ends[-2]]
        masses = fold_blocks(of_modes[None], plan.members)[plan.members.group_of]
        weights = torch.nan_to_num(of_modes / masses, nan=0.0)  # where there is no mass
        by_mode = weights.split(plan.seen.shape)
        return core, [by_mode[place] for place in plan.back], found


def core(tensor: torch.Tensor, partition: Partition) -> torch.Tensor | None:
    """Return the block sums, on the device; None if they are not fit for use."""
    tensor = _bytes(tensor)
    with on_device_of(tensor):
        found = Found(tensor, plan_of(tensor, partition), kind_of(tensor.dtype), watched=True)
        return found.core() if found.is_fine() else None


def _number(value: float, device: torch.device) -> torch.Tensor:
    """Return a number of float64 for a kernel, to which a plain one would go as float32."""
    return torch.full((1,), value, dtype=torch.float64, device=device)


def _vectors(plan: Plan, core: Any, weights: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
    """Return the core in the order of memory, the block and the weight of each column, and the weight of each row."""
    order, split = plan.seen.order, plan.seen.split
    turned = _tensor(core, device).permute(order).contiguous()
    by_mode = [_tensor(weights[mode], device) for mode in order]
    of_rows = _product(by_mode[:split]) if split else torch.ones(1, dtype=torch.float64, device=device)
    return [turned, plan.columns.group_of, _product(by_mode[split:]), of_rows]


def _tensor(array: Any, device: torch.device) -> torch.Tensor:
    return array.contiguous() if torch.is_tensor(array) else torch.from_numpy(np.array(array)).to(device)


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
        plan, device = plan_of(tensor, partition), tensor.device
        seen, rows, tile = plan.seen, plan.rows, tile_of(plan.seen.columns, plan.rows.longest, (4, 512, 2))
        tiles = -(-seen.columns // tile["N"])
        found = torch.empty((3, rows.n_chunks * tiles), dtype=torch.float64, device=device)
        compare_rows[(found.shape[1],)](
            tensor, rows.sorted, plan.offsets, rows.cuts, rows.groups,
            *_vectors(plan, core / scale, weights, device), found, seen.columns // seen.unit, plan.columns.n_groups,
            seen.stride, seen.step, _number(1.0 / scale, device), tiles,
            UNIT=seen.unit, FAR=seen.far, MANY=rows.many, SIGNED=tensor.dtype.is_signed, **tile,
        )  # fmt: skip
        difference, norm, low = torch.cat([found[:2].sum(1), found[2].amin(0, True)]).tolist()
        return difference, norm, low < 0


def write(out: torch.Tensor, core: Any, partition: Partition, weights: Sequence[Any]) -> None:
    """Write the tensor of a block model to an array."""
    with on_device_of(out):
        plan = plan_of(out, partition)
        seen, rows, tile = plan.seen, plan.rows, tile_of(plan.seen.columns, plan.rows.count, (4, 1024, 2))
        tiles = -(-seen.columns // tile["N"])
        *parts, of_rows = _vectors(plan, core, weights, out.device)
        codes, table = plan.columns.n_groups, None
        if rows.n_groups * seen.columns <= ROOM:
            table = torch.empty((rows.n_groups, seen.columns), dtype=torch.float64, device=out.device)
            stripes = -(-seen.columns // 512)
            spread_core[(rows.n_groups * stripes,)](*parts, table, seen.columns, codes, stripes, N=512)
            parts = [None, None, None]
        write_rows[(-(-rows.count // tile["R"]) * tiles,)](
            out, plan.offsets, rows.group_of, table, *parts, of_rows, rows.count,
            seen.columns // seen.unit, codes, seen.stride, seen.step, tiles,
            UNIT=seen.unit, FAR=seen.far, **tile,
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
            tolerance, N=width, num_warps=min(8, max(1, width // 128)),
        )  # fmt: skip
    return found
