"""Straight lines between tensors, in either coordinate system."""

from __future__ import annotations

import math
from typing import Any, Literal

from tucket.backends import check_same_backend, get_namespace
from tucket.base.checks import check_shape_match
from tucket.geometry.checks import Dense, check_positive, in_unit


def geodesic(p: Any, q: Any, t: float, kind: Literal["m", "e"] = "m") -> Dense:
    """Return the point at `t` on the line from `p` (t = 0) to `q` (t = 1).

    The line is straight in η for `kind="m"`, a mixture of the two tensors. It is straight in θ for `kind="e"`; the
    total is then interpolated geometrically.

    Parameters
    ----------
    p, q : array_like
        Tensors with positive entries, of the same shape, library and device.
    t : float
        The place on the line. Values outside [0, 1] extrapolate.
    kind : {"m", "e"}, optional
        The coordinates in which the line is straight: "m" for η, "e" for θ.

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
    >>> geodesic([1, 4], [4, 1], 0.5)
    array([2.5, 2.5])
    >>> geodesic([0.2, 0.8], [0.8, 0.2], 0.5, "e")
    array([0.5, 0.5])
    """
    check_same_backend(p, q, "p", "q")
    first, second = check_positive(p, "p"), check_positive(q, "q")
    check_shape_match(second, tuple(first.shape), "p", "q")
    if kind == "m":
        return _mixture(first, second, t)
    if kind == "e":
        return _exponential(first, second, t)
    raise ValueError(f"kind: unknown {kind!r}; give 'm' or 'e'")


def _mixture(first: Any, second: Any, t: float) -> Dense:
    point = first * (1 - t) + second * t
    if bool(get_namespace(point).min(point) <= 0):
        raise ValueError(f"t: got {t}, where the m-geodesic has left the positive tensors; give one nearer to [0, 1]")
    return point


def _exponential(first: Any, second: Any, t: float) -> Dense:
    xp = get_namespace(first)
    totals = [xp.log(xp.sum(scaled)) + math.log(unit) for scaled, unit in map(in_unit, (first, second))]
    logs = (xp.log(first) - totals[0]) * (1 - t) + (xp.log(second) - totals[1]) * t
    point = xp.exp(logs - xp.max(logs))
    return point / xp.sum(point) * xp.exp(totals[0] * (1 - t) + totals[1] * t)
