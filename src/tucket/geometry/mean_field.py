"""Mean-field theory: products of independent units near a Boltzmann machine."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import reduce
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import get_backend, get_namespace
from tucket.geometry.boltzmann import boltzmann, check_machine
from tucket.geometry.checks import Dense, divergence, refuse_traced, to_host
from tucket.geometry.one_body import one_body


@dataclass(frozen=True, slots=True)
class MeanField:
    """Two products of independent units near a Boltzmann machine.

    Attributes
    ----------
    exact : array
        The probability that each unit is 1, in the m-projection. This is the best rank-1 tensor.
    approximate : array
        The same from the mean-field equation, which needs no sum over all states. This is an e-projection.
    kl_exact, kl_approximate : tuple of two floats
        For each product, the divergence of the machine from it, and its divergence from the machine.
    iterations : int
        The number of iterations of the mean-field equation.
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

    The equation is iterated from :math:`m_i = \sigma(b_i)`:

    .. math:: m_i = \sigma\Big( b_i + \sum_j w_{ij} m_j \Big)

    Parameters
    ----------
    bias : array_like
        One number per unit, for at most 20 units.
    weights : array_like
        A symmetric matrix with zeros on its diagonal.
    damping : float, optional
        The share of the old means in each step, from 0 to below 1.
    n_iter_max : int, optional
        The maximum number of iterations.
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
    TypeError
        If an argument requires a gradient, or is being compiled.

    See Also
    --------
    boltzmann : The machine as a tensor.
    e_project : The projection that the equation computes.

    Examples
    --------
    >>> found = mean_field([0.5, -0.2], [[0, 1], [1, 0]])
    >>> found.kl_exact[0] <= found.kl_approximate[0], found.kl_approximate[1] <= found.kl_exact[1]
    (True, True)
    """
    b, w = (refuse_traced(each, name) for each, name in zip(check_machine(bias, weights), ("bias", "weights")))
    if not 0 <= damping < 1:
        raise ValueError(f"damping: got {damping!r}; give a number from 0 to below 1")
    p = boltzmann(b, w)
    exact = get_namespace(p).stack([distribution[1] for distribution in one_body(p)])
    few, matrix = to_host(b), to_host(w)  # many small steps are faster on the host
    means, iterations, change = _sigmoid(few), 0, math.inf
    while iterations < n_iter_max and change > tol:
        iterations += 1
        moved = damping * means + (1 - damping) * _sigmoid(few + matrix @ means)
        change, means = float(np.abs(moved - means).max()), moved
    approximate = get_backend(p).from_numpy(means)
    pairs = [(divergence(p, q), divergence(q, p)) for q in map(_product, (exact, approximate))]
    return MeanField(exact, approximate, pairs[0], pairs[1], iterations)


def _product(means: Any) -> Dense:
    pairs = [get_namespace(means).stack([1 - means[unit], means[unit]]) for unit in range(means.shape[0])]
    return reduce(lambda q, pair: q[..., None] * pair, pairs)


def _sigmoid(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray([1 / (1 + math.exp(-v)) if v >= 0 else math.exp(v) / (1 + math.exp(v)) for v in values])
