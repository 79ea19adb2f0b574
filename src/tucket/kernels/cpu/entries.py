"""Compiled loops over sorted entries and a Tucker model. They release the GIL and expect checked arrays.

Row e of `coords` has the indices of entry e, with the modes in the order by which entries are sorted, and changes[e] is
the first mode in which it differs from the entry before. The entries are the leaves of a tree whose nodes are the
prefixes that they share. Values at a node are computed once for all entries below it:

- `workspace[starts[k]:]` holds the core, contracted with the rows of the first k modes at the present node;
- `sums[starts[k]:]` holds the sum over the entries below it of a weight times their rows of the modes from k on.

Row i of the factor of mode k begins at `factors[offsets[k] + i * ranks[k]]`.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import summing


@summing
def open_nodes(coords, e, first, last, factors, offsets, ranks, starts, workspace):
    """Contract the core with the rows of some modes at an entry."""
    for k in range(first, last):
        row, width = offsets[k] + np.uint64(coords[e, k]) * ranks[k], starts[k + 2] - starts[k + 1]
        at, into = starts[k], starts[k + 1]
        for j in range(width):
            workspace[into + j] = factors[row] * workspace[at + j]
        for i in range(np.uint64(1), ranks[k]):
            at += width
            factor = factors[row + i]
            for j in range(width):
                workspace[into + j] += factor * workspace[at + j]


@summing
def model_values(coords, changes, factors, offsets, ranks, starts, workspace, out):
    """Write the value of the model at each entry."""
    last = coords.shape[1] - 1
    at, rank = starts[last], ranks[last]
    for e in range(len(coords)):
        open_nodes(coords, e, np.int64(changes[e]) if e else 0, last, factors, offsets, ranks, starts, workspace)
        row, total = offsets[last] + np.uint64(coords[e, last]) * rank, 0.0
        for i in range(rank):
            total += factors[row + i] * workspace[at + i]
        out[e] = total


@summing
def add_slopes(coords, changes, weights, factors, offsets, ranks, starts, workspace, sums, slopes):
    """Add the derivatives of the sum of weights times the model: by the core to `sums`, by the factors to `slopes`."""
    last, count = coords.shape[1] - 1, len(coords)
    for e in range(count):
        open_nodes(coords, e, np.int64(changes[e]) if e else 0, last, factors, offsets, ranks, starts, workspace)
        row, at, weight = offsets[last] + np.uint64(coords[e, last]) * ranks[last], starts[last], weights[e]
        for i in range(ranks[last]):
            slopes[row + i] += weight * workspace[at + i]
            sums[at + i] += weight * factors[row + i]
        until = np.int64(changes[e + 1]) if e + 1 < count else 0
        for k in range(last - 1, until - 1, -1):
            row, width = offsets[k] + np.uint64(coords[e, k]) * ranks[k], starts[k + 2] - starts[k + 1]
            at, below = starts[k], starts[k + 1]
            for i in range(ranks[k]):
                factor, total = factors[row + i], 0.0
                for j in range(width):
                    total += workspace[at + j] * sums[below + j]
                    sums[at + j] += factor * sums[below + j]
                slopes[row + i] += total
                at += width
            sums[below : below + width] = 0.0


@summing
def contract(coords, changes, weights, factors, offsets, ranks, starts, sums, kept, strides, out):
    """Add the sums of weights times the rows of all modes but the first `kept`, for each index of these, to `out`.

    The index i of these modes begins at the sum of i[k] * strides[k].
    """
    last, count, width_kept = coords.shape[1] - 1, len(coords), starts[kept + 1] - starts[kept]
    for e in range(count):
        row, at, weight = offsets[last] + np.uint64(coords[e, last]) * ranks[last], starts[last], weights[e]
        for i in range(ranks[last]):
            sums[at + i] += weight * factors[row + i]
        until = np.int64(changes[e + 1]) if e + 1 < count else 0
        for k in range(last - 1, max(until, kept) - 1, -1):
            row, width = offsets[k] + np.uint64(coords[e, k]) * ranks[k], starts[k + 2] - starts[k + 1]
            at, below = starts[k], starts[k + 1]
            for i in range(ranks[k]):
                factor = factors[row + i]
                for j in range(width):
                    sums[at + j] += factor * sums[below + j]
                at += width
            sums[below : below + width] = 0.0
        if until < kept:
            into, at = np.uint64(0), starts[kept]
            for k in range(kept):
                into += np.uint64(coords[e, k]) * strides[k]
            for j in range(width_kept):
                out[into + j] += sums[at + j]
                sums[at + j] = 0.0
    if kept == 0:
        for j in range(width_kept):
            out[j] += sums[starts[0] + j]
