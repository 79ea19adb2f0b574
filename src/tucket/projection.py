"""LTR: Legendre Tucker rank reduction, from a tensor to its model in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Literal, TypeVar

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket.partition import Partition, Rank, check_rank
from tucket.sources.dense import as_tensor
from tucket.statistics import Statistics, collect
from tucket.tucker import BlockTucker

__all__ = ["best_rank1", "ltr"]

Choice = TypeVar("Choice")


def ltr(
    x: ArrayLike | Statistics,
    rank: Rank | None = None,
    *,
    blocks: Literal["uniform", "random"] | Partition | Iterable[ArrayLike | None] = "uniform",
    variant: Literal["projection", "published"] = "projection",
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    workers: int | None = None,
) -> BlockTucker:
    r"""Reduce a non-negative tensor to a small non-negative Tucker model, in one pass and closed form.

    Every mode is cut into blocks; the model is the tensor's m-projection onto the bingo space of that cut
    (Theorem 1 of the paper), the nearest of all tensors in that space by the Kullback-Leibler divergence:

    .. math:: Q[i_1, \dots, i_d] = G[b_1(i_1), \dots, b_d(i_d)] \prod_k w_k[i_k]

    with the block sums G, the block :math:`b_k(i)` of an index, and its share :math:`w_k[i]` of the
    block's mass. All marginals of the tensor are kept.

    Parameters
    ----------
    x : array of real numbers, finite and not negative, or Statistics
        The tensor, of any number of modes and any layout; it is not changed. Or statistics of one, of which
        any coarser model follows without the data.
    rank : int, or one a mode, each an int or None
        Number of blocks of each mode; None leaves a mode whole. Not needed where `blocks` are given.
    blocks : {"uniform", "random"}, Partition, or a list of starts a mode
        How to cut. "uniform" makes blocks of nearly equal size, "random" draws their starts as Step 1 of the
        paper does. Or the user's own: a `Partition`, or for each mode the 0-based indices where its blocks
        start (None: leave it whole).
    variant : {"projection", "published"}
        "projection" is the paper's theory. "published" is Algorithm 1 as printed, whose Step 2 replaces each
        slab of a mode by its best rank-1 tensor, which for three modes and more is further from the tensor
        and depends on the order of the modes.
    rng : None, int or numpy.random.Generator
        For "random" blocks.
    dtype : float32 or float64
        Of the model. Sums are taken in float64 in any case.
    workers : int
        How many threads may read the tensor; by default as many as the process has processors.

    Examples
    --------
    >>> x = np.arange(24).reshape(2, 3, 4)
    >>> model = ltr(x, (2, 2, 2))
    >>> model.rank, model.n_parameters
    ((2, 2, 2), 17)
    >>> round(model.relative_error(x), 3)
    0.059
    >>> np.allclose(model.to_tensor().sum(axis=(0, 1)), x.sum(axis=(0, 1)))
    True
    """
    project = _choose(variant, VARIANTS, "variant")
    if isinstance(x, Statistics):
        statistics = x.coarsen(_coarser(x.partition, blocks, rank, rng))
    else:
        tensor = as_tensor(x)
        statistics = collect(tensor, _partition(blocks, rank, rng, tensor.shape), workers=workers)
    return project(statistics).astype(dtype)


def best_rank1(
    x: ArrayLike | Statistics, *, dtype: DTypeLike = np.float64, workers: int | None = None
) -> BlockTucker:
    r"""Return the rank-1 tensor of least Kullback-Leibler divergence: the product of the marginals.

    .. math:: Q[i_1, \dots, i_d] = S^{1 - d} \prod_k m_k[i_k]

    with the total S, as in Eq. (1) of the paper. It is `ltr` at rank 1.

    Examples
    --------
    >>> best_rank1([[1, 2], [3, 4]]).to_tensor()
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    return ltr(x, 1, dtype=dtype, workers=workers)


STRATEGIES: Mapping[str, Callable[..., Partition]] = {
    "uniform": lambda shape, rank, _: Partition.uniform(shape, rank),
    "random": Partition.random,
}


def _partition(blocks: object, rank: Rank | None, rng: object, shape: tuple[int, ...]) -> Partition:
    """Return the cut that the user asks for."""
    if isinstance(blocks, str):
        make = _choose(blocks, STRATEGIES, "blocks")
        if rank is None:
            raise TypeError(
                "rank is missing; give an int, or one a mode with None where a mode stays whole, "
                "or your own blocks"
            )
        return make(shape, rank, rng)
    if isinstance(blocks, Partition):
        partition = blocks
    elif isinstance(blocks, Iterable):
        partition = Partition.from_starts(shape, blocks)
    else:
        raise TypeError(
            f"blocks: cannot use {blocks!r}; give {_listed(STRATEGIES)}, a Partition, or starts for each mode"
        )
    if rank is not None and check_rank(rank, shape) != partition.rank:
        raise ValueError(
            f"rank {rank} contradicts the given blocks, of rank {partition.rank}; leave rank out"
        )
    return partition


def _coarser(fine: Partition, blocks: object, rank: Rank | None, rng: object) -> Partition:
    """Return the cut that the user asks for; a strategy joins blocks of `fine`."""
    if not isinstance(blocks, str):
        return _partition(blocks, rank, rng, fine.shape)
    try:
        return fine.compose(_partition(blocks, rank, rng, fine.rank))
    except ValueError as error:
        raise ValueError(f"{error} (the statistics hold {fine.rank} blocks)") from None


def _published(statistics: Statistics) -> BlockTucker:
    """Run Algorithm 1 as printed, with the λ of Eq. (1), on the core alone.

    That is enough: the sums over blocks of a best rank-1 tensor are the best rank-1 tensor of the block
    sums, and no step changes a marginal, so the weights end as those of the projection.
    """
    model = statistics.project()
    core = model.core.copy()
    for mode, sizes in enumerate(model.partition.block_sizes):
        slabs = np.moveaxis(core, mode, 0)
        for block in np.flatnonzero(sizes > 1):
            slabs[block] = _rank1(slabs[block])
    return BlockTucker(core, model.partition, model.weights)


def _rank1(array: NDArray[np.float64]) -> NDArray[np.float64]:
    total = array.sum()
    if total == 0:
        return array
    product = total
    axes = set(range(array.ndim))
    for axis in axes:
        product = np.multiply.outer(product, array.sum(axis=tuple(axes - {axis})) / total)
    return np.asarray(product)


VARIANTS: Mapping[str, Callable[[Statistics], BlockTucker]] = {
    "projection": Statistics.project,
    "published": _published,
}


def _choose(name: str, choices: Mapping[str, Choice], argument: str) -> Choice:
    try:
        return choices[name]
    except (KeyError, TypeError):
        raise ValueError(f"{argument}: unknown {name!r}; give one of {_listed(choices)}") from None


def _listed(choices: Iterable[str]) -> str:
    return ", ".join(map(repr, choices))
