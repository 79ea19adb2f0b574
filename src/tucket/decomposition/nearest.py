r"""Non-negative least squares, by accelerated gradient steps that never raise the objective.

The objective is half of the squared distance from a tensor, minus half of the squared norm of the tensor:

.. math:: \tfrac{1}{2} \langle A, N A \rangle - \langle A, M \rangle

Here N is the Gram matrix of the matrix that multiplies A, and M is the product of that matrix with the tensor.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tucket.backends import get_namespace
from tucket.kernels.algebra import Matrix, at_least, inner_product, least_of, reshape, select, share

GOLDEN = (1 + 5**0.5) / 2
"""Momentum parameter of an accelerated descent after its first step."""


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
