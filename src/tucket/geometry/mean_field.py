r"""Mean field: rank-1 tensors as products of independent distributions, and Boltzmann machines beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import check_same_home, namespace_of
from tucket.geometry.checks import (
    Dense,
    check_positive,
    check_real,
    divergence,
    in_unit,
    place_of,
    to_host,
    unfollowed,
)
from tucket.geometry.coordinates import rises, sums_above, sums_below

__all__ = ["MeanField", "boltzmann", "mean_field", "one_body", "one_body_eta", "one_body_theta"]

MOST = 20
"""Units of a Boltzmann machine at most: its tensor has two entries for each combination of the others."""


def one_body(x: Any) -> list[Dense]:
    """Return the independent distributions whose product, times the total, is the best rank-1 tensor.

    Examples
    --------
    >>> one_body([[1, 2], [3, 4]])
    [array([0.3, 0.7]), array([0.4, 0.6])]
    """
    tensor = check_positive(x, allow_zero=True)
    xp, modes = namespace_of(tensor), range(tensor.ndim)
    tensor, _ = in_unit(tensor)
    total = xp.sum(tensor)
    if bool(total == 0):
        raise ValueError("x is zero everywhere; there is no distribution to be had of it")
    return [xp.sum(tensor, axis=tuple(k for k in modes if k != mode)) / total for mode in modes]


def one_body_theta(parameters: Any) -> Dense:
    r"""Return the one-body θ of a mode of a rank-1 tensor from its one-body η (Proposition 5), but for the first.

    .. math:: \theta_j = \log \frac{\eta_j - \eta_{j+1}}{\eta_{j-1} - \eta_j}

    Examples
    --------
    >>> one_body_theta([1.0, 0.75, 0.25]).round(6)  # of the distribution 0.25, 0.5, 0.25
    array([ 0.693147, -0.693147])
    """
    sums, xp = check_real(parameters, "eta"), namespace_of(parameters)
    shares = xp.flip(rises(xp.flip(sums, axis=-1), sums.ndim - 1), axis=-1)
    if bool(xp.min(shares) <= 0):
        raise ValueError(f"eta: its entries must fall, to a positive last one; got {xp.asarray(parameters)}")
    logs = xp.log(shares)
    return logs[..., 1:] - logs[..., :-1]


def one_body_eta(parameters: Any) -> Dense:
    r"""Return the one-body η of a mode of a rank-1 tensor from its one-body θ, given but for the first (Proposition 5).

    Examples
    --------
    >>> one_body_eta([math.log(2), -math.log(2)])
    array([1.  , 0.75, 0.25])
    """
    xp, zero = namespace_of(parameters), place_of(parameters).take(np.zeros(1))
    given = xp.reshape(check_real(parameters, "theta"), (-1,)) if math.prod(np.shape(parameters)) else zero[1:]
    logs = sums_below(xp.concat([zero, given]))
    shares = xp.exp(logs - xp.max(logs))
    return sums_above(shares) / xp.sum(shares)


def boltzmann(bias: Any, weights: Any) -> Dense:
    r"""Return the distribution of a Boltzmann machine as a tensor with two indices a mode.

    .. math:: p(x) \propto \exp\Big( \sum_i b_i x_i + \sum_{i < j} w_{ij} x_i x_j \Big), \qquad x_i \in \{0, 1\}

    Examples
    --------
    >>> boltzmann([0.0, 0.0], [[0, 0], [0, 0]])
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    b, w = _check_machine(bias, weights)
    xp, units = namespace_of(b), b.shape[0]
    energies = xp.zeros_like(b[:1])
    for unit in reversed(range(units)):  # before all that are there: the first half without it, the second with it
        field = b[unit : unit + 1]
        for other in reversed(range(unit + 1, units)):
            field = xp.concat([field, field + w[unit, other]])
        energies = xp.concat([energies, energies + field])
    p = xp.exp(energies - xp.max(energies))
    return xp.reshape(p / xp.sum(p), (2,) * units)


@dataclass(frozen=True, slots=True)
class MeanField:
    """A Boltzmann machine and two products of independent units near it.

    Attributes
    ----------
    exact : array
        Probability that each unit is 1: the m-projection, which is the best rank-1 tensor.
    approximate : array
        The same by the mean-field equation: an e-projection, which needs no sum over all states.
    kl_exact, kl_approximate : pairs of floats
        Divergence of the machine from the product, and of the product from the machine.
    iterations : int
        How many the fixed point took.
    """

    exact: Dense
    approximate: Dense
    kl_exact: tuple[float, float]
    kl_approximate: tuple[float, float]
    iterations: int


def mean_field(
    bias: Any, weights: Any, *, damping: float = 0.5, n_iter_max: int = 10_000, tol: float = 1e-12
) -> MeanField:
    r"""Approximate a Boltzmann machine by independent units, exactly and by the mean-field equation.

    .. math:: m_i = \sigma\Big( b_i + \sum_j w_{ij} m_j \Big)

    from :math:`m_i = \sigma(b_i)`, of which each step goes only part of the way.

    Examples
    --------
    >>> found = mean_field([0.5, -0.2], [[0, 1], [1, 0]])
    >>> found.kl_exact[0] <= found.kl_approximate[0], found.kl_approximate[1] <= found.kl_exact[1]
    (True, True)
    """
    b, w = (unfollowed(each, name) for each, name in zip(_check_machine(bias, weights), ("bias", "weights")))
    if not 0 <= damping < 1:
        raise ValueError(f"damping: got {damping!r}; give a number from 0 to below 1")
    p = boltzmann(b, w)
    exact = namespace_of(p).stack([distribution[1] for distribution in one_body(p)])
    few, matrix = to_host(b), to_host(w)  # for many small steps
    means, iterations, change = _sigmoid(few), 0, math.inf
    while iterations < n_iter_max and change > tol:
        iterations += 1
        moved = damping * means + (1 - damping) * _sigmoid(few + matrix @ means)
        change, means = float(np.abs(moved - means).max()), moved
    approximate = place_of(p).take(means)
    pairs = [(divergence(p, q), divergence(q, p)) for q in map(_product, (exact, approximate))]
    return MeanField(exact, approximate, pairs[0], pairs[1], iterations)


def _check_machine(bias: Any, weights: Any) -> tuple[Dense, Dense]:
    check_same_home(bias, weights, "bias", "weights")
    b, w = check_real(bias, "bias"), check_real(weights, "weights")
    xp, shape = namespace_of(b), tuple(b.shape)
    if len(shape) != 1 or shape[0] > MOST:
        raise ValueError(f"bias: got shape {shape}; give one number a unit, for at most {MOST} units")
    if tuple(w.shape) != shape * 2:
        raise ValueError(f"weights: got shape {tuple(w.shape)}; give a matrix of {shape[0]} rows and columns")
    if not bool(xp.all(w == w.T)) or bool(xp.any(xp.linalg.diagonal(w) != 0)):
        raise ValueError("weights: the matrix is not symmetric with zeros on its diagonal; give one that is")
    return b, w


def _product(means: Any) -> Dense:
    pairs = [namespace_of(means).stack([1 - means[unit], means[unit]]) for unit in range(means.shape[0])]
    return reduce(lambda q, pair: q[..., None] * pair, pairs)


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray([1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v)) for v in values])
