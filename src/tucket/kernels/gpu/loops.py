"""The loops over tensors in the memory of a GPU, in Triton: rows of numbers, and tables that say where they are."""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "add_chunks",
    "compare_rows",
    "descend",
    "fold",
    "locate",
    "spread_core",
    "sum_rows",
    "write_rows",
]


@triton.jit
def locate(places, group_of, cuts, groups, tables, orders, D: tl.constexpr, C: tl.constexpr):
    """List the places of each chunk: those of a group are the product of the indices of its blocks."""
    chunk = tl.program_id(0)
    first = tl.load(cuts + chunk)
    count = tl.load(cuts + chunk + 1) - first
    begin = tl.load(groups + 2 * chunk)  # where the chunk begins within its group
    group = tl.load(groups + 2 * chunk + 1)
    for start in range(0, count, C):
        number = start + tl.arange(0, C)
        rest = begin + number
        place = tl.zeros([C], tl.int64)
        code = group
        for mode in tl.static_range(D):  # from the last mode to the first
            rank = tl.load(tables + 4 * mode)
            block = tl.load(tables + 4 * mode + 1) + 2 * (code % rank)
            code = code // rank
            size = tl.load(tables + block + 1)
            index = tl.load(tables + block) + rest % size
            free = tl.load(tables + 4 * mode + 3)
            listed = tl.load(orders + index, mask=number < count * free, other=0)
            index = tl.where(free > 0, listed, index)
            rest = rest // size
            place += index * tl.load(tables + 4 * mode + 2)
        tl.store(places + first + number, place, mask=number < count)
        tl.store(group_of + place, group, mask=number < count)


@triton.jit
def length_of(columns, UNIT: tl.constexpr, FAR: tl.constexpr):
    """Return the length of a row that is told in units."""
    return (tl.cast(columns, tl.int64) if FAR else columns) * UNIT


@triton.jit
def tile_of(program, tiles, columns, N: tl.constexpr, FAR: tl.constexpr):
    """Return which tile of columns a program works on, the columns, and which of them there are."""
    tile = program % tiles
    column = (tile.to(tl.int64) if FAR else tile) * N + tl.arange(0, N)
    return tile, column, column < columns


@triton.jit
def piece_of(program, pieces, cuts, sorted_columns, N: tl.constexpr):
    """Return which piece of columns of one block a program works on, the columns, and which of them there are.

    Without a list, the columns of a piece lie one after another.
    """
    piece = program % pieces
    place = tl.load(cuts + piece) + tl.arange(0, N)
    inside = place < tl.load(cuts + piece + 1)
    column = place if sorted_columns is None else tl.load(sorted_columns + place, mask=inside, other=0).to(tl.int64)
    return piece, column, inside


@triton.jit
def places_of(cuts, chunk, MANY: tl.constexpr):
    """Return the first place of the rows of a chunk, and that after the last."""
    first = tl.load(cuts + chunk)
    last = tl.load(cuts + chunk + 1)
    if not MANY:
        first = first.to(tl.int32)
        last = last.to(tl.int32)
    return first, last


@triton.jit
def begin_of(row, there, offsets, stride, UNIT: tl.constexpr):
    """Return where rows begin: a multiple of a unit, so that several entries can be read at once."""
    return (row * stride if offsets is None else tl.load(offsets + row, mask=there, other=0)) * UNIT


@triton.jit
def load_rows(x, rows, offsets, first, last, cols, inside, stride, R: tl.constexpr, UNIT: tl.constexpr):
    """Load some rows of a tile; return their numbers and which of them there are, too."""
    places = first + tl.arange(0, R)
    there = places < last
    row = tl.load(rows + places, mask=there, other=0).to(tl.int64)
    begin = begin_of(row, there, offsets, stride, UNIT)
    values = tl.load(x + begin[:, None] + cols[None, :], mask=there[:, None] & inside[None, :], other=0)
    return row, there, values


@triton.jit
def log2_of(values, FAST: tl.constexpr):
    """Return logarithms to base 2 of numbers in float32, of 0 any number; of less than 2**-126 they are rough.

    Exponents are exact. The rest, from 2 to 4, is where NVIDIA's one instruction is right on the average.
    """
    bits = values.to(tl.int32, bitcast=True)
    rest = ((bits & 0x7FFFFF) | 0x40000000).to(tl.float32, bitcast=True)
    if FAST:
        logs = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [rest], tl.float32, is_pure=True, pack=1)
    else:
        logs = tl.log2(rest)
    return logs + ((bits >> 23) - 128).to(tl.float32)


