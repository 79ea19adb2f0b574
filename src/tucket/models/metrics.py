"""How far one non-negative tensor is from another, and how much information its modes hold about each other."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from tucket import kernels
from tucket.backends import check_same_backend, get_backend
from tucket.base.checks import check_shape_match
from tucket.base.partition import Partition
from tucket.kernels import array_api, measures
from tucket.sources.as_source import as_array
from tucket.sources.dense import Array, check_values, explain_values
from tucket.sources.reductions import is_finite

__all__ = ["kl", "relative_error", "total_correlation"]

SMALL_ENTRIES = 1 << 20
"""Entries up to which a tensor is measured as a whole, in float64."""


def kl(p: Any, q: Any) -> Any:
    r"""Return the generalised Kullback-Leibler divergence, in nats, not divided by the total.

    .. math:: D(P; Q) = \sum_i P_i \log \frac{P_i}{Q_i} - P_i + Q_i

    An entry with P = 0 adds Q; one with P > 0 and Q = 0 makes the divergence infinite.

    Parameters
    ----------
    p, q : arrays of non-negative numbers, of the same shape, library and device
        The tensor, and what approximates it.

    Returns
    -------
    float
        Or an array of one number, where an array requires a gradient or is inside of a compiled function.

    Raises
    ------
    ValueError
        If shapes, libraries or devices differ, or an entry is negative or not finite.

    See Also
    --------
    relative_error : The difference as a share of the norm.
    BlockTucker.kl : The divergence from a model, without the model's tensor.

    Examples
    --------
    >>> kl([1, 0, 2], [1, 0.5, 2])
    0.5
    >>> kl([1, 1], [2, 0])
    inf
    """
    first, second = _pair(p, q)
    if first.is_traced or second.is_traced:
        return measures.divergence(first.given, second.given)
    return max(0.0, array_api.divergence(first.array, lambda box: second.array[box])[0])


def relative_error(p: Any, q: Any) -> Any:
    r"""Return the Frobenius norm of the difference, divided by that of the first tensor.

    .. math:: \lVert P - Q \rVert_F / \lVert P \rVert_F

    Parameters
    ----------
    p, q : arrays of non-negative numbers, of the same shape, library and device
        The tensor, and what approximates it.

    Returns
    -------
    float
        Or an array of one number, where an array requires a gradient or is inside of a compiled function.

    Raises
    ------
    ValueError
        If shapes, libraries or devices differ, or an entry is negative or not finite.

    See Also
    --------
    kl : The Kullback-Leibler divergence.

    Examples
    --------
    >>> relative_error([3, 4], [3, 3])
    0.2
    """
    first, second = _pair(p, q)
    if first.is_traced or second.is_traced:
        return measures.relative_error(first.given, second.given)
    scale = measures.power_of_two(max(map(array_api.largest, (first.array, second.array))))
    residual, norm, _ = array_api.misfit(first.array, lambda box: second.array[box], scale)
    return measures.error_ratio(residual, norm)


def total_correlation(p: Any) -> float:
    r"""Return the information, in nats, that the modes hold about each other.

    .. math:: TC(P) = \sum_k H(m_k / S) - H(P / S)

    with the marginals :math:`m_k`, the total S and the entropy H. It is the divergence of the
    normalised tensor from its best rank-1 approximation; 0 for a zero tensor.

    Parameters
    ----------
    p : array of non-negative numbers
        The tensor.

    Returns
    -------
    float

    Raises
    ------
    ValueError
        If an entry is negative or not finite.

    See Also
    --------
    tucket.information_curve : The information that models of every rank keep.

    Examples
    --------
    >>> total_correlation([[1, 0], [0, 1]]) == math.log(2)
    True
    """
    tensor = as_array(p, "p").array
    backend = get_backend(tensor)
    if math.prod(tensor.shape) <= SMALL_ENTRIES and (backend.has_float64):
        check_values(tensor, "p")
        with np.errstate(all="ignore"):  # of a zero tensor
            found = float(measures.information(backend.as_float(tensor)))
        return max(0.0, found) if math.isfinite(found) else 0.0
    return _of_large(tensor)


def _of_large(tensor: Any) -> float:
    """Return the total correlation of a large tensor, in one pass."""
    unit = measures.power_of_two(array_api.largest(tensor))
    sums = kernels.block_sums(tensor, Partition.uniform(tuple(tensor.shape), 1), unit)
    if sums.has_negative or not is_finite(sums) or sums.moments is None:
        raise explain_values(tensor, "p")
    total = float(sums.core.sum())
    if total == 0:
        return 0.0
    apart = sum(float(measures.v_log_v(marginal / total).sum()) for marginal in sums.marginals)
    return max(0.0, sums.moments.v_log_v / total - math.log(total / unit) - apart)


def _pair(p: Any, q: Any) -> tuple[Array, Array]:
    """Return two tensors of the same shape, library and device, with checked values."""
    check_same_backend(p, q, "p", "q")
    first, second = as_array(p, "p", allow_traced=True), as_array(q, "q", allow_traced=True)
    check_shape_match(second, first.shape, "p", "q")
    if first.is_traced or second.is_traced:
        return first, second
    for source, name in ((first, "p"), (second, "q")):
        check_values(source.array, name)
    return first, second
