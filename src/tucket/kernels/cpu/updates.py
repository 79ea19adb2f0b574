"""Compiled loops of the iterative decompositions. They release the GIL."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import log, summing

NEGLIGIBLE = 1e-280
"""Model entries up to this size count as zero, since division by them could overflow."""


@summing
def descend_rows(targets, gram, rows, sweeps, tolerance):
    """Minimise a N a / 2 - a m over a >= 0 for each row a, in place, by coordinate descent.

    N is the Gram matrix and m the row of `targets`. A row is done after `sweeps` sweeps, or when the squared change in
    a sweep is at most `tolerance` times the squared norm of the row.
    """
    rank = rows.shape[1]
    for i in range(rows.shape[0]):
        row, target = rows[i], targets[i]
        for _ in range(sweeps):
            change, norm = 0.0, 0.0
            for j in range(rank):
                if gram[j, j] > 0:
                    total = 0.0
                    for k in range(rank):
                        total += gram[j, k] * row[k]
                    value = max(row[j] + (target[j] - total) / gram[j, j], 0.0)
                    change += (value - row[j]) ** 2
                    row[j] = value
                norm += row[j] ** 2
            if change <= tolerance * norm:
                break


@summing
def ratios(tensor, model):
    """Overwrite each entry of the flat model by tensor / model, or by 0 where the model is negligible.

    Return the sum of tensor * log(tensor / model), and the total of the tensor where the model is negligible.
    """
    total, lost = 0.0, 0.0
    size = np.uint64(tensor.size)
    for i in range(size):  # a separate loop, so that the compiler vectorises the next one
        model[i] = model[i] if model[i] > NEGLIGIBLE else np.inf
        lost += tensor[i] if model[i] == np.inf else 0.0
    for i in range(size):
        ratio = tensor[i] / model[i]
        model[i] = ratio
        total += tensor[i] * log(ratio)
    return total, lost
