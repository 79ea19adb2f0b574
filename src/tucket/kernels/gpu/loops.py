"""Triton kernels over tensors in GPU memory.

`layout.py` divides a tensor into rows. Row r begins at offsets[r], or at r * stride without offsets, both in units of
`UNIT` entries; neighbours along a row are `step` entries apart. The list `rows` holds all rows, sorted by group, which
is a combination of blocks. Chunk c is rows[chunk_edges[c]:chunk_edges[c + 1]], all of one group. A program reads one
chunk in a tile of N columns, R rows at a time. Sums are float64. No two programs write to the same place, so results
are reproducible.

Arguments in capitals are constants of the compiled kernel:

- INT64_COLUMNS, INT64_ROWS: whether columns, or rows, need 64-bit indices.
- SUM_TYPE: type of the sums of a tile: 0 for float64, 1 for int32, 2 for float32.
- MOMENTS: 0 for none, 1 for the sum of v log2(v / unit), 2 for the sum of v**2 too.
- FAST_LOG2: whether to use the approximate instruction of NVIDIA GPUs.
"""

from __future__ import annotations

import triton
import triton.language as tl

__all__ = [
    "add_chunks",
    "compare_rows",
    "coordinate_descent",
    "expand_core",
    "sort_indices",
    "sum_pieces",
    "sum_rows",
    "write_rows",
]


@triton.jit
def sort_indices(indices, group_of, chunk_edges, chunks, tables, orders, D: tl.constexpr, C: tl.constexpr):
    """Write the indices of each chunk, and the group of each index.

    An index here is a combination of indices of D modes, counted in C order. A group is the product of the indices in
    its blocks. `chunks` holds the position of each chunk in its group, and the group; `tables` and `orders` come from
    `layout._tables`. C indices are written at a time.
    """
    chunk = tl.program_id(0)
    first = tl.load(chunk_edges + chunk)
    count = tl.load(chunk_edges + chunk + 1) - first
    begin = tl.load(chunks + 2 * chunk)
    group = tl.load(chunks + 2 * chunk + 1)
    for start in range(0, count, C):
        number = start + tl.arange(0, C)
        rest = begin + number
        combined = tl.zeros([C], tl.int64)
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
            combined += index * tl.load(tables + 4 * mode + 2)
        tl.store(indices + first + number, combined, mask=number < count)
        tl.store(group_of + combined, group, mask=number < count)


@triton.jit
def row_length(columns, UNIT: tl.constexpr, INT64_COLUMNS: tl.constexpr):
    """Return the number of columns, given in units."""
    return (tl.cast(columns, tl.int64) if INT64_COLUMNS else columns) * UNIT


@triton.jit
def tile_columns(program, tiles, columns, N: tl.constexpr, INT64_COLUMNS: tl.constexpr):
    """Return the tile of a program, its columns, and whether each column exists."""
    tile = program % tiles
    column = (tile.to(tl.int64) if INT64_COLUMNS else tile) * N + tl.arange(0, N)
    return tile, column, column < columns


@triton.jit
def piece_columns(program, pieces, piece_edges, sorted_columns, N: tl.constexpr):
    """Return the piece of a program, its columns (adjacent without `sorted_columns`), and whether each one exists."""
    piece = program % pieces
    place = tl.load(piece_edges + piece) + tl.arange(0, N)
    inside = place < tl.load(piece_edges + piece + 1)
    column = place if sorted_columns is None else tl.load(sorted_columns + place, mask=inside, other=0).to(tl.int64)
    return piece, column, inside


@triton.jit
def chunk_rows(chunk_edges, chunk, INT64_ROWS: tl.constexpr):
    """Return where the rows of a chunk begin and end in the list of rows."""
    first = tl.load(chunk_edges + chunk)
    last = tl.load(chunk_edges + chunk + 1)
    if not INT64_ROWS:
        first = first.to(tl.int32)
        last = last.to(tl.int32)
    return first, last


@triton.jit
def row_starts(row, there, offsets, stride, UNIT: tl.constexpr):
    """Return the offsets of rows, as multiples of a unit, so that the compiler loads several entries at once."""
    return (row * stride if offsets is None else tl.load(offsets + row, mask=there, other=0)) * UNIT


