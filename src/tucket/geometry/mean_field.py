"""Mean-field theory: products of independent distributions, by themselves and near a Boltzmann machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from scipy.special import expit

from tucket.backends import check_same_backend, get_backend, get_namespace
from tucket.geometry.checks import Dense, check_positive, check_real, divergence, in_unit, refuse_traced, to_host
from tucket.geometry.coordinates import rises, sums_above, sums_below

MAX_UNITS = 20
"""Maximum number of units of a Boltzmann machine: its tensor has 2**20 entries then."""


def one_body(x: Any) -> list[Dense]:
    """Return the distribution of each mode; their product times the total is the best rank-1 tensor.

    Parameters
    ----------
    x : array_like
        A tensor with no negative entries, not zero everywhere.

    Returns
    -------
    list of array
        For each mode its marginal, divided by the total.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or all are zero.

    See Also
    --------
    best_rank1 : The best rank-1 tensor as a model.

    Examples
    --------
    >>> one_body([[1, 2], [3, 4]])
    [array([0.3, 0.7]), array([0.4, 0.6])]
    """
    tensor = check_positive(x, allow_zero=True)
    xp, modes = get_namespace(tensor), range(tensor.ndim)
    tensor, _ = in_unit(tensor)
    total = xp.sum(tensor)
    if bool(total == 0):
        raise ValueError("x is zero everywhere; there is no distribution to return")
    return [xp.sum(tensor, axis=tuple(k for k in modes if k != mode)) / total for mode in modes]


def one_body_theta(parameters: Any) -> Dense:
    r"""Return the one-body θ of a mode of a rank-1 tensor from its one-body η (Proposition 5).

    .. math:: \theta_j = \log \frac{\eta_j - \eta_{j+1}}{\eta_{j-1} - \eta_j}

    Parameters
    ----------
    parameters : array_like
        One-body η, falling to a positive last entry.

    Returns
    -------
    array
        One-body θ without its first entry, which depends on the other modes.

    Raises
    ------
    ValueError
        If η does not fall strictly, or its last entry is not positive.

    See Also
    --------
    one_body_eta : The inverse.

    Examples
    --------
    >>> one_body_theta([1.0, 0.75, 0.25]).round(6)  # of the distribution 0.25, 0.5, 0.25
    array([ 0.693147, -0.693147])
    """
    sums, xp = check_real(parameters, "eta"), get_namespace(parameters)
    shares = xp.flip(rises(xp.flip(sums, axis=-1), sums.ndim - 1), axis=-1)
    if bool(xp.min(shares) <= 0):
        raise ValueError(f"eta: its entries must fall, to a positive last one; got {xp.asarray(parameters)}")
    logs = xp.log(shares)
    return logs[..., 1:] - logs[..., :-1]


def one_body_eta(parameters: Any) -> Dense:
    """Return the one-body η of a mode of a rank-1 tensor from its one-body θ, the inverse of `one_body_theta`.

    Parameters
    ----------
    parameters : array_like
        One-body θ without its first entry.

    Returns
    -------
    array
        One-body η, with one entry more; the first is 1.

    Raises
    ------
    ValueError
        If a parameter is not finite.

    See Also
    --------
    one_body_theta : The inverse.

    Examples
    --------
    >>> one_body_eta([math.log(2), -math.log(2)])
    array([1.  , 0.75, 0.25])
    """
    xp, zero = get_namespace(parameters), get_backend(parameters).from_numpy(np.zeros(1))
    given = xp.reshape(check_real(parameters, "theta"), (-1,)) if math.prod(np.shape(parameters)) else zero[1:]
    logs = sums_below(xp.concat([zero, given]))
    shares = xp.exp(logs - xp.max(logs))
    return sums_above(shares) / xp.sum(shares)


def boltzmann(bias: Any, weights: Any) -> Dense:
    r"""Return the distribution of a Boltzmann machine, with one mode of size 2 per unit.

    .. math:: p(x) \propto \exp\Big( \sum_i b_i x_i + \sum_{i < j} w_{ij} x_i x_j \Big), \qquad x_i \in \{0, 1\}

    Parameters
    ----------
    bias : array_like
        One number per unit, for at most 20 units.
    weights : array_like
        A symmetric matrix with zeros on its diagonal.

    Returns
    -------
    array
        The distribution; its entries sum to 1.

    Raises
    ------
    ValueError
        If the shapes do not match, the matrix is not symmetric with a zero diagonal, or a number is not finite.

    See Also
    --------
    mean_field : Products of independent units near the machine.

    Examples
    --------
    >>> boltzmann([np.log(3), 0], [[0, 0], [0, 0]]).round(3)
    array([[0.125, 0.125],
           [0.375, 0.375]])
    """
    b, w = _check_machine(bias, weights)
    xp, units = get_namespace(b), b.shape[0]
    energies = xp.zeros_like(b[:1])
    for unit in reversed(range(units)):  # each unit doubles the states: the first half without it, the second with it
        field = b[unit : unit + 1]
        for other in reversed(range(unit + 1, units)):
            field = xp.concat([field, field + w[unit, other]])
        energies = xp.concat([energies, energies + field])
    p = xp.exp(energies - xp.max(energies))
    return xp.reshape(p / xp.sum(p), (2,) * units)


@dataclass(frozen=True, slots=True)
class MeanField:
    """Two products of independent units near a Boltzmann machine.

    Parameters
    ----------
    exact : array
        Probability that each unit is 1 in the m-projection, the best rank-1 tensor.
    approximate : array
        Probability that each unit is 1 by the mean-field equation, an e-projection.
    kl_exact, kl_approximate : tuple of two floats
        For each product, the divergence of the machine from it, and its divergence from the machine.
    iterations : int
        Number of iterations of the mean-field equation.
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

    Parameters
    ----------
    bias : array_like
        One number per unit, for at most 20 units.
    weights : array_like
        A symmetric matrix with zeros on its diagonal.
    damping : float, optional
        Share of the old means in each step, from 0 to below 1.
    n_iter_max : int, optional
        Maximum number of iterations.
    tol : float, optional
        Iterations end when no mean changes by more.

    Returns
    -------
    MeanField
        The means of both approximations, and their divergences from the machine.

    Raises
    ------
    ValueError
        If the shapes do not match, the matrix is not symmetric with a zero diagonal, or `damping` is out of range.

    See Also
    --------
    e_project : The projection that the equation computes.

    Examples
    --------
    >>> found = mean_field([0.5, -0.2], [[0, 1], [1, 0]])
    >>> found.kl_exact[0] <= found.kl_approximate[0], found.kl_approximate[1] <= found.kl_exact[1]
    (True, True)
    """
    b, w = (refuse_traced(each, name) for each, name in zip(_check_machine(bias, weights), ("bias", "weights")))
    if not 0 <= damping < 1:
        raise ValueError(f"damping: got {damping!r}; give a number from 0 to below 1")
    p = boltzmann(b, w)
    exact = get_namespace(p).stack([distribution[1] for distribution in one_body(p)])
    few, matrix = (np.asarray(to_host(each), np.float64) for each in (b, w))  # many small steps are faster on the host
    means, iterations, change = expit(few), 0, math.inf
    while iterations < n_iter_max and change > tol:
        iterations += 1
        moved = damping * means + (1 - damping) * expit(few + matrix @ means)
        change, means = float(np.abs(moved - means).max()), moved
    approximate = get_backend(p).from_numpy(means)
    pairs = [(divergence(p, q), divergence(q, p)) for q in map(_product, (exact, approximate))]
    return MeanField(exact, approximate, pairs[0], pairs[1], iterations)


def _product(means: Any) -> Dense:
    pairs = [get_namespace(means).stack([1 - means[unit], means[unit]]) for unit in range(means.shape[0])]
    return reduce(lambda q, pair: q[..., None] * pair, pairs)


def _check_machine(bias: Any, weights: Any) -> tuple[Dense, Dense]:
    """Return the bias and the weights of a Boltzmann machine as floats."""
    check_same_backend(bias, weights, "bias", "weights")
    b, w = check_real(bias, "bias"), check_real(weights, "weights")
    xp, shape = get_namespace(b), tuple(b.shape)
    if len(shape) != 1 or shape[0] > MAX_UNITS:
        raise ValueError(f"bias: got shape {shape}; give one number per unit, for at most {MAX_UNITS} units")
    if tuple(w.shape) != shape * 2:
        raise ValueError(f"weights: got shape {tuple(w.shape)}; give a matrix of {shape[0]} rows and columns")
    if not bool(xp.all(w == w.T)) or bool(xp.any(xp.linalg.diagonal(w) != 0)):
        raise ValueError("weights: the matrix is not symmetric with zeros on its diagonal; give one that is")
    return b, w
