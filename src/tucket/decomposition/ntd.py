"""Iterative non-negative Tucker decomposition, from coarse to fine."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike

from tucket.backends import NUMPY, get_backend
from tucket.base.axes import check_rank_by_mode, find_mode
from tucket.base.checks import (
    Rank,
    as_index,
    check_dtype,
    check_memory,
    check_shape_match,
    choose,
    explain_keywords,
    is_all,
    listed,
    split_mask,
)
from tucket.base.partition import Partition
from tucket.base.run import PassCounter, ProgressCallback, Run, StepCallback, single_threaded_blas
from tucket.decomposition.course import descend, improve
from tucket.decomposition.data import load_for_passes
from tucket.decomposition.descent import Descent
from tucket.decomposition.fit import Fit
from tucket.decomposition.gaps import decompose_observed
from tucket.decomposition.levels import SKETCH_CELLS, Pyramid, make_pyramid
from tucket.decomposition.losses import FREE, LOSSES, Fixed, Loss, restore
from tucket.decomposition.starts import STARTS, Start
from tucket.kernels.algebra import Parts
from tucket.models.expected import total_of
from tucket.models.model import Model
from tucket.models.statistics import Statistics
from tucket.models.tucker import Tucker
from tucket.projection.held_out import FitRank, choose_rank
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observation, Observed, observe
from tucket.sources.source import Source

FULL_ENTRIES = 1 << 27
"""Largest dense tensor, in entries, that is decomposed down to single indices by default."""

GAP_STARTS = ("auto", "ltr", "random")
"""Starts for tensors with gaps."""

MAX_ITERATIONS = 1000
"""Iterations of each descent, at most, by default."""

TOL = 1e-4
"""Share of the loss that ten iterations must gain together, by default."""

PAPER = {"init": "hosvd", "n_iter_max": 10, "tol": 1e-4, "multilevel": False, "finest": None}
"""Settings of the method that the LTR paper compares with."""


@explain_keywords
def ntd(
    x: Any,
    rank: Rank | Mapping[int | str, SupportsIndex | None] | Literal["cv"] | None = None,
    *,
    loss: Literal["kl", "ls"] | Loss = "kl",
    init: Literal["auto", "ltr", "hosvd", "random"] | Model | tuple[ArrayLike, Sequence[ArrayLike]] = "auto",
    names: Iterable[str] | None = None,
    labels: Mapping[int | str, ArrayLike] | Iterable[ArrayLike | None] | None = None,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    n_iter_max: int = MAX_ITERATIONS,
    tol: float = TOL,
    multilevel: Literal["auto"] | bool = "auto",
    finest: int | Partition | None = None,
    fixed: int | str | Iterable[int | str] = (),
    budget: float | None = None,
    preset: Literal["paper"] | None = None,
    rng: np.random.Generator | int | None = None,
    dtype: DTypeLike = np.float64,
    callback: StepCallback | None = None,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
) -> Fit:
    r"""Decompose a non-negative tensor into a non-negative core and non-negative factors, by iteration.

    `ltr` assigns each index to one block. `ntd` makes each index a mixture of all components of its mode:

    .. math:: Q[i_1, \dots, i_d] = \sum_{j_1 \dots j_d} G[j_1, \dots, j_d] \prod_k A_k[i_k, j_k]

    The iteration begins on a coarse view of the tensor and moves on to finer views. The error of the whole tensor is
    known exactly on every view. Accelerated least squares lower the relative error. Accelerated
    expectation-maximisation lowers the divergence; least squares in the metric of the marginals, which approximate the
    divergence, come first if they help. When the gain becomes small, `ntd` tries other starts on the coarsest level,
    and continues with the best. The loss never rises.

    Parameters
    ----------
    x : array of real numbers, finite and not negative, or a source of them
        Anything that `ltr` reads; it is not changed. An array of torch, JAX, CuPy or another library that follows the
        array API standard stays on its device, and the model holds arrays of the same library. A sparse tensor is
        never made dense: only its entries are read. Files, dask arrays and streams larger than 64 MB are read again
        for every iteration, chunk by chunk; each worker of a dask cluster reduces its own chunks.
    rank : int, or one per mode, each an int or None; or dict; or "cv", optional
        Number of components of each mode; None means one per index. One int for all modes is lowered to the size of a
        mode that has fewer indices. A dict names the modes, as in `{"user": 10, "hour": None}`. "cv" chooses the rank
        that predicts held-out cells best, as `cross_validate` does. Not needed if `init` is a model.
    loss : {"kl", "ls"} or Loss, default "kl"
        The loss to minimise: "kl" is the generalised Kullback-Leibler divergence, "ls" the relative error in the
        Frobenius norm. A `Loss` object is a loss of your own.
    init : {"auto", "ltr", "hosvd", "random"}, model, or (core, factors), default "auto"
        Where to start: from LTR, from the absolute values of the singular vectors, from random numbers, by default
        from the one of these that leads furthest; or from what is given, such as a TensorLy result. The result is
        never worse than a given model. By default, and without a budget, the divergence is at most that of `ltr`, if
        the data are in memory and decomposed down to their single indices.
    names : sequence of str, one per mode, optional
        Names of the modes, for arrays that have none of their own.
    labels : dict from modes to labels, or one sequence of labels or None per mode, optional
        Labels of the indices, for arrays that have none of their own.
    observed : {"all", "finite", "stored"}, Boolean array, or source, default "all"
        Which cells are known, as for `ltr`; for the divergence.
    exposure : array that broadcasts to the shape of `x`, optional
        For what each cell counts, as for `ltr`.
    n_iter_max : int, default 1000
        Maximum iterations of each descent on a level, from one start.
    tol : float, default 1e-4
        Relative tolerance: iterations on the finest level end when the last ten together lower the loss by less than
        this share.
    multilevel : {"auto", True, False}, default "auto"
        Whether to go from coarse to fine. True goes down to single indices, and False begins with them. "auto" is like
        True, but ends on a level of about four million cells if a dense tensor has more than 2**27 entries.
    finest : int or Partition, optional
        The finest level: its maximum number of cells, or its blocks.
    fixed : mode, "core", or sequence of these, default ()
        Parts of the model in `init` that stay unchanged: the factors of some modes, the core, or both.
    budget : float, optional
        Seconds after which to stop and return the best model so far.
    preset : {"paper"}, optional
        "paper" takes what the paper of LTR compares with: multiplicative updates, from the singular vectors, ten
        iterations, a tolerance of 1e-4 of the relative error, or of the divergence over the total.
    rng : None, int or numpy.random.Generator, optional
        Generator or seed for random starts. With None, the starts are the same in every call.
    dtype : float32 or float64, default float64
        Type of the model. All is computed in float64 in any case, where the tensor's library has it; `fit.loss` is
        the loss before the model is rounded to float32.
    callback : callable, optional
        Called with a `Step` after each iteration; its time is part of the budget.
    workers : int, optional
        Threads that may be used; by default as many as the process has processors.
    progress : callable, optional
        Called with a `Progress` after each chunk of each pass over data that are not in memory.

    Returns
    -------
    Fit
        The model, with the record of its iterations.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or rank, blocks, model and shape do not fit each other.
    TypeError
        If `x` is not an array of real numbers, or no rank is given.

    See Also
    --------
    ltr : The closed form, in one pass.
    lra_sntd : Another decomposition that the paper compares LTR with.

    Examples
    --------
    >>> x = np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    >>> fit = ntd(x, 2, loss="ls")
    >>> fit.rank, fit.loss < 0.01, fit.stopped
    ((2, 2), True, 'converged')
    >>> core, factors = fit
    """
    run, passes = Run.of(workers, None, callback, 0 if rng is None else rng, budget), PassCounter(progress)
    source, target = _read(x, names, labels, observed, exposure), check_dtype(dtype)
    goal = loss if isinstance(loss, Loss) else choose(loss, LOSSES, "loss")
    if isinstance(rank, str) and rank == "cv":
        start = init if isinstance(init, str) else "auto"
        rank = choose_rank(source, fit_components(goal, start, n_iter_max), goal.by_mass, run)
    if isinstance(source, Observed):
        _refuse_with_gaps(multilevel=multilevel, finest=finest, fixed=fixed, preset=preset)
        return _fit_observed(source, rank, init, goal, Descent(run, n_iter_max, tol), target)
    if preset is not None:
        init, n_iter_max, tol, multilevel, finest = _check_preset(preset, init, n_iter_max, tol, multilevel, finest)
    given = None if isinstance(init, str) else _check_model(init, source)
    starts = choose(init, STARTS, "init") if isinstance(init, str) else ()
    ranks = _check_ranks(rank, source, given)
    run = run if source.in_memory else replace(run, progress=passes)
    descent = Descent(run, n_iter_max, tol, published=preset is not None)
    last = _check_finest(finest, multilevel, source, ranks)
    kept = _check_fixed(fixed, source, given, last)
    with single_threaded_blas, source.backend.full_precision():
        pyramid = make_pyramid(source, ranks, last, bool(multilevel) and given is None, goal, run, kept)
        parts = _decompose(descent, pyramid, given, starts, ranks)
    model = _finish(parts, pyramid, source, target, descent)
    levels = [level.partition.rank for level in pyramid.levels]
    return Fit(model, descent.steps, descent.stopped, levels, descent.n_iterations, passes.passes)


def _read(x: Any, names: Any, labels: Any, observed: Any, exposure: Any) -> Source | Observed:
    """Return the tensor as it is best read many times, or what is known of it."""
    if isinstance(x, Statistics):
        raise TypeError("x: statistics hold sums alone, and ntd reads the tensor again and again; give the tensor")
    x, observed = split_mask(x, observed)
    if exposure is None and is_all(observed):
        return load_for_passes(as_source(x))._named(names, labels)
    source = as_source(x)._named(names, labels)
    known = observe(source.load_if_small(), observed, exposure)
    return known if isinstance(known, Observed) else load_for_passes(known)


def _refuse_with_gaps(**options: Any) -> None:
    """Refuse options that need the whole tensor."""
    plain = {"multilevel": "auto", "finest": None, "fixed": (), "preset": None}
    for name, value in options.items():
        if not (value is plain[name] or (isinstance(value, str | tuple) and value == plain[name])):
            raise ValueError(f"observed: {name}={value!r} is for tensors without gaps; leave {name} out")


def _fit_observed(known: Observed, rank: Any, init: Any, loss: Loss, descent: Descent, dtype: np.dtype[Any]) -> Fit:
    """Decompose what is known of a tensor."""
    given = None if isinstance(init, str) else _check_model(init, known.x)
    if given is None and init not in GAP_STARTS:
        raise ValueError(f"init: {init!r} is for tensors without gaps; give {listed(GAP_STARTS)}, or a model")
    ranks = _check_ranks(rank, known.x, given)
    with single_threaded_blas:
        parts, levels = decompose_observed(descent, known, init if given is None else given, ranks, loss)
    model = Tucker(*parts, known.x.axes).astype(dtype)._to_backend(known.backend)
    return Fit(model, descent.steps, descent.stopped, levels, descent.n_iterations)


def fit_components(
    loss: str | Loss = "kl", init: str = "auto", n_iter_max: int = MAX_ITERATIONS, tol: float = TOL
) -> FitRank:
    """Return a function that fits a model of some rank to what is known."""
    goal = loss if isinstance(loss, Loss) else choose(loss, LOSSES, "loss")
    start = choose(init, dict.fromkeys(GAP_STARTS, init), "init")

    def fit(train: Observed, rank: tuple[int, ...], run: Run) -> tuple[Tucker, float]:
        descent = Descent(run, n_iter_max, tol)
        with single_threaded_blas:
            parts, _ = decompose_observed(descent, train, start, rank, goal)
        return Tucker._of(*parts), descent.steps[-1].loss / (total_of(train.x, run) if goal.by_mass else 1.0)

    return fit


def _check_fixed(fixed: Any, source: Source, given: Model | None, finest: object) -> Fixed:
    """Return the parts of the model that stay fixed."""
    items = list(fixed) if isinstance(fixed, Iterable) and not isinstance(fixed, str) else [fixed]
    if not items:
        return FREE
    if given is None:
        raise TypeError("fixed: what stays as it is comes from a model; give one as init")
    if finest is not None:
        raise ValueError("fixed: what stays as it is has a value for every index; give multilevel=True and no finest")
    try:
        modes = frozenset(find_mode(item, source.axes, len(source.shape)) for item in items if item != "core")
    except (IndexError, TypeError) as error:
        raise type(error)(f"fixed: {error}; or give 'core'") from None
    if len(modes) == len(source.shape) and "core" in items:
        raise ValueError("fixed: nothing is left to be fitted; leave out a mode or the core")
    return Fixed(modes, "core" in items)


def _decompose(
    descent: Descent, pyramid: Pyramid, given: Tucker | None, starts: Sequence[Start], ranks: tuple[int, ...]
) -> Parts:
    """Return the best model, from some starts or from the user's model; its fixed parts stay as they are."""
    if pyramid.total == 0:
        parts = _nothing(descent, pyramid, ranks)
    elif given is None:
        parts = descend(descent, pyramid, starts, ranks)
    else:
        parts = improve(descent, pyramid, given)
    return parts if given is None else restore(parts, pyramid.whole.restrict(given), pyramid.fixed)


