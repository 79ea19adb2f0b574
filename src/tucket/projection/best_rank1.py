"""The best rank-1 approximation: the product of the marginals."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tucket.models.block_tucker import BlockTucker
from tucket.projection.ltr import ltr
from tucket.sources.observed import Observation


def best_rank1(
    x: Any,
    *,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    dtype: DTypeLike = np.float64,
    workers: int | None = None,
) -> BlockTucker:
    r"""Return the rank-1 tensor of least Kullback-Leibler divergence: the product of the marginals.

    .. math:: Q[i_1, \dots, i_d] = S^{1 - d} \prod_k m_k[i_k]

    with the total S, as in Eq. (1) of the paper; of a tensor with gaps, the nearest to what is known. It is `ltr` at
    rank 1.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or any other data that `ltr` takes
        The tensor.
    observed : {"all", "finite", "stored"}, Boolean array, or source, default "all"
        Which cells are known, as for `ltr`.
    exposure : array that broadcasts to the shape of `x`, optional
        For what each cell counts, as for `ltr`.
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
    return ltr(x, 1, blocks="uniform", observed=observed, exposure=exposure, dtype=dtype, workers=workers)
