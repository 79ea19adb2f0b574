r"""Steps of the iterations, on arrays of any backend: ratios for the divergence, and non-negative least squares.

The objective of least squares is half of the squared distance from a tensor, minus half of the tensor's squared norm:

.. math:: \tfrac{1}{2} \langle A, N A \rangle - \langle A, M \rangle

Here N is the Gram matrix of the matrix that multiplies A, and M is the product of that matrix with the tensor.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tucket.backends import get_backend, get_namespace
from tucket.base.boxes import runs
from tucket.base.run import ordered_map
from tucket.kernels.algebra import Matrix, at_least, inner_product, least_of, reshape, select, share

NOTHING, NOTHING_FLOAT32 = 1e-280, 1e-28
"""Model entries up to this size count as zero, since division by them could overflow: in float64, in float32."""

THREAD_PRODUCTS = 1 << 16
"""Products of a sweep over rows of a factor from which another thread is worth starting."""

ROW_STEPS = 15
"""Gradient steps for the rows of a factor where no kernel for coordinate descent is available."""

GOLDEN = (1 + 5**0.5) / 2
"""Momentum parameter of an accelerated descent after its first step."""


def ratios(part: Matrix, model: Matrix) -> tuple[Matrix, Any]:
    """Divide entries by those of a model, which may be overwritten; 0 where the model is negligible.

    Return also the sum of P log(P / Q): infinity where the tensor has mass and the model none.
    """
    if isinstance(model, np.ndarray):
        from tucket.kernels.cpu.updates import ratios as overwrite

        logs, lost = overwrite(part.reshape(-1), model.reshape(-1))
        return model, math.inf if lost > 0 else logs
    xp, least = get_namespace(model), least_of(model.dtype)
    is_used = xp.astype(model > (NOTHING if least < NOTHING else NOTHING_FLOAT32), model.dtype)
    found = share(part * is_used, model)
    logs = xp.sum(part * xp.log(at_least(found, least)))
    return found, xp.where(xp.sum(part * (1 - is_used)) > 0, math.inf, logs)


def descend_rows(
    targets: Matrix, gram: Matrix, rows: Matrix, sweeps: int, tolerance: float, workers: int = 1
) -> Matrix:
    """Lower a N a / 2 - a m over a >= 0 for each row a, with the Gram matrix N and the row's targets m.

    Compiled loops and GPUs go entry after entry. Elsewhere, all entries take gradient steps at once.
    """
    if isinstance(rows, np.ndarray):
        from tucket.kernels.cpu.updates import descend_rows as overwrite

        goals, found = np.ascontiguousarray(targets), rows.copy()
        workers = min(workers, 1 + rows.size * len(gram) // THREAD_PRODUCTS)

        def work(some: slice) -> None:
            overwrite(goals[some], gram, found[some], sweeps, tolerance)

        for _ in ordered_map(work, runs(len(rows), -(-len(rows) // workers)), workers):
            pass
        return found
    if get_backend(rows).kernels == "cuda":
        from tucket.kernels.gpu import passes

        return passes.descend_rows(targets, gram, rows, sweeps, tolerance)
    return nearest(targets, lambda some: some @ gram, eigenvalue_bound(gram), rows, ROW_STEPS)[0]


def nearest(
    target: Matrix, multiply: Callable[[Matrix], Matrix], bound: Matrix, start: Matrix, steps: int
) -> tuple[Matrix, Matrix]:
    """Take at least one step, and at most `steps`; return the best array and its objective.

    `multiply` multiplies by N, and `bound` is an upper bound of the eigenvalues of N.
    """
    length = 1 / at_least(bound, least_of(target.dtype))
    before, before_slope = start, multiply(start) - target
    best = at_least(before - length * before_slope, 0.0)  # which the bound keeps from being worse
    slope = multiply(best) - target
    least, pace, carry = objective(best, slope, target), GOLDEN, 0.0
    for _ in range(steps - 1):
        ahead, ahead_slope = best, slope
        if carry:
            ahead, ahead_slope = ahead + carry * (best - before), slope + carry * (slope - before_slope)
        step = at_least(ahead - length * ahead_slope, 0.0)
        step_slope = multiply(step) - target
        reached = objective(step, step_slope, target)
        is_worse = ~(reached <= least)  # or no number
        if isinstance(is_worse, np.bool) and is_worse:
            if not carry:  # not even a plain step improves: this is the minimum
                break
            pace, carry = 1.0, 0.0
            continue
        before, before_slope = best, slope  # where it is worse, keep the best; the next step is a plain one
        best, slope = select(is_worse, best, step), select(is_worse, slope, step_slope)
        least, faster = select(is_worse, least, reached), (1 + (1 + 4 * pace * pace) ** 0.5) / 2
        carry, pace = (pace - 1) / faster, faster
    return best, least


def objective(array: Matrix, slope: Matrix, target: Matrix) -> Matrix:
    """Return the objective, given its derivative."""
    return inner_product(array, slope - target) / 2


def multiply_by_all(array: Matrix, matrices: Sequence[Matrix]) -> Matrix:
    """Multiply by a symmetric matrix along each mode: the first mode becomes the last, until all are back in place."""
    shape = array.shape
    for matrix in matrices:
        array = reshape(array, (matrix.shape[0], -1)).T @ matrix
    return reshape(array, shape)


def eigenvalue_bound(gram: Matrix) -> Matrix:
    """Return a close upper bound, as an array, of the eigenvalues of a symmetric matrix without negative entries.

    Any positive vector v gives one: the largest entry of (gram @ v) / v (Collatz, Wielandt).
    """
    xp = get_namespace(gram)
    vector = xp.sum(gram, axis=1)
    return xp.max(share(gram @ vector, vector))
