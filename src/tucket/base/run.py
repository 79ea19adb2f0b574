"""How to run: on how many threads, until when, whom to call, and where randomness comes from."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from tucket.base.checks import as_index, check_number, check_rng


class Progress(NamedTuple):
    """How far a pass over the data has come: after each chunk.

    Attributes
    ----------
    chunks, n_chunks : int
        Chunks done in this pass, and in all of it; None where that is not known.
    bytes, n_bytes : int
        Bytes read in this pass, and in all of it; None where that is not known.
    new_bytes : int
        Bytes of the chunk just done: what to update a tqdm bar by.
    """

    chunks: int
    n_chunks: int | None
    bytes: int
    n_bytes: int | None
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration of anything that iterates, as its callback gets it.

    Parameters
    ----------
    iteration : int
        Its number, from 1.
    loss : float
        The loss of the whole tensor after it: the divergence or the relative error. NaN where it is not known, as while
        least squares prepare for the divergence.
    seconds : float
        Seconds since the start.
    level : int
        Level of a decomposition from coarse to fine, 0 being the coarsest; or which of several descents a search is in.
    """

    iteration: int
    loss: float
    seconds: float
    level: int = 0


MAX_WORKERS = 1024
"""Threads per call: above this, the number is more likely a mistake than a wish."""

ProgressCallback = Callable[[Progress], object]
StepCallback = Callable[[Step], object]


@dataclass(frozen=True, slots=True)
class Run:
    """How one call runs. It is made once, by the public function, and passed on.

    Attributes
    ----------
    workers : int
        Threads that may be used.
    progress, callback : callable or None
        What to call after each chunk of a pass, and after each iteration.
    rng : None, int or numpy.random.Generator
        Where randomness comes from.
    began, deadline : float
        When the call began, and when it should have ended, by `time.perf_counter`.
    """

    workers: int = 1
    progress: ProgressCallback | None = None
    callback: StepCallback | None = None
    rng: Any = None
    began: float = 0.0
    deadline: float = math.inf

    @classmethod
    def of(
        cls,
        workers: int | None = None,
        progress: ProgressCallback | None = None,
        callback: StepCallback | None = None,
        rng: Any = None,
        seconds: float | None = None,
        argument: str = "budget",
    ) -> Run:
        """Check what the user said of how to run; `argument` is what the seconds are called there."""
        began = time.perf_counter()
        deadline = math.inf
        if seconds is not None:
            deadline = began + check_number(seconds, argument, "a number of seconds")
        return cls(check_workers(workers), progress, callback, rng, began, deadline)

    @property
    def seconds(self) -> float:
        """Seconds since the call began."""
        return time.perf_counter() - self.began

    def allows(self, cost: float = 0.0) -> bool:
        """Say whether a step that takes so many seconds would end in time."""
        return self.deadline == math.inf or time.perf_counter() + cost < self.deadline

    def generator(self, seed: int | None = None) -> np.random.Generator:
        """Return the generator of this call; `seed` is used where the user gave none."""
        return check_rng(seed if self.rng is None else self.rng)

    def report(self, iteration: int, loss: float, level: int = 0) -> Step:
        """Call the callback with a step, and return the step."""
        step = Step(iteration, loss, self.seconds, level)
        if self.callback is not None:
            self.callback(step)
        return step

    def on(self, workers: int) -> Run:
        """Return the same run on so many threads."""
        return replace(self, workers=workers)

    def quietly(self) -> Run:
        """Return the same run without callbacks."""
        return replace(self, progress=None, callback=None)


def check_workers(workers: int | None) -> int:
    """Return a number of threads: the given one, or one per available processor."""
    if workers is None:
        return available()
    count = as_index(workers)
    if count is None:
        raise TypeError(
            f"workers: got {workers!r} of type {type(workers).__name__}; give an int from 1, or None for all"
        )
    if not 1 <= count <= MAX_WORKERS:
        raise ValueError(f"workers: got {count}; give an int from 1 to {MAX_WORKERS}, or None for all")
    return count


def available() -> int:
    """Count the processors that the affinity of this process and the quota of its control group allow."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(count, quota()))


@cache
def quota() -> int:
    """Return how many processors the control group of this process may keep busy."""
    try:
        budget, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(budget) // int(period)
    except (OSError, ValueError):  # no such control group, or no quota: "max"
        return MAX_WORKERS
