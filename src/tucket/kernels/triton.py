"""The loops over tensors in the memory of a GPU, in Triton: rows of numbers, and tables that say where they are."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "add_chunks",
    "add_groups",
    "add_last",
    "compare_rows",
    "descend",
    "fold_columns",
    "locate_rows",
    "share_blocks",
    "spread_core",
    "sum_rows",
    "write_rows",
]


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
def tile_of(program, tiles, columns, N: tl.constexpr, FAR: tl.constexpr):
    """Return which tile of columns a program works on, the columns, and which of them there are."""
    tile = program % tiles
    column = (tile.to(tl.int64) if FAR else tile) * N + tl.arange(0, N)
    return tile, column, column < columns


@triton.jit
def places_of(bounds, chunk, MANY: tl.constexpr):
    """Return the first place of the rows of a chunk, and that after the last."""
    first = tl.load(bounds + 2 * chunk)
    last = first + tl.load(bounds + 2 * chunk + 1)
    if not MANY:
        first = first.to(tl.int32)
        last = last.to(tl.int32)
    return first, last


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
    tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    first, last = places_of(bounds, chunk, MANY)
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
    _tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    first, last = places_of(bounds, chunk, MANY)
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
    _tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    row = (program // tiles).to(tl.int64) * R + tl.arange(0, R)
    there = row < n_rows
    begin = tl.load(offsets + row, mask=there, other=0) if GAPS else row * stride
    group = tl.load(group_of + row, mask=there, other=0).to(tl.int64)
    both = there[:, None] & inside[None, :]
    model = tl.load(table + group[:, None] * columns + column[None, :], mask=both, other=0)
    values = tl.load(weights + row, mask=there, other=0)[:, None] * model
    tl.store(out + begin[:, None] + cols[None, :], values.to(out.dtype.element_ty), mask=both, cache_modifier=".cs")


@triton.jit
def descend(targets, gram, rows, found, rank, sweeps, tolerance, N: tl.constexpr):
    """Lower a row's a G a / 2 - a m over a >= 0, entry after entry, each to its exact minimum."""
    begin = tl.program_id(0).to(tl.int64) * rank
    column = tl.arange(0, N)
    inside = column < rank
    row = tl.load(rows + begin + column, mask=inside, other=0.0)
    slope = tl.load(targets + begin + column, mask=inside, other=0.0)
    pivot = tl.load(gram + column * rank + column, mask=inside, other=0.0)
    for j in range(rank):  # the row is not in motion yet: its entries are those in memory
        slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * tl.load(rows + begin + j)
    least = tl.load(tolerance)
    sweep = 0
    change = least + 1.0
    norm = least * 0.0
    while (sweep < sweeps) & (change > least * norm):
        change = norm * 0.0
        for j in range(rank):
            # for all entries, since it costs no more; it holds for the one that is next
            step = tl.where(pivot > 0, tl.maximum(slope / tl.where(pivot > 0, pivot, 1.0), -row), 0.0)
            by = tl.sum(tl.where(column == j, step, 0.0), 0)
            row = tl.where(column == j, row + by, row)
            slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * by
            change += by * by
        norm = tl.sum(row * row, 0)
        sweep += 1
    tl.store(found + begin + column, tl.maximum(row, 0.0), mask=inside)
