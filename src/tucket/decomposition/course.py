"""The course of a decomposition: down the levels, through other starts, to convergence on the finest level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from operator import itemgetter
from typing import Any, NamedTuple

from tucket.backends import get_namespace
from tucket.base.run import Run
from tucket.decomposition.descent import COARSE_PATIENCE, FIRST_PATIENCE, SQUARES_PATIENCE, Descent, Patience
from tucket.decomposition.levels import Pyramid
from tucket.decomposition.starts import LATER_STARTS, STARTS, Start, from_clusters
from tucket.kernels.algebra import Parts, to_mixture
from tucket.models.tucker import Tucker

TRIAL_SWEEPS = 6
"""Sweeps on the coarsest level after which starts are compared."""

EXPLORED_ENTRIES = 1 << 27
"""Maximum number of entries read, over all iterations, to try other starts on the coarsest level."""

LARGE_ENTRIES = 1 << 20
"""Entries of a model from which least squares take much more memory than a tensor with fewer entries."""

MIN_RIVAL_GAIN = 1e-3
"""Minimum relative gain of another start on the coarsest level for it to be followed to the finest level."""

MakeStart = Callable[[], Any]
"""Makes a model of the coarsest level, or returns None where that would take too long."""


class Candidate(NamedTuple):
    """A model on the coarsest level to go down from, and whether least squares come first."""

    parts: Parts
    is_prepared: bool = False


def descend(
    descent: Descent, pyramid: Pyramid, starts: Sequence[Start], rank: tuple[int, ...], *, is_given: bool = False
) -> Parts:
    """Return the best model that the starts lead to within the budget.

    For a good model soon, the start that is best after a few sweeps goes down the levels first. If there are several
    starts, others are tried on the coarsest level afterwards, and the best one is followed to the end. A model that the
    user gives is not softened.
    """
    run, is_free = replace(descent.run, callback=None, rng=descent.run.generator()), len(starts) > 1
    begin: list[MakeStart] = [partial(start, pyramid.levels[0], rank, run) for start in starts]
    if descent.published:
        _run_published(descent, pyramid, begin[0]())
    else:
        clusters = [partial(from_clusters, pyramid.levels[0], rank, run)] if is_free else []
        first = _choose_start(descent, pyramid, begin, clusters, is_given)
        if descent.best is None or not descent.is_late:
            _go_down(descent, pyramid, first, FIRST_PATIENCE if is_free else descent.patience)
        if is_free and not descent.is_late:
            _explore(descent, pyramid, first, rank, run)
    (core, factors), level = descent.found
    return to_mixture(core, level.prolong(factors, pyramid.whole))


def improve(descent: Descent, pyramid: Pyramid, given: Tucker) -> Parts:
    """Continue from a given model; never return a worse one."""
    core, factors = to_mixture(*pyramid.whole.restrict(given))
    if not 0 < float(get_namespace(core).sum(core)) < math.inf:
        raise ValueError("init: the model has no mass, or too much to be summed; give one near the tensor")
    problem = pyramid.loss.problem(pyramid.whole, pyramid)
    before = pyramid.loss.value(problem.distance((core, factors)), pyramid.whole, pyramid)
    if pyramid.levels[-1] is pyramid.whole:
        parts = descend(descent, pyramid, [lambda *_: (core, factors)], given.rank, is_given=True)
    else:  # the finest blocks may not fit the given model, so it is only compared with the result
        parts = descend(descent, pyramid, STARTS["auto"], given.rank)
    if descent.least <= before:
        return parts
    descent.record(descent.steps[-1].level, before)
    return core, factors


def _lower(
    descent: Descent,
    pyramid: Pyramid,
    depth: int,
    parts: Parts,
    patience: Patience,
    *,
    most: int | None = None,
    rival: float = math.inf,
) -> tuple[Parts, float]:
    """Lower the loss on one level, and keep the model if it is the best so far."""
    level, loss = pyramid.levels[depth], pyramid.loss
    value, problem = partial(loss.value, level=level, pyramid=pyramid), loss.problem(level, pyramid)
    found, reached = descent.follow(problem, parts, depth, value, patience, most=most, rival=rival)
    descent.offer(found, level, reached)
    return found, reached


def _may_prepare(pyramid: Pyramid, parts: Parts) -> bool:
    """Say whether least squares may lead the way: not where the model is much larger than what is read."""
    size = sum(math.prod(part.shape) for part in (parts[0], *parts[1]))
    return pyramid.loss.is_prepared and size <= max(LARGE_ENTRIES, pyramid.levels[0].data.entries_per_pass)


def _prepare(
    descent: Descent, pyramid: Pyramid, depth: int, parts: Parts, patience: Patience, most: int | None = None
) -> Parts:
    """Lower the squared distance in the metric of the measure, which approximates the loss."""
    level = pyramid.levels[depth]
    value, problem = level.relative_error, level.squares
    core, factors = descent.follow(problem, parts, depth, value, patience, most=most, is_known=False)[0]
    # the metric is 0 for indices without mass, where fixed factors may have some
    return core, [parts[1][k] if k in pyramid.fixed.modes else factor for k, factor in enumerate(factors)]


def _choose_start(
    descent: Descent, pyramid: Pyramid, starts: Sequence[MakeStart], clusters: Sequence[MakeStart], is_given: bool
) -> Candidate:
    """Return the best of the models that the starts lead to in a few sweeps.

    The first start shows whether least squares help. Where most entries are zero, least squares may raise the loss;
    then the clusters of a full search are a good start.
    """
    parts = starts[0]()
    is_prepared = _may_prepare(pyramid, parts)
    others = list(starts[1:] if len(pyramid.levels) > 1 else ())
    problem = pyramid.loss.problem(pyramid.levels[0], pyramid)
    soften = (lambda parts: parts) if is_given else problem.soften
    if not (is_prepared or others):
        return Candidate(soften(parts))
    tried = []
    if is_prepared:
        before = _offer(descent, pyramid, problem.begin(parts))
        if not descent.run.allows():
            descent.stopped = "budget"
            return Candidate(parts)
        tried = [_try(descent, pyramid, Candidate(parts, is_prepared=True))]
        is_prepared = tried[0][1] < before
        others = others if is_prepared else [*clusters, *others]
    if not is_prepared:
        tried.append(_try(descent, pyramid, Candidate(soften(parts))))
    for start in others:
        parts = None if descent.is_late else start()
        if parts is not None:
            tried.append(_try(descent, pyramid, Candidate(parts if is_prepared else soften(parts), is_prepared)))
    return min(tried, key=itemgetter(1))[0]


def _try(descent: Descent, pyramid: Pyramid, begun: Candidate) -> tuple[Candidate, float]:
    """Go a few sweeps on the coarsest level; return the model, and its loss."""
    if not begun.is_prepared:
        parts, reached = _lower(descent, pyramid, 0, begun.parts, COARSE_PATIENCE, most=TRIAL_SWEEPS)
        return Candidate(parts), reached
    parts = _prepare(descent, pyramid, 0, begun.parts, COARSE_PATIENCE, TRIAL_SWEEPS)
    reached = _offer(descent, pyramid, pyramid.loss.problem(pyramid.levels[0], pyramid).begin(parts))
    return Candidate(parts, is_prepared=True), reached


def _offer(descent: Descent, pyramid: Pyramid, parts: Parts) -> float:
    """Keep a model of the coarsest level if it is the best so far; return its loss."""
    level, loss = pyramid.levels[0], pyramid.loss
    reached = loss.value(loss.problem(level, pyramid).distance(parts), level, pyramid)
    descent.offer(parts, level, reached)
    descent.record(0, descent.least)
    return reached


def _run_published(descent: Descent, pyramid: Pyramid, start: Parts) -> None:
    """Take the published updates on the finest level."""
    level, loss = pyramid.levels[-1], pyramid.loss
    value = partial(loss.value, level=level, pyramid=pyramid)
    descent.tolerance *= loss.unit(pyramid)
    parts, reached = descent.follow(loss.problem(level, pyramid), start, 0, value, descent.patience)
    descent.offer(parts, level, reached)


def _go_down(descent: Descent, pyramid: Pyramid, begun: Candidate, patience: Patience) -> None:
    """Go from the coarsest level to the finest, and lower the loss there.

    If least squares come first, they run on the coarser levels, and the loss itself is lowered only at the end.
    """
    levels, (parts, is_prepared_start) = pyramid.levels, begun
    for depth, level in enumerate(levels):
        if depth:
            parts = parts[0], levels[depth - 1].prolong(parts[1], level)
        # passes over data outside memory are slow, so the level before them is iterated to convergence
        is_last = level is levels[-1] or not levels[depth + 1].data.is_in_memory
        is_prepared = is_prepared_start and (level.data.is_in_memory or depth == 0)
        if is_prepared and not descent.is_late:
            parts = _prepare(descent, pyramid, depth, parts, SQUARES_PATIENCE if is_last else COARSE_PATIENCE)
        if not is_prepared or is_last or descent.is_late:
            parts, _ = _lower(descent, pyramid, depth, parts, patience if is_last else COARSE_PATIENCE)
        if descent.is_late:
            break


def _explore(descent: Descent, pyramid: Pyramid, first: Candidate, rank: tuple[int, ...], run: Run) -> None:
    """Try other starts on the coarsest level, follow a better one to the finest level, and converge there."""
    levels, loss = pyramid.levels, pyramid.loss
    rival = _find_rival(descent, pyramid, first, rank, run)
    if rival is not None and len(levels) > 1 and not descent.is_late:
        _go_down(descent, pyramid, Candidate(rival), FIRST_PATIENCE)
    if loss.by_mass and levels[-1] is pyramid.whole and pyramid.data.is_in_memory and not descent.is_late:
        # nothing worse than LTR is returned
        parts = to_mixture(*from_clusters(pyramid.whole, rank, replace(run, rng=0)))
        problem = loss.problem(pyramid.whole, pyramid)
        descent.offer(parts, pyramid.whole, loss.value(problem.distance(parts), pyramid.whole, pyramid))
    if pyramid.data.is_in_memory and not descent.is_late:
        _restart_softened(descent, pyramid)
    if not descent.is_late:
        _lower(descent, pyramid, len(levels) - 1, _finest(descent, pyramid), descent.patience)


def _finest(descent: Descent, pyramid: Pyramid) -> Parts:
    """Return the best model so far as one of the finest level."""
    (core, factors), level = descent.found
    return core, level.prolong(factors, pyramid.levels[-1])


def _restart_softened(descent: Descent, pyramid: Pyramid) -> None:
    """Descend again from near the best model with its zeros softened, since they may block the descent."""
    found, stopped, least = _finest(descent, pyramid), descent.stopped, descent.least
    softer = pyramid.loss.problem(pyramid.levels[-1], pyramid).soften(found)
    if softer is not found:
        _lower(descent, pyramid, len(pyramid.levels) - 1, softer, FIRST_PATIENCE, rival=least)
        if descent.least == least and not descent.is_late:
            descent.stopped = stopped


def _find_rival(descent: Descent, pyramid: Pyramid, first: Candidate, rank: tuple[int, ...], run: Run) -> Parts | None:
    """Return the best model of other starts on the coarsest level, if it is better there than the first start's."""
    level, loss = pyramid.levels[0], pyramid.loss
    last = descent.n_iterations + EXPLORED_ENTRIES // level.data.entries_per_pass
    if descent.n_iterations == last:
        return None
    if len(pyramid.levels) == 1:
        parts = descent.found[0]
    else:
        parts = _prepare(descent, pyramid, 0, first.parts, SQUARES_PATIENCE) if first.is_prepared else first.parts
    rival, least = None, _lower(descent, pyramid, 0, parts, descent.patience)[1]
    least *= 1 - MIN_RIVAL_GAIN
    for start in LATER_STARTS:
        begun = start(level, rank, run)
        for is_prepared in (False, True):
            if begun is None or descent.is_late or descent.n_iterations >= last:
                break
            if is_prepared and not _may_prepare(pyramid, begun):
                break
            stopped = descent.stopped
            if is_prepared:
                parts = _prepare(descent, pyramid, 0, begun, SQUARES_PATIENCE)
            else:
                parts = loss.problem(level, pyramid).soften(begun)
            parts, reached = _lower(descent, pyramid, 0, parts, descent.patience, rival=least)
            if reached < least:
                rival, least = parts, reached
            elif not descent.is_late:
                descent.stopped = stopped
    return rival