@triton.jit
def sum_rows(
    x, rows, offsets, cuts, pieces, sorted_columns, room, apart, per_unit, n_rows, columns, stride, step, tiles,
    R: tl.constexpr, N: tl.constexpr, KIND: tl.constexpr, UNIT: tl.constexpr, FAR: tl.constexpr,
    MANY: tl.constexpr, SIGNED: tl.constexpr, MOMENTS: tl.constexpr, FAST: tl.constexpr,
):  # fmt: skip
    """Add up the rows of a chunk, and each of them by itself.

    There is room for the least entry of each program, for what its sums lack to be too large, for two moments, for the
    rows in each tile, unless these go to a place apart, and for the chunks.
    """
    program = tl.program_id(0)
    columns = length_of(columns, UNIT, FAR)
    programs = tl.num_programs(0).to(tl.int64)
    spare = room + programs
    moments = room + 2 * programs
    if apart is None:
        row_sums = room + 4 * programs
        sums = row_sums + tl.cast(n_rows, tl.int64) * tiles
    else:
        row_sums = apart
        sums = room + 4 * programs
    chunk = (program // tiles).to(tl.int64)
    if pieces is not None:
        tile, column, inside = piece_of(program, tiles, pieces, sorted_columns, N)
    else:
        tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    first, last = places_of(cuts, chunk, MANY)
    total = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64 if KIND == 0 else tl.float32)
    logs = tl.zeros([N], tl.float64)
    squares = tl.zeros([N], tl.float64)
    later, later_there, ahead = load_rows(x, rows, offsets, first, last, cols, inside, stride, R, UNIT)
    for start in range(first, last, R):
        row, there, v = later, later_there, ahead
        # the next rows are on their way while these are added up
        later, later_there, ahead = load_rows(x, rows, offsets, start + R, last, cols, inside, stride, R, UNIT)
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
            log = tl.log2(tl.where(ratio > 0, ratio, 1.0)) if KIND == 0 else log2_of(ratio, FAST)
            logs += tl.sum(f * log, 0).to(tl.float64)
            if MOMENTS == 2:
                g = f.to(tl.float64)
                squares += tl.sum(g * g, 0)
    tl.store(sums + chunk * columns + column, total, mask=inside)
    tl.store(room + program, tl.min(low, 0).to(tl.float64))
    # no entry is larger than this sum, nor the sum of a row than so many times that; and all is no number if one is
    tl.store(spare + program, (1e35 if KIND == 2 else 1e290) - tl.sum(total, 0))
    if MOMENTS:
        tl.store(moments + program, tl.sum(logs, 0))
        tl.store(moments + programs + program, tl.sum(squares, 0))


@triton.jit
def add_chunks(table, ends, into, columns, tiles, G: tl.constexpr, N: tl.constexpr, LISTED: tl.constexpr):
    """Add up the rows of each group, which lie one after another; without ends of groups, as many as are told."""
    program = tl.program_id(0).to(tl.int64)
    group = program // tiles
    column = program % tiles * N + tl.arange(0, N)
    inside = column < columns
    first = tl.load(ends + group) if LISTED else group * 0
    last = tl.load(ends + group + 1) if LISTED else group * 0 + ends
    total = tl.zeros([G, N], tl.float64)
    for start in range(first, last, G):
        row = start + tl.arange(0, G)
        there = (row < last)[:, None] & inside[None, :]
        total += tl.load(table + row.to(tl.int64)[:, None] * columns + column[None, :], mask=there, other=0)
    tl.store(into + group * columns + column, tl.sum(total, 0), mask=inside)


