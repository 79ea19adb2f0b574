"""From level to level, and on the finest to the end: the way of a decomposition."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from tucket.backends import get_namespace
from tucket.decomposition.descent import Descent
from tucket.decomposition.levels import Level, Pyramid
from tucket.decomposition.starts import STARTS
from tucket.kernels.algebra import Parts, to_mixture
from tucket.models.tucker import Tucker

ROUGH, NEAR = 2e-3, 1e-3
"""Least squares end when they gain less: on a level that is passed through, and before another loss."""

TRIAL_SWEEPS = 6
"""Sweeps after which several starts are compared."""

Begin = Callable[[Level], Parts | None]
"""From a level to a model; None if that would take too long."""


def descend(descent: Descent, pyramid: Pyramid, starts: Sequence[Begin]) -> Parts:
    """Go from level to level, and on the finest to the end, or until the time is over; return a model of the whole."""
    level, depth, loss = pyramid.levels[0], 0, pyramid.loss
    start = parts = _choose_start(descent, pyramid, starts)
    for depth, level in enumerate(pyramid.levels):
        if depth:
            parts = parts[0], pyramid.levels[depth - 1].prolong(parts[1], level)
        if descent.stopped == "budget":
            break
        if not (loss.is_prepared and descent.published):
            parts, _ = _sweep(descent, pyramid, depth, parts)
    if loss.is_prepared:
        parts = _finish(descent, pyramid, depth, parts, start)
    return to_mixture(parts[0], level.prolong(parts[1], pyramid.whole))


def improve(descent: Descent, pyramid: Pyramid, given: Tucker) -> Parts:
    """Go on from a given model; never return a worse model."""
    core, factors = to_mixture(*pyramid.whole.restrict(given))
    if not 0 < float(get_namespace(core).sum(core)) < math.inf:
        raise ValueError("init: the model has no mass, or too much to be summed; give one near the tensor")
    problem = pyramid.loss.problem(pyramid.whole, pyramid)
    before = pyramid.loss.value(problem.distance((core, factors)), pyramid.whole, pyramid)
    starts: list[Begin] = [lambda _: (core, factors)]
    if pyramid.levels[-1] is not pyramid.whole:
        # blocks that need not be those of the model: it is only what the result is compared with
        rng = descent.run.generator()
        starts = [partial(start, rank=given.rank, rng=rng) for start in STARTS["auto"]]
    parts = descend(descent, pyramid, starts)
    if descent.steps[-1].loss <= before:
        return parts
    descent.record(descent.steps[-1].level, before)
    return core, factors


def _sweep(
    descent: Descent, pyramid: Pyramid, depth: int, parts: Parts, most: int | None = None
) -> tuple[Parts, float]:
    """Lower the loss on one level, or the squares that prepare for it; return also the value reached."""
    level, loss = pyramid.levels[depth], pyramid.loss
    is_last = level is pyramid.levels[-1] and most is None
    if loss.is_prepared:
        tolerance, value = NEAR if is_last else ROUGH, level.relative_error
    else:
        tolerance = descent.tolerance if is_last else ROUGH
        value = partial(loss.value, level=level, pyramid=pyramid)
    problem = level.squares if loss.is_prepared else loss.problem(level, pyramid)
    parts, distance = descent.follow(problem, parts, depth, value, tolerance, most=most, is_known=not loss.is_prepared)
    return parts, value(distance)


def _choose_start(descent: Descent, pyramid: Pyramid, starts: Sequence[Begin]) -> Parts:
    """Return the start or, of several, the model that comes nearest in a few sweeps."""
    level, loss = pyramid.levels[0], pyramid.loss
    problem = loss.problem(level, pyramid) if loss.is_prepared else None
    best, least = None, math.inf
    for start in starts:
        parts = start(level)
        if len(starts) == 1 and parts is not None:
            return parts
        if parts is None or descent.stopped == "budget":
            continue
        parts, reached = _sweep(descent, pyramid, 0, parts, TRIAL_SWEEPS)
        if problem is not None:
            reached = loss.value(problem.distance(problem.begin(parts)), level, pyramid)
        if best is None or reached < least:
            best, least = parts, reached
    assert best is not None
    descent.record(0, least)
    return best


def _finish(descent: Descent, pyramid: Pyramid, depth: int, found: Parts, start: Parts) -> Parts:
    """Lower a prepared loss on one level, from what least squares found, or from the start if that is nearer."""
    level, first, loss = pyramid.levels[depth], pyramid.levels[0], pyramid.loss
    problem, value = loss.problem(level, pyramid), partial(loss.value, level=level, pyramid=pyramid)
    if descent.published:
        return descent.follow(problem, start, depth, value, descent.tolerance * loss.unit(pyramid))[0]
    if found is not start:
        coarse = loss.problem(first, pyramid)
        before = loss.value(coarse.distance(coarse.begin(start)), first, pyramid)
        if before < value(problem.distance(problem.begin(found))):
            found = start[0], first.prolong(start[1], level)
    return descent.follow(problem, found, depth, value, descent.tolerance)[0]
