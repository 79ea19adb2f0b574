"""LTR: Legendre Tucker rank reduction, from a tensor to its model in one pass."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tucket.backends import NUMPY
from tucket.base.axes import by_mode
from tucket.base.checks import (
    Rank,
    check_count,
    check_dtype,
    choose,
    explain_keywords,
    is_all,
    rank_per_mode,
    split_mask,
)
from tucket.base.partition import Partition, single_indices
from tucket.base.run import ProgressCallback, Run, StepCallback, single_threaded_blas
from tucket.models.block_tucker import BlockTucker
from tucket.models.collect import read_finely
from tucket.models.expected import divergence_of_observed, total_of
from tucket.models.statistics import Statistics, read
from tucket.projection.held_out import FitRank, choose_rank
from tucket.projection.information_curve import check_criterion, information_curve
from tucket.projection.observed_search import search_observed
from tucket.projection.plan import BlockChoice, Plan, check_searched, make_plan
from tucket.projection.proportional import project_observed
from tucket.projection.published import project_as_published
from tucket.projection.search import MAX_SWEEPS
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array
from tucket.sources.observed import Observation, Observed, observe
from tucket.sources.source import Source
from tucket.sources.stream import Stream

RankChoice = Rank | Mapping[int | str, SupportsIndex | None] | Literal["mdl", "cv"] | None

VARIANTS: Mapping[str, Callable[[Statistics], BlockTucker]] = {
    "projection": Statistics.project,
    "published": project_as_published,
}


@explain_keywords
def ltr(
    x: Any,
    rank: RankChoice = None,
    *,
    retain: float | None = None,
    max_parameters: int | None = None,
    blocks: BlockChoice | None = None,
    variant: Literal["projection", "published"] = "projection",
    names: Iterable[str] | None = None,
    labels: Mapping[int | str, ArrayLike] | Iterable[ArrayLike | None] | None = None,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    max_sweeps: int = MAX_SWEEPS,
    max_seconds: float | None = None,
    callback: StepCallback | None = None,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
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
        The tensor, of any number of modes and any memory layout; it is not changed. For a torch, JAX or CuPy array, or
        any other that follows the array API standard, the parts of the model are of the same library and on the same
        device. Or anything else that `collect` reads: sparse, labelled, in files, in a stream, on a cluster. Or
        statistics of a tensor: any coarser model follows from them without the data. A stream is read once, for
        statistics as fine as memory allows.
    rank : int, or one per mode, each an int or None; or dict; or "mdl" or "cv", optional
        Number of blocks of each mode; None leaves a mode whole. One int for all modes is lowered to the size of a mode
        that has fewer indices. A dict names the modes, as in `{"user": 10, "hour": None}`, and leaves the others whole.
        "mdl" takes the entries for counts and chooses the rank of least description length. "cv" chooses the rank that
        predicts held-out cells best, as `cross_validate` does. Not needed where `blocks` are given.
    retain : float from 0 to 1, optional
        Instead of a rank: the share of the total correlation to keep, with as few parameters as possible.
    max_parameters : int, optional
        Instead of a rank: how many numbers the model may hold.
    blocks : {"clusters", "segments", "uniform", "random"}, one per mode, dict, or Partition, optional
        How to cut. "clusters", the default, groups indices freely and "segments" cuts into runs of neighbours, so
        that the blocks keep the most information, in a few passes over the data. One pass is enough for "uniform",
        blocks of nearly equal size, and "random", blocks with starts drawn as in Step 1 of the paper, the default
        of the published variant. Or for each mode one of these, or its blocks: the 0-based indices where they
        start, or `Blocks`, or None to leave the mode whole. Or a `Partition`.
    variant : {"projection", "published"}, default "projection"
        "projection" is the paper's theory. "published" is Algorithm 1 as printed: its Step 2 replaces each
        slab of a mode by its best rank-1 tensor, which for three modes and more is further from the tensor
        and depends on the order of the modes.
    names : sequence of str, one per mode, optional
        Names of the modes, for arrays that have none of their own.
    labels : dict from modes to labels, or one sequence of labels or None per mode, optional
        Labels of the indices, for arrays that have none of their own.
    observed : {"all", "finite", "stored"}, Boolean array, or source, default "all"
        Which cells are known. "all" refuses NaN; "finite" takes cells that are NaN or infinite for unknown; "stored",
        for sparse tensors such as ratings, knows the stored entries alone. Or True where a cell is known: an array of
        the shape of `x`, or the entries of a sparse one. What stands in other cells has no influence.
    exposure : array that broadcasts to the shape of `x`, optional
        For what each cell counts, such as the population or the time at risk: the entries are then modelled by the
        exposure times the model, which holds rates. A cell with exposure 0 is not known. With gaps or exposure
        the model is still the one of least divergence for its blocks, found in a few cycles.
    rng : None, int or numpy.random.Generator, optional
        For "random" blocks; a search draws nothing.
    dtype : float32 or float64, default float64
        Type of the model. Sums are taken in float64 in any case; on a GPU, some thousand neighbours are summed in
        float32 before that.
    max_sweeps : int, default 50
        Sweeps of the search for blocks, at most; it stops by itself when nothing is gained.
    max_seconds : float, optional
        Seconds after which the search stops with the best blocks so far.
    callback : callable, optional
        Called with a `Step` after each sweep of a search; its loss is the divergence then.
    workers : int, optional
        Threads that may be used; by default as many as the process has processors.
    progress : callable, optional
        Called with a `Progress` after each chunk of each pass over the data.

    Returns
    -------
    BlockTucker
        The model. Its parts are arrays of the library of `x`, or NumPy arrays.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or rank, blocks and shape do not fit each other.
    TypeError
        If `x` cannot be read as a tensor of real numbers.

    See Also
    --------
    ntd : Iterates to the least error, with every index a mixture of components.
    collect : The one pass over the data alone.
    information_curve : The information that models of every rank keep.

    Examples
    --------
    Seven days of two kinds, and six hours of three:

    >>> days, hours = np.array([1, 1, 1, 1, 1, 9, 9]), np.array([[0, 0, 5, 5, 2, 2], [1, 1, 3, 3, 3, 3]])
    >>> x = np.where(days[:, None] == 1, hours[0], hours[1]) + 1
    >>> model = ltr(x, (2, 3), names=("day", "hour"))
    >>> [block.indices for block in model.blocks("day")]
    [slice(0, 5, None), slice(5, 7, None)]
    >>> model.rank, model.n_parameters, round(model.relative_error(x), 6)
    ((2, 3), 19, 0.0)
    >>> np.allclose(model.to_tensor().sum(axis=0), x.sum(axis=0))
    True
    """
    run = Run.of(workers, progress, callback, rng, max_seconds, "max_seconds")
    project, sweeps = choose(variant, VARIANTS, "variant"), check_count(max_sweeps, "max_sweeps")
    blocks = ("random" if variant == "published" else "clusters") if blocks is None else blocks
    x, observed = split_mask(x, observed)
    data, target = _read(x, rank, blocks, run, names, labels, observed, exposure), check_dtype(dtype)
    if isinstance(rank, str) and rank == "cv" and retain is None and max_parameters is None:
        rank = choose_rank(_check_held_out(data, blocks), fit_blocks(blocks, max_sweeps), True, run)
    if isinstance(data, Observed):
        _refuse_with_gaps(variant, rank, retain, max_parameters)
        plan = make_plan(blocks, rank, rng, single_indices(data.shape), data.x.axes)
        model = project_observed(data, search_observed(data, plan, run, sweeps), run)
        return model.astype(target)._to_backend(data.backend)
    plan = _plan(data, rank, retain, max_parameters, blocks, run)
    if variant == "projection" and progress is None and not (plan.searches or isinstance(data, Statistics)):
        parts = data._project_in_place(plan.start, target)
        if parts is not None:
            return BlockTucker._of(parts[0], plan.start, parts[1:], data.axes)
    model = project(_collect(data, plan, run, sweeps))
    is_done = data.backend is NUMPY and target == model.core.dtype
    return model if is_done else model.astype(target)._to_backend(data.backend)


