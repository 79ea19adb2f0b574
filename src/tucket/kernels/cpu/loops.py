"""Compiled loops over rows of memory, and over entries. They release the GIL and expect checked arrays.

A row is a contiguous piece of the flat array `x`; row k begins at offsets[k]. Offsets and widths are unsigned: a test
for negative indices would prevent vectorised loops.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

from typing import Any

import numpy as np
from numba import njit


def compiled(*fastmath):
    """Return a decorator that compiles a function without the GIL and caches the result on disk if possible."""
    options: Any = {"nogil": True, "error_model": "numpy", "fastmath": set(fastmath)}

    def decorate(function):
        try:
            return njit(cache=True, **options)(function)
        except RuntimeError:  # Numba finds no writable folder
            return njit(**options)(function)

    return decorate


# "reassoc" spreads a sum over vector lanes; without "nnan" and "ninf", NaN and infinity keep their meaning
summing = compiled("reassoc", "nsz", "contract")
# for functions where the order of operations decides the accuracy
exact = compiled("contract")


@exact
def log(value):
    """Return the natural logarithm of a positive number to 1 ulp, and a finite number for 0, so that 0 log 0 = 0.

    Without branches, loops over it are vectorised. With value = 2**k (1 + f) and s = f / (2 + f), it sums the series of
    log(1 + f) = 2 artanh(s).
    """
    tiny = value < 2.2250738585072014e-308
    bits = np.float64(value * 2.0**54 if tiny else value).view(np.int64)
    exponent = (bits - 0x3FE6A09E667F3BCD) >> 52  # the bits of sqrt(1/2): 1 + f lies in [sqrt(1/2), sqrt(2))
    f = np.int64(bits - (exponent << 52)).view(np.float64) - 1.0
    k = np.float64(exponent - 54 if tiny else exponent)
    s = f / (2.0 + f)
    z = s * s
    series = 2 / 21
    for odd in (19, 17, 15, 13, 11, 9, 7, 5, 3):
        series = series * z + 2 / odd
    half = 0.5 * f * f
    # log 2 in two parts, the first short enough that its product with k is exact
    return k * 0.6931471803691238 - ((half - (s * (half + z * series) + k * 1.9082149292705877e-10)) - f)


@exact
def sum_from_table(x, at, width, table):
    """Sum table[v] over a row of 8-bit values v; four separate sums hide the latency of the loads."""
    a, b, c, d = 0.0, 0.0, 0.0, 0.0
    rest = width - width % np.uint64(4)
    for i in range(np.uint64(0), rest, np.uint64(4)):
        a += table[np.uint8(x[at + i])]
        b += table[np.uint8(x[at + i + np.uint64(1)])]
        c += table[np.uint8(x[at + i + np.uint64(2)])]
        d += table[np.uint8(x[at + i + np.uint64(3)])]
    for i in range(rest, width):
        a += table[np.uint8(x[at + i])]
    return (a + b) + (c + d)


@summing
def add_moments(x, at, width, table, moments, inverse):
    """Add the sums of v log(v * inverse) and v**2 over a row to `moments`.

    `table` is v log(v * inverse) for every 8-bit value v, and None for other types.
    """
    logs, squares = 0.0, 0.0
    for i in range(width):
        v = np.float64(x[at + i])
        squares += v * v
        if table is None:
            logs += v * log(v * inverse)
    if table is not None:
        logs += sum_from_table(x, at, width, table)
    moments[0] += logs
    moments[1] += squares


@summing
def fold(sums, labels, edges, core, columns):
    """Add one row of sums to a row of the core, block by block, and to the column sums; then set it to 0.

    `labels` are the blocks of the columns; runs of equal labels begin and end at `edges`.
    """
    if 8 * edges.size < labels.size:  # runs are long enough for vectors
        for run in range(edges.size - 1):
            total = 0.0
            for i in range(edges[run], edges[run + 1]):
                total += sums[i]
            core[labels[edges[run]]] += total
    else:
        block, total = labels[0], 0.0
        for i in range(labels.size):
            if labels[i] != block:
                core[block] += total
                block, total = labels[i], 0.0
            total += sums[i]
        core[block] += total
    for i in range(labels.size):
        columns[i] += sums[i]
        sums[i] = 0


@summing
def assign_slots(labels, base, first, last, slots, owners, used):
    """Assign a slot to each label base + labels[first:last] without one, until no slot is free.

    slots[label] is a slot or -1, and owners[slot] a label. Return the first index without a slot, or `last`, and the
    number of slots in use.
    """
    for k in range(first, last):
        label = base + labels[k]
        if slots[label] < 0:
            if used == owners.size:
                return k, used
            slots[label], owners[used] = used, label
            used += 1
    return last, used


@summing
def fold_all(sums, slots, owners, used, column_labels, edges, core, columns):
    """Fold the sums of all slots in use, and free these slots."""
    for slot in range(used):
        fold(sums[slot, : column_labels.size], column_labels, edges, core[owners[slot]], columns)
        slots[owners[slot]] = -1


@summing
def sum_narrow_rows(
    x, lead_offsets, lead_labels, step, labels, column_labels, edges, limit, sums, slots, owners, core,
    lead_sums, row_sums, columns, table, moments, inverse,
):  # fmt: skip
    """Sum short rows in the order of memory, which the processor prefetches best; say whether an entry is negative.

    Row k of lead l begins at lead_offsets[l] + k * step and has the label lead_labels[l] + labels[k]. Each label uses
    a row of `sums`. When none is free, and after `limit` rows, as integers could overflow, `sums` is folded into the
    core.
    """
    kind = sums.dtype.type
    width = np.uint64(column_labels.size)
    negative = False
    used, added = 0, 0
    for lead in range(lead_offsets.size):
        first = 0
        while first < labels.size:
            stop = min(labels.size, first + limit - added)
            stop, used = assign_slots(labels, lead_labels[lead], first, stop, slots, owners, used)
            for k in range(first, stop):
                at = lead_offsets[lead] + np.uint64(k) * step
                slot, total, below = slots[lead_labels[lead] + labels[k]], kind(0), False
                for i in range(width):
                    v = x[at + i]
                    sums[slot, i] += v
                    total = kind(total + v)
                    below |= v < 0
                lead_sums[lead] += total
                row_sums[k] += total
                negative |= below
                if moments is not None:
                    add_moments(x, at, width, table, moments, inverse)
            added += stop - first
            if stop < labels.size or added == limit:
                fold_all(sums, slots, owners, used, column_labels, edges, core, columns)
                used, added = 0, 0
            first = stop
    fold_all(sums, slots, owners, used, column_labels, edges, core, columns)
    return negative


@summing
def add_four(x, a, b, c, d, sums):
    """Add four rows to `sums` at a time, to load and store it less often; return their totals."""
    kind = sums.dtype.type
    p, q, r, s = kind(0), kind(0), kind(0), kind(0)
    negative = False
    for i in range(np.uint64(sums.size)):
        e, f, g, h = x[a + i], x[b + i], x[c + i], x[d + i]
        negative |= (e < 0) | (f < 0) | (g < 0) | (h < 0)
        sums[i] += (kind(e) + kind(f)) + (kind(g) + kind(h))
        p, q, r, s = kind(p + e), kind(q + f), kind(r + g), kind(s + h)
    return p, q, r, s, negative


@summing
def add_one(x, a, sums):
    """Add one row to `sums`; return its total."""
    kind = sums.dtype.type
    total = kind(0)
    negative = False
    for i in range(np.uint64(sums.size)):
        v = x[a + i]
        negative |= v < 0
        sums[i] += v
        total = kind(total + v)
    return total, negative


@summing
def sum_wide_rows(
    x, offsets, order, starts, column_labels, edges, limit, sums, core, rows, columns, table, moments, inverse,
):  # fmt: skip
    """Sum long rows, or a tile of their columns, four rows with the same label at a time.

    The rows order[starts[b]:starts[b + 1]] have label b. `sums` takes at most `limit` rows before it is folded into
    the core. Add the total of each row to `rows`, and say whether an entry is negative.
    """
    negative = False
    for block in range(starts.size - 1):
        for first in range(starts[block], starts[block + 1], limit):
            last = min(first + limit, starts[block + 1])
            rest = last - (last - first) % 4
            for k in range(first, rest, 4):
                e, f, g, h = order[k], order[k + 1], order[k + 2], order[k + 3]
                p, q, r, s, below = add_four(x, offsets[e], offsets[f], offsets[g], offsets[h], sums)
                rows[e] += p
                rows[f] += q
                rows[g] += r
                rows[h] += s
                negative |= below
                if moments is not None:
                    for j in range(k, k + 4):
                        add_moments(x, offsets[order[j]], np.uint64(sums.size), table, moments, inverse)
            for k in range(rest, last):
                p, below = add_one(x, offsets[order[k]], sums)
                rows[order[k]] += p
                negative |= below
                if moments is not None:
                    add_moments(x, offsets[order[k]], np.uint64(sums.size), table, moments, inverse)
            fold(sums, column_labels, edges, core[block], columns)
    return negative


@summing
def write_rows(out, offsets, labels, weights, columns):
    """Write the rows of a model: row k is weights[k] times columns[labels[k]]."""
    width = np.uint64(columns.shape[1])
    for k in range(offsets.size):
        at, block, weight = offsets[k], labels[k], weights[k]
        for i in range(width):
            out[at + i] = weight * columns[block, i]


@summing
def compare_rows(x, offsets, labels, weights, columns):
    """Return the sums of (x - q)**2 and x**2 over a tensor x and a model q, and whether any x < 0.

    Row k of the model is weights[k] times columns[labels[k]].
    """
    width = np.uint64(columns.shape[1])
    residual, square = 0.0, 0.0
    negative = False
    for k in range(offsets.size):
        at, block, weight, below = offsets[k], labels[k], weights[k], False
        for i in range(width):
            v = np.float64(x[at + i])
            difference = v - weight * columns[block, i]
            residual += difference * difference
            square += v * v
            below |= v < 0
        negative |= below
    return residual, square, negative


@compiled()
def add_entries(coords, values, offsets, steps, marginals, core, cells):
    """Add entries to the marginals, unless these are None, and to the core.

    `marginals` holds the marginals of all modes in sequence: index i of mode k is at offsets[k] + i. It adds
    steps[offsets[k] + i] to the position in the flat `core`. `cells` is scratch memory.
    """
    count = values.size
    for e in range(count):
        cells[e] = 0
    for mode in range(offsets.size):
        for e in range(count):
            at = offsets[mode] + np.uint64(coords[mode, e])
            if marginals is not None:
                marginals[at] += values[e]
            cells[e] += steps[at]
    for e in range(count):
        core[cells[e]] += values[e]


@compiled()
def block_model_values(coords, offsets, steps, weights, core, cells, out):
    """Write the value of a block model at each entry. Arguments are as for `add_entries`; `weights` is of all modes."""
    count = out.size
    for e in range(count):
        cells[e] = 0
        out[e] = 1.0
    for mode in range(offsets.size):
        for e in range(count):
            at = offsets[mode] + np.uint64(coords[mode, e])
            out[e] *= weights[at]
            cells[e] += steps[at]
    for e in range(count):
        out[e] *= core[cells[e]]


@compiled()
def find_false(words, known, most, out):
    """Write the places of False in the Boolean array `known`, which starts with the 8-byte `words`, to `out`.

    Return their number, or most + 1 if there are more.
    """
    count = 0
    for first in range(0, known.size, 8):
        if first // 8 < words.size and words[first // 8] == np.uint64(0x0101010101010101):
            continue
        for i in range(first, min(first + 8, known.size)):
            if not known[i]:
                if count == most:
                    return most + 1
                out[count] = i
                count += 1
    return count


@compiled()
def find_not_finite(values, most, out):
    """Write the places of NaN and infinity to `out`, as `find_false` does."""
    count = 0
    for first in range(0, values.size, 16):
        bad = first + 16 > values.size
        if not bad:
            for k in range(16):  # a fixed number of steps is done at once
                v = values[first + k]
                bad |= v - v != 0
        if not bad:
            continue
        for i in range(first, min(first + 16, values.size)):
            if values[i] - values[i] != 0:
                if count == most:
                    return most + 1
                out[count] = i
                count += 1
    return count