@triton.jit
def load_rows(x, rows, offsets, first, last, cols, inside, stride, R: tl.constexpr, UNIT: tl.constexpr):
    """Load R rows of a tile; return their numbers, whether each one exists, and the values."""
    places = first + tl.arange(0, R)
    there = places < last
    row = tl.load(rows + places, mask=there, other=0).to(tl.int64)
    begin = row_starts(row, there, offsets, stride, UNIT)
    values = tl.load(x + begin[:, None] + cols[None, :], mask=there[:, None] & inside[None, :], other=0)
    return row, there, values


@triton.jit
def log2_of(values, FAST_LOG2: tl.constexpr):
    """Return logarithms to base 2 of float32 numbers: any finite number for 0, and an inexact one below 2**-126.

    Exponents are split off exactly. For the rest, from 2 to 4, the error of the fast instruction averages to zero.
    """
    bits = values.to(tl.int32, bitcast=True)
    rest = ((bits & 0x7FFFFF) | 0x40000000).to(tl.float32, bitcast=True)
    if FAST_LOG2:
        logs = tl.inline_asm_elementwise("lg2.approx.ftz.f32 $0, $1;", "=f,f", [rest], tl.float32, is_pure=True, pack=1)
    else:
        logs = tl.log2(rest)
    return logs + ((bits >> 23) - 128).to(tl.float32)


@triton.jit
def sum_rows(
    x, rows, offsets, chunk_edges, piece_edges, sorted_columns, buffer, shared_row_sums, inverse_unit,
    n_rows, columns, stride, step, tiles,
    R: tl.constexpr, N: tl.constexpr, SUM_TYPE: tl.constexpr, UNIT: tl.constexpr, INT64_COLUMNS: tl.constexpr,
    INT64_ROWS: tl.constexpr, SIGNED: tl.constexpr, MOMENTS: tl.constexpr, FAST_LOG2: tl.constexpr,
):  # fmt: skip
    """Sum a tile over the rows of its chunk, and over the columns for each row.

    `buffer` holds in sequence: for each program the least entry if below 0, the headroom (negative or NaN if sums may
    be too large), and the two moments; the sums of rows, shape (tiles, n_rows), unless these go to `shared_row_sums`;
    and the sums of chunks, shape (chunks, columns). With `piece_edges`, tiles are pieces of blocks of columns.
    """
    program = tl.program_id(0)
    columns = row_length(columns, UNIT, INT64_COLUMNS)
    programs = tl.num_programs(0).to(tl.int64)
    headroom = buffer + programs
    moments = buffer + 2 * programs
    if shared_row_sums is None:
        row_sums = buffer + 4 * programs
        sums = row_sums + tl.cast(n_rows, tl.int64) * tiles
    else:
        row_sums = shared_row_sums
        sums = buffer + 4 * programs
    chunk = (program // tiles).to(tl.int64)
    if piece_edges is not None:
        tile, column, inside = piece_columns(program, tiles, piece_edges, sorted_columns, N)
    else:
        tile, column, inside = tile_columns(program, tiles, columns, N, INT64_COLUMNS)
    cols = column * step
    first, last = chunk_rows(chunk_edges, chunk, INT64_ROWS)
    total = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64 if SUM_TYPE == 0 else tl.float32)
    logs = tl.zeros([N], tl.float64)
    squares = tl.zeros([N], tl.float64)
    later, later_there, ahead = load_rows(x, rows, offsets, first, last, cols, inside, stride, R, UNIT)
    for start in range(first, last, R):
        row, there, v = later, later_there, ahead
        # load the next rows while these are added
        later, later_there, ahead = load_rows(x, rows, offsets, start + R, last, cols, inside, stride, R, UNIT)
        if SUM_TYPE == 0:
            w = v.to(tl.float64)
        elif SUM_TYPE == 1:
            w = v.to(tl.int32)
        else:
            w = v.to(tl.float32)
        total += tl.sum(w, 0).to(tl.float64)
        tl.store(row_sums + tile.to(tl.int64) * n_rows + row, tl.sum(w, 1).to(tl.float64), mask=there)
        if SIGNED:
            low = tl.minimum(low, tl.min(v, 0).to(low.dtype))
        if MOMENTS:
            f = w.to(tl.float64) if SUM_TYPE == 0 else w.to(tl.float32)
            ratio = f * tl.load(inverse_unit).to(f.dtype)
            log = tl.log2(tl.where(ratio > 0, ratio, 1.0)) if SUM_TYPE == 0 else log2_of(ratio, FAST_LOG2)
            logs += tl.sum(f * log, 0).to(tl.float64)
            if MOMENTS == 2:
                g = f.to(tl.float64)
                squares += tl.sum(g * g, 0)
    tl.store(sums + chunk * columns + column, total, mask=inside)
    tl.store(buffer + program, tl.min(low, 0).to(tl.float64))
    # entries are at most this sum, and row sums at most a multiple of it; NaN entries make it NaN
    tl.store(headroom + program, (1e35 if SUM_TYPE == 2 else 1e290) - tl.sum(total, 0))
    if MOMENTS:
        tl.store(moments + program, tl.sum(logs, 0))
        tl.store(moments + programs + program, tl.sum(squares, 0))


