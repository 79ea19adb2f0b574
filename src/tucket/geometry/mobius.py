"""The Möbius function of the indices of a tensor, which connects a tensor with its coordinates."""

from __future__ import annotations

import itertools

import numpy as np
from numpy.typing import NDArray


def mobius(shape: tuple[int, ...]) -> NDArray[np.float64]:
    r"""Return the Möbius function μ of the indices of a tensor, by its definition.

    Row and column are flat indices i and j. The entry is 1 for i = j. For i < j it is minus the sum of the entries
    [i, k] with :math:`i \le k < j`. All others are 0. Then :math:`P = \mu \eta` and :math:`\theta = \mu^T \log P`.

    Parameters
    ----------
    shape : tuple of int
        The shape of the tensor.

    Returns
    -------
    ndarray of float64
        A square matrix with one row per entry of the tensor.

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
    indices = list(np.ndindex(*shape))
    found = np.eye(len(indices))
    for (a, low), (b, high) in itertools.product(enumerate(indices), repeat=2):
        if a != b and all(i <= j for i, j in zip(low, high)):
            between = (c for c, middle in enumerate(indices) if c != b and _is_between(low, middle, high))
            found[a, b] = 0.0 - sum(found[a, c] for c in between)
    return found


def _is_between(low: tuple[int, ...], middle: tuple[int, ...], high: tuple[int, ...]) -> bool:
    return all(i <= j <= k for i, j, k in zip(low, middle, high))