def _nothing(descent: Descent, pyramid: Pyramid, ranks: tuple[int, ...]) -> Parts:
    """Return the model of a tensor of zeros."""
    descent.record(0, 0.0)
    factors = (np.zeros(extent) for extent in zip(pyramid.data.shape, ranks))
    return pyramid.data.place(np.zeros(ranks)), list(map(pyramid.data.place, factors))


def _finish(parts: Parts, pyramid: Pyramid, source: Source, dtype: np.dtype[Any], descent: Descent) -> Tucker:
    """Return the model in the requested dtype, on the device of the tensor."""
    found, data, backend = [parts[0] / pyramid.scale, *parts[1]], pyramid.data, source.backend
    target, widest = backend.widest(dtype), backend.widest(np.dtype(np.float64))
    is_fine = math.isfinite(descent.steps[-1].loss)  # if not, `Tucker` will say why
    if data.backend is not NUMPY and target == widest and is_fine:
        return Tucker._of(*_split(map(backend.from_native, found)), source.axes)
    model = Tucker(*_split(data.backend.to_numpy_all(found)), source.axes)
    return _cast(model, target, pyramid, descent.steps[-1].loss)._to_backend(backend)


def _split(parts: Iterable[Any]) -> tuple[Any, list[Any]]:
    core, *factors = parts
    return core, factors