@triton.jit
def add_chunks(table, ends, into, columns, tiles, G: tl.constexpr, N: tl.constexpr, LISTED: tl.constexpr):
    """Sum the rows of each group of a table: rows ends[g] to ends[g + 1] - 1 if LISTED, else the first `ends` rows."""
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
def sum_pieces(
    table, into, listed, ends, columns, pieces, stripes, longest, P: tl.constexpr, N: tl.constexpr
):  # fmt: skip
    """Sum the columns of each piece, in each row of a table; a piece has at most `longest` columns.

    The columns of piece p are ends[p] to ends[p + 1] - 1, or with `listed` the entries at these positions.
    """
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
        if listed is not None:
            column = tl.load(listed + column, mask=inside, other=0).to(tl.int64)
        total += tl.load(table + row * columns + column, mask=inside, other=0)
    tl.store(into + row * pieces + piece, tl.sum(total, 1), mask=there)


@triton.jit
def model_row(core, group_of_column, column_weights, column, inside):
    """Return a row of the model without its row weight: the core at the group of each column, times its weight."""
    group = tl.load(group_of_column + column, mask=inside, other=0).to(tl.int64)
    weight = tl.load(column_weights + column, mask=inside, other=0).to(tl.float64)
    return tl.load(core + group, mask=inside, other=0).to(tl.float64) * weight


