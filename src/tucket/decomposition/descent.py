"""The way of a decomposition: down the levels, past other starts, and to the end on the finest level."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import NamedTuple

from tucket.backends import get_namespace
from tucket.base.run import Run, Step
from tucket.decomposition.levels import Level, Pyramid
from tucket.decomposition.losses import Problem
from tucket.decomposition.starts import OTHERS, STARTS, Start, from_clusters
from tucket.kernels.algebra import Parts, to_mixture
from tucket.models.tucker import Tucker

TRIAL_SWEEPS = 6
"""Sweeps of a coarse level after which starts are compared: few, beside those of finer levels."""

EXPLORED_ENTRIES = 1 << 27
"""Entries that are read, again and again, to try other starts on the coarsest level."""

BEHIND = 5
"""Windows of iterations within which another start must be able to catch up, or it is given up."""

BETTER = 1e-3
"""Share of the loss by which another start must be better on the coarsest level to be followed to the finest."""


class Patience(NamedTuple):
    """Iterations end when the last few, a window, lower the loss by less than a share of it."""

    gain: float
    window: int

    def is_over(self, values: Sequence[float]) -> bool:
        """Say whether there is little left to gain."""
        if values[-1] == 0 or (len(values) > 1 and values[-1] == values[-2]):
            return True
        before = values[-1 - self.window] if len(values) > self.window else math.inf
        return before < math.inf and values[-1] >= (1 - self.gain) * before


ROUGH, NEAR, FIRST = Patience(1e-2, 5), Patience(5e-3, 5), Patience(5e-4, 5)
"""For least squares on a level that is passed through, and before another loss; and before other starts are tried."""

WINDOW = 10
"""Iterations over which the gain is counted in the end: fewer may gain little by chance."""


@dataclass(slots=True)
class Descent:
    """What has been done so far, the best model, and when to stop.

    Attributes
    ----------
    run : Run
        How to run.
    iterations : int
        Maximum iterations of each kind per level.
    tolerance : float
        Share of the loss: a window of iterations that gains less is the last.
    published : bool
        Whether to take the published updates, with the published rule for the end.
    steps : list of Step
        The steps after which the loss of the whole tensor is known.
    n_iterations : int
        All iterations.
    stopped : str
        Why the iterations ended that led to the best model: "converged", "iterations" or "budget".
    best : model, optional
        The best model so far, with the level that it is of.
    least : float
        Its loss.
    """

    run: Run
    iterations: int
    tolerance: float
    published: bool = False
    steps: list[Step] = field(default_factory=list)
    n_iterations: int = 0
    stopped: str = "converged"
    best: tuple[Parts, Level] | None = None
    least: float = math.inf

    @property
    def patience(self) -> Patience:
        """When to end on the finest level."""
        return Patience(self.tolerance, WINDOW)

    @property
    def found(self) -> tuple[Parts, Level]:
        """The best model so far, with its level; there is one after the first descent."""
        assert self.best is not None
        return self.best

    @property
    def is_late(self) -> bool:
        """Whether the time is over."""
        return self.stopped == "budget"

    def record(self, level: int, loss: float) -> Step:
        """Record an iteration, with the least loss so far; it is NaN as long as none is known."""
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
        patience: Patience,
        *,
        most: int | None = None,
        is_known: bool = True,
        rival: float = math.inf,
    ) -> tuple[Parts, float]:
        """Lower a distance until iterations gain too little, or there is no more to spend, or a rival is too far ahead.

        Return the last model, and its loss. The gain is measured by the loss, which may be one that is not to be
        reported.
        """
        updates = problem.published(parts) if self.published else problem.descend(problem.begin(parts))
        limit, values, before = min(most or self.iterations, self.iterations), [], self.run.seconds
        for core, factors, distance in updates:
            values.append(loss(distance))
            step = self.record(level, min(values[-1], self.least) if is_known else math.nan)
            cost, before = step.seconds - before, step.seconds
            if not self.run.allows(cost):
                self.stopped = "budget"
            elif self._is_published_end(values) if self.published else patience.is_over(values):
                self.stopped = "converged"
            elif len(values) >= limit:
                self.stopped = "iterations"
            elif not _may_reach(rival, values):
                self.stopped = "converged"
            else:
                continue
            return problem.end((core, factors)), values[-1]
        raise AssertionError("updates do not end by themselves")

    def _is_published_end(self, values: Sequence[float]) -> bool:
        """Stop as TensorLy does: by an absolute gain, after three iterations at least."""
        return len(values) > 2 and values[-2] - values[-1] < self.tolerance

    def offer(self, parts: Parts, level: Level, loss: float) -> None:
        """Keep a model if it is the best so far."""
        if self.best is None or loss < self.least:
            self.best, self.least = (parts, level), loss


def _may_reach(rival: float, values: Sequence[float]) -> bool:
    """Say whether a few more windows that gain as much as the last one would lead below a rival."""
    return len(values) <= WINDOW or values[-1] - BEHIND * (values[-1 - WINDOW] - values[-1]) < rival


def descend(descent: Descent, pyramid: Pyramid, starts: Sequence[Start], rank: tuple[int, ...]) -> Parts:
    """Return the best model of the whole that the starts lead to, or that is found before the time is over.

    The first good model comes soon: from the start that leads furthest in a few sweeps, down the levels. If there was
    a choice, other starts are tried then, on the coarsest level, and the best is followed to the end.
    """
    run = replace(descent.run, callback=None, rng=descent.run.generator())
    first = _choose_start(descent, pyramid, [partial(start, rank=rank, run=run) for start in starts])
    if descent.published:
        _publish(descent, pyramid, first)
    else:
        is_free = len(starts) > 1
        _go_down(descent, pyramid, first, FIRST if is_free else descent.patience)
        if is_free and not descent.is_late:
            _explore(descent, pyramid, first, rank, run)
    (core, factors), level = descent.found
    return to_mixture(core, level.prolong(factors, pyramid.whole))


def improve(descent: Descent, pyramid: Pyramid, given: Tucker) -> Parts:
    """Go on from a given model; never return a worse model."""
    core, factors = to_mixture(*pyramid.whole.restrict(given))
    if not 0 < float(get_namespace(core).sum(core)) < math.inf:
        raise ValueError("init: the model has no mass, or too much to be summed; give one near the tensor")
    problem = pyramid.loss.problem(pyramid.whole, pyramid)
    before = pyramid.loss.value(problem.distance((core, factors)), pyramid.whole, pyramid)
    starts: Sequence[Start] = [lambda *_, **__: (core, factors)]
    if pyramid.levels[-1] is not pyramid.whole:
        starts = STARTS["auto"]  # the blocks need not be those of the model: it is only compared with the result
    parts = descend(descent, pyramid, starts, given.rank)
    if descent.least <= before:
        return parts
    descent.record(descent.steps[-1].level, before)
    return core, factors


def _lower(
    descent: Descent, pyramid: Pyramid, depth: int, parts: Parts, patience: Patience, rival: float = math.inf
) -> tuple[Parts, float]:
    """Lower the loss on one level, and keep the model if it is the best so far."""
    level, loss = pyramid.levels[depth], pyramid.loss
    value = partial(loss.value, level=level, pyramid=pyramid)
    found, reached = descent.follow(loss.problem(level, pyramid), parts, depth, value, patience, rival=rival)
    descent.offer(found, level, reached)
    return found, reached


def _prepare(
    descent: Descent, pyramid: Pyramid, depth: int, parts: Parts, patience: Patience, most: int | None = None
) -> Parts:
    """Lower the squares, in the metric of the measure, that are near the loss."""
    level = pyramid.levels[depth]
    value, problem = level.relative_error, level.squares
    return descent.follow(problem, parts, depth, value, patience, most=most, is_known=False)[0]


def _choose_start(descent: Descent, pyramid: Pyramid, starts: Sequence[Callable[[Level], Parts | None]]) -> Parts:
    """Return the start or, of several, the model that comes nearest in a few sweeps."""
    level, loss = pyramid.levels[0], pyramid.loss
    problem = loss.problem(level, pyramid)
    best, least = None, math.inf
    for start in starts:
        parts = start(level)
        if (len(starts) == 1 or len(pyramid.levels) == 1) and parts is not None:
            return parts
        if parts is None or descent.is_late:
            continue
        if loss.is_prepared:
            parts = _prepare(descent, pyramid, 0, parts, ROUGH, TRIAL_SWEEPS)
            reached = loss.value(problem.distance(problem.begin(parts)), level, pyramid)
        else:
            value = partial(loss.value, level=level, pyramid=pyramid)
            parts, reached = descent.follow(problem, parts, 0, value, ROUGH, most=TRIAL_SWEEPS)
        if best is None or reached < least:
            best, least = parts, reached
    assert best is not None
    descent.record(0, min(least, descent.least))
    return best


def _publish(descent: Descent, pyramid: Pyramid, start: Parts) -> None:
    """Take the published updates on the finest level."""
    level, loss = pyramid.levels[-1], pyramid.loss
    value = partial(loss.value, level=level, pyramid=pyramid)
    parts, reached = descent.follow(loss.problem(level, pyramid), start, 0, value, descent.patience)
    descent.offer(parts, level, reached)


def _go_down(descent: Descent, pyramid: Pyramid, start: Parts, patience: Patience, *, is_near: bool = False) -> None:
    """Go from the coarsest level to the finest, and lower the loss there.

    Least squares lead to where the loss is lowered on the finest level, unless the start is near that already.
    """
    levels, loss, parts = pyramid.levels, pyramid.loss, start
    for depth, level in enumerate(levels):
        if depth:
            parts = parts[0], levels[depth - 1].prolong(parts[1], level)
        # no more passes than needed over data that are not in memory: the level before them goes to its end
        is_last = level is levels[-1] or not levels[depth + 1].data.is_in_memory
        is_prepared = loss.is_prepared and not is_near and (level.data.is_in_memory or depth == 0)
        if is_prepared and not descent.is_late:
            parts = _prepare(descent, pyramid, depth, parts, NEAR if is_last else ROUGH)
        if is_prepared and (is_last or descent.is_late):
            parts = _nearer(pyramid, depth, parts, start)
        if not is_prepared or is_last or descent.is_late:
            parts, _ = _lower(descent, pyramid, depth, parts, patience if is_last else ROUGH)
        if descent.is_late:
            break


def _nearer(pyramid: Pyramid, depth: int, found: Parts, start: Parts) -> Parts:
    """Return what least squares found, or their start if its loss is less."""
    level, first, loss = pyramid.levels[depth], pyramid.levels[0], pyramid.loss
    values = []
    for parts, where in ((found, level), (start, first)):
        problem = loss.problem(where, pyramid)
        values.append(loss.value(problem.distance(problem.begin(parts)), where, pyramid))
    return found if values[0] <= values[1] else (start[0], first.prolong(start[1], level))


def _explore(descent: Descent, pyramid: Pyramid, first: Parts, rank: tuple[int, ...], run: Run) -> None:
    """Try other starts on the coarsest level, follow one that is better there to the finest, and go to the end."""
    levels, loss = pyramid.levels, pyramid.loss
    rival = _find_rival(descent, pyramid, first, rank, run)
    if rival is not None and len(levels) > 1 and not descent.is_late:
        _go_down(descent, pyramid, rival, FIRST, is_near=True)
    if loss.by_mass and levels[-1] is pyramid.whole and pyramid.data.is_in_memory and not descent.is_late:
        # nothing worse than LTR is returned
        parts = to_mixture(*from_clusters(pyramid.whole, rank, replace(run, rng=0)))
        problem = loss.problem(pyramid.whole, pyramid)
        descent.offer(parts, pyramid.whole, loss.value(problem.distance(parts), pyramid.whole, pyramid))
    if pyramid.data.is_in_memory and not descent.is_late:
        _loosen(descent, pyramid)
    if not descent.is_late:
        _lower(descent, pyramid, len(levels) - 1, _finest(descent, pyramid), descent.patience)


def _finest(descent: Descent, pyramid: Pyramid) -> Parts:
    """Return the best model so far as one of the finest level."""
    (core, factors), level = descent.found
    return core, level.prolong(factors, pyramid.levels[-1])


def _loosen(descent: Descent, pyramid: Pyramid) -> None:
    """Look for a better way down from near the best model: zeros, and what is nearly zero, may hold it back."""
    found, stopped, least = _finest(descent, pyramid), descent.stopped, descent.least
    softer = pyramid.loss.problem(pyramid.levels[-1], pyramid).soften(found)
    if softer is not found:
        _lower(descent, pyramid, len(pyramid.levels) - 1, softer, FIRST, least)
        if descent.least == least and not descent.is_late:
            descent.stopped = stopped


def _find_rival(descent: Descent, pyramid: Pyramid, first: Parts, rank: tuple[int, ...], run: Run) -> Parts | None:
    """Return a model of the coarsest level from another start, if that is better there than from the first."""
    level, loss = pyramid.levels[0], pyramid.loss
    last = descent.n_iterations + EXPLORED_ENTRIES // level.data.entries_per_pass
    if descent.n_iterations == last:
        return None
    if len(pyramid.levels) == 1:
        first = descent.found[0]
    elif loss.is_prepared:
        first = _prepare(descent, pyramid, 0, first, NEAR)
    rival, least = None, _lower(descent, pyramid, 0, first, descent.patience)[1]
    least *= 1 - BETTER
    for start in OTHERS:
        begun = start(level, rank, run)
        for is_prepared in (False, True) if loss.is_prepared else (False,):
            if begun is None or descent.is_late or descent.n_iterations >= last:
                break
            stopped = descent.stopped
            if is_prepared:
                parts = _prepare(descent, pyramid, 0, begun, NEAR)
            else:
                parts = loss.problem(level, pyramid).soften(begun)
            parts, reached = _lower(descent, pyramid, 0, parts, descent.patience, least)
            if reached < least:
                rival, least = parts, reached
            elif not descent.is_late:
                descent.stopped = stopped
    return rival
