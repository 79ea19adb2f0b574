"""Non-negative Tucker decomposition by iteration: the lowest error, from LTR, coarse to fine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket.blocks import as_index
from tucket.fit import Fit, Parts, Run, Step
from tucket.kernels.threads import check_workers, without_threads_of_blas
from tucket.levels import FULL, SKETCH, Level, Pyramid, make_pyramid
from tucket.model import Model, check_dtype
from tucket.partition import Partition, Rank, check_rank, check_rng
from tucket.plan import choose, listed
from tucket.sources.dense import as_tensor, check_shape_match
from tucket.starts import STARTS, Start
from tucket.tucker import Tucker
from tucket.updates.data import Matrix
from tucket.updates.divergence import Divergence, to_mixture
from tucket.updates.least_squares import LeastSquares
from tucket.updates.multiplicative import divergence_updates, least_squares_updates

__all__ = ["LOSSES", "check_budget", "ntd"]

ROUGH = 2e-3
"""A sweep of least squares that gains less than this share is the last where another phase follows."""

FLOOR = 1e-3
"""Share of the rank-1 model that every component is mixed with before the divergence, so that no zero is locked."""

LOSSES = ("kl", "ls")


def ntd(
    x: ArrayLike,
    rank: Rank | None = None,
    *,
    loss: Literal["kl", "ls"] = "kl",
    init: Literal["ltr", "hosvd", "random"] | Model | tuple[ArrayLike, Sequence[ArrayLike]] = "ltr",
    n_iter_max: int = 200,
    tol: float = 1e-4,
    multilevel: Literal["auto"] | bool = "auto",
    finest: int | Partition | None = None,
    budget: float | None = None,
    preset: Literal["paper"] | None = None,
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    callback: Callable[[Step], object] | None = None,
    workers: int | None = None,
) -> Fit:
    r"""Decompose a non-negative tensor into a non-negative core and factors of least error, by iteration.

    Where `ltr` gives each index to one block, here every index is a mixture of all components of its mode:

    .. math:: Q[i_1, \dots, i_d] = \sum_{j_1 \dots j_d} G[j_1, \dots, j_d] \prod_k A_k[i_k, j_k]

    It begins with LTR on a coarse view of the tensor, whose error is exactly known for the whole, and goes on to
    ever finer ones. For the relative error it takes accelerated least squares; for the divergence these are taken in
    the metric of the marginals first, which is near it, and then accelerated expectation-maximisation. The loss never
    rises.

    Parameters
    ----------
    x : array of real numbers, finite and not negative
        The tensor, of any number of modes and any layout; it is not changed.
    rank : int, or one a mode, each an int or None
        Number of components of each mode; None for as many as it has indices. Not needed with a model as `init`.
    loss : {"kl", "ls"}
        What is lowered: the generalised Kullback-Leibler divergence, or the Frobenius norm of the difference.
    init : {"ltr", "hosvd", "random"}, or a model, or a core and factors
        Where to start: from LTR, from the absolute values of the singular vectors, from random numbers, or from
        what is given, such as a result of TensorLy's.
    n_iter_max : int
        Iterations at most, on each level of each kind.
    tol : float
        An iteration on the finest level that lowers the loss by less than this share is the last.
    multilevel : {"auto", True, False}
        Whether to go from coarse to fine. "auto" does, and ends on a level of about four million cells if the
        tensor has more than 2**27 entries; True goes down to single indices; False begins with them.
    finest : int or Partition
        How far down to go: at most so many cells, or these blocks.
    budget : float
        Seconds after which to stop with the best so far.
    preset : {"paper"}
        "paper" takes what the paper of LTR compares with: multiplicative updates, from the singular vectors, ten
        iterations, an absolute tolerance of 1e-4. `loss` and `budget` may be given beside it, and nothing else.
    rng : None, int or numpy.random.Generator
        For a random start, which is always the same without one.
    dtype : float32 or float64
        Of the model. All is computed in float64 in any case.
    callback
        Called with every `Step`.
    workers : int
        How many threads to use; by default as many as the process has processors.

    Examples
    --------
    >>> x = np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    >>> fit = ntd(x, 2, loss="ls")
    >>> fit.model.rank, fit.loss < 0.01, fit.stopped
    ((2, 2), True, 'converged')
    >>> core, factors = fit.model
    """
    began = time.perf_counter()
    tensor = as_tensor(x)
    choose(loss, dict.fromkeys(LOSSES), "loss")
    if preset is not None:
        choose(preset, {"paper": None}, "preset")
        if not isinstance(init, str) or (init, n_iter_max, tol, multilevel, finest) != ("ltr", 200, 1e-4, "auto", None):
            raise ValueError(f"preset={preset!r} has its own init, n_iter_max, tol and multilevel; leave them out")
        init, n_iter_max, tol, multilevel = "hosvd", 10, 1e-4, False
    start = _check_start(init, tensor)
    given, target = isinstance(start, Tucker), check_dtype(dtype)
    ranks = _check_ranks(rank, tensor, start.rank if isinstance(start, Tucker) else None)
    run = Run(*_check_limits(n_iter_max, tol, budget), preset is not None, callback, began)
    generator = check_rng(0 if rng is None else rng)
    threads = check_workers(workers)
    last = _check_finest(finest, multilevel, tensor, ranks)
    with without_threads_of_blas():
        pyramid = make_pyramid(tensor, ranks, last, bool(multilevel) and not given, loss == "kl", threads)
        if pyramid.total == 0:
            parts: Parts = (np.zeros(ranks), [np.zeros(extent) for extent in zip(tensor.shape, ranks)])
            run.tell(0, 0.0)
        else:
            first = pyramid.levels[0]
            parts = first.restrict(start) if isinstance(start, Tucker) else start(first.data, ranks, generator)
            parts = _descend(run, pyramid, *parts, loss)
    model = Tucker(parts[0] / pyramid.scale, parts[1])
    levels = tuple(level.partition.rank for level in pyramid.levels)
    return Fit(_cast(model, target), tuple(run.trace), run.stopped, levels)


def _descend(run: Run, pyramid: Pyramid, core: Matrix, factors: list[Matrix], loss: str) -> Parts:
    """Go from level to level, and on the finest to the end, or to that of the time; return a model of the whole."""
    start = core, factors
    for depth, level in enumerate(pyramid.levels):
        if depth:
            factors = pyramid.levels[depth - 1].prolong(factors, level)
        if not (run.is_paper and loss == "kl"):
            is_last = level is pyramid.levels[-1] and loss == "ls"
            core, factors = _squares(run, level, depth, core, factors, loss, run.tolerance if is_last else ROUGH)
        if run.stopped == "budget":
            break
    if loss == "kl":
        core, factors = _divergence(run, pyramid, level, depth, (core, factors), start)
    return to_mixture(core, level.prolong(factors, pyramid.whole))


def _squares(
    run: Run, level: Level, depth: int, core: Matrix, factors: list[Matrix], loss: str, tolerance: float
) -> Parts:
    """Lower the squared distance on one level, in its metric."""
    metric = level.metric
    problem = LeastSquares(level.data, metric)
    whole = problem.norm + level.offset

    def relative_error(distance: float) -> float:
        return math.sqrt((distance + level.offset) / whole) if loss == "ls" else math.nan

    scaled = [factor * weights[:, None] for factor, weights in zip(factors, metric)]
    updates = least_squares_updates(problem, core, scaled) if run.is_paper else problem.descend(core, scaled)
    core, scaled = run.follow(updates, depth, relative_error, tolerance)
    return core, [
        np.divide(factor, weights[:, None], where=weights[:, None] > 0, out=np.zeros_like(factor))
        for factor, weights in zip(scaled, metric)
    ]


def _divergence(run: Run, pyramid: Pyramid, level: Level, depth: int, found: Parts, start: Parts) -> Parts:
    """Lower the divergence on one level, from what least squares found, or from the start if that is nearer."""
    problem, first = Divergence(level.data, pyramid.total), pyramid.levels[0]

    def whole(divergence: float) -> float:
        return (divergence + level.offset) / pyramid.scale

    if run.is_paper:
        return run.follow(
            divergence_updates(problem, *start), depth, whole, run.tolerance * pyramid.total / pyramid.scale
        )
    updates = problem.descend(*_mixed(found, level, pyramid.total))
    reached = next(updates)
    before = Divergence(first.data, pyramid.total).slopes(*_mixed(start, first, pyramid.total))[2] + first.offset
    if before < reached[2] + level.offset:
        again = start[0], first.prolong(start[1], level)
        updates = problem.descend(*_mixed(again, level, pyramid.total))
    else:
        updates = chain([reached], updates)
    return run.follow(updates, depth, whole, run.tolerance)


def _mixed(parts: Parts, level: Level, total: float) -> Parts:
    """Return a mixture of the given total, with a little of the rank-1 model in every component."""
    core, factors = to_mixture(*parts)
    core = (1 - FLOOR) * total / core.sum() * core + FLOOR * total / core.size
    return core, [
        (1 - FLOOR) * factor + FLOOR / total * masses[:, None] for factor, masses in zip(factors, level.measures)
    ]


def _check_start(init: object, tensor: NDArray[Any]) -> Start | Tucker:
    """Return how to start, or the model to start from."""
    if isinstance(init, str):
        return choose(init, STARTS, "init")
    if not isinstance(init, Iterable):
        raise TypeError(f"init: cannot use {init!r}; give {listed(STARTS)}, a model, or a core and factors")
    try:
        core, factors = init
    except ValueError:
        raise ValueError("init: cannot be unpacked; give a model, or a core and a sequence of factors") from None
    try:
        model = Tucker(core, factors)
    except (TypeError, ValueError) as error:
        raise type(error)(f"init: {error}") from None
    check_shape_match(tensor, model.shape, "the model of init")
    if not (model.core.any() and all(factor.any() for factor in model.factors)):
        raise ValueError("init: the model is zero everywhere; give one with some mass")
    return model


def _check_ranks(rank: Rank | None, tensor: NDArray[Any], known: tuple[int, ...] | None) -> tuple[int, ...]:
    if rank is None and known is None:
        raise TypeError("rank is missing; give an int, or one a mode with None where a mode keeps its size")
    ranks = known if rank is None else check_rank(rank, tensor.shape)
    if known is not None and ranks != known:
        raise ValueError(f"rank {ranks} contradicts the model of init, which has {known}; leave rank out")
    assert ranks is not None
    return ranks


def _check_limits(n_iter_max: object, tol: object, budget: object) -> tuple[int, float, float]:
    count = as_index(n_iter_max)
    if count is None or count < 1:
        raise ValueError(f"n_iter_max: got {n_iter_max!r}; give an int from 1")
    if not isinstance(tol, (int, float, np.number)) or isinstance(tol, bool) or not tol >= 0:
        raise ValueError(f"tol: got {tol!r}; give a number from 0")
    return count, float(tol), check_budget(budget)


def check_budget(budget: object) -> float:
    """Return a number of seconds, infinity for None."""
    if budget is None:
        return math.inf
    if not isinstance(budget, (int, float, np.number)) or isinstance(budget, bool) or not budget > 0:
        raise ValueError(f"budget: got {budget!r}; give a number of seconds above 0, or None")
    return float(budget)


def _check_finest(
    finest: object, multilevel: object, tensor: NDArray[Any], rank: tuple[int, ...]
) -> int | Partition | None:
    """Return the blocks of the finest level, or its cells, or None for single indices."""
    if not (multilevel == "auto" or isinstance(multilevel, bool)):
        raise ValueError(f"multilevel: got {multilevel!r}; give 'auto', True or False")
    if finest is None:
        return SKETCH if multilevel == "auto" and tensor.size > FULL else None
    if isinstance(finest, Partition):
        check_shape_match(tensor, finest.shape, "the partition finest")
        for mode, (cells, r) in enumerate(zip(finest.rank, rank)):
            if cells < r:
                raise ValueError(f"finest: mode {mode} has {cells} blocks for rank {r}; give at least that many")
        return finest
    most = as_index(finest)
    if most is None or most < math.prod(rank):
        raise ValueError(f"finest: got {finest!r}; give an int from {math.prod(rank)}, the core's size, or a Partition")
    return most


def _cast(model: Tucker, dtype: np.dtype[Any]) -> Tucker:
    """Return the model in another type, in which what is too small to be told from 0 is 0."""
    if dtype == model.dtype:
        return model
    least = np.finfo(dtype).tiny
    core, *factors = (np.where(part < least, 0.0, part) for part in (model.core, *model.factors))
    return Tucker(core, factors).astype(dtype)
