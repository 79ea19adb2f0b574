"""The best rank-1 approximation: the product of the marginals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from tucket.models.block_tucker import BlockTucker
from tucket.projection.ltr import ltr


def best_rank1(x: Any, *, dtype: DTypeLike = np.float64, workers: int | None = None) -> BlockTucker:
    r"""Return the rank-1 tensor of least Kullback-Leibler divergence: the product of the marginals.

    .. math:: Q[i_1, \dots, i_d] = S^{1 - d} \prod_k m_k[i_k]

    with the total S, as in Eq. (1) of the paper. It is `ltr` at rank 1.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or any other data that `ltr` takes
        The tensor.
    dtype : float32 or float64, default float64
        Type of the model.
    workers : int, optional
        Threads that may read; by default as many as the process has processors.

    Returns
    -------
    BlockTucker

    Raises
    ------
    ValueError
        If an entry is negative or not finite.

    See Also
    --------
    ltr : The same at any rank.

    Examples
    --------
    >>> best_rank1([[1, 2], [3, 4]]).to_tensor()
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    return ltr(x, 1, blocks="uniform", dtype=dtype, workers=workers)
