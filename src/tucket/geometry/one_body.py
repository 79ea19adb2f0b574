"""One-body parameters: rank-1 tensors as products of independent distributions."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tucket.backends import get_backend, get_namespace
from tucket.geometry.checks import Dense, check_positive, check_real, in_unit
from tucket.geometry.coordinates import rises, sums_above, sums_below


def one_body(x: Any) -> list[Dense]:
    """Return the distribution of each mode. Their product times the total is the best rank-1 tensor.

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
    r"""Return the one-body θ of one mode of a rank-1 tensor from its one-body η (Proposition 5).

    .. math:: \theta_j = \log \frac{\eta_j - \eta_{j+1}}{\eta_{j-1} - \eta_j}

    Parameters
    ----------
    parameters : array_like
        The one-body η of the mode, falling to a positive last entry.

    Returns
    -------
    array
        The one-body θ without its first entry, which depends on the other modes.

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
    r"""Return the one-body η of one mode of a rank-1 tensor from its one-body θ (Proposition 5).

    Parameters
    ----------
    parameters : array_like
        The one-body θ of the mode, without its first entry.

    Returns
    -------
    array
        The one-body η, with one entry more; the first is 1.

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
