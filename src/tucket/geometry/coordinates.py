r"""Two coordinate systems of positive tensors: natural parameters θ and expectation parameters η.

A tensor, divided by its total, is a distribution over its indices. The indices are ordered mode by mode:
:math:`j \le i` means that every component of j is at most that of i. Then

.. math:: \log P[i] = \sum_{j \le i} \theta[j], \qquad \eta[i] = \sum_{j \ge i} P[j]

(Section 3.1 of the paper). The first entry of θ carries the scale; the first entry of η is the total. Indices count
from 0 here and from 1 in the paper.
"""

from __future__ import annotations

import math
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tucket.backends import check_same_backend, get_namespace
from tucket.base.checks import check_shape_match
from tucket.geometry.checks import Dense, check_positive, check_real, explain_total, in_unit, number_at, precision
from tucket.kernels.array_api import first_index


def theta(x: Any) -> Dense:
    """Return the natural parameters θ of a positive tensor: its logarithm, differenced along every mode.

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.

    Returns
    -------
    array
        θ, with the shape of `x`.

    Raises
    ------
    ValueError
        If an entry is not positive, or not finite.

    See Also
    --------
    from_theta : The inverse.

    Examples
    --------
    >>> theta(np.exp([[0.0, 1.0], [2.0, 4.0]])).round(6)
    array([[0., 1.],
           [2., 1.]])
    """
    tensor = check_positive(x)
    return _all_rises(get_namespace(tensor).log(tensor))


def from_theta(parameters: Any) -> Dense:
    """Return the tensor that has these natural parameters θ.

    Parameters
    ----------
    parameters : array_like
        θ, any finite numbers.

    Returns
    -------
    array
        The positive tensor.

    Raises
    ------
    ValueError
        If a parameter is not finite, or an entry of the tensor would overflow.

    See Also
    --------
    theta : The inverse.

    Examples
    --------
    >>> from_theta(theta([[1.0, 2.0], [3.0, 4.0]])).round(6)
    array([[1., 2.],
           [3., 4.]])
    """
    logs = sums_below(check_real(parameters, "theta"))
    xp = get_namespace(logs)
    with np.errstate(over="ignore"):
        tensor = xp.exp(logs)
    lost = ~xp.isfinite(tensor)
    if bool(xp.any(lost)):
        where = first_index(lost)
        raise ValueError(
            f"theta: entry {where} of the tensor would be exp({number_at(logs, where):.4g}), "
            f"too large for float{xp.finfo(tensor.dtype).bits}"
        )
    return tensor


def eta(x: Any) -> Dense:
    """Return the expectation parameters η of a non-negative tensor: sums over all indices from each one on.

    Parameters
    ----------
    x : array_like
        A tensor with no negative entries.

    Returns
    -------
    array
        η, with the shape of `x`.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or the total overflows.

    See Also
    --------
    from_eta : The inverse.

    Examples
    --------
    >>> eta([[1, 2], [3, 4]])
    array([[10.,  6.],
           [ 7.,  4.]])
    """
    tensor = check_positive(x, allow_zero=True)
    xp = get_namespace(tensor)
    with np.errstate(over="ignore"):
        sums = sums_above(tensor)
    if not bool(xp.isfinite(sums[(0,) * sums.ndim])):
        raise explain_total(sums)
    return xp.astype(sums, sums.dtype)  # a copy: `sums` is a reversed view


def from_eta(parameters: Any) -> Dense:
    """Return the tensor that has these expectation parameters η, by Möbius inversion.

    Parameters
    ----------
    parameters : array_like
        η, finite numbers.

    Returns
    -------
    array
        The non-negative tensor.

    Raises
    ------
    ValueError
        If a parameter is not finite, or an entry of the tensor would be negative.

    See Also
    --------
    eta : The inverse.

    Examples
    --------
    >>> from_eta([[10, 6], [7, 4]])
    array([[1., 2.],
           [3., 4.]])
    """
    sums = check_real(parameters, "eta")
    xp = get_namespace(sums)
    tensor = xp.flip(_all_rises(xp.flip(sums)))
    lost = tensor < xp.max(xp.abs(sums)) * -max(1e-12, 100 * precision(sums))
    if bool(xp.any(lost)):
        where = first_index(lost)
        raise ValueError(
            f"eta: entry {where} of the tensor would be {number_at(tensor, where):.4g}; no tensor has these sums"
        )
    return xp.maximum(tensor, xp.zeros_like(tensor))


