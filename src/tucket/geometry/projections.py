"""Projections onto log-linear models by their definition, and the many-body approximation."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tucket.backends import get_namespace
from tucket.geometry.checks import Dense, check_positive, divergence, precision, refuse_traced, shares
from tucket.geometry.coordinates import sums_above
from tucket.geometry.legendre import legendre
from tucket.geometry.log_linear import ROUNDING, Basis, fisher, largest, prepare, solve


def m_project(x: Any, basis: Basis) -> Dense:
    """Return the m-projection of a positive tensor: the unique Q of the model with the least D(x; Q).

    Off the basis, θ is 0; on the basis, η is that of `x`.

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
        If an entry of `x` is not positive and finite, or the basis does not fit or is too large.

    See Also
    --------
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
    """Return an e-projection of a positive tensor: a Q of the model at a local minimum of D(Q; x).

    The problem is not convex; the search starts at the m-projection.

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.
    basis : Partition, or array_like of bool, or sequence of indices
        Where θ is free, as for `legendre`; at most 4000 parameters.
    n_iter_max : int, optional
        Maximum number of iterations.
    tol : float, optional
        Iterations end when no entry of the gradient is larger.

    Returns
    -------
    array
        A nearest tensor, with the total of `x`.

    Raises
    ------
    ValueError
        If an entry of `x` is not positive and finite, or the basis does not fit or is too large.

    See Also
    --------
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


def many_body(x: Any, interactions: Iterable[Sequence[int]], *, n_iter_max: int = 10_000, tol: float = 1e-12) -> Dense:
    """Return the nearest tensor that has only the chosen interactions between modes.

    The result keeps the joint marginal of each set of modes, and the marginal of every mode (Ghalamkari, Sugiyama and
    Kawahara, "Many-body approximation for non-negative tensors", NeurIPS 2023).

    Parameters
    ----------
    x : array_like
        A tensor with no negative entries.
    interactions : iterable of sequences of int
        Sets of modes, counted from 0.
    n_iter_max : int, optional
        Maximum number of cycles over all sets.
    tol : float, optional
        Iterations end when no marginal is off by more than this share of the total.

    Returns
    -------
    array
        The nearest tensor, with the total of `x`.

    Raises
    ------
    ValueError
        If an entry of `x` is negative or not finite, or a set names a mode that `x` does not have.

    See Also
    --------
    m_project : Projection with any set of free θ.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(1.0, 25).reshape(2, 3, 4)
    >>> np.allclose(many_body(x, [(0, 1), (2,)]).sum(axis=2), x.sum(axis=2))
    True
    """
    p, total = shares(refuse_traced(check_positive(x, allow_zero=True)))
    xp, count = get_namespace(p), p.ndim
    kept = {_check_modes(modes, count) for modes in interactions} | {(mode,) for mode in range(count)}
    summed = [tuple(k for k in range(count) if k not in modes) for modes in kept]
    q, enough = xp.full_like(p, 1 / math.prod(p.shape)), max(tol, 4 * precision(p))
    for _ in range(n_iter_max if total else 0):
        worst = 0.0
        for axes in summed:
            wanted, found = xp.sum(p, axis=axes, keepdims=True), xp.sum(q, axis=axes, keepdims=True)
            seen = found > 0
            q = q * (xp.where(seen, wanted, xp.zeros_like(wanted)) / xp.where(seen, found, xp.ones_like(found)))
            worst = max(worst, float(xp.max(xp.abs(wanted - found))))
        if worst <= enough:
            break
    return total * q


def _check_modes(modes: Sequence[int], count: int) -> tuple[int, ...]:
    found = tuple(sorted({int(mode) for mode in modes}))
    if not found or found[0] < 0 or found[-1] >= count:
        raise ValueError(f"interactions: cannot use {tuple(modes)}; give modes from 0 to {count - 1}")
    return found
