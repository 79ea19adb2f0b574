"""Non-negative Tucker decomposition by iteration: the lowest error, from LTR, coarse to fine."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import nullcontext
from functools import partial
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tucket.backends.home import namespace_of
from tucket.base.blocks import as_index
from tucket.base.partition import Partition, Rank, check_rank, check_rng
from tucket.base.threads import check_workers, without_threads_of_blas
from tucket.decomposition.data.device import FarData
from tucket.decomposition.fit import Fit, Run, Step
from tucket.decomposition.levels import FULL, SKETCH, Level, Pyramid, make_pyramid
from tucket.decomposition.losses.kl import Divergence, to_mixture
from tucket.decomposition.losses.published import divergence_updates, least_squares_updates
from tucket.decomposition.starts import STARTS
from tucket.kernels.algebra import Parts, share
from tucket.models.arrays import ArrayTucker, deliver, here
from tucket.models.making import hand_over
from tucket.models.model import Model, check_dtype
from tucket.models.tucker import Tucker
from tucket.projection.plan import choose, listed
from tucket.sources.as_source import as_dense
from tucket.sources.dense import check_shape_match
from tucket.sources.source import Source

__all__ = ["LOSSES", "check_budget", "ntd"]

ROUGH, NEAR = 2e-3, 1e-3
"""Least squares end when they gain less: on a level that is passed through, and before the divergence."""

TRIAL = 6
"""Sweeps after which several starts are compared."""

FLOOR = 1e-3
"""Share of the rank-1 model that every component is mixed with before the divergence, so that no zero is locked."""

LOSSES = ("kl", "ls")

Begin = Callable[[Level], Any]  # from a level to a model; None if that would take too long


def ntd(
    x: ArrayLike,
    rank: Rank | None = None,
    *,
    loss: Literal["kl", "ls"] = "kl",
    init: Literal["auto", "ltr", "hosvd", "random"] | Model | Fit | tuple[ArrayLike, Sequence[ArrayLike]] = "auto",
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

    It begins on a coarse view of the tensor, whose error is exactly known for the whole, and goes on to ever finer
    ones. For the relative error it takes accelerated least squares; for the divergence these are taken in
    the metric of the marginals first, which is near it, and then accelerated expectation-maximisation. The loss never
    rises.

    Parameters
    ----------
    x : array of real numbers, finite and not negative
        The tensor, of any number of modes and any layout; it is not changed. One of torch's, JAX's, CuPy's or of any
        library that follows the array API standard stays where it is, and the model is of that library.
    rank : int, or one a mode, each an int or None
        Number of components of each mode; None for as many as it has indices. Not needed with a model as `init`.
    loss : {"kl", "ls"}
        What is lowered: the generalised Kullback-Leibler divergence, or the Frobenius norm of the difference.
    init : {"auto", "ltr", "hosvd", "random"}, or a model, or a core and factors
        Where to start: from LTR, from the absolute values of the singular vectors, from random numbers, by default
        from which of these, where it costs little, leads furthest in a few sweeps; or from what is given, such as a
        result of TensorLy's, than which nothing worse is returned.
    n_iter_max : int
        Iterations at most, on each level of each kind.
    tol : float
        When iterations on the finest level lower the loss by less than this share each, they end.
    multilevel : {"auto", True, False}
        Whether to go from coarse to fine. "auto" does, and ends on a level of about four million cells if the
        tensor has more than 2**27 entries; True goes down to single indices; False begins with them.
    finest : int or Partition
        How far down to go: at most so many cells, or these blocks.
    budget : float
        Seconds after which to stop with the best so far.
    preset : {"paper"}
        "paper" takes what the paper of LTR compares with: multiplicative updates, from the singular vectors, ten
        iterations, a tolerance of 1e-4 of the relative error, or of the divergence over the total.
    rng : None, int or numpy.random.Generator
        For a random start, which is always the same without one.
    dtype : float32 or float64
        Of the model. All is computed in float64 in any case, where the tensor's library has it.
    callback
        Called with every `Step`; its time is part of the budget.
    workers : int
        How many threads of the host to use; by default as many as the process has processors.

    Examples
    --------
    >>> x = np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    >>> fit = ntd(x, 2, loss="ls")
    >>> fit.model.rank, fit.loss < 0.01, fit.stopped
    ((2, 2), True, 'converged')
    >>> core, factors = fit.model
    """
    began = time.perf_counter()
    source = as_dense(x)
    tensor, axes, home = source.array, source.axes, source.home
    choose(loss, dict.fromkeys(LOSSES), "loss")
    if preset is not None:
        choose(preset, {"paper": None}, "preset")
        told = (init, n_iter_max, tol, multilevel, finest) if isinstance(init, str) else ()
        if told != ("auto", 200, 1e-4, "auto", None):
            raise ValueError(f"preset={preset!r} has its own init, n_iter_max, tol and multilevel; leave them out")
        init, n_iter_max, tol, multilevel = "hosvd", 10, 1e-4, False
    given = None if isinstance(init, str) else _check_model(init, source)
    starts = choose(init, STARTS, "init") if isinstance(init, str) else ()
    ranks = _check_ranks(rank, source.shape, given.rank if given else None)
    run = Run(*_check_limits(n_iter_max, tol, budget), preset is not None, callback, began)
    generator, threads, target = check_rng(0 if rng is None else rng), check_workers(workers), check_dtype(dtype)
    target = target if home is None else home.nearest(target)
    last = _check_finest(finest, multilevel, source, ranks)
    with without_threads_of_blas, home.exact() if home else nullcontext():
        pyramid = make_pyramid(tensor, ranks, last, bool(multilevel) and given is None, loss == "kl", threads)
        if pyramid.total == 0:
            run.tell(0, 0.0)
            nothing = [np.zeros(ranks), *(np.zeros(extent) for extent in zip(source.shape, ranks))]
            core, *factors = map(pyramid.data.take, nothing)
            parts: Parts = (core, factors)
        elif given is None:
            parts = _descend(run, pyramid, [partial(start, rank=ranks, rng=generator) for start in starts], loss)
        else:
            parts = _improve(run, pyramid, given, generator, loss)
    levels = tuple(level.partition.rank for level in pyramid.levels)
    found = [parts[0] / pyramid.scale, *parts[1]]
    is_fine = math.isfinite(run.trace[-1].loss)  # if not, `Tucker` will say why
    widest = home is not None and target == home.nearest(np.dtype(np.float64))
    if home is not None and isinstance(pyramid.data, FarData) and widest and is_fine:
        core, *factors = hand_over(found, home)
        there: Any = ArrayTucker(core, tuple(factors), axes)
        return Fit(there, tuple(run.trace), run.stopped, levels)
    core, *factors = pyramid.data.bring(found)
    model = _cast(Tucker(core, factors, axes), target, run, tensor, loss, pyramid.total / pyramid.scale)
    return Fit(deliver(model, home), tuple(run.trace), run.stopped, levels)


