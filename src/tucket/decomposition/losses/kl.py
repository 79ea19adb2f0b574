r"""Kullback-Leibler divergence: expectation-maximisation of all parts of the model at once, in one pass over the data.

With columns of the factors that sum to 1, a Tucker model is a mixture: the core is the mass of each combination of
components, and a column says where a component of a mode puts its mass. With the ratios R = P / Q, each part is
multiplied by the derivative of :math:`\langle R, Q \rangle` there, and the columns are made to sum to 1 again. This
never raises the divergence, and keeps the total.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from tucket.backends.home import namespace_of
from tucket.kernels.algebra import (
    Matrix,
    Parts,
    distance_of,
    join,
    kronecker,
    multiply_all,
    reshape,
    share,
    unfold,
    weigh,
    without,
)

if TYPE_CHECKING:
    from tucket.decomposition.data.device import AnyData

__all__ = ["Divergence", "to_mixture"]

PACE, FASTER, SLOWER, FASTEST = 0.5, 1.1, 2.0, 10.0
"""Power of the last change by which the next is taken in advance, how it grows and falls, and what it may be."""

LEAP = 5.0
"""Factor by which an entry changes at most before that power is taken."""

NARROW, TALL = 64, 200
"""Columns up to which a product is slow, and what an entry of a matrix costs beside a multiplication."""


class Divergence:
    """The divergence of a tensor, of given total, from Tucker models."""

    def __init__(self, data: AnyData, total: float) -> None:
        self.data, self.total = data, total
        self._improve = data.repeated(_improve)

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
        core, *better, with_total = self._improve(core, *factors)
        return (core, better), distance_of(float(with_total) - self.total)

    def slopes(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], float]:
        """Return the derivative of <R, Q> by the core and by each factor, and the divergence, in one pass."""
        of_core, of_factors, with_total = _slopes(self.data, core, factors)
        return of_core, of_factors, distance_of(float(with_total) - self.total)

    def _further(self, now: Parts, then: Parts, pace: float) -> Parts:
        xp = namespace_of(now[0])

        def move(new: Matrix, old: Matrix) -> Matrix:
            return new * xp.clip(share(new, old), 1 / LEAP, LEAP) ** pace

        core = move(now[0], then[0])
        return core * (self.total / xp.sum(core)), [_share(move(a, b)) for a, b in zip(now[1], then[1])]


def _improve(data: AnyData, core: Matrix, *factors: Matrix) -> tuple[Matrix, ...]:
    """Return a better mixture, and the divergence from the one that is given, with the total added to it."""
    core_slopes, factor_slopes, with_total = _slopes(data, core, factors)
    better = (_share(factor * slopes) for factor, slopes in zip(factors, factor_slopes))
    return core * core_slopes, *better, with_total


def _slopes(data: AnyData, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], Matrix]:
    """Return the derivative of <R, Q> by the core and by each factor, and the divergence with the total added to it.

    The model is a product of two matrices: rows for the outer modes, columns for the inner ones.
    """
    split = _choose_split(data.shape, core.shape)
    outer_factors = {mode: factors[mode] for mode in range(split)}
    outer = multiply_all(core, {mode: factor.T for mode, factor in outer_factors.items()})
    inner = kronecker(factors[split:])
    if split:
        found = data.each(lambda rows, part: _ratio_sums(part, split, outer[rows, ...], inner))
    else:
        found = [_ratio_sums(data, split, outer, inner)]
    pieces, inner_sums, logs = zip(*found)
    outer_slopes = join(pieces)
    factor_slopes = [
        unfold(multiply_all(outer_slopes, without(outer_factors, mode)), mode) @ unfold(core, mode).T
        for mode in range(split)
    ]
    factor_slopes += _split_slopes(sum(inner_sums), factors[split:])
    xp = namespace_of(core)
    mass = xp.sum(reshape(outer, (-1, inner.shape[1])), axis=0) @ xp.sum(inner, axis=0)
    return multiply_all(outer_slopes, outer_factors), factor_slopes, sum(logs) + mass


def _ratio_sums(data: AnyData, split: int, outer: Matrix, inner: Matrix) -> tuple[Matrix, Matrix, Any]:
    """Sum the ratios of a tensor to a product of matrices against either of them.

    Return also the sum of P log(P / Q), infinity where the tensor has mass and the product has none.
    """
    table, outer_sums, inner_sums, logs = reshape(outer, (-1, inner.shape[1])), [], 0.0, 0.0
    for some, part in data.rows(split):
        rows = table[some, :]
        ratios, more = data.ratios(part, rows @ inner.T)
        outer_sums.append(ratios @ inner)
        inner_sums, logs = inner_sums + ratios.T @ rows, logs + more
    return reshape(join(outer_sums), outer.shape), inner_sums, logs


def to_mixture(core: Matrix, factors: Sequence[Matrix]) -> Parts:
    """Make the columns of the factors sum to 1, at the expense of the core."""
    sums = {mode: namespace_of(core).sum(factor, axis=0) for mode, factor in enumerate(factors)}
    return weigh(core, sums), [_share(factor) for factor in factors]


def _share(factor: Matrix) -> Matrix:
    """Divide each column by its sum, if it has any."""
    return share(factor, namespace_of(factor).sum(factor, axis=0))


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
    xp, count = namespace_of(slopes), len(factors)
    if count == 1:
        return [slopes]
    shape = (*(factor.shape[0] for factor in factors), *(factor.shape[1] for factor in factors))
    # a factor's rows and columns side by side, so that they go in one product
    turned = xp.permute_dims(reshape(slopes, shape), tuple(axis for k in range(count) for axis in (k, count + k)))
    pairs = reshape(turned, tuple(math.prod(factor.shape) for factor in factors))
    vectors = {k: reshape(factor, (-1, 1)) for k, factor in enumerate(factors)}
    return [reshape(multiply_all(pairs, without(vectors, k)), factor.shape) for k, factor in enumerate(factors)]
