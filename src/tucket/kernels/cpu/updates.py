"""Compiled loops of the iterative decompositions."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator,assignment"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import log, summing

__all__ = ["descend_rows", "ratios"]

NOTHING = 1e-280
"""Entries of a model up to which a ratio to them could overflow."""


@summing
def descend_rows(targets, gram, rows, sweeps, tolerance):
    """Lower each row's a N a / 2 - a m over a >= 0, entry after entry, each to its exact minimum, in place.

    N is the Gram matrix and m the row of targets. A row is done after so many sweeps, or when a sweep changes the
    sum of its squares by less than the tolerance.
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
    """Overwrite each entry of the model by tensor over model, or by 0 where the model has no mass to speak of.

    Return the sum of tensor * log(tensor / model), and the mass of the tensor where the model has none.
    """
    total, lost = 0.0, 0.0
    size = np.uint64(tensor.size)
    for i in range(size):  # a loop of its own, without which the next is not vectorised
        model[i] = model[i] if model[i] > NOTHING else np.inf
        lost += tensor[i] if model[i] == np.inf else 0.0
    for i in range(size):
        ratio = tensor[i] / model[i]
        model[i] = ratio
        total += tensor[i] * log(ratio)
    return total, lost
