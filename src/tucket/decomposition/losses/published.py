"""The published multiplicative updates, one part of the model after another: what the paper compares LTR with.

Kim & Choi, "Nonnegative Tucker decomposition", CVPR 2007, for both losses, as in TensorLy: what would be divided by
zero is divided by a small number instead. A part that is zero stays zero.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tucket.backends.home import namespace_of
from tucket.decomposition.losses.kl import Divergence
from tucket.decomposition.losses.ls import LeastSquares
from tucket.kernels.algebra import Matrix, at_least, inner_product, multiply_all, unfold, weigh, without

__all__ = ["divergence_updates", "least_squares_updates"]

LEAST = 1e-11
"""Numerators and denominators are at least this, as in TensorLy."""


def least_squares_updates(
    problem: LeastSquares, core: Matrix, factors: Sequence[Matrix]
) -> Iterator[tuple[Matrix, list[Matrix], float]]:
    """Yield the model after each round over the factors and the core, and its squared distance."""
    factors = list(factors)
    grams = {mode: factor.T @ factor for mode, factor in enumerate(factors)}
    while True:
        for mode in range(core.ndim):
            part = problem.contract(without(dict(enumerate(factors)), mode))
            rows = unfold(core, mode)
            gram = rows @ unfold(multiply_all(core, without(grams, mode)), mode).T
            factors[mode] = factors[mode] * _ratio(unfold(part, mode) @ rows.T, factors[mode] @ gram)
            grams[mode] = factors[mode].T @ factors[mode]
        target = multiply_all(part, {core.ndim - 1: factors[-1]})
        core = core * _ratio(target, multiply_all(core, grams))
        square = float(inner_product(core, multiply_all(core, grams)) - 2 * inner_product(core, target))
        yield core, list(factors), max(0.0, problem.norm + square)


def divergence_updates(
    problem: Divergence, core: Matrix, factors: Sequence[Matrix]
) -> Iterator[tuple[Matrix, list[Matrix], float]]:
    """Yield the model after each round over the factors and the core, and the divergence of the tensor from it."""
    xp, factors = namespace_of(core), list(factors)
    _, slopes, _ = problem.slopes(core, factors)
    while True:
        for mode in range(core.ndim):
            sums = {k: xp.sum(factor, axis=0)[:, None] for k, factor in enumerate(factors)}
            mass = unfold(multiply_all(core, without(sums, mode)), mode).T
            factors[mode] = factors[mode] * _ratio(slopes[mode], mass)
            core_slopes, slopes, _ = problem.slopes(core, factors)
        mass = weigh(xp.ones_like(core), {mode: xp.sum(factor, axis=0) for mode, factor in enumerate(factors)})
        core = core * _ratio(core_slopes, mass)
        _, slopes, divergence = problem.slopes(core, factors)
        yield core, list(factors), divergence


def _ratio(numerator: Matrix, denominator: Matrix) -> Matrix:
    return at_least(numerator, LEAST) / at_least(denominator, LEAST)