def _read(
    x: Any, rank: Any, blocks: Any, run: Run, names: Any, labels: Any, observed: Any, exposure: Any
) -> Source | Statistics | Observed:
    """Return the tensor as a source, its statistics, or what is known of it."""
    has_gaps = exposure is not None or not is_all(observed)
    data = _read_stream(x, rank, blocks, run) if isinstance(x, Stream | Iterator) and not has_gaps else x
    if isinstance(data, Statistics):
        data._check_complete("a model")
    else:
        data = as_source(data, allow_traced=True)
    data = data if names is None and labels is None else data._named(names, labels)
    return observe(data, observed, exposure) if has_gaps else data


def fit_blocks(blocks: Any = "clusters", max_sweeps: int = MAX_SWEEPS) -> FitRank:
    """Return a function that fits a block model of some rank to what is known."""

    def fit(train: Observed, rank: tuple[int, ...], run: Run) -> tuple[BlockTucker, float]:
        plan = make_plan(blocks, rank, 0, single_indices(train.shape), train.x.axes)
        with single_threaded_blas:  # the folds share the processors
            model = project_observed(train, search_observed(train, plan, run, max_sweeps), run)
        return model, divergence_of_observed(model, train, run) / total_of(train.x, run)

    return fit


def _check_held_out(known: Any, blocks: Any) -> Source | Observed:
    """Return what cells can be held out of."""
    if not isinstance(known, Source | Observed):
        raise TypeError("rank='cv': statistics have no cells that could be held out; give the tensor")
    axes = known.x.axes if isinstance(known, Observed) else known.axes
    check_searched(blocks, single_indices(known.shape), axes)
    return known


