"""A descent: what has been done so far, the best model, and when to stop."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tucket.base.checks import check_count, check_number
from tucket.base.run import Run, Step
from tucket.decomposition.levels import Level
from tucket.decomposition.losses import Problem
from tucket.kernels.algebra import Parts

CATCH_UP_WINDOWS = 5
"""Windows of iterations within which another start must be able to catch up; otherwise it is abandoned."""


class Patience(NamedTuple):
    """A stopping rule: end when a window of iterations lowers the loss by less than the share `gain`."""

    gain: float
    window: int

    def is_over(self, values: Sequence[float]) -> bool:
        """Say whether there is little left to gain."""
        if values[-1] == 0 or (len(values) > 1 and values[-1] == values[-2]):
            return True
        before = values[-1 - self.window] if len(values) > self.window else math.inf
        return before < math.inf and values[-1] >= (1 - self.gain) * before


COARSE_PATIENCE, SQUARES_PATIENCE, FIRST_PATIENCE = Patience(1e-2, 5), Patience(5e-3, 5), Patience(5e-4, 5)
"""When to stop on intermediate levels, in least squares before another loss, and before other starts are tried."""

WINDOW = 10
"""Iterations over which the final gain is measured; over fewer, it may be small by chance."""


@dataclass(slots=True)
class Descent:
    """State of a decomposition: the iterations so far, the best model, and when to stop.

    Attributes
    ----------
    run : Run
        How to run.
    iterations : int
        Maximum iterations of each kind per level.
    tolerance : float
        Iterations end when a window of them lowers the loss by less than this share.
    published : bool
        Whether to use the published updates and the published stopping rule.
    steps : list of Step
        The steps after which the loss of the whole tensor is known.
    n_iterations : int
        Number of iterations, including those with unknown loss.
    stopped : str
        Why the iterations towards the best model ended: "converged", "iterations" or "budget".
    best : model, optional
        The best model so far, and its level.
    least : float
        The loss of the best model.
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

    def __post_init__(self) -> None:
        self.iterations = check_count(self.iterations, "n_iter_max")
        self.tolerance = check_number(self.tolerance, "tol", least=0)

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
        """Whether the budget is used up."""
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
        """Iterate until the gain is too small, the budget or the iterations are used up, or a rival is out of reach.

        Return the last model and its loss. The gain is measured by `loss`, which is reported only if `is_known`.
        """
        updates = problem.published(parts) if self.published else problem.descend(problem.begin(parts))
        limit, values = min(most or self.iterations, self.iterations), []
        least, before = self.least, self.run.seconds
        for core, factors, distance in updates:
            values.append(loss(distance))
            least = min(least, values[-1])
            step = self.record(level, least if is_known else math.nan)
            cost, before = step.seconds - before, step.seconds
            if not self.run.allows(cost):
                self.stopped = "budget"
            elif self._is_published_end(values) if self.published else patience.is_over(values):
                self.stopped = "converged"
            elif len(values) >= limit:
                self.stopped = "iterations"
            elif not _can_overtake(rival, values):
                self.stopped = "converged"
            else:
                continue
            return problem.end((core, factors)), values[-1]
        raise AssertionError("updates do not end by themselves")

    def _is_published_end(self, values: Sequence[float]) -> bool:
        """Say whether to stop as TensorLy does: by the absolute gain, after at least three iterations."""
        return len(values) > 2 and values[-2] - values[-1] < self.tolerance

    def offer(self, parts: Parts, level: Level, loss: float) -> None:
        """Keep a model if it is the best so far."""
        if self.best is None or loss < self.least:
            self.best, self.least = (parts, level), loss


def _can_overtake(rival: float, values: Sequence[float]) -> bool:
    """Say whether a few more windows that gain as much as the last one would lead below a rival."""
    return len(values) <= WINDOW or values[-1] - CATCH_UP_WINDOWS * (values[-1 - WINDOW] - values[-1]) < rival
