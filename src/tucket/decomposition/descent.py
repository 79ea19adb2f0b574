"""Following an iteration: its steps, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from tucket.base.run import Run, Step
from tucket.decomposition.losses import Problem, Update
from tucket.kernels.algebra import Parts

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
