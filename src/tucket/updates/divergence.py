r"""Kullback-Leibler divergence: expectation-maximisation of all parts of the model at once, in one pass over the data.

With columns of the factors that sum to 1, a Tucker model is a mixture: the core is the mass of each combination of
components, and a column says where a component of a mode puts its mass. With the ratios R = P / Q, each part is
multiplied by the derivative of :math:`\langle R, Q \rangle` there, and the columns are made to sum to 1 again. This
never raises the divergence, and keeps the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tucket.updates.data import Data, Matrix, Parts, multiply_all, unfold, without

__all__ = ["Divergence", "to_mixture"]

PACE, FASTER, SLOWER, FASTEST = 0.5, 1.1, 2.0, 10.0
"""Power of the last change by which the next is taken in advance, how it grows and falls, and what it may be."""

LEAP = 5.0
"""Factor by which an entry changes at most before that power is taken."""

NARROW, TALL = 64, 200
"""Columns up to which a product is slow, and what an entry of a matrix costs beside a multiplication."""


class Divergence:
    """The divergence of a tensor, of given total, from Tucker models."""

    def __init__(self, data: Data, total: float) -> None:
        self.data, self.total = data, total

    def descend(self, core: Matrix, factors: Sequence[Matrix]) -> Iterator[tuple[Matrix, list[Matrix], float]]:
        """Yield the mixture that is given and ever better ones, with their divergence, which never rises.

        Each is a step from the last one and a little further; where that was too far, the step alone.
        """
        here: Parts = (core, list(factors))
        best, step, least, pace = here, here, math.inf, PACE
        while True:
            better, divergence = self.improve(*here)
            if divergence > least and here is not step:
                here, pace = step, max(PACE, pace / SLOWER)
                continue
            if divergence <= least:  # a step alone may raise it, but only by a rounding error
                best, least = here, divergence
            yield (*best, least)
            here = self._further(better, step, pace)
            step, pace = better, min(FASTEST, pace * FASTER)

    def improve(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Parts, float]:
        """Take one step from a mixture; return the better one, and the divergence from the one that was given."""
        core_slopes, factor_slopes, divergence = self.slopes(core, factors)
        better = [_share(factor * slopes) for factor, slopes in zip(factors, factor_slopes)]
        return (core * core_slopes, better), divergence

    def slopes(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], float]:
        """Return the derivative of <R, Q> by the core and by each factor, and the divergence, in one pass.

        The model is a product of two matrices: rows for the outer modes, columns for the inner ones.
        """
        split = _choose_split(self.data.shape, core.shape)
        outer_factors = {mode: factors[mode] for mode in range(split)}
        outer = multiply_all(core, {mode: factor.T for mode, factor in outer_factors.items()})
        inner: Matrix = reduce(np.kron, factors[split:])  # type: ignore[arg-type]
        if split:
            found = self.data.each(lambda rows, part: _ratio_sums(part, split, outer[rows], inner))
        else:
            found = [_ratio_sums(self.data, split, outer, inner)]
        pieces, inner_sums, logs, lost = zip(*found)
        outer_slopes = np.concatenate(pieces) if split else pieces[0]
        factor_slopes = [
            unfold(multiply_all(outer_slopes, without(outer_factors, mode)), mode) @ unfold(core, mode).T
            for mode in range(split)
        ]
        factor_slopes += _split_slopes(sum(inner_sums), factors[split:])
        mass = float(outer.reshape(-1, inner.shape[1]).sum(axis=0) @ inner.sum(axis=0))
        divergence = math.inf if sum(lost) > 0 else max(0.0, sum(logs) - self.total + mass)
        return multiply_all(outer_slopes, outer_factors), factor_slopes, divergence

    def _further(self, now: Parts, then: Parts, pace: float) -> Parts:
        def move(new: Matrix, old: Matrix) -> Matrix:
            change = np.divide(new, old, where=old > 0, out=np.ones_like(new))
            return np.asarray(new * np.clip(change, 1 / LEAP, LEAP) ** pace)

        core = move(now[0], then[0])
        return core * (self.total / core.sum()), [_share(move(a, b)) for a, b in zip(now[1], then[1])]


def _ratio_sums(data: Data, split: int, outer: Matrix, inner: Matrix) -> tuple[Matrix, Matrix, float, float]:
    """Sum the ratios of a tensor to a product of matrices against either of them.

    Return also the sum of P log(P / Q), and the mass of the tensor where the product has none.
    """
    from tucket.kernels.updates import ratios

    columns = np.ascontiguousarray(inner.T)
    outer_sums, inner_sums = np.empty_like(outer), np.zeros_like(inner)
    logs, lost, memory = 0.0, 0.0, np.empty(0)
    for box, part in data.rows(split):
        if memory.size < part.size:
            memory = np.empty(part.size)
        rows = outer[box].reshape(-1, len(columns))
        quotients = np.matmul(rows, columns, out=memory[: part.size].reshape(part.shape))
        more, missed = ratios(part.reshape(-1), quotients.reshape(-1))
        logs, lost = logs + more, lost + missed
        outer_sums[box] = (quotients @ inner).reshape(outer[box].shape)
        inner_sums += quotients.T @ rows
    return outer_sums, inner_sums, logs, lost


def to_mixture(core: Matrix, factors: Sequence[Matrix]) -> Parts:
    """Make the columns of the factors sum to 1, at the expense of the core."""
    sums = {mode: np.diag(factor.sum(axis=0)) for mode, factor in enumerate(factors)}
    return multiply_all(core, sums), [_share(factor) for factor in factors]


def _share(factor: Matrix) -> Matrix:
    """Divide each column by its sum, if it has any."""
    sums = factor.sum(axis=0)
    return np.asarray(factor / np.where(sums > 0, sums, 1.0))


def _choose_split(shape: Sequence[int], rank: Sequence[int]) -> int:
    """Return how many modes are outer, so that the products are cheap and the matrices small.

    An entry takes as many multiplications as the inner modes have components; narrow matrices are slow, and tall
    ones take memory.
    """

    def cost(split: int) -> float:
        width, components = math.prod(shape[split:]), math.prod(rank[split:])
        too_large = split > 0 and width * components > math.prod(shape)
        return math.inf if too_large else components * (1 + NARROW / width) + TALL * components / width

    return min(range(len(shape) - 1, min(1, len(shape) - 1) - 1, -1), key=cost)


def _split_slopes(slopes: Matrix, factors: Sequence[Matrix]) -> list[Matrix]:
    """Return the slopes of the factors of a Kronecker product, given those of the product."""
    count = len(factors)
    if count == 1:
        return [slopes]
    slopes = slopes.reshape([len(factor) for factor in factors] + [factor.shape[1] for factor in factors])
    found = []
    for mode in range(count):
        operands: list[Any] = [slopes, range(2 * count)]
        for k, factor in enumerate(factors):
            operands += [factor, (k, count + k)] if k != mode else []
        found.append(np.einsum(*operands, (mode, count + mode), optimize=True))
    return found
