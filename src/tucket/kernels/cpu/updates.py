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


SERIES_LIMIT = 0.05
"""Largest relative difference for which the divergence is summed as a series, since logarithms would lose digits."""


@summing
def compare_known(tensor, exposure, model):
    """Overwrite each entry q of the flat model by tensor / q - exposure; 0 where nothing is known.

    Return the divergence, the sum of x log(x / E q) - x + E q, as a sum of terms that are not negative; and the total
    of the tensor where the model is negligible.
    """
    total, lost = 0.0, 0.0
    size = np.uint64(tensor.size)
    for i in range(size):  # a separate loop, so that the compiler vectorises the next one
        expected = exposure[i] * model[i]
        model[i] = expected if expected > NEGLIGIBLE else 0.0
        lost += tensor[i] if model[i] == 0.0 else 0.0
    for i in range(size):
        expected = model[i]
        ratio = tensor[i] / (expected if expected > 0 else np.inf)
        d = ratio - 1.0
        series = 1 / 110
        for divisor in (90.0, 72.0, 56.0, 42.0, 30.0, 20.0, 12.0, 6.0, 2.0):
            series = 1 / divisor - d * series
        total += expected * (d * d * series if abs(d) < SERIES_LIMIT else ratio * log(ratio) - d)
        model[i] = exposure[i] * d
    return total, lost


@summing
def fill_unknown(tensor, exposure, most, model):
    """Overwrite each entry q of the flat model by tensor / most + (1 - exposure / most) q.

    Return the sum of (tensor - exposure * q)**2 / exposure over all entries that are known.
    """
    total = 0.0
    for i in range(np.uint64(tensor.size)):
        gap = tensor[i] - exposure[i] * model[i]
        total += gap * gap / exposure[i] if exposure[i] > 0 else 0.0
        model[i] += gap / most
    return total
