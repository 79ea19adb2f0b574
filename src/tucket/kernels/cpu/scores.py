"""Compiled loops of the search for blocks: scores of blocks, and how changes affect them.

The score of an array of sums v with total s is the sum of v log v minus s log s.
"""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import log, summing


@summing
def score(a, b, sign):
    """Return the score of the sums a + sign * b; negative sums from rounding count as 0."""
    total = mass = 0.0
    for i in range(a.size):
        v = max(a[i] + sign * b[i], 0.0)
        total += v * log(v)
        mass += v
    return total - mass * log(mass)


@summing
def score_intervals(prefix, scores, first, step):
    """Write the score of the sum of rows a to b - 1 to scores[a, b], for a = first, first + step, ...

    prefix[a] is the sum of all rows before a. Threads share the work by different `first`.
    """
    edges = prefix.shape[0]
    for a in range(first, edges, step):
        for b in range(a + 1, edges):
            scores[a, b] = score(prefix[b], prefix[a], -1.0)


@summing
def best_chain(scores, rank):
    """Return the starts of the `rank` intervals with the largest total score, by dynamic programming.

    scores[a, b] is the score of the interval from a to b - 1, and totals[b] the best total of the indices before b.
    """
    size = scores.shape[0] - 1
    totals = scores[0].copy()
    cuts = np.zeros((rank, size + 1), np.int64)
    for used in range(1, rank):
        longer = np.full(size + 1, -np.inf)
        for first in range(used, size):
            for last in range(first + 1, size + 1):
                total = totals[first] + scores[first, last]
                if total > longer[last]:
                    longer[last], cuts[used, last] = total, first
        totals = longer
    starts = np.zeros(rank, np.int64)
    last = size
    for used in range(rank - 1, 0, -1):
        last = cuts[used, last]
        starts[used] = last
    return starts


@summing
def polish(prefix, starts, reach):
    """Move each start by at most `reach` to the best score of its two intervals; repeat until none moves."""
    ends = np.append(starts, prefix.shape[0] - 1)
    moved = True
    while moved:
        moved = False
        for k in range(1, starts.size):
            low, high = ends[k - 1], ends[k + 1]
            best = score(prefix[ends[k]], prefix[low], -1.0) + score(prefix[high], prefix[ends[k]], -1.0)
            best += 1e-12 * abs(best)  # a gain within the rounding error could repeat for ever
            at = ends[k]
            for edge in range(max(low + 1, at - reach), min(high, at + reach + 1)):
                total = score(prefix[edge], prefix[low], -1.0) + score(prefix[high], prefix[edge], -1.0)
                if total > best:
                    best, ends[k], moved = total, edge, True
    return ends[:-1]


@summing
def move_one_by_one(rows, labels, core, members):
    """Move each row in turn to the block with the largest total score; return the number of moves.

    This updates `labels`, `core` (the sums of each block) and `members` (its number of rows). No block becomes empty.
    """
    moves = 0
    scores = np.array([score(core[block], core[block], 0.0) for block in range(len(core))])
    for k in range(len(rows)):
        own = labels[k]
        if members[own] == 1:
            continue
        row = rows[k]
        loss = scores[own] - score(core[own], row, -1.0)
        best, target = 1e-12 * abs(scores[own]), own
        for block in range(len(core)):
            if block != own:
                gain = score(core[block], row, 1.0) - scores[block] - loss
                if gain > best:
                    best, target = gain, block
        if target != own:
            core[own] -= row
            core[target] += row
            scores[own] = score(core[own], row, 0.0)
            scores[target] = score(core[target], row, 0.0)
            members[own] -= 1
            members[target] += 1
            labels[k] = target
            moves += 1
    return moves


@summing
def join_all(a, b):
    """Return the sum of v log v over both arrays, minus that over a + b; it is never positive."""
    total = 0.0
    for i in range(a.size):
        v, w = a[i], b[i]
        total += v * log(v)
        total += w * log(w)
        total -= (v + w) * log(v + w)
    return total


@summing
def join_neighbours(part, alive):
    """Return `join_all` of each index in `alive` of the middle axis and the next one; 0 for the last."""
    losses = np.zeros(alive.size)
    for before in range(part.shape[0]):
        for k in range(alive.size - 1):
            losses[k] += join_all(part[before, alive[k]], part[before, alive[k + 1]])
    return losses


@summing
def join_pairs(rows, rank, only_neighbours):
    """Join rows, each time the pair that loses least, until `rank` are left; return the first row of each row's group.

    This overwrites `rows`. The loss of a pair is by how much its joint score is below the sum of its own scores.
    """
    size = len(rows)
    labels, alive = np.arange(size), np.ones(size, np.bool_)
    scores = np.array([score(rows[k], rows[k], 0.0) for k in range(size)])
    losses = np.full((size, size), np.inf)  # of pairs a < b
    for a in range(size):
        for b in range(a + 1, min(a + 2, size) if only_neighbours else size):
            losses[a, b] = scores[a] + scores[b] - score(rows[a], rows[b], 1.0)
    for _ in range(size - rank):
        pair = losses.argmin()
        first, second = pair // size, pair % size
        rows[first] += rows[second]
        scores[first] = score(rows[first], rows[first], 0.0)
        labels[labels == labels[second]] = labels[first]
        alive[second] = False
        losses[first], losses[:, first], losses[second], losses[:, second] = np.inf, np.inf, np.inf, np.inf
        for sign in (-1, 1):
            other = first + sign
            while 0 <= other < size:
                if alive[other]:
                    a, b = min(first, other), max(first, other)
                    losses[a, b] = scores[a] + scores[b] - score(rows[a], rows[b], 1.0)
                    if only_neighbours:
                        break
                other += sign
    return labels