@triton.jit
def compare_rows(
    x, rows, offsets, chunk_edges, chunks, core, group_of_column, column_weights, row_weights, out,
    columns, n_column_groups, stride, step, scale, tiles,
    R: tl.constexpr, N: tl.constexpr, UNIT: tl.constexpr, INT64_COLUMNS: tl.constexpr, INT64_ROWS: tl.constexpr,
    SIGNED: tl.constexpr,
):  # fmt: skip
    """Sum the squares of tensor - model and of the tensor, both times `scale`, and find the least entry if below 0."""
    program = tl.program_id(0)
    columns = row_length(columns, UNIT, INT64_COLUMNS)
    chunk = (program // tiles).to(tl.int64)
    _tile, column, inside = tile_columns(program, tiles, columns, N, INT64_COLUMNS)
    cols = column * step
    first, last = chunk_rows(chunk_edges, chunk, INT64_ROWS)
    group = tl.load(chunks + 2 * chunk + 1)
    model = model_row(core + group * n_column_groups, group_of_column, column_weights, column, inside)
    residual = tl.zeros([N], tl.float64)
    norm = tl.zeros([N], tl.float64)
    low = tl.zeros([N], tl.float64)
    for start in range(first, last, R):
        row, there, v = load_rows(x, rows, offsets, start, last, cols, inside, stride, R, UNIT)
        w = v.to(tl.float64) * tl.load(scale)
        difference = w - tl.load(row_weights + row, mask=there, other=0)[:, None] * model[None, :]
        residual += tl.sum(difference * difference, 0)
        norm += tl.sum(w * w, 0)
        if SIGNED:
            low = tl.minimum(low, tl.min(v, 0).to(tl.float64))
    tl.store(out + program, tl.sum(residual, 0))
    programs = tl.num_programs(0).to(tl.int64)
    tl.store(out + programs + program, tl.sum(norm, 0))
    tl.store(out + 2 * programs + program, tl.min(low, 0))


@triton.jit
def expand_core(core, group_of_column, column_weights, into, columns, n_column_groups, tiles, N: tl.constexpr):
    """Write a table with a row of the model, without row weights, for each group of rows."""
    program = tl.program_id(0)
    group = (program // tiles).to(tl.int64)
    column = (program % tiles).to(tl.int64) * N + tl.arange(0, N)
    inside = column < columns
    model = model_row(core + group * n_column_groups, group_of_column, column_weights, column, inside)
    tl.store(into + group * columns + column, model, mask=inside)


@triton.jit
def write_rows(
    out, offsets, group_of, table, core, group_of_column, column_weights, row_weights,
    n_rows, columns, n_column_groups, stride, step, tiles,
    R: tl.constexpr, N: tl.constexpr, UNIT: tl.constexpr, INT64_COLUMNS: tl.constexpr,
):  # fmt: skip
    """Write the model in the order of memory: the weight of each row, times the row of its group in the table.

    Without a table, if it is too large, the row of the group is computed from the core.
    """
    program = tl.program_id(0)
    columns = row_length(columns, UNIT, INT64_COLUMNS)
    _tile, column, inside = tile_columns(program, tiles, columns, N, INT64_COLUMNS)
    cols = column * step
    row = (program // tiles).to(tl.int64) * R + tl.arange(0, R)
    there = row < n_rows
    begin = row_starts(row, there, offsets, stride, UNIT)
    group = tl.load(group_of + row, mask=there, other=0).to(tl.int64)
    both = there[:, None] & inside[None, :]
    if table is not None:
        model = tl.load(table + group[:, None] * columns + column[None, :], mask=both, other=0)
    else:
        blocks = core + group[:, None] * n_column_groups
        model = model_row(blocks, group_of_column, column_weights, column[None, :], inside[None, :])
    values = tl.load(row_weights + row, mask=there, other=0)[:, None] * model
    tl.store(out + begin[:, None] + cols[None, :], values.to(out.dtype.element_ty), mask=both, cache_modifier=".cs")


@triton.jit
def coordinate_descent(targets, gram, rows, out, rank, sweeps, tolerance, N: tl.constexpr):
    """Minimise a N a / 2 - a m over a >= 0 for one row a, by coordinate descent.

    See `kernels.cpu.updates.descend_rows`.
    """
    begin = tl.program_id(0).to(tl.int64) * rank
    column = tl.arange(0, N)
    inside = column < rank
    row = tl.load(rows + begin + column, mask=inside, other=0.0)
    slope = tl.load(targets + begin + column, mask=inside, other=0.0)
    pivot = tl.load(gram + column * rank + column, mask=inside, other=0.0)
    usable = pivot > 2.0**-1022
    inverse = tl.where(usable, 1.0 / tl.where(usable, pivot, 1.0), 0.0)
    for j in range(rank):  # so far the row is as in memory
        slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * tl.load(rows + begin + j)
    sweep = 0
    norm = tl.sum(row, 0) * 0.0
    change = norm + 1.0
    while (sweep < sweeps) & (change > tolerance * norm):
        changes = row * 0.0
        for j in range(rank):
            # compute the step of every entry, which costs no more, and gather that of entry j
            step = tl.where(usable, tl.maximum(slope * inverse, -row), 0.0)
            by = tl.gather(step, column * 0 + j, 0)
            row = tl.where(column == j, row + by, row)
            slope -= tl.load(gram + j * rank + column, mask=inside, other=0.0) * by
            changes = tl.where(column == j, by * by, changes)
        change = tl.sum(changes, 0)
        norm = tl.sum(row * row, 0)
        sweep += 1
    tl.store(out + begin + column, tl.maximum(row, 0.0), mask=inside)