def mobius(shape: tuple[int, ...]) -> NDArray[np.float64]:
    r"""Return the Möbius function μ of the indices of a tensor, as a matrix over its flat indices.

    With it, :math:`P = \mu \eta` and :math:`\theta = \mu^T \log P`.

    Parameters
    ----------
    shape : tuple of int
        Shape of the tensor.

    Returns
    -------
    ndarray of float64
        A square matrix with one row per entry of the tensor.

    Raises
    ------
    ValueError
        If a size is negative.

    See Also
    --------
    from_eta : The same inversion without the matrix.

    Examples
    --------
    >>> mobius((3,))
    array([[ 1., -1.,  0.],
           [ 0.,  1., -1.],
           [ 0.,  0.,  1.]])
    """
    # the order is that of every mode, so μ is the product of the μ of the modes
    found: NDArray[Any] = np.eye(1)
    for size in shape:
        found = np.kron(found, np.eye(size) - np.eye(size, k=1))
    return found + 0.0  # no negative zeros


def geodesic(p: Any, q: Any, t: float, kind: Literal["m", "e"] = "m") -> Dense:
    """Return the point at `t` on the line from `p` (t = 0) to `q` (t = 1), straight in either coordinate system.

    Parameters
    ----------
    p, q : array_like
        Positive tensors of the same shape, library and device.
    t : float
        Place on the line. Values outside [0, 1] extrapolate.
    kind : {"m", "e"}, optional
        "m" is straight in η, a mixture; "e" is straight in θ, and interpolates the total geometrically.

    Returns
    -------
    array
        The tensor at `t`.

    Raises
    ------
    ValueError
        If the tensors do not match, an entry is not positive, or the m-geodesic has no positive tensor at `t`.

    See Also
    --------
    theta, eta : The coordinates.

    Examples
    --------
    >>> geodesic([0.2, 0.8], [0.8, 0.2], 0.5, "e")
    array([0.5, 0.5])
    """
    check_same_backend(p, q, "p", "q")
    first, second = check_positive(p, "p"), check_positive(q, "q")
    check_shape_match(second, tuple(first.shape), "p", "q")
    xp = get_namespace(first)
    if kind == "m":
        point = first * (1 - t) + second * t
        if bool(xp.min(point) <= 0):
            raise ValueError(
                f"t: got {t}, where the m-geodesic has left the positive tensors; give one nearer to [0, 1]"
            )
        return point
    if kind != "e":
        raise ValueError(f"kind: unknown {kind!r}; give 'm' or 'e'")
    totals = [xp.log(xp.sum(scaled)) + math.log(unit) for scaled, unit in map(in_unit, (first, second))]
    logs = (xp.log(first) - totals[0]) * (1 - t) + (xp.log(second) - totals[1]) * t
    point = xp.exp(logs - xp.max(logs))
    return point / xp.sum(point) * xp.exp(totals[0] * (1 - t) + totals[1] * t)


def sums_above(values: Any) -> Dense:
    """Sum over all indices that are at least each index in every mode."""
    xp = get_namespace(values)
    return xp.flip(sums_below(xp.flip(values)))


def sums_below(values: Any) -> Dense:
    """Sum over all indices that are at most each index in every mode."""
    xp = get_namespace(values)
    for mode in range(values.ndim):
        values = xp.cumulative_sum(values, axis=mode)
    return values


def rises(values: Any, mode: int) -> Dense:
    """Return the difference of each entry from the one before it in a mode; the first entry stays."""
    before = (slice(None),) * mode
    first, later, earlier = (values[(*before, part, ...)] for part in (slice(1), slice(1, None), slice(-1)))
    return get_namespace(values).concat([first, later - earlier], axis=mode)


def _all_rises(values: Any) -> Dense:
    for mode in range(values.ndim):
        values = rises(values, mode)
    return values
