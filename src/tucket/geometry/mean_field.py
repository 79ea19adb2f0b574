r"""Mean field: rank-1 tensors as products of independent distributions, and Boltzmann machines beside them."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.geometry.coordinates import Dense, check_positive, check_real
from tucket.metrics import kl

__all__ = ["MeanField", "boltzmann", "mean_field", "one_body", "one_body_eta", "one_body_theta"]

MOST = 20
"""Units of a Boltzmann machine at most: its tensor has two entries for each combination of the others."""


def one_body(x: ArrayLike) -> list[Dense]:
    """Return the independent distributions whose product, times the total, is the best rank-1 tensor.

    Examples
    --------
    >>> one_body([[1, 2], [3, 4]])
    [array([0.3, 0.7]), array([0.4, 0.6])]
    """
    tensor = check_positive(x, allow_zero=True)
    total = float(tensor.sum())
    if total == 0:
        raise ValueError("x is zero everywhere; there is no distribution to be had of it")
    modes = range(tensor.ndim)
    return [np.asarray(tensor.sum(axis=tuple(k for k in modes if k != mode)) / total) for mode in modes]


def one_body_theta(parameters: ArrayLike) -> Dense:
    r"""Return the one-body θ of a mode of a rank-1 tensor from its one-body η (Proposition 5), but for the first.

    .. math:: \theta_j = \log \frac{\eta_j - \eta_{j+1}}{\eta_{j-1} - \eta_j}

    Examples
    --------
    >>> one_body_theta([1.0, 0.75, 0.25]).round(6)  # of the distribution 0.25, 0.5, 0.25
    array([ 0.693147, -0.693147])
    """
    shares = -np.diff(check_real(parameters, "eta"), append=0.0)
    if shares.min() <= 0:
        raise ValueError(f"eta: its entries must fall, to a positive last one; got {np.asarray(parameters)}")
    return np.diff(np.log(shares))


def one_body_eta(parameters: ArrayLike) -> Dense:
    r"""Return the one-body η of a mode of a rank-1 tensor from its one-body θ, given but for the first (Proposition 5).

    Examples
    --------
    >>> one_body_eta([math.log(2), -math.log(2)])
    array([1.  , 0.75, 0.25])
    """
    given = np.asarray(parameters, np.float64)
    logs = np.concatenate([[0.0], check_real(given, "theta").cumsum() if given.size else given])
    shares = np.exp(logs - logs.max())
    return np.asarray(shares[::-1].cumsum()[::-1] / shares.sum())


def boltzmann(bias: ArrayLike, weights: ArrayLike) -> Dense:
    r"""Return the distribution of a Boltzmann machine as a tensor with two indices a mode.

    .. math:: p(x) \propto \exp\Big( \sum_i b_i x_i + \sum_{i < j} w_{ij} x_i x_j \Big), \qquad x_i \in \{0, 1\}

    Examples
    --------
    >>> boltzmann([0.0, 0.0], [[0, 0], [0, 0]])
    array([[0.25, 0.25],
           [0.25, 0.25]])
    """
    b, w = _check_machine(bias, weights)
    states = np.indices((2,) * len(b)).reshape(len(b), -1).T.astype(np.float64)
    energies = states @ b + np.einsum("si,ij,sj->s", states, np.triu(w, 1), states)
    p = np.exp(energies - energies.max())
    return np.asarray((p / p.sum()).reshape((2,) * len(b)))


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
    bias: ArrayLike, weights: ArrayLike, *, damping: float = 0.5, n_iter_max: int = 10_000, tol: float = 1e-12
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
    b, w = _check_machine(bias, weights)
    if not 0 <= damping < 1:
        raise ValueError(f"damping: got {damping!r}; give a number from 0 to below 1")
    p = boltzmann(b, w)
    exact = np.array([distribution[1] for distribution in one_body(p)])
    means, iterations, change = _sigmoid(b), 0, math.inf
    while iterations < n_iter_max and change > tol:
        iterations += 1
        moved = damping * means + (1 - damping) * _sigmoid(b + w @ means)
        change, means = float(np.abs(moved - means).max()), moved
    pairs = [(kl(p, q), kl(q, p)) for q in map(_product, (exact, means))]
    return MeanField(exact, means, pairs[0], pairs[1], iterations)


def _check_machine(bias: ArrayLike, weights: ArrayLike) -> tuple[Dense, Dense]:
    b, w = check_real(bias, "bias"), check_real(weights, "weights")
    if b.ndim != 1 or len(b) > MOST:
        raise ValueError(f"bias: got shape {b.shape}; give one number a unit, for at most {MOST} units")
    if w.shape != (len(b),) * 2:
        raise ValueError(f"weights: got shape {w.shape}; give a matrix of {len(b)} rows and columns")
    if not np.array_equal(w, w.T) or np.diag(w).any():
        raise ValueError("weights: the matrix is not symmetric with zeros on its diagonal; give one that is")
    return b, w


def _product(means: Dense) -> Dense:
    q: NDArray[np.float64] = np.ones(())
    for mean in means:
        q = np.multiply.outer(q, np.array([1 - mean, mean]))
    return q


def _sigmoid(values: Dense) -> Dense:
    return np.asarray([1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v)) for v in values])
