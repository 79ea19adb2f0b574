"""Bingos: zeros of θ that bound the Tucker rank of a tensor."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import get_namespace
from tucket.base.partition import Partition, check_partition
from tucket.geometry.checks import to_host
from tucket.geometry.coordinates import theta


@dataclass(frozen=True, slots=True)
class Bingos:
    """The bingos of a tensor, and their bound on its rank.

    Parameters
    ----------
    rows : tuple of ndarray
        For each mode, the indices with a bingo: their slice is a multiple of the slice before.
    rank_bound : tuple of int
        For each mode, the size less the number of bingos. The Tucker rank is at most this (Proposition 1).
    """

    rows: tuple[NDArray[np.intp], ...]
    rank_bound: tuple[int, ...]


def bingos(x: Any, tol: float = 1e-9) -> Bingos:
    """Find the bingos of a positive tensor.

    Index i > 0 of a mode has a bingo if θ is 0 on its slice, except where all other indices are 0.

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.
    tol : float, optional
        The largest absolute value of θ that counts as 0.

    Returns
    -------
    Bingos
        The bingos of each mode, as NumPy arrays.

    Raises
    ------
    ValueError
        If an entry is not positive, or not finite.

    See Also
    --------
    bingo_indices : The zeros of a partition.

    Examples
    --------
    >>> bingos(np.outer([1, 2, 3], [4, 5]))
    Bingos(rows=(array([1, 2]), array([1])), rank_bound=(1, 1))
    """
    parameters = theta(x)
    xp, rows = get_namespace(parameters), []
    for mode, size in enumerate(parameters.shape):
        many_body = xp.reshape(xp.moveaxis(parameters, mode, 0), (size, -1))[1:, 1:]
        rows.append(1 + np.flatnonzero(to_host(xp.all(xp.abs(many_body) <= tol, axis=1))))
    return Bingos(tuple(rows), tuple(size - len(found) for size, found in zip(parameters.shape, rows)))


def bingo_indices(partition: Partition) -> NDArray[np.bool]:
    """Mark the indices where a partition into contiguous blocks asks θ to be 0.

    These are the indices that are not at the start of a block in some mode, and not 0 in all other modes.

    Parameters
    ----------
    partition : Partition
        Contiguous blocks.

    Returns
    -------
    ndarray of bool
        True where θ is 0, with the shape of the partition.

    Raises
    ------
    ValueError
        If the blocks of a mode are not contiguous.

    See Also
    --------
    bingos : Find the zeros of a given tensor.

    Examples
    --------
    >>> bingo_indices(Partition.from_starts((3, 2), [[0, 2], [0, 1]])).astype(int)
    array([[0, 0],
           [0, 1],
           [0, 0]])
    """
    check_partition(partition)
    indices = np.indices(partition.shape)
    later = (indices > 0).sum(axis=0)
    marked = np.zeros(partition.shape, bool)
    for mode, blocks in enumerate(partition.modes):
        if not blocks.contiguous:
            raise ValueError(
                f"mode {mode}: the blocks are not contiguous; order the indices by block, and give the starts of blocks"
            )
        within = np.ones(blocks.size, bool)
        within[blocks.starts] = False
        marked |= within[indices[mode]] & (later > (indices[mode] > 0))
    return marked
