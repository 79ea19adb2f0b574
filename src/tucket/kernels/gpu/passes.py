"""Passes over tensors in GPU memory: each reads or writes every entry once."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import numpy as np
import torch
import triton

from tucket.base.partition import Partition
from tucket.kernels.gpu.layout import PASS_ROWS, TABLE_ENTRIES, Layout, RowView, layout_of
from tucket.kernels.gpu.loops import compare_rows, coordinate_descent, expand_core, write_rows
from tucket.kernels.gpu.sums import FLOAT32, FLOAT64, DeviceSums, choose_tile, sum_blocks, sum_type_of
from tucket.kernels.measures import KL_RECHECK, Sums

PIECE_ENTRIES = 1 << 33
"""Maximum entries that are read at a time, which bounds the memory beside them: about a number per row."""

TINY_MEAN, HUGE_TOTAL = 2.0**-90, 2.0**127
"""Mean entry, with or without the unit, below which many entries may be too small for float32; and total in the unit
from which an entry may be too large."""


def block_sums(
    tensor: torch.Tensor,
    partition: Partition,
    unit: float | None = None,
    workers: int = 1,  # noqa: ARG001
) -> Sums:
    """Read the tensor once, for block sums and marginals, and with a unit for moments."""
    tensor = _view_bools_as_bytes(tensor)
    sum_type = sum_type_of(tensor.dtype)
    with on_device_of(tensor):
        sums = _sum(tensor, partition, unit, sum_type)
        # read the tensor again if float32 overflowed, or gave too few digits
        if (sum_type == FLOAT32 and not _is_finite(sums)) or (sum_type != FLOAT64 and _is_too_vague(sums, unit)):
            sums = _sum(tensor, partition, unit, FLOAT64)
    return sums


def piece_entries(tensor: torch.Tensor) -> int:
    """Return how many entries to read at a time, so that sums of their rows fit in memory."""
    if tensor.numel() <= PASS_ROWS * (tensor.shape[-1] if tensor.is_contiguous() else 1):
        return PIECE_ENTRIES
    return min(PIECE_ENTRIES, PASS_ROWS * RowView.of(tensor.shape, tensor.stride()).columns)


def _is_too_vague(sums: Sums, unit: float | None) -> bool:
    """Say whether float32 gave too few digits: entries are tiny or huge, or the total correlation is small."""
    total = float(sums.core.sum())
    if sums.moments is None or unit is None or not 0 < total < math.inf:
        return False
    count = math.prod(len(marginal) for marginal in sums.marginals)
    if total < TINY_MEAN * max(1.0, unit) * count or total / HUGE_TOTAL >= unit:
        return True
    shares = (marginal[marginal > 0] / total for marginal in sums.marginals)
    independent = sum(float(share @ np.log(share)) for share in shares)
    return sums.moments.v_log_v / total - math.log(total / unit) - independent < KL_RECHECK


def _is_finite(sums: Sums) -> bool:
    with np.errstate(all="ignore"):
        parts = [*(part.sum() for part in (sums.core, *sums.marginals)), *(sums.moments or ())]
    return bool(np.isfinite(parts).all())


def on_device_of(tensor: torch.Tensor) -> AbstractContextManager[object]:
    """Return a context in which the device of a tensor is the current one."""
    is_current = not tensor.is_cuda or tensor.device.index == torch.cuda.current_device()
    return nullcontext() if is_current else torch.cuda.device(tensor.device)


def _view_bools_as_bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(torch.uint8) if tensor.dtype == torch.bool else tensor


def _sum(tensor: torch.Tensor, partition: Partition, unit: float | None, sum_type: int) -> Sums:
    inverse_unit = None if unit is None else _float64_scalar(1.0 / unit, tensor.device)
    return DeviceSums(tensor, layout_of(tensor, partition), sum_type, inverse_unit, 2).to_sums()


def divergence_of(
    tensor: torch.Tensor, partition: Partition, core: torch.Tensor, weights: Sequence[torch.Tensor]
) -> float | None:
    """Return the divergence of a tensor from a model, or None if an entry is bad or a sum is too large."""
    for sum_type in (sum_type_of(tensor.dtype), FLOAT64):
        found, low, total, scaled_total = divergence(tensor, partition, core, weights, sum_type).tolist()
        is_small = found < KL_RECHECK * total or total < TINY_MEAN * tensor.numel()
        if sum_type == FLOAT64 or low < 0 or not (is_small or scaled_total >= HUGE_TOTAL):
            break
    return max(0.0, found) if math.isfinite(found) and low >= 0 else None


def divergence(
    tensor: torch.Tensor, partition: Partition, core: torch.Tensor, weights: Sequence[torch.Tensor], sum_type: int
) -> torch.Tensor:
    """Return four numbers on the device, without waiting for them.

    These are the divergence from a model, the least entry of the tensor if below 0, its total, and its total in a unit
    near the mean entry of the model.
    """
    tensor = _view_bools_as_bytes(tensor)
    with on_device_of(tensor):
        # a unit near the entries keeps logarithms and their rounding errors small
        size = torch.frexp(core.sum(dtype=torch.float64)).exponent - round(math.log2(tensor.numel()))
        inverse_unit = torch.exp2(-size.double().clamp(min=-1022)).reshape(1)
        layout = layout_of(tensor, partition)
        found, order = DeviceSums(tensor, layout, sum_type, inverse_unit, 1), layout.view.order
        total, vectors = core.permute(order).double(), [weights[mode].double() for mode in order]
        sums, marginals = found.packed[: found.ends[0]].reshape(total.shape), [*found.marginals]
        logs = [torch.xlogy(sums, total * inverse_unit), *map(torch.xlogy, marginals, vectors)]
        for mass in reversed(sum_blocks(torch.cat(vectors)[None], layout.mode_indices).split(total.shape)):
            total = (total * mass).sum(-1)
        low, moment = found.checks[0], found.packed[-2]
        mass = sums.sum()
        rest = total - mass - torch.stack([each.sum() for each in logs]).sum()
        return torch.stack((moment * math.log(2.0) + rest, low, mass, mass * inverse_unit[0]))


def project(tensor: torch.Tensor, partition: Partition) -> tuple[torch.Tensor, list[torch.Tensor], DeviceSums]:
    """Return the core and weights of the projection and the sums, on the device; the host does not wait for them."""
    tensor = _view_bools_as_bytes(tensor)
    with on_device_of(tensor):
        layout = layout_of(tensor, partition)
        sums = DeviceSums(tensor, layout, sum_type_of(tensor.dtype), send_checks=True)
        core = sums.core()
        marginals = sums.packed[sums.ends[0] : sums.ends[-2]]
        masses = sum_blocks(marginals[None], layout.mode_indices)[layout.mode_indices.group_of]
        weights = torch.nan_to_num(marginals / masses, nan=0.0)  # 0 / 0 in blocks without mass
        by_mode = weights.split(layout.view.shape)
        return core, [by_mode[position] for position in layout.back], sums


def core(tensor: torch.Tensor, partition: Partition) -> torch.Tensor | None:
    """Return the block sums on the device, or None if an entry is bad or a sum is too large."""
    tensor = _view_bools_as_bytes(tensor)
    with on_device_of(tensor):
        sums = DeviceSums(tensor, layout_of(tensor, partition), sum_type_of(tensor.dtype), send_checks=True)
        return sums.core() if sums.is_fine() else None


def _float64_scalar(value: float, device: torch.device) -> torch.Tensor:
    """Return a float64 number for a kernel; Triton would pass a Python float as float32."""
    return torch.full((1,), value, dtype=torch.float64, device=device)


def _model_arguments(layout: Layout, core: Any, weights: Sequence[Any], device: torch.device) -> list[torch.Tensor]:
    """Return the core in the order of memory, the group and the weight of each column, and the weight of each row."""
    order, split = layout.view.order, layout.view.split
    core = _to_device(core, device).permute(order).contiguous()
    by_mode = [_to_device(weights[mode], device) for mode in order]
    row_weights = _product(by_mode[:split]) if split else torch.ones(1, dtype=torch.float64, device=device)
    return [core, layout.columns.group_of, _product(by_mode[split:]), row_weights]


def _to_device(array: Any, device: torch.device) -> torch.Tensor:
    return array.contiguous() if torch.is_tensor(array) else torch.from_numpy(np.array(array)).to(device)


def _product(vectors: Sequence[torch.Tensor]) -> torch.Tensor:
    """Return the outer product of vectors, flat, in float64."""
    product = vectors[0]
    for vector in vectors[1:]:
        product = (product.double()[:, None] * vector).reshape(-1)
    return product


def residual(
    tensor: torch.Tensor,
    core: Any,
    partition: Partition,
    weights: Sequence[Any],
    scale: float = 1.0,
    workers: int = 1,  # noqa: ARG001
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and tensor, divided by `scale`, and whether an entry is negative."""
    tensor = _view_bools_as_bytes(tensor)
    with on_device_of(tensor):
        layout, device = layout_of(tensor, partition), tensor.device
        view, rows, tile = layout.view, layout.rows, choose_tile(layout.view.columns, layout.rows.longest, (4, 512, 2))
        tiles = -(-view.columns // tile["N"])
        out = torch.empty((3, rows.n_chunks * tiles), dtype=torch.float64, device=device)
        compare_rows[(out.shape[1],)](
            tensor, rows.sorted, layout.offsets, rows.chunk_edges, rows.chunks,
            *_model_arguments(layout, core / scale, weights, device), out, view.columns // view.unit,
            layout.columns.n_groups, view.stride, view.step, _float64_scalar(1.0 / scale, device), tiles,
            UNIT=view.unit, INT64_COLUMNS=view.int64_columns, INT64_ROWS=rows.int64, SIGNED=tensor.dtype.is_signed,
            **tile,
        )  # fmt: skip
        difference, norm, low = torch.cat([out[:2].sum(1), out[2].amin(0, True)]).tolist()
        return difference, norm, low < 0


def write(
    out: torch.Tensor,
    core: Any,
    partition: Partition,
    weights: Sequence[Any],
    workers: int = 1,  # noqa: ARG001
) -> None:
    """Write the tensor of a block model to `out`."""
    with on_device_of(out):
        layout = layout_of(out, partition)
        view, rows, tile = layout.view, layout.rows, choose_tile(layout.view.columns, layout.rows.count, (4, 1024, 2))
        tiles = -(-view.columns // tile["N"])
        *model, row_weights = _model_arguments(layout, core, weights, out.device)
        n_column_groups, table = layout.columns.n_groups, None
        if rows.n_groups * view.columns <= TABLE_ENTRIES:
            table = torch.empty((rows.n_groups, view.columns), dtype=torch.float64, device=out.device)
            stripes = -(-view.columns // 512)
            expand_core[(rows.n_groups * stripes,)](*model, table, view.columns, n_column_groups, stripes, N=512)
            model = [None, None, None]
        write_rows[(-(-rows.count // tile["R"]) * tiles,)](
            out, layout.offsets, rows.group_of, table, *model, row_weights, rows.count,
            view.columns // view.unit, n_column_groups, view.stride, view.step, tiles,
            UNIT=view.unit, INT64_COLUMNS=view.int64_columns, **tile,
        )  # fmt: skip


def descend_rows(
    targets: torch.Tensor, gram: torch.Tensor, rows: torch.Tensor, sweeps: int, tolerance: float
) -> torch.Tensor:
    """Minimise a N a / 2 - a m over a >= 0 for each row a: see `kernels.cpu.updates.descend_rows`."""
    count, rank = rows.shape
    width = triton.next_power_of_2(rank)
    out = torch.empty((count, rank), dtype=torch.float64, device=rows.device)
    with on_device_of(rows):
        coordinate_descent[(count,)](
            targets.contiguous(), gram.contiguous(), rows.contiguous(), out, rank, sweeps,
            tolerance, N=width, num_warps=min(8, max(1, width // 128)),
        )  # fmt: skip
    return out