def _improve(run: Run, pyramid: Pyramid, given: Tucker, rng: np.random.Generator, loss: str) -> Parts:
    """Go on from a given model, and return nothing worse than it."""
    core, factors = to_mixture(*pyramid.whole.restrict(given))
    if not 0 < float(namespace_of(core).sum(core)) < math.inf:
        raise ValueError("init: the model has no mass, or too much to be summed; give one near the tensor")
    if loss == "kl":
        *_, divergence = Divergence(pyramid.whole.data, pyramid.total).slopes(core, factors)
        before = divergence / pyramid.scale
    else:
        squares = pyramid.whole.squares
        before = math.sqrt(squares.distance(core, factors) / squares.norm)
    if pyramid.levels[-1] is pyramid.whole:
        starts: list[Begin] = [lambda _: (core, factors)]
    else:  # blocks that need not be those of the model: it is only what the result is measured by
        starts = [partial(start, rank=given.rank, rng=rng) for start in STARTS["auto"]]
    parts = _descend(run, pyramid, starts, loss)
    if run.trace[-1].loss <= before:
        return parts
    run.tell(run.trace[-1].level, before)
    return core, factors


def _descend(run: Run, pyramid: Pyramid, starts: Sequence[Begin], loss: str) -> Parts:
    """Go from level to level, and on the finest to the end, or to that of the time; return a model of the whole."""
    level, depth = pyramid.levels[0], 0
    start = parts = _choose_start(run, pyramid, starts, loss)
    for depth, level in enumerate(pyramid.levels):
        if depth:
            parts = parts[0], pyramid.levels[depth - 1].prolong(parts[1], level)
        if run.stopped == "budget":
            break
        if not (run.is_paper and loss == "kl"):
            tolerance = ROUGH if level is not pyramid.levels[-1] else NEAR if loss == "kl" else run.tolerance
            parts, _ = _squares(run, level, depth, parts, loss == "ls", tolerance)
    if loss == "kl":
        parts = _divergence(run, pyramid, level, depth, parts, start)
    return to_mixture(parts[0], level.prolong(parts[1], pyramid.whole))


def _choose_start(run: Run, pyramid: Pyramid, starts: Sequence[Begin], loss: str) -> Parts:
    """Return the start, or, of several, where that leads which comes nearest in a few sweeps."""
    level = pyramid.levels[0]
    first, *others = starts
    if not others:
        parts: Parts = first(level)
        return parts

    def loss_of(parts: Parts, error: float) -> float:
        if loss == "ls":
            return error
        return Divergence(level.data, pyramid.total).slopes(*_mixed(parts, level, pyramid.total))[2]

    best, error = _squares(run, level, 0, first(level), loss == "ls", ROUGH, TRIAL)
    if run.stopped == "budget":
        return best
    least = loss_of(best, error)
    for other in others:
        if run.stopped == "budget":
            break
        if (other_parts := other(level)) is not None:
            found, error = _squares(run, level, 0, other_parts, False, ROUGH, TRIAL)
            error = loss_of(found, error)
            if error < least:
                least, best = error, found
    run.tell(0, least if loss == "ls" else (least + level.offset) / pyramid.scale)
    return best


