r"""Two coordinate systems of positive tensors: natural parameters θ and expectation parameters η.

A tensor is a distribution on its indices, ordered mode by mode, times its total:

.. math:: \log P[i] = \sum_{j \le i} \theta[j], \qquad \eta[i] = \sum_{j \ge i} P[j]

(Section 3.1 of the paper). The first entry of θ carries the scale; the first entry of η is the total. Indices are
counted from 0 here, so that "1" in the paper is 0.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import check_same_home, namespace_of
from tucket.base.partition import Partition, check_partition
from tucket.geometry.checks import (
    Dense,
    check_positive,
    check_real,
    explain_total,
    first_index,
    in_unit,
    number_at,
    precision,
    to_host,
)
from tucket.sources.dense import check_shape_match

__all__ = [
    "Bingos",
    "bingo_indices",
    "bingos",
    "eta",
    "from_eta",
    "from_theta",
    "geodesic",
    "mobius",
    "rises",
    "sums_above",
    "sums_below",
    "theta",
]


def theta(x: Any) -> Dense:
    r"""Return the natural parameters of a positive tensor: differences of its logarithm along every mode.

    Examples
    --------
    >>> theta(np.exp([[0.0, 1.0], [2.0, 4.0]])).round(6)
    array([[0., 1.],
           [2., 1.]])
    """
    tensor = check_positive(x)
    return _all_rises(namespace_of(tensor).log(tensor))


def from_theta(parameters: Any) -> Dense:
    """Return the tensor of natural parameters: the inverse of `theta`."""
    logs = sums_below(check_real(parameters, "theta"))
    xp = namespace_of(logs)
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
    """Return the expectation parameters of a tensor: its sums over all indices from each on, in every mode.

    Examples
    --------
    >>> eta([[1, 2], [3, 4]])
    array([[10.,  6.],
           [ 7.,  4.]])
    """
    tensor = check_positive(x, allow_zero=True)
    xp = namespace_of(tensor)
    with np.errstate(over="ignore"):
        sums = sums_above(tensor)
    if not bool(xp.isfinite(sums[(0,) * sums.ndim])):
        raise explain_total(sums)
    return xp.astype(sums, sums.dtype)  # a copy, that no view remains which runs backwards


def sums_above(values: Any) -> Dense:
    """Sum over all indices from each on, in every mode."""
    xp = namespace_of(values)
    return xp.flip(sums_below(xp.flip(values)))


def sums_below(values: Any) -> Dense:
    """Sum over all indices up to each, in every mode."""
    xp = namespace_of(values)
    for mode in range(values.ndim):
        values = xp.cumulative_sum(values, axis=mode)
    return values


def rises(values: Any, mode: int) -> Dense:
    """Return how much each entry is above the one before it in a mode; the first, above 0."""
    before = (slice(None),) * mode
    first, later, earlier = (values[(*before, part, ...)] for part in (slice(1), slice(1, None), slice(-1)))
    return namespace_of(values).concat([first, later - earlier], axis=mode)


def _all_rises(values: Any) -> Dense:
    for mode in range(values.ndim):
        values = rises(values, mode)
    return values


def from_eta(parameters: Any) -> Dense:
    """Return the tensor of expectation parameters, by Möbius inversion: the inverse of `eta`."""
    sums = check_real(parameters, "eta")
    xp = namespace_of(sums)
    tensor = xp.flip(_all_rises(xp.flip(sums)))
    lost = tensor < xp.max(xp.abs(sums)) * -max(1e-12, 100 * precision(sums))
    if bool(xp.any(lost)):
        where = first_index(lost)
        raise ValueError(
            f"eta: entry {where} of the tensor would be {number_at(tensor, where):.4g}; no tensor has these sums"
        )
    return xp.maximum(tensor, xp.zeros_like(tensor))


def mobius(shape: tuple[int, ...]) -> NDArray[np.float64]:
    r"""Return the Möbius function of the indices of a shape, by its definition.

    Entry [i, j] is that of i and j, in which both are flat: 1 for i = j, and minus the sum over all from i to just
    before j for i < j. With it, :math:`P = \mu \eta` and :math:`\theta = \mu^T \log P`.

    Examples
    --------
    >>> mobius((3,))
    array([[ 1., -1.,  0.],
           [ 0.,  1., -1.],
           [ 0.,  0.,  1.]])
    """
    indices = list(np.ndindex(*shape))
    found = np.eye(len(indices))
    for (a, low), (b, high) in itertools.product(enumerate(indices), repeat=2):
        if a != b and all(i <= j for i, j in zip(low, high)):
            between = (c for c, middle in enumerate(indices) if c != b and _is_between(low, middle, high))
            found[a, b] = 0.0 - sum(found[a, c] for c in between)
    return found


def _is_between(low: tuple[int, ...], middle: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return all(i <= j <= k for i, j, k in zip(low, middle, high))


@dataclass(frozen=True, slots=True)
class Bingos:
    """The bingos of a tensor: for each mode, the indices whose slice is a multiple of the one before.

    `rank_bound` is the Tucker rank that they leave at most: size less bingos, in every mode (Proposition 1).
    """

    rows: tuple[NDArray[np.intp], ...]
    rank_bound: tuple[int, ...]


def bingos(x: Any, tol: float = 1e-9) -> Bingos:
    """Find the bingos: indices i > 0 of a mode where θ is 0 but in the first place of all other modes.

    Examples
    --------
    >>> bingos(np.outer([1, 2, 3], [4, 5]))
    Bingos(rows=(array([1, 2]), array([1])), rank_bound=(1, 1))
    """
    parameters = theta(x)
    xp, rows = namespace_of(parameters), []
    for mode, size in enumerate(parameters.shape):
        many_body = xp.reshape(xp.moveaxis(parameters, mode, 0), (size, -1))[1:, 1:]
        rows.append(1 + np.flatnonzero(to_host(xp.all(xp.abs(many_body) <= tol, axis=1))))
    return Bingos(tuple(rows), tuple(size - len(found) for size, found in zip(parameters.shape, rows)))


def bingo_indices(partition: Partition) -> NDArray[np.bool]:
    """Mark the indices where a partition into blocks of neighbours asks θ to be 0.

    Those that are within a block of some mode, not at its start, and not first in all other modes.

    Examples
    --------
    >>> bingo_indices(Partition.from_starts((3, 2), [[0, 2], [0, 1]]))
    array([[False, False],
           [False,  True],
           [False, False]])
    """
    check_partition(partition)
    indices = np.indices(partition.shape)
    later = (indices > 0).sum(axis=0)
    marked = np.zeros(partition.shape, bool)
    for mode, blocks in enumerate(partition.modes):
        if not blocks.contiguous:
            raise ValueError(f"mode {mode}: the blocks are free; order the indices by block, and give starts")
        within = np.ones(blocks.size, bool)
        within[blocks.starts] = False
        marked |= within[indices[mode]] & (later > (indices[mode] > 0))
    return marked


def geodesic(p: Any, q: Any, t: float, kind: Literal["m", "e"] = "m") -> Dense:
    """Return the point at t on the line from p, t = 0, to q, t = 1: straight in η ("m") or in θ ("e").

    Totals are taken geometrically between on an e-geodesic, as mixtures on an m-geodesic.

    Examples
    --------
    >>> geodesic([1, 4], [4, 1], 0.5)
    array([2.5, 2.5])
    >>> geodesic([0.2, 0.8], [0.8, 0.2], 0.5, "e")
    array([0.5, 0.5])
    """
    check_same_home(p, q, "p", "q")
    first, second = check_positive(p, "p"), check_positive(q, "q")
    check_shape_match(second, tuple(first.shape), "p", "q")
    xp = namespace_of(first)
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