def _cast(model: Tucker, dtype: np.dtype[Any], pyramid: Pyramid, loss: float) -> Tucker:
    """Convert the model to another dtype, with 0 for values too small for it; refuse if the loss gets worse."""
    if dtype == model.dtype:
        return model
    least = np.finfo(dtype).tiny
    cast = model._with([np.where(part < least, 0.0, part) for part in model.parts]).astype(dtype)
    problem = pyramid.loss.problem(pyramid.whole, pyramid)
    now = pyramid.loss.value(problem.distance(pyramid.whole.restrict(cast)), pyramid.whole, pyramid)
    if now > loss + 1e-3 * pyramid.loss.unit(pyramid):
        raise ValueError(f"dtype: in {dtype} the loss is {now:.3g} instead of {loss:.3g}; keep float64")
    return cast


def _check_preset(preset: str, *given: Any) -> tuple[Any, ...]:
    """Return the settings of a preset; refuse settings that are given in addition."""
    found = choose(preset, {"paper": PAPER}, "preset")
    is_plain = isinstance(given[0], str) and given == ("auto", 1000, 1e-4, "auto", None)
    if not is_plain:
        raise ValueError(f"preset={preset!r} has its own {', '.join(found)}; leave them out")
    return tuple(found.values())


def _check_model(init: Any, source: Source) -> Tucker:
    """Return the model to start from, as NumPy arrays."""
    if not isinstance(init, Iterable):
        raise TypeError(f"init: cannot use {init!r}; give {listed(STARTS)}, a model, or a core and factors")
    try:
        core, factors = init
    except ValueError:
        raise ValueError("init: cannot be unpacked; give a model, or a core and a sequence of factors") from None
    try:
        model = Tucker(_to_numpy(core, "core"), [_to_numpy(each, f"factors[{k}]") for k, each in enumerate(factors)])
    except (TypeError, ValueError) as error:
        raise type(error)(f"init: {error}") from None
    check_shape_match(source, model.shape, "the model of init")
    return model