def _squares(
    run: Run, level: Level, depth: int, parts: Parts, is_loss: bool, tolerance: float, most: int | None = None
) -> tuple[Parts, float]:
    """Lower the squared distance on one level, in its metric; return also the relative error, of the whole tensor."""
    problem, metric = level.squares, level.metric
    whole = problem.norm + level.offset_of_squares

    def relative_error(distance: float) -> float:
        return math.sqrt((distance + level.offset_of_squares) / whole)

    scaled = [factor * weights[:, None] for factor, weights in zip(parts[1], metric)]
    updates = least_squares_updates(problem, parts[0], scaled) if run.is_paper else problem.descend(parts[0], scaled)
    core, scaled, distance = run.follow(updates, depth, relative_error, tolerance, most, is_loss)
    factors = [factor * root[:, None] for factor, root in zip(scaled, level.roots)]
    return (core, factors), relative_error(distance)


def _divergence(run: Run, pyramid: Pyramid, level: Level, depth: int, found: Parts, start: Parts) -> Parts:
    """Lower the divergence on one level, from what least squares found, or from the start if that is nearer."""
    problem, first = Divergence(level.data, pyramid.total), pyramid.levels[0]

    def whole(divergence: float) -> float:
        return (divergence + level.offset) / pyramid.scale

    if run.is_paper:
        tolerance = run.tolerance * pyramid.total / pyramid.scale
        return run.follow(divergence_updates(problem, *start), depth, whole, tolerance)[:2]
    updates = problem.descend(*_mixed(found, level, pyramid.total))
    if found is start:
        return run.follow(updates, depth, whole, run.tolerance)[:2]
    reached = next(updates)
    before = Divergence(first.data, pyramid.total).slopes(*_mixed(start, first, pyramid.total))[2] + first.offset
    if before < reached[2] + level.offset:
        again = start[0], first.prolong(start[1], level)
        updates = problem.descend(*_mixed(again, level, pyramid.total))
    else:
        updates = chain([reached], updates)
    return run.follow(updates, depth, whole, run.tolerance)[:2]


def _mixed(parts: Parts, level: Level, total: float) -> Parts:
    """Return a mixture of the given total, with a little of the rank-1 model in every component."""
    core, factors = to_mixture(*parts)
    mass = namespace_of(core).sum(core)
    core = share((1 - FLOOR) * total * core, mass) + FLOOR * total / math.prod(core.shape)
    return core, [
        (1 - FLOOR) * factor + FLOOR / total * masses[:, None] for factor, masses in zip(factors, level.measures)
    ]


def _check_model(init: object, source: Source) -> Tucker:
    """Return the model to start from."""
    if isinstance(init, Fit):
        init = init.model
    init = here(init)
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
    check_shape_match(source, model.shape, "the model of init")
    return model


def _check_ranks(rank: Rank | None, shape: tuple[int, ...], known: tuple[int, ...] | None) -> tuple[int, ...]:
    if rank is None and known is None:
        raise TypeError("rank is missing; give an int, or one a mode with None where a mode keeps its size")
    ranks = known if rank is None else check_rank(rank, shape)
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


def _check_finest(finest: object, multilevel: object, source: Source, rank: tuple[int, ...]) -> int | Partition | None:
    """Return the blocks of the finest level, or its cells, or None for single indices."""
    if not (isinstance(multilevel, (bool, np.bool)) or (isinstance(multilevel, str) and multilevel == "auto")):
        raise ValueError(f"multilevel: got {multilevel!r}; give 'auto', True or False")
    if finest is None:
        return SKETCH if multilevel == "auto" and source.size > FULL else None
    if isinstance(finest, Partition):
        check_shape_match(source, finest.shape, "the partition finest")
        for mode, (cells, r) in enumerate(zip(finest.rank, rank)):
            if cells < r:
                raise ValueError(f"finest: mode {mode} has {cells} blocks for rank {r}; give at least that many")
        return finest
    most = as_index(finest)
    if most is None or most < math.prod(rank):
        raise ValueError(f"finest: got {finest!r}; give an int from {math.prod(rank)}, the core's size, or a Partition")
    return most


def _cast(model: Tucker, dtype: np.dtype[Any], run: Run, tensor: Any, loss: str, total: float) -> Tucker:
    """Return the model in another type, in which what is too small to be told from 0 is 0, if that costs nothing."""
    if dtype == model.dtype:
        return model
    least = np.finfo(dtype).tiny
    core, *factors = (np.where(part < least, 0.0, part) for part in (model.core, *model.factors))
    cast = Tucker(core, factors).astype(dtype)
    now = cast.kl(tensor) if loss == "kl" else cast.relative_error(tensor)
    if now > run.trace[-1].loss + 1e-3 * (total if loss == "kl" else 1):
        raise ValueError(f"dtype: in {dtype} the loss is {now:.3g} instead of {run.trace[-1].loss:.3g}; keep float64")
    return cast
