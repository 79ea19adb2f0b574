"""Sums over a tensor, and the divergence, squares and information of arrays of any backend.

The functions of arrays read no values, so JAX can trace them and torch can differentiate them; `moments` is the
exception.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket.backends import get_backend, get_namespace

SAFE_SQUARES = 1e-280
"""Sum of squares above which underflow of single squares is negligible."""

KL_RECHECK = 1e-2
"""Ratio of the divergence to the total below which float32 logarithms are too inexact."""


class Moments(NamedTuple):
    """Sums over all entries v of a tensor; in the logarithm, v is divided by a unit, by default 1."""

    v_log_v: float
    v_squared: float

    def plus(self, other: Moments) -> Moments:
        """Return the moments of two disjoint pieces together."""
        return Moments(self.v_log_v + other.v_log_v, self.v_squared + other.v_squared)


class Sums(NamedTuple):
    """Block sums and marginals, whether an entry is negative, and the name of the kernel."""

    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    has_negative: bool
    moments: Moments | None
    kernel: str
    low_precision: bool = False  # logarithms in float32


def power_of_two(size: float, most: int = 1022) -> float:
    """Return the power of two nearest to a positive number, and 1 for 0, infinity or NaN.

    Scaling by it is exact.

    Examples
    --------
    >>> power_of_two(1000.0), power_of_two(0.3), power_of_two(0.0)
    (1024.0, 0.25, 1.0)
    """
    return 2.0 ** max(-most, min(most, round(math.log2(size)))) if 0 < size < math.inf else 1.0


def v_log_v(values: Any) -> Any:
    """Return v log v of each value, 0 for 0."""
    xp = get_namespace(values)
    return values * xp.log(xp.where(values > 0, values, 1.0))


def divergence(p: Any, q: Any) -> Any:
    """Return the generalised Kullback-Leibler divergence of p from q, as an array of one number.

    It is NaN if an entry of p is negative or NaN. Where p is zero, its gradient treats p as a constant, since the slope
    of p log p is infinite there.
    """
    backend = get_backend(p)
    xp, p, q = backend.xp, backend.as_float(p), backend.as_float(q)
    seen = p != 0
    # a quotient could overflow, and a logarithm of zero would make the gradient NaN
    terms = p * (xp.log(xp.where(seen, p, 1.0)) - xp.log(xp.where(seen, q, 1.0)))
    own = xp.where(seen, p, 0.0) if backend.is_traced(p) else p
    return xp.sum(terms + (q - own))


def square_sum(p: Any, q: Any = None, scale: float = 1.0) -> Any:
    """Return the sum of the squares of (p - q) / scale, or of p / scale, as an array of one number."""
    backend = get_backend(p)
    difference = backend.as_float(p) if q is None else backend.as_float(p) - backend.as_float(q)
    return backend.xp.sum((difference / scale) ** 2)


def relative_error(p: Any, q: Any) -> Any:
    """Return the Frobenius norm of p - q over that of p, as an array of one number; 0 where both are zero."""
    backend = get_backend(p)
    xp, p, q = backend.xp, backend.as_float(p), backend.as_float(q)
    most = xp.maximum(xp.max(p), xp.max(q))
    unit = backend.detach(xp.where(most > 0, most, 1.0))  # squares of entries up to 1 cannot overflow
    residual, norm = xp.sum(((p - q) / unit) ** 2), xp.sum((p / unit) ** 2)
    found = residual / xp.where(norm > 0, norm, xp.astype(residual == 0, norm.dtype))
    # the slope of the root is infinite at 0; the gradient there is set to 0
    return xp.where(found == 0, found, xp.sqrt(xp.where(found == 0, 1.0, found)))


def error_ratio(residual: float, norm: float) -> float:
    """Return the square root of residual / norm; 0 if both are zero."""
    if norm == 0:
        return 0.0 if residual == 0 else math.inf
    return math.sqrt(residual / norm)


def information(p: Any) -> Any:
    """Return the total correlation of p, as an array of one number; NaN if p is zero or contains NaN."""
    xp = get_namespace(p)
    p = p / xp.max(p)  # a sum of entries up to 1 cannot overflow
    total = xp.sum(p)
    found = xp.sum(v_log_v(p / total))
    for mode in range(p.ndim):
        others = tuple(other for other in range(p.ndim) if other != mode)
        found = found - xp.sum(v_log_v((xp.sum(p, axis=others) if others else p) / total))
    return found


def moments(x: Any, unit: float) -> Moments:
    """Return the sums of v log(v / unit) and of v**2 over all entries v."""
    backend = get_backend(x)
    xp, x = backend.xp, backend.as_float(x)
    logs = x * xp.log(xp.where(x > 0, x / unit, 1.0))
    return Moments(float(xp.sum(logs)), float(xp.sum(x * x)))
