"""One pass over a tensor in GPU memory: its block sums, marginals and moments.

A program reads a chunk of rows of one group in a tile of columns (see `layout.py`). It writes the sum of these rows and
the sum of each row; all results follow from these sums. If groups have few rows, a tile is a piece of one block of
columns instead; the sums of rows are then a small tensor, which is summed in the same way.
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

from tucket.kernels.gpu.layout import Batch, GroupedIndices, Layout, RowView
from tucket.kernels.gpu.loops import add_chunks, sum_pieces, sum_rows
from tucket.kernels.measures import Moments, Sums

FLOAT64, INT32, FLOAT32 = 0, 1, 2
"""Types of the sums of a tile. Sums of tiles are added in float64 in any case."""

HAS_FAST_LOG2 = torch.version.cuda is not None and isinstance(sum_rows, triton.JITFunction)
"""Whether kernels are compiled for an NVIDIA GPU and can use its instructions."""


@lru_cache(maxsize=256)
def choose_tile(columns: int, rows: int, best: tuple[int, int, int]) -> dict[str, int]:
    """Return the rows R, columns N and warps of a tile, given the best ones for a large tensor.

    A tile is as wide as the best one if that fits the columns well. Each thread has the same number of entries.
    """
    high, most, warps = best
    fitting = (wide for wide in (2048, 1024, 512, 256, 128) if wide <= most and -columns % wide <= columns // 10)
    width = next(fitting, min(most, 256, max(32, triton.next_power_of_2(columns))))
    fewer = max(1, warps * width // most)
    high = min(64, high * most * fewer // (warps * width), triton.next_power_of_2(rows))
    return {"R": high, "N": width, "num_warps": fewer}


UNALIGNED_TILE = 2, 1024, 2
"""Rows, columns and warps of a tile if rows are unaligned and entries are loaded one at a time."""


@lru_cache(maxsize=256)
def _best_tile(dtype: torch.dtype, sum_type: int, view: RowView, moments: bool) -> tuple[int, int, int]:
    """Return the rows, columns and warps that were fastest on an H200."""
    if sum_type == FLOAT64:
        return (1, 512, 4) if moments else (2, 1024, 4)
    if moments:
        return (4, 512, 4) if dtype.itemsize == 4 else (4, 256, 1)
    if view.multiple * dtype.itemsize < 16:
        return UNALIGNED_TILE
    if dtype.itemsize == 2 and -view.columns % 2048 <= view.columns // 10:
        return 4, 2048, 4
    return (4, 512, 1) if dtype.itemsize == 1 else (4, 1024, 4)


def sum_type_of(dtype: torch.dtype) -> int:
    """Return the type of the sums of a tile, which is enough unless precision turns out too low."""
    if dtype.is_floating_point and dtype.itemsize <= 4:
        return FLOAT32
    return INT32 if dtype.itemsize <= 2 else FLOAT64


class AsyncScalars:
    """A few numbers that are copied to the host without waiting for later work on the device."""

    def __init__(self, numbers: torch.Tensor) -> None:
        self.copy = torch.empty(numbers.shape, dtype=numbers.dtype, device="cpu", pin_memory=True)
        self.copy.copy_(numbers, non_blocking=True)
        self.sent = torch.cuda.Event()
        self.sent.record()

    def read(self) -> torch.Tensor:
        """Wait for the numbers and return them."""
        self.sent.synchronize()
        return self.copy


class DeviceSums:
    """The results of one pass over a tensor, still on the device.

    `packed` is a float64 array that holds in sequence: the core and the marginals, in the order of memory; the least
    entry if below 0, and the headroom (negative or NaN if a sum may be too large); and the two moments, with logarithms
    to base 2. `ends` has the end of each of these.
    """

    def __init__(
        self,
        tensor: torch.Tensor,
        layout: Layout,
        sum_type: int,
        inverse_unit: torch.Tensor | None = None,
        n_moments: int = 0,
        send_checks: bool = False,
    ) -> None:
        self.layout, self.has_moments, self.low_precision = layout, inverse_unit is not None, sum_type != FLOAT64
        # launch first: the host prepares the rest meanwhile
        sums = _sum_batch(tensor, layout, layout.batches[0], sum_type, inverse_unit, n_moments)
        split, n_core = layout.view.split, layout.rows.n_groups * layout.columns.n_groups
        sizes = [n_core, *layout.view.shape, 2, 2]
        self.ends = list(accumulate(sizes[:-1]))
        self.packed = torch.empty(self.ends[-1] + 2, dtype=torch.float64, device=tensor.device)
        core, *self.marginals, self.checks, moments = self.packed.split(sizes)
        outer, inner = self.marginals[:split], self.marginals[split:]
        column_sums = inner[0] if len(inner) == 1 else torch.empty_like(sums.table[0])
        row_sums, self.async_checks = sums.rows, None
        if len(layout.batches) == 1:
            torch.amin(sums.checks, 1, out=self.checks)
            self.async_checks = AsyncScalars(self.checks) if send_checks and tensor.is_cuda else None
            if layout.row_sums_layout is None:
                sum_blocks(sums.table, layout.columns, core)
            _add_rows(sums.table, column_sums)
            if self.has_moments:
                torch.sum(sums.moments, 1, out=moments)
        else:
            self.packed.zero_()
            column_sums.zero_()
            for batch in layout.batches:
                if batch is not layout.batches[0]:
                    del sums  # only one table fits in memory at a time
                    sums = _sum_batch(tensor, layout, batch, sum_type, inverse_unit, n_moments, row_sums)
                torch.minimum(self.checks, sums.checks.amin(1), out=self.checks)
                if layout.row_sums_layout is None:
                    parts = core.reshape(layout.rows.n_groups, -1)[batch.first_group : batch.last_group]
                    parts += sum_blocks(sums.table, layout.columns).reshape(parts.shape)
                column_sums += _add_rows(sums.table, torch.empty_like(column_sums))
                if self.has_moments:
                    moments += sums.moments.sum(1)
        if layout.row_sums_layout is None:
            _write_marginals(row_sums, outer)
        else:
            further = DeviceSums(row_sums.reshape(-1, *layout.view.shape[:split]), layout.row_sums_layout, FLOAT64)
            core.copy_(further.core().movedim(0, -1).reshape(-1))
            for marginal, position in zip(outer, further.layout.back[1:]):
                marginal.copy_(further.marginals[position])
        if len(inner) > 1:
            _write_marginals(column_sums, inner)

    def is_fine(self) -> bool:
        """Say whether no entry is negative and no sum too large; the host waits only for these two checks."""
        low, headroom = (self.checks if self.async_checks is None else self.async_checks.read()).tolist()
        return bool(low >= 0 and headroom >= 0)

    def core(self) -> torch.Tensor:
        """Return the block sums, on the device."""
        return self.packed[: self.ends[0]].reshape(self._shape()).permute(self.layout.back).contiguous()

    def to_sums(self) -> Sums:
        """Copy all results to the host, in one transfer."""
        core, *marginals, checks, moments = np.split(self.packed.cpu().numpy(), self.ends)
        back = self.layout.back
        by_mode = tuple(marginals[position] for position in back)
        core = np.ascontiguousarray(core.reshape(self._shape()).transpose(back))
        natural = Moments(float(moments[0]) * math.log(2.0), float(moments[1])) if self.has_moments else None
        return Sums(core, by_mode, bool(checks[0] < 0), natural, "triton", self.low_precision)

    def _shape(self) -> list[int]:
        return [blocks.rank for blocks in self.layout.modes]


class BatchSums(NamedTuple):
    """The results of one launch of `sum_rows`, for one batch of chunks."""

    table: torch.Tensor  # shape (groups of the batch, columns)
    rows: torch.Tensor  # sums of the rows of all batches, shape (tiles, rows), flat
    checks: torch.Tensor  # shape (2, programs): the least entry and the headroom
    moments: torch.Tensor  # shape (2, programs)


def _sum_batch(
    tensor: torch.Tensor,
    layout: Layout,
    batch: Batch,
    sum_type: int,
    inverse_unit: torch.Tensor | None,
    n_moments: int,
    row_sums: torch.Tensor | None = None,
) -> BatchSums:
    """Sum a batch; `row_sums` of the first batch holds those of all batches."""
    view, rows, columns = layout.view, layout.rows, layout.columns
    new, by_piece = partial(torch.empty, dtype=torch.float64, device=tensor.device), layout.row_sums_layout is not None
    if by_piece:
        rows, tiles = layout.all_rows, columns.n_chunks
        tile = choose_tile(triton.next_power_of_2(columns.longest), rows.longest, UNALIGNED_TILE)
    else:
        best = _best_tile(tensor.dtype, sum_type, view, inverse_unit is not None)
        tile = choose_tile(view.columns, rows.longest, best)
        tiles = -(-view.columns // tile["N"])
    if row_sums is None and len(layout.batches) > 1:
        row_sums = new(tiles * rows.count)
    n_chunks, n_groups = batch.last_chunk - batch.first_chunk, batch.last_group - batch.first_group
    programs = n_chunks * tiles
    sizes = [2 * programs, 2 * programs, tiles * rows.count if row_sums is None else 0, n_chunks * view.columns]
    buffer = new(sum(sizes))
    sum_rows[(programs,)](
        tensor, rows.sorted, layout.offsets,
        rows.chunk_edges[batch.first_chunk :] if batch.first_chunk else rows.chunk_edges,
        columns.chunk_edges if by_piece else None, columns.listed if by_piece else None, buffer, row_sums,
        inverse_unit, rows.count, view.columns // view.unit, view.stride, view.step, tiles,
        SUM_TYPE=sum_type, UNIT=view.unit, INT64_COLUMNS=view.int64_columns, INT64_ROWS=rows.int64,
        SIGNED=tensor.dtype.is_signed, MOMENTS=0 if inverse_unit is None else n_moments,
        FAST_LOG2=HAS_FAST_LOG2 and sum_type != FLOAT64, **tile,
    )  # fmt: skip
    checks, moments, by_row, by_chunk = buffer.split(sizes)
    table = by_chunk.reshape(-1, view.columns)
    if n_chunks > n_groups:
        table = new((n_groups, view.columns))
        _add_chunks(by_chunk, batch.ends, table, n_groups, view.columns, rows.most_chunks)
    return BatchSums(table, by_row if row_sums is None else row_sums, checks.reshape(2, -1), moments.reshape(2, -1))


def sum_blocks(table: torch.Tensor, columns: GroupedIndices, into: torch.Tensor | None = None) -> torch.Tensor:
    """Sum the columns of each block in every row of a table, piece by piece if blocks are long."""
    new = partial(torch.empty, dtype=torch.float64, device=table.device)
    into = new(len(table) * columns.n_groups) if into is None else into
    by_piece = into if columns.n_chunks == columns.n_groups else new(len(table) * columns.n_chunks)
    _sum_pieces(table, by_piece, columns.chunk_edges, columns.longest, columns.listed)
    if by_piece is not into:
        _sum_pieces(by_piece.reshape(len(table), -1), into, columns.ends, columns.most_chunks)
    return into


def _sum_pieces(
    table: torch.Tensor, into: torch.Tensor, ends: torch.Tensor, longest: int, listed: torch.Tensor | None = None
) -> None:
    """Sum the columns of each piece in every row of a table; without a list, the columns of a piece are adjacent."""
    rows, columns = table.shape
    pieces = len(ends) - 1
    width = min(128, triton.next_power_of_2(longest))
    some = 512 // width
    stripes = -(-pieces // some)
    sum_pieces[(rows * stripes,)](
        table, into, listed, ends, columns, pieces, stripes, longest, P=some, N=width, num_warps=4
    )


def _add_rows(values: torch.Tensor, into: torch.Tensor) -> torch.Tensor:
    """Sum a table over all modes except the last, which has as many entries as `into`."""
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
    """Sum the rows of each group, at most `most`; `ends` is as in `Batch`, or the number of rows of one group."""
    # many sums of few rows, or few sums of many rows
    highest, size, warps = (4, 512, 4) if groups * columns > 1 << 16 else (512, 4096, 8)
    high = min(highest, triton.next_power_of_2(most))
    stripes = -(-columns // (size // high))
    add_chunks[(groups * stripes,)](
        table, ends, into, columns, stripes, G=high, N=size // high, LISTED=torch.is_tensor(ends), num_warps=warps
    )


def _write_marginals(values: torch.Tensor, into: Sequence[torch.Tensor]) -> None:
    """Sum a table over all modes but one, for each of its last modes, starting with the last one."""
    for marginal in reversed(into):
        _add_rows(values, marginal)
        if marginal is not into[0]:
            values = values.reshape(-1, len(marginal)).sum(1)
