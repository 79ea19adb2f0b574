"""Sequential non-negative Tucker decomposition based on low-rank approximation, which the paper compares LTR with."""

from __future__ import annotations

import math
import warnings
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tucket.backends import NUMPY, get_backend
from tucket.base.axes import check_rank_by_mode
from tucket.base.checks import Rank, check_dtype, explain_keywords
from tucket.base.optional import import_optional
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.decomposition.data import ArrayData
from tucket.kernels.algebra import Matrix, unfold
from tucket.kernels.measures import power_of_two
from tucket.kernels.updates import eigenvalue_bound, multiply_by_all, nearest
from tucket.models.statistics import read
from tucket.models.tucker import Tucker
from tucket.sources.as_source import as_dense

CORE_STEPS = 500
"""Maximum number of gradient steps for the core."""


@explain_keywords
def lra_sntd(
    x: ArrayLike,
    rank: Rank,
    *,
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    workers: int | None = None,
) -> Tucker:
    r"""Decompose a non-negative tensor one mode at a time, by non-negative factorisations of its unfoldings.

    For each mode k in turn, the unfolding is replaced by its best approximation of rank :math:`r_k`, from the singular
    value decomposition. This is factorised into a product :math:`A_k H` of non-negative matrices, and H, with
    :math:`r_k` rows, replaces the tensor for the next mode. The core is then fitted to these factors by non-negative
    least squares. The method is that of Zhou, Cichocki & Xie, "Fast nonnegative matrix/tensor factorization based
    on low-rank approximation", IEEE Transactions on Signal Processing 60 (2012). The factorisation is `NMF` of
    scikit-learn with its default settings; scikit-learn must be installed.

    Parameters
    ----------
    x : array of real numbers, finite and not negative
        The tensor. It is copied two or three times, in float64.
    rank : int, or one per mode, each an int or None; or dict
        Number of components of each mode; None for as many as it has indices.
    rng : None, int or numpy.random.Generator, optional
        Generator or seed for scikit-learn. With None, the result is the same in every call.
    dtype : float32 or float64, default float64
        Type of the model.
    workers : int, optional
        Threads that may read the tensor; by default as many as the process has processors.

    Returns
    -------
    Tucker

    Raises
    ------
    ValueError
        If an entry is negative or not finite.
    TypeError
        If `x` is not an array in the memory of the host.

    See Also
    --------
    ntd : Lowers the error further, by iteration.

    Examples
    --------
    >>> x = np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    >>> model = lra_sntd(x, 2)
    >>> model.rank, model.relative_error(x) < 0.05
    ((2, 2), True)
    """
    run, target, source = Run.of(workers, rng=0 if rng is None else rng), check_dtype(dtype), as_dense(x)
    if get_backend(source.array) is not NUMPY:
        raise TypeError(
            f"x is of {source.backend}, and scikit-learn needs a NumPy array; decompose x by tucket.ntd "
            f"where it is, or give an array that NumPy can read, such as x.float().cpu() for a torch tensor"
        )
    tensor, ranks = np.asarray(source.array), check_rank_by_mode(rank, source.axes, source.shape)
    seed = int(run.generator().integers(2**31))
    total = read(source, Partition.uniform(tensor.shape, 1), run).total
    scale = 1 / power_of_two(total / tensor.size, 1000)
    rest, factors = tensor * np.float64(scale), []
    for mode, r in enumerate(ranks):
        factor, right = _factorise(unfold(rest, mode), r, seed)
        factors.append(factor)
        rest = np.moveaxis(right.reshape(r, *np.delete(rest.shape, mode)), 0, mode)
    grams = [factor.T @ factor for factor in factors]
    multiply, bound = partial(multiply_by_all, matrices=grams), math.prod(map(eigenvalue_bound, grams))
    target_core = ArrayData(tensor, scale, run.workers).contract(dict(enumerate(factors)))
    core, _ = nearest(target_core, multiply, bound, rest, CORE_STEPS)
    return Tucker(core / scale, factors, source.axes).astype(target)._to_backend(source.backend)


def _factorise(matrix: Matrix, rank: int, seed: int) -> tuple[Matrix, Matrix]:
    """Return non-negative factors of the low-rank part of a matrix."""
    decomposition = import_optional("sklearn.decomposition", "sklearn", "lra_sntd")
    from sklearn.exceptions import ConvergenceWarning

    if len(matrix) <= matrix.shape[1]:  # singular vectors of the shorter side, from its inner products
        vectors = np.linalg.eigh(matrix @ matrix.T)[1][:, -rank:]
        approximation = np.maximum(vectors @ (vectors.T @ matrix), 0.0)
    else:
        vectors = np.linalg.eigh(matrix.T @ matrix)[1][:, -rank:]
        approximation = np.maximum((matrix @ vectors) @ vectors.T, 0.0)
    # a matrix of lower rank has no use for more components, and scikit-learn's start would divide 0 by 0
    short = approximation if len(matrix) <= matrix.shape[1] else approximation.T
    squares = np.linalg.eigvalsh(short @ short.T)  # of the singular values
    used = max(1, min(rank, int(np.count_nonzero(squares > 1e-13 * squares[-1]))))
    for init in (None, "random"):
        solver = decomposition.NMF(used, init=init, random_state=seed)
        with warnings.catch_warnings(), np.errstate(divide="ignore", invalid="ignore"):
            warnings.simplefilter("ignore", ConvergenceWarning)  # its number of iterations is part of the method
            factor = solver.fit_transform(approximation)
        if np.isfinite(factor).all() and np.isfinite(solver.components_).all():
            break
    empty = rank - used
    return np.pad(factor, ((0, 0), (0, empty))), np.pad(solver.components_, ((0, empty), (0, 0)))
