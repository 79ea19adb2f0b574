r"""Two coordinate systems of positive tensors: natural parameters θ and expectation parameters η.

A tensor is a distribution on its indices, ordered mode by mode, times its total:

.. math:: \log P[i] = \sum_{j \le i} \theta[j], \qquad \eta[i] = \sum_{j \ge i} P[j]

(Section 3.1 of the paper). The first entry of θ carries the scale; the first entry of η is the total. Indices are
counted from 0 here, so that "1" in the paper is 0.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.partition import Partition, check_partition
from tucket.sources.dense import as_tensor, check_shape_match

__all__ = [
    "Bingos",
    "bingo_indices",
    "bingos",
    "eta",
    "from_eta",
    "from_theta",
    "geodesic",
    "mobius",
    "sums_above",
    "sums_below",
    "theta",
]

Dense = NDArray[np.float64]


def theta(x: ArrayLike) -> Dense:
    r"""Return the natural parameters of a positive tensor: differences of its logarithm along every mode.

    Examples
    --------
    >>> theta(np.exp([[0.0, 1.0], [2.0, 4.0]])).round(6)
    array([[0., 1.],
           [2., 1.]])
    """
    logs = np.log(check_positive(x))
    for mode in range(logs.ndim):
        logs = np.diff(logs, axis=mode, prepend=0.0)
    return logs


def from_theta(parameters: ArrayLike) -> Dense:
    """Return the tensor of natural parameters: the inverse of `theta`."""
    logs = sums_below(check_real(parameters, "theta"))
    with np.errstate(over="ignore"):
        tensor = np.exp(logs)
    if not np.isfinite(tensor).all():
        where = first_index(~np.isfinite(tensor))
        raise ValueError(f"theta: entry {where} of the tensor would be exp({logs[where]:.4g}), too large for float64")
    return tensor


def eta(x: ArrayLike) -> Dense:
    """Return the expectation parameters of a tensor: its sums over all indices from each on, in every mode.

    Examples
    --------
    >>> eta([[1, 2], [3, 4]])
    array([[10.,  6.],
           [ 7.,  4.]])
    """
    sums = check_positive(x, allow_zero=True)
    with np.errstate(over="ignore"):
        sums = sums_above(sums)
    if not np.isfinite(sums.flat[0]):
        raise ValueError("x: its total is too large for float64; scale it down")
    return np.ascontiguousarray(sums)


def sums_above(values: Dense) -> Dense:
    """Sum over all indices from each on, in every mode."""
    for mode in range(values.ndim):
        values = np.flip(np.flip(values, mode).cumsum(axis=mode), mode)
    return values


def sums_below(values: Dense) -> Dense:
    """Sum over all indices up to each, in every mode."""
    for mode in range(values.ndim):
        values = values.cumsum(axis=mode)
    return values


def from_eta(parameters: ArrayLike) -> Dense:
    """Return the tensor of expectation parameters, by Möbius inversion: the inverse of `eta`."""
    tensor = check_real(parameters, "eta")
    size = float(np.abs(tensor).max())
    for mode in range(tensor.ndim):
        tensor = -np.diff(tensor, axis=mode, append=0.0)
    lost = tensor < -1e-12 * size
    if lost.any():
        where = first_index(lost)
        raise ValueError(f"eta: entry {where} of the tensor would be {tensor[where]:.4g}; no tensor has these sums")
    return np.maximum(tensor, 0.0)


def mobius(shape: tuple[int, ...]) -> Dense:
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


def bingos(x: ArrayLike, tol: float = 1e-9) -> Bingos:
    """Find the bingos: indices i > 0 of a mode where θ is 0 but in the first place of all other modes.

    Examples
    --------
    >>> bingos(np.outer([1, 2, 3], [4, 5]))
    Bingos(rows=(array([1, 2]), array([1])), rank_bound=(1, 1))
    """
    parameters = theta(x)
    rows = []
    for mode, size in enumerate(parameters.shape):
        many_body = np.moveaxis(parameters, mode, 0).reshape(size, -1)[1:, 1:]
        rows.append(1 + np.flatnonzero(np.abs(many_body).max(axis=1, initial=0.0) <= tol))
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


def geodesic(p: ArrayLike, q: ArrayLike, t: float, kind: Literal["m", "e"] = "m") -> Dense:
    """Return the point at t on the line from p, t = 0, to q, t = 1: straight in η ("m") or in θ ("e").

    Totals are taken geometrically between on an e-geodesic, as mixtures on an m-geodesic.

    Examples
    --------
    >>> geodesic([1, 4], [4, 1], 0.5)
    array([2.5, 2.5])
    >>> geodesic([0.2, 0.8], [0.8, 0.2], 0.5, "e")
    array([0.5, 0.5])
    """
    first, second = check_positive(p, "p"), check_positive(q, "q")
    check_shape_match(second, first.shape, "p", "q")
    if kind == "m":
        point = (1 - t) * first + t * second
        if point.min() <= 0:
            raise ValueError(
                f"t: got {t}, where the m-geodesic has left the positive tensors; give one nearer to [0, 1]"
            )
        return np.asarray(point)
    if kind != "e":
        raise ValueError(f"kind: unknown {kind!r}; give 'm' or 'e'")
    totals = np.log(first.sum()), np.log(second.sum())
    logs = (1 - t) * (np.log(first) - totals[0]) + t * (np.log(second) - totals[1])
    point = np.exp(logs - logs.max())
    return np.asarray(point / point.sum() * np.exp((1 - t) * totals[0] + t * totals[1]))


def check_positive(x: ArrayLike, name: str = "x", allow_zero: bool = False) -> Dense:
    """Return a tensor in float64, of which every entry is positive."""
    tensor = as_tensor(x, name).astype(np.float64)
    bad = ~(np.isfinite(tensor) & ((tensor >= 0) if allow_zero else (tensor > 0)))
    if bad.any():
        where = first_index(bad)
        least = "not negative" if allow_zero else "positive, since its logarithm is taken"
        raise ValueError(f"{name}{list(where)} is {tensor[where]}; every entry must be finite and {least}")
    return tensor


def check_real(values: ArrayLike, name: str) -> Dense:
    """Return parameters in float64, all finite."""
    array = as_tensor(values, name).astype(np.float64)
    if not np.isfinite(array).all():
        where = first_index(~np.isfinite(array))
        raise ValueError(f"{name}{list(where)} is {array[where]}; give finite numbers")
    return array


def first_index(marked: NDArray[Any]) -> tuple[int, ...]:
    """Return the first marked index."""
    return tuple(int(i) for i in np.unravel_index(int(np.argmax(marked)), marked.shape))
