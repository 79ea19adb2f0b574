"""How far one non-negative tensor is from another, and how much its modes know of each other."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.backends.home import Home, check_array, check_same_home, explain_followed, home_of, is_traced, on_host
from tucket.base.boxes import slabs
from tucket.base.partition import Partition
from tucket.kernels import foreign, pure
from tucket.sources.dense import as_tensor, check_shape, check_shape_match, check_values
from tucket.sources.foreign import check_followed, explain_foreign

__all__ = ["error_ratio", "kl", "kl_sum", "relative_error", "square_sum", "total_correlation"]


def kl(p: Any, q: Any) -> Any:
    r"""Generalised Kullback-Leibler divergence, in nats, not divided by the total.

    .. math:: D(P; Q) = \sum_i P_i \log \frac{P_i}{Q_i} - P_i + Q_i

    An entry with P = 0 adds Q; one with P > 0 and Q = 0 makes the divergence infinite. A float; or, of arrays that
    their library follows for a gradient or a compiled function, an array of one number.

    Examples
    --------
    >>> kl([1, 0, 2], [1, 0.5, 2])
    0.5
    >>> kl([1, 1], [2, 0])
    inf
    """
    if is_traced(p) or is_traced(q):
        return pure.divergence(*_followed_pair(p, q))
    if _is_abroad(p=p, q=q):
        return max(0.0, foreign.divergence(*_pair_abroad(p, q))[0])
    first, second = _pair(p, q)
    return max(0.0, sum(kl_sum(first[slab], second[slab]) for slab in slabs(first.shape)))


def relative_error(p: Any, q: Any) -> Any:
    r"""Frobenius norm of the difference, divided by that of the first tensor.

    .. math:: \lVert P - Q \rVert_F / \lVert P \rVert_F

    Examples
    --------
    >>> relative_error([3, 4], [3, 3])
    0.2
    """
    if is_traced(p) or is_traced(q):
        return pure.relative_error(*_followed_pair(p, q))
    if _is_abroad(p=p, q=q):
        there, part_of = _pair_abroad(p, q)
        residual, norm, _ = foreign.misfit(there, part_of, _unit(max(foreign.largest(there), foreign.largest(q))))
        return error_ratio(residual, norm)
    first, second = _pair(p, q)
    scale = max(float(first.max()), float(second.max()))
    boxes = list(slabs(first.shape))
    return error_ratio(
        sum(square_sum(first[box], second[box], scale) for box in boxes),
        sum(square_sum(first[box], 0, scale) for box in boxes),
    )


def total_correlation(p: Any) -> float:
    r"""Information, in nats, that the modes hold about each other.

    .. math:: TC(P) = \sum_k H(m_k / S) - H(P / S)

    with the marginals :math:`m_k`, the total S and the entropy H. It is the divergence of the
    normalised tensor from its best rank-1 approximation; 0 for a zero tensor.

    Examples
    --------
    >>> total_correlation([[1, 0], [0, 1]]) == math.log(2)
    True
    """
    if is_traced(p):
        raise explain_followed(p, "p")
    if _is_abroad(p=p):
        return _total_correlation_abroad(p)
    tensor = check_values(_as_tensor(p, "p"), "p")
    axes = set(range(tensor.ndim))
    top = float(tensor.max()) or 1.0  # a sum of entries up to 1 cannot overflow
    marginals = [np.zeros(size) for size in tensor.shape]
    for slab in slabs(tensor.shape):
        part = np.divide(tensor[slab], top, dtype=np.float64)
        for mode, marginal in enumerate(marginals):
            marginal[slab[mode]] += part.sum(axis=tuple(axes - {mode}))
    total = marginals[0].sum()
    if total == 0:
        return 0.0
    joint = sum(_entropy(np.divide(tensor[slab], top, dtype=np.float64) / total) for slab in slabs(tensor.shape))
    return max(0.0, sum(_entropy(marginal / total) for marginal in marginals) - joint)


def kl_sum(p: NDArray[Any], q: NDArray[Any]) -> float:
    """Sum the terms of the divergence over two checked arrays."""
    p, q = p.astype(np.float64, copy=False), q.astype(np.float64, copy=False)
    seen = p > 0
    with np.errstate(divide="ignore", over="ignore"):
        # a difference of logarithms, since a quotient may overflow
        log_ratio = np.log(p, where=seen, out=np.zeros_like(p)) - np.log(q, where=seen, out=np.zeros_like(q))
        return float((p * log_ratio - p + q).sum())


def square_sum(p: NDArray[Any], q: NDArray[Any] | float, scale: float) -> float:
    """Sum the squares of (p - q) / scale over two checked arrays."""
    with np.errstate(over="ignore"):
        difference = (p.astype(np.float64, copy=False) - q) / (scale or 1.0)
        return float(np.square(difference).sum())


def error_ratio(residual: float, norm: float) -> float:
    """Return the root of a quotient of sums of squares; nothing lost of nothing is 0."""
    if norm == 0:
        return 0.0 if residual == 0 else math.inf
    return math.sqrt(residual / norm)


def _entropy(p: NDArray[np.float64]) -> float:
    return -float((p * np.log(p, where=p > 0, out=np.zeros_like(p))).sum())


def _is_abroad(**arrays: Any) -> bool:
    """Say whether an array is of another library, whose numbers must be real, and not in the memory of the host."""
    for name, array in arrays.items():
        if home_of(array) is not None:
            check_array(array, name)
    return any(home_of(array) is not None and on_host(array) is None for array in arrays.values())


def _unit(largest: float) -> float:
    """Return a power of two of the size of the largest entry, as far as it has an inverse."""
    return 2.0 ** max(-1022, round(math.log2(largest))) if 0 < largest < math.inf else 1.0


def _total_correlation_abroad(p: Any) -> float:
    shape, home = tuple(p.shape), home_of(p)
    check_shape(shape, "p")
    if home is not None and math.prod(shape) <= foreign.SLAB and p.dtype == getattr(home.xp, "float64", None):
        with np.errstate(all="ignore"):  # where the library is NumPy in disguise
            found, least = map(float, foreign.bring(pure.total_correlation(home, p)))
        if least >= 0 and math.isfinite(found):
            return max(0.0, found)
    unit = _unit(foreign.largest(p))
    sums = foreign.block_sums(p, Partition.uniform(shape, 1), unit)
    if sums.has_negative or not sums.is_finite() or sums.moments is None:
        raise explain_foreign(p, [0] * len(shape), "p")
    total = float(sums.core.sum())
    if total == 0:
        return 0.0
    joint = math.log(total / unit) - sums.moments.v_log_v / total
    return max(0.0, sum(_entropy(marginal / total) for marginal in sums.marginals) - joint)


def _pair_abroad(p: Any, q: Any) -> tuple[Any, Callable[[Any], Any]]:
    """Return the first of two arrays that are in the same place, and what gives a part of the second."""
    _check_pair(p, q)
    for array, name in ((p, "p"), (q, "q")):
        if not foreign.is_fine(array):
            raise explain_foreign(array, [0] * len(array.shape), name)
    return p, lambda box: q[box]


def _followed_pair(p: Any, q: Any) -> tuple[Home, Any, Any]:
    """Return two arrays of one library, of which one at least is followed, and where they are."""
    _check_pair(p, q)
    home = home_of(p)
    assert home is not None
    for array, name in ((p, "p"), (q, "q")):
        check_array(array, name)
        check_followed(array, name)
    return home, p, q


def _check_pair(p: Any, q: Any) -> None:
    check_same_home(p, q, "p", "q")
    check_shape(tuple(p.shape), "p")
    check_shape_match(q, tuple(p.shape), "p", "q")


def _as_tensor(x: Any, name: str) -> NDArray[Any]:
    """Return an array in the memory of the host, of whatever library, as one of NumPy's."""
    array = None if home_of(x) is None else on_host(x)
    return as_tensor(x if array is None else array, name)


def _pair(p: ArrayLike, q: ArrayLike) -> tuple[NDArray[Any], NDArray[Any]]:
    first, second = _as_tensor(p, "p"), _as_tensor(q, "q")
    check_shape_match(second, first.shape, "p", "q")
    return check_values(first, "p"), check_values(second, "q")
