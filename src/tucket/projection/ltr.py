"""LTR: Legendre Tucker rank reduction, from a tensor to its model in one pass."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket.backends.home import check_array, home_of, is_traced
from tucket.base.axes import by_mode
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition, Rank, one_rank_a_mode, single_indices
from tucket.kernels import check_workers
from tucket.models.arrays import deliver
from tucket.models.collect import collect, finest
from tucket.models.making import project_abroad, traced_ltr
from tucket.models.model import check_dtype
from tucket.models.statistics import Statistics
from tucket.models.tucker import BlockTucker
from tucket.projection.information_curve import check_criterion, information_curve
from tucket.projection.plan import Strategy, choose, make_plan
from tucket.projection.search import Limits
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array, check_shape
from tucket.sources.foreign import check_followed
from tucket.sources.source import Report
from tucket.sources.stream import Stream

__all__ = ["ltr"]


Wanted = Rank | Mapping[int | str, SupportsIndex | None] | Literal["mdl"] | None
Given = Strategy | Partition | Iterable[Strategy | Blocks | ArrayLike | None] | Mapping[int | str, Any]


def ltr(
    x: Any,
    rank: Wanted = None,
    *,
    retain: float | None = None,
    max_parameters: int | None = None,
    blocks: Given | None = None,
    variant: Literal["projection", "published"] = "projection",
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    max_sweeps: int = 50,
    max_seconds: float | None = None,
    callback: Callable[[int, float], object] | None = None,
    workers: int | None = None,
    progress: Report | None = None,
) -> BlockTucker:
    r"""Reduce a non-negative tensor to a small non-negative Tucker model, in closed form.

    Every mode is cut into blocks; the model is the tensor's m-projection onto the bingo space of that cut
    (Theorem 1 of the paper), the nearest of all tensors in that space by the Kullback-Leibler divergence:

    .. math:: Q[i_1, \dots, i_d] = G[b_1(i_1), \dots, b_d(i_d)] \prod_k w_k[i_k]

    with the block sums G, the block :math:`b_k(i)` of an index, and its share :math:`w_k[i]` of the
    block's mass. All marginals of the tensor are kept.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or a source, a stream or Statistics
        The tensor, of any number of modes and any layout; it is not changed. Of torch's, JAX's, CuPy's or any array of
        the array API standard the model is an `ArrayBlockTucker`, of the same library and on the same device. Or
        anything else that `collect` reads: sparse, labelled, in files, in a stream, on a cluster. Or statistics of a
        tensor, of which any coarser model follows without the data; a stream is read once for such statistics, as fine
        as memory allows.
    rank : int, or one a mode, each an int or None
        Number of blocks of each mode; None leaves a mode whole. Not needed where `blocks` are given. Modes may be
        called by their names: `{"user": 10, "hour": None}`; those that are left out stay whole.
        "mdl" takes the entries for counts and chooses the rank of least description length.
    retain : float from 0 to 1
        Instead of a rank: the share of the total correlation to keep, with as few parameters as it takes.
    max_parameters : int
        Instead of a rank: how many numbers the model may hold.
    blocks : {"clusters", "segments", "uniform", "random"}, one a mode, or Partition
        How to cut. "clusters", the default, groups indices freely and "segments" cuts into runs of neighbours so
        that the blocks keep the most information, in a few passes over the data. One pass is enough for "uniform",
        blocks of nearly equal size, and "random", whose starts are drawn as Step 1 of the paper does, the default
        of the published variant. Or for each mode one of these, or its blocks: the 0-based indices where they
        start, or `Blocks`, or None to leave the mode whole. Or a `Partition`.
    variant : {"projection", "published"}
        "projection" is the paper's theory. "published" is Algorithm 1 as printed, whose Step 2 replaces each
        slab of a mode by its best rank-1 tensor, which for three modes and more is further from the tensor
        and depends on the order of the modes.
    rng : None, int or numpy.random.Generator
        For "random" blocks, and for the starts of a search, which are always the same without one.
    dtype : float32 or float64
        Of the model. Sums are taken in float64 in any case, on a GPU after those of some thousand neighbours.
    max_sweeps, max_seconds
        When a search for blocks stops with the best so far; by itself it stops when nothing is gained.
    callback
        Called after each sweep of a search with its number and the divergence then.
    workers : int
        How many threads may read the tensor; by default as many as the process has processors.
    progress
        Called with a `Progress` after each chunk of each pass over the data.

    Examples
    --------
    >>> x = np.arange(24).reshape(2, 3, 4)
    >>> model = ltr(x, (2, 2, 2))
    >>> model.rank, model.n_parameters
    ((2, 2, 2), 17)
    >>> round(model.relative_error(x), 3)
    0.062
    >>> np.allclose(model.to_tensor().sum(axis=(0, 1)), x.sum(axis=(0, 1)))
    True
    """
    project = choose(variant, VARIANTS, "variant")
    target = check_dtype(dtype)
    if workers is not None:
        check_workers(workers)
    limits = _check_limits(max_sweeps, max_seconds, callback)
    if blocks is None:
        blocks = "random" if variant == "published" else "clusters"
    if isinstance(x, Stream | Iterator):
        x = _read_stream(x, rank, blocks, workers, progress)
    if is_traced(x):
        return _followed(x, rank, retain, max_parameters, blocks, variant, rng, target)
    data = x if isinstance(x, Statistics) else as_source(x)
    home = None if isinstance(data, Statistics) else data.home
    target = target if home is None else home.nearest(target)
    base = data.partition if isinstance(data, Statistics) else single_indices(data.shape)
    criterion = check_criterion(rank, retain, max_parameters)
    if criterion is None:
        plan = make_plan(blocks, rank, rng, base, data.axes)
    else:
        chosen = criterion(information_curve(data, workers=workers, progress=progress)).partition
        plan = make_plan(blocks, chosen.rank, rng, base, data.axes).starting_at(base.quotient(chosen))
    plain = variant == "projection" and progress is None
    if home is not None and plain and not plan.searches:
        there: Any = project_abroad(data, plan.start, target)
        if there is not None:
            return there  # type: ignore[no-any-return]
    if isinstance(data, Statistics):
        statistics = data.coarsen(base.compose(plan.search(Array(data.core), data, limits, workers)))
    else:
        moments = plan.searches and callback is not None
        statistics = collect(data, plan.start, moments=moments, workers=workers, progress=progress)
        if plan.searches:
            data = data.held()
            found = plan.search(data, statistics, limits, workers, progress)
            statistics = collect(data, found, workers=workers, progress=progress)
    model: BlockTucker = deliver(project(statistics).astype(target), home)
    return model


def _followed(
    x: Any,
    rank: Any,
    retain: object,
    max_parameters: object,
    blocks: Any,
    variant: str,
    rng: Any,
    dtype: np.dtype[Any],
) -> BlockTucker:
    """Reduce an array that is followed for a gradient or a compiled function, whose values are not known yet."""
    home = home_of(x)
    assert home is not None
    check_array(x, "x")
    check_shape(tuple(x.shape), "x")
    check_followed(x, "x")
    chosen = isinstance(rank, str) or retain is not None or max_parameters is not None
    if variant != "projection" or chosen:
        raise ValueError("x is followed for a gradient or a compiled function; give a rank or blocks, and nothing else")
    plan = make_plan(blocks, rank, rng, single_indices(tuple(x.shape)))
    if plan.searches:
        raise ValueError(
            "x is followed for a gradient or a compiled function, and blocks that are searched for depend on its "
            "values; give blocks='uniform' or your own, such as the partition of a model made before"
        )
    return traced_ltr(x, home, plan.start, dtype)  # type: ignore[return-value]


def _read_stream(x: Any, rank: object, blocks: object, workers: int | None, progress: Report | None) -> Statistics:
    """Read a stream once: for the blocks that are given, or else for statistics of which blocks can be made."""
    if isinstance(blocks, Partition):
        return collect(x, blocks, workers=workers, progress=progress)
    statistics = finest(x, workers, progress)
    ranks = by_mode(rank, statistics.axes, len(statistics.shape), None, "rank")
    for mode, (wanted, held) in enumerate(zip(one_rank_a_mode(ranks, statistics.shape), statistics.partition.modes)):
        if wanted is None and not held.is_whole and rank is not None:
            raise ValueError(
                f"mode {mode}: its {held.size} indices are too many to be left whole when a stream is read but once; "
                f"give a rank up to {held.rank}, or collect the stream yourself, with None there"
            )
    return statistics


def _check_limits(
    max_sweeps: int, max_seconds: float | None, callback: Callable[[int, float], object] | None
) -> Limits:
    if isinstance(max_sweeps, bool) or not hasattr(max_sweeps, "__index__") or max_sweeps < 1:
        raise ValueError(f"max_sweeps: got {max_sweeps!r}; give an int from 1")
    if max_seconds is None:
        return Limits(max_sweeps, callback=callback)
    if not max_seconds > 0:
        raise ValueError(f"max_seconds: got {max_seconds!r}; give a number above 0, or None")
    return Limits(max_sweeps, time.monotonic() + max_seconds, callback)


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
    return BlockTucker(core, model.partition, model.weights, model.axes)


def _rank1(array: NDArray[np.float64]) -> NDArray[np.float64]:
    total = array.sum()
    if total == 0:
        return array
    product: NDArray[np.float64] = np.asarray(total)
    axes = set(range(array.ndim))
    for axis in axes:
        product = np.multiply.outer(product, array.sum(axis=tuple(axes - {axis})) / total)
    return product


VARIANTS: Mapping[str, Callable[[Statistics], BlockTucker]] = {
    "projection": Statistics.project,
    "published": _published,
}
