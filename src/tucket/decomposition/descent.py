"""The way of a decomposition: from level to level, and on the finest to the end."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial

from tucket.backends import get_namespace
from tucket.base.run import Run, Step
from tucket.decomposition.levels import Level, Pyramid
from tucket.decomposition.losses import Problem, Update
from tucket.decomposition.starts import STARTS
from tucket.kernels.algebra import Parts, to_mixture
from tucket.models.tucker import Tucker

ROUGH, NEAR = 2e-3, 1e-3
"""Least squares end when they gain less: on a level that is passed through, and before another loss."""

TRIAL_SWEEPS = 6
"""Sweeps after which several starts are compared."""

Begin = Callable[[Level], Parts | None]
"""From a level to a model; None if that would take too long."""

WINDOW = 5
"""Iterations over which a gain is counted: a single one may be small by chance."""


@dataclass(slots=True)
class Descent:
    """What has been done so far, and when to stop.

    Attributes
    ----------
    run : Run
        How to run.
    iterations : int
        Iterations at most, of each kind on each level.
    tolerance : float
        Share of the loss: iterations that gain less are the last.
    published : bool
        Whether to take the published updates, with the published rule for the end.
    steps : list of Step
        The steps after which the loss of the whole tensor is known.
    n_iterations : int
        All iterations.
    stopped : str
        Why the last iterations ended: "converged", "iterations" or "budget".
    """

    run: Run
    iterations: int
    tolerance: float
    published: bool = False
    steps: list[Step] = field(default_factory=list)
    n_iterations: int = 0
    stopped: str = "converged"

    def record(self, level: int, loss: float) -> Step:
        """Record an iteration; the loss is NaN where it is not known."""
        self.n_iterations += 1
        step = self.run.report(self.n_iterations, loss, level)
        if not math.isnan(loss):
            self.steps.append(step)
        return step

    def follow(
        self,
        problem: Problem,
        parts: Parts,
        level: int,
        loss: Callable[[float], float],
        tolerance: float,
        *,
        most: int | None = None,
        is_known: bool = True,
    ) -> tuple[Parts, float]:
        """Lower a distance until iterations gain too little, or there is no more to spend.

        Return the last model, and its distance. The gain is measured by the loss, which may be one that is not to be
        reported.
        """
        updates = problem.published(parts) if self.published else problem.descend(problem.begin(parts))
        core, factors, distance = self._follow(updates, level, loss, tolerance, most or self.iterations, is_known)
        return problem.end((core, factors)), distance

    def _follow(
        self,
        updates: Iterator[Update],
        level: int,
        loss: Callable[[float], float],
        tolerance: float,
        most: int,
        is_known: bool,
    ) -> Update:
        values: list[float] = []
        before = self.run.seconds
        for update in updates:
            values.append(loss(update[2]))
            step = self.record(level, values[-1] if is_known else math.nan)
            cost, before = step.seconds - before, step.seconds
            if not self.run.allows(cost):
                self.stopped = "budget"
            elif self._is_little(values, tolerance):
                self.stopped = "converged"
            elif len(values) >= min(most, self.iterations):
                self.stopped = "iterations"
            else:
                continue
            return update
        raise AssertionError("updates do not end by themselves")

    def _is_little(self, values: list[float], tolerance: float) -> bool:
        """Say whether the last iterations gained too little for another one."""
        if self.published:  # as TensorLy has it: an absolute gain, and three iterations at least
            return len(values) > 2 and values[-2] - values[-1] < tolerance
        if values[-1] == 0 or (len(values) > 1 and values[-1] == values[-2]):
            return True
        before = values[-WINDOW - 1] if len(values) > WINDOW else math.inf
        return before < math.inf and values[-1] >= (1 - tolerance) ** WINDOW * before


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