def _refuse_with_gaps(variant: str, rank: Any, retain: Any, max_parameters: Any) -> None:
    """Refuse what is known for whole tensors only."""
    for wanted, name in (
        (variant == "published", "variant='published'"),
        (isinstance(rank, str), f"rank={rank!r}"),
        (retain is not None, "retain"),
        (max_parameters is not None, "max_parameters"),
    ):
        if wanted:
            raise ValueError(f"observed: {name} is for tensors without gaps; give a rank, or your own blocks")


def _plan(data: Source | Statistics, rank: Any, retain: Any, max_parameters: Any, blocks: Any, run: Run) -> Plan:
    """Return the plan for what is asked, with a rank that is chosen from the data if that is asked for."""
    base = data.partition if isinstance(data, Statistics) else single_indices(data.shape)
    if not isinstance(rank, str) and retain is None and max_parameters is None:
        return make_plan(blocks, rank, run.rng, base, data.axes)
    criterion = check_criterion(rank, retain, max_parameters)
    chosen = criterion(information_curve(data, workers=run.workers, progress=run.progress)).partition
    return make_plan(blocks, chosen.rank, run.rng, base, data.axes).starting_at(base.quotient(chosen))


def _collect(data: Source | Statistics, plan: Plan, run: Run, max_sweeps: int) -> Statistics:
    """Search for blocks, if that is asked for, and read the statistics under them."""
    if isinstance(data, Statistics):
        return data.coarsen(data.partition.compose(plan.search(Array(data.core), run, max_sweeps, data)))
    if plan.searches:
        data = data.load_if_small()
    return read(data, plan.search(data, run, max_sweeps), run)


def _read_stream(x: Any, rank: Any, blocks: Any, run: Run) -> Statistics:
    """Read a stream once: under the blocks that are given, or else under blocks fine enough to choose from."""
    if isinstance(blocks, Partition):
        return read(as_source(x, shape=blocks.shape), blocks, run)
    statistics = read_finely(x, run)
    ranks = by_mode(rank, statistics.axes, len(statistics.shape), None, "rank")
    for mode, (wanted, held) in enumerate(zip(rank_per_mode(ranks, statistics.shape), statistics.partition.modes)):
        if wanted is None and not held.is_whole and rank is not None:
            raise ValueError(
                f"mode {mode}: its {held.size} indices are too many to be left whole when a stream is read only once; "
                f"give a rank up to {held.rank}, or collect the stream yourself, with None there"
            )
    return statistics