def _to_numpy(part: Any, name: str) -> Any:
    backend = get_backend(part)
    if backend is NUMPY:
        return part
    backend.check(part, name)
    if backend.is_traced(part):
        raise backend.explain_traced(part, name)
    return backend.to_numpy(part)


def _check_ranks(rank: Any, source: Source, given: Model | None) -> tuple[int, ...]:
    if rank is None:
        if given is None:
            raise TypeError(
                "rank is missing; give an int, or one per mode with None where a mode keeps its size, or 'cv'"
            )
        return given.rank
    ranks = check_rank_by_mode(rank, source.axes, source.shape)
    check_memory(8 * math.prod(ranks), f"rank {ranks}: the core")
    if given is not None and ranks != given.rank:
        raise ValueError(f"rank {ranks} contradicts the model of init, which has {given.rank}; leave rank out")
    return ranks


def _check_finest(finest: object, multilevel: object, source: Source, rank: tuple[int, ...]) -> int | Partition | None:
    """Return the blocks of the finest level, or its cells, or None for single indices."""
    if not (isinstance(multilevel, (bool, np.bool)) or (isinstance(multilevel, str) and multilevel == "auto")):
        raise ValueError(f"multilevel: got {multilevel!r}; give 'auto', True or False")
    if finest is None:
        is_large = source.size > FULL_ENTRIES and not source.sparse
        return SKETCH_CELLS if multilevel == "auto" and is_large else None
    if isinstance(finest, Partition):
        check_shape_match(source, finest.shape, "the partition finest")
        for mode, (cells, r) in enumerate(zip(finest.rank, rank)):
            if cells < r:
                raise ValueError(f"finest: mode {mode} has {cells} blocks for rank {r}; give at least that many")
        check_memory(8 * math.prod(finest.rank), f"finest: its {math.prod(finest.rank):,} cells")
        return finest
    most = as_index(finest)
    if most is None or most < math.prod(rank):
        raise ValueError(f"finest: got {finest!r}; give an int from {math.prod(rank)}, the core's size, or a Partition")
    check_memory(8 * min(most, source.size), f"finest: {most:,} cells")
    return most