@triton.jit
def fold(
    table, into, places, ends, columns, pieces, stripes, longest, P: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Add up, in each row of a table, the columns of each piece, which are listed, or lie one after another."""
    program = tl.program_id(0).to(tl.int64)
    row = program // stripes
    piece = program % stripes * P + tl.arange(0, P)
    there = piece < pieces
    first = tl.load(ends + piece, mask=there, other=0)
    last = tl.load(ends + piece + 1, mask=there, other=0)
    total = tl.zeros([P, N], tl.float64)
    for start in range(0, longest, N):
        column = first[:, None] + start + tl.arange(0, N)[None, :]
        inside = column < last[:, None]
        if places is not None:
            column = tl.load(places + column, mask=inside, other=0).to(tl.int64)
        total += tl.load(table + row * columns + column, mask=inside, other=0)
    tl.store(into + row * pieces + piece, tl.sum(total, 1), mask=there)


@triton.jit
def model_of(core, code_of, of_column, column, inside):
    """Return a row of the model, but for its own weight: the entries of the columns' blocks times their weights."""
    code = tl.load(code_of + column, mask=inside, other=0).to(tl.int64)
    weight = tl.load(of_column + column, mask=inside, other=0).to(tl.float64)
    return tl.load(core + code, mask=inside, other=0).to(tl.float64) * weight


@triton.jit
def compare_rows(
    x, rows, offsets, cuts, groups, core, code_of, of_column, weights, found, columns, codes, stride, step, scale,
    tiles,
    R: tl.constexpr, N: tl.constexpr, UNIT: tl.constexpr, FAR: tl.constexpr, MANY: tl.constexpr,
    SIGNED: tl.constexpr,
):  # fmt: skip
    """Add up the squares of tensor - model and of the tensor, over a scale."""
    program = tl.program_id(0)
    columns = length_of(columns, UNIT, FAR)
    chunk = (program // tiles).to(tl.int64)
    _tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    first, last = places_of(cuts, chunk, MANY)
    group = tl.load(groups + 2 * chunk + 1)
    model = model_of(core + group * codes, code_of, of_column, column, inside)
    residual = tl.zeros([N], tl.float64)
    norm = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64)
    for start in range(first, last, R):
        row, there, v = load_rows(x, rows, offsets, start, last, cols, inside, stride, R, UNIT)
        w = v.to(tl.float64) * tl.load(scale)
        difference = w - tl.load(weights + row, mask=there, other=0)[:, None] * model[None, :]
        residual += tl.sum(difference * difference, 0)
        norm += tl.sum(w * w, 0)
        if SIGNED:
            low = tl.minimum(low, tl.min(v, 0).to(tl.float64))
    tl.store(found + program, tl.sum(residual, 0))
    programs = tl.num_programs(0).to(tl.int64)
    tl.store(found + programs + program, tl.sum(norm, 0))
    tl.store(found + 2 * programs + program, tl.min(low, 0))


@triton.jit
def spread_core(core, code_of, of_column, into, columns, codes, tiles, N: tl.constexpr):
    """Write a row of the model for each group: the entry of a column's block times its weight."""
    program = tl.program_id(0)
    group = (program // tiles).to(tl.int64)
    column = (program % tiles).to(tl.int64) * N + tl.arange(0, N)
    inside = column < columns
    model = model_of(core + group * codes, code_of, of_column, column, inside)
    tl.store(into + group * columns + column, model, mask=inside)


@triton.jit
def write_rows(
    out, offsets, group_of, table, core, code_of, of_column, weights, n_rows, columns, codes, stride, step, tiles,
    R: tl.constexpr, N: tl.constexpr, UNIT: tl.constexpr, FAR: tl.constexpr,
):  # fmt: skip
    """Write the model, in the order of memory: the weight of a row times its group's row of the table.

    Without a table, which may be too large, that row is made of the core.
    """
    program = tl.program_id(0)
    columns = length_of(columns, UNIT, FAR)
    _tile, column, inside = tile_of(program, tiles, columns, N, FAR)
    cols = column * step
    row = (program // tiles).to(tl.int64) * R + tl.arange(0, R)
    there = row < n_rows
    begin = begin_of(row, there, offsets, stride, UNIT)
    group = tl.load(group_of + row, mask=there, other=0).to(tl.int64)
    both = there[:, None] & inside[None, :]
    if table is not None:
        model = tl.load(table + group[:, None] * columns + column[None, :], mask=both, other=0)
    else:
        model = model_of(core + group[:, None] * codes, code_of, of_column, column[None, :], inside[None, :])
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
    usable = pivot > 2.0**-1022
    inverse = tl.where(usable, 1.0 / tl.where(usable, pivot, 1.0), 0.0)
    for j in range(rank):  # the row is not in motion yet: its entries are those in memory
        slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * tl.load(rows + begin + j)
    sweep = 0
    norm = tl.sum(row, 0) * 0.0
    change = norm + 1.0
    while (sweep < sweeps) & (change > tolerance * norm):
        changes = row * 0.0
        for j in range(rank):
            # for all entries, since it costs no more; it holds for the one that is next, which all then have
            step = tl.where(usable, tl.maximum(slope * inverse, -row), 0.0)
            by = tl.gather(step, column * 0 + j, 0)
            row = tl.where(column == j, row + by, row)
            slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * by
            changes = tl.where(column == j, by * by, changes)
        change = tl.sum(changes, 0)
        norm = tl.sum(row * row, 0)
        sweep += 1
    tl.store(found + begin + column, tl.maximum(row, 0.0), mask=inside)
