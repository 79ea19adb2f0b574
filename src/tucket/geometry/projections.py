"""The two projections onto a log-linear model, computed from their definition."""

from __future__ import annotations

from typing import Any

from tucket.backends import get_namespace
from tucket.geometry.checks import Dense, divergence
from tucket.geometry.coordinates import sums_above
from tucket.geometry.legendre import legendre
from tucket.geometry.log_linear import ROUNDING, Basis, fisher, largest, prepare, solve


def m_project(x: Any, basis: Basis) -> Dense:
    """Return the m-projection of a positive tensor: the Q of the model with the least D(x; Q).

    θ is 0 off the basis, and η is that of `x` on the basis. The tensor is unique.

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.
    basis : Partition, or array_like of bool, or sequence of indices
        Where θ is free, as for `legendre`; at most 4000 parameters.

    Returns
    -------
    array
        The nearest tensor, with the total of `x`.

    Raises
    ------
    ValueError
        If an entry of `x` is not positive and finite, or the basis does not fit `x` or has too many free parameters.
    TypeError
        If `x` requires a gradient, or is being compiled.

    See Also
    --------
    ltr : The closed form for the basis of a partition.
    legendre : The iterations behind this function.
    e_project : The projection in the other direction.

    Examples
    --------
    >>> from tucket import Partition
    >>> m_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).round(6)
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    return legendre(x, basis, tol=1e-14, n_iter_max=200).tensor


def e_project(x: Any, basis: Basis, *, n_iter_max: int = 1000, tol: float = 1e-12) -> Dense:
    """Return a nearest tensor of the model in the other direction: a local minimum of D(Q; x).

    The total is that of `x`. The problem is not convex; the search starts at the m-projection.

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.
    basis : Partition, or array_like of bool, or sequence of indices
        Where θ is free, as for `legendre`; at most 4000 parameters.
    n_iter_max : int, optional
        The maximum number of iterations.
    tol : float, optional
        Iterations end when no entry of the gradient is larger.

    Returns
    -------
    array
        The tensor.

    Raises
    ------
    ValueError
        If an entry of `x` is not positive and finite, or the basis does not fit `x` or has too many free parameters.
    TypeError
        If `x` requires a gradient, or is being compiled.

    See Also
    --------
    m_project : The projection that minimises D(x; Q).
    mean_field : The same for Boltzmann machines.

    Examples
    --------
    >>> from tucket import Partition
    >>> q = e_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1))
    >>> round(float(q.sum()), 6)
    10.0
    """
    p, total, model = prepare(x, basis)
    model.check_size()
    xp = get_namespace(p)
    parameters = model.at_free(legendre(p, basis, tol=1e-12, n_iter_max=200).theta)
    q = model.distribution(parameters)
    least = divergence(q, p)
    for _ in range(n_iter_max):
        sums, excess = sums_above(q), q * xp.log(q / p)
        # the covariance of the function of each free index with log(Q / P)
        gradient = model.at_free(sums_above(excess)) - model.at_free(sums) * xp.sum(excess)
        if largest(gradient) <= tol:
            break
        direction = -solve(fisher(sums, model.free), gradient)
        ahead, moved, reached, _ = model.search_line(parameters, direction, 1.0, lambda r: divergence(r, p), least)
        if reached > least:
            break
        gain = least - reached
        parameters, q, least = ahead, moved, reached
        if gain <= ROUNDING / 100:
            break
    return total * q
