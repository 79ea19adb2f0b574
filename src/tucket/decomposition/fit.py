"""What an iterative decomposition tells: its steps, its end and its model."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket.kernels.algebra import Matrix
from tucket.models.tucker import Tucker

__all__ = ["Fit", "Run", "Step"]

WINDOW = 5
"""Iterations over which a gain is counted: a single one may be small by chance."""


class Step(NamedTuple):
    """One iteration: on which level, 0 being the coarsest, the loss after it, and the seconds since the start.

    The loss is that of the whole tensor: the divergence, or the relative error, good to about 1e-8, or 1e-4 where a
    library has no float64. It is NaN, not known, while least squares prepare for the divergence, and while another
    start is tried.
    """

    iteration: int
    level: int
    loss: float
    seconds: float


@dataclass(frozen=True, slots=True, repr=False)
class Fit:
    """A decomposition: its model, how it came about, and why it ended.

    Attributes
    ----------
    model : Tucker
        Columns of its factors sum to 1, so that the core holds the mass of each combination of components.
    trace : tuple of Step
        All iterations.
    stopped : str
        "converged": iterations gained less than `tol`. "iterations" or "budget": there was no more of it.
    levels : tuple of shapes
        How many blocks each level had in each mode, from the coarsest.
    """

    model: Tucker
    trace: tuple[Step, ...]
    stopped: str
    levels: tuple[tuple[int, ...], ...]

    @property
    def loss(self) -> float:
        """Divergence of the tensor from the model, or relative error."""
        return self.trace[-1].loss

    @property
    def unused(self) -> tuple[NDArray[np.intp], ...]:
        """Components of each mode with no mass to speak of: less than a millionth of all."""
        core = self.model.to_numpy().core
        modes = range(core.ndim)
        masses = (core.sum(axis=tuple(k for k in modes if k != mode), dtype=np.float64) for mode in modes)
        return tuple(np.flatnonzero(mass <= 1e-6 * mass.sum()) for mass in masses)

    def __repr__(self) -> str:
        idle = [int(components.size) for components in self.unused]
        return (
            f"Fit(rank={self.model.rank}, loss={self.loss:.6g}, {len(self.trace)} iterations "
            f"in {self.trace[-1].seconds:.3g} s, stopped={self.stopped!r}{f', unused={idle}' if any(idle) else ''})"
        )


@dataclass(slots=True)
class Run:
    """What has been done so far, and when to stop."""

    iterations: int
    tolerance: float
    budget: float
    is_paper: bool
    callback: Callable[[Step], object] | None
    began: float
    trace: list[Step] = field(default_factory=list)
    stopped: str = "converged"

    def tell(self, level: int, loss: float) -> Step:
        """Note an iteration."""
        self.trace.append(Step(len(self.trace) + 1, level, loss, time.perf_counter() - self.began))
        if self.callback:
            self.callback(self.trace[-1])
        return self.trace[-1]

    def follow(
        self,
        models: Iterator[tuple[Matrix, list[Matrix], float]],
        level: int,
        loss: Callable[[float], float],
        tolerance: float,
        most: int | None = None,
        is_known: bool = True,
    ) -> tuple[Matrix, list[Matrix], float]:
        """Take models until they gain too little, or there is no more to spend; tell of each, and return the last.

        What they gain is counted by the loss, which may be one that is not to be told.
        """
        values: list[float] = []
        for core, factors, distance in models:
            values.append(loss(distance))
            step = self.tell(level, values[-1] if is_known else math.nan)
            if step.seconds > self.budget:
                self.stopped = "budget"
            elif self._is_little(values, tolerance):
                self.stopped = "converged"
            elif len(values) >= min(most or self.iterations, self.iterations):
                self.stopped = "iterations"
            else:
                continue
            return core, factors, distance
        raise AssertionError("updates do not end by themselves")

    def _is_little(self, values: list[float], tolerance: float) -> bool:
        """Say whether the last iterations gained too little for another one."""
        if self.is_paper:  # as TensorLy has it: an absolute gain, and three iterations at least
            return len(values) > 2 and values[-2] - values[-1] < tolerance
        if values[-1] == 0 or (len(values) > 1 and values[-1] == values[-2]):
            return True
        before = values[-WINDOW - 1] if len(values) > WINDOW else math.inf
        return before < math.inf and values[-1] >= (1 - tolerance) ** WINDOW * before
