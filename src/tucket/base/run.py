"""How to run: threads, deadline, callbacks and randomness."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, NamedTuple, TypeVar

import numpy as np

from tucket.base.checks import as_index, check_number, check_rng

Job = TypeVar("Job")
Result = TypeVar("Result")


class Progress(NamedTuple):
    """Progress of a pass over the data, reported after each chunk.

    Parameters
    ----------
    chunks : int
        Chunks done so far.
    n_chunks : int or None
        Chunks in total; None if unknown.
    bytes : int
        Bytes read so far.
    n_bytes : int or None
        Bytes in total; None if unknown.
    new_bytes : int
        Bytes of the last chunk, by which a tqdm bar can be updated.
    """

    chunks: int
    n_chunks: int | None
    bytes: int
    n_bytes: int | None
    new_bytes: int


@dataclass(frozen=True, slots=True)
class Step:
    """One iteration, as reported to a callback.

    Parameters
    ----------
    iteration : int
        Number of the iteration, from 1.
    loss : float
        Divergence or relative error of the whole tensor afterwards. NaN where it is unknown, as in the first iterations
        by least squares that prepare for the divergence.
    seconds : float
        Seconds since the start.
    level : int
        Level of a decomposition, from 0 for the coarsest; or number of the descent in a search.
    """

    iteration: int
    loss: float
    seconds: float
    level: int = 0


ProgressCallback = Callable[[Progress], object]
StepCallback = Callable[[Step], object]


@dataclass(slots=True)
class PassCounter:
    """Counts passes over the data by their progress, which it passes on."""

    report: ProgressCallback | None = None
    passes: int = 0
    chunks: float = math.inf  # done so far in this pass

    def __call__(self, progress: Progress) -> None:
        """Count a pass if this is its first chunk."""
        self.passes += progress.chunks <= self.chunks
        self.chunks = progress.chunks
        if self.report is not None:
            self.report(progress)


MAX_WORKERS = 1024
"""Maximum threads per call; a larger number is probably a mistake."""


@dataclass(frozen=True, slots=True)
class Run:
    """How one call runs. The public function makes it once and passes it on."""

    workers: int = 1  # maximum number of threads
    progress: ProgressCallback | None = None  # called after each chunk of a pass
    callback: StepCallback | None = None  # called after each iteration
    rng: Any = None
    began: float = 0.0  # by `time.perf_counter`
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
        """Check the user's arguments; `argument` is the name of the one for seconds."""
        for given, name in ((progress, "progress"), (callback, "callback")):
            if given is not None and not callable(given):
                raise TypeError(f"{name}: got {given!r}; give a function to be called, or leave it out")
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
        """Say whether a step that costs so many seconds would end before the deadline."""
        return self.deadline == math.inf or time.perf_counter() + cost < self.deadline

    def generator(self) -> np.random.Generator:
        """Return the random generator of this call."""
        return check_rng(self.rng)

    def report(self, iteration: int, loss: float, level: int = 0) -> Step:
        """Call the callback with a step, and return the step."""
        step = Step(iteration, loss, self.seconds, level)
        if self.callback is not None:
            self.callback(step)
        return step


def check_workers(workers: int | None) -> int:
    """Return the given number of threads, or one per processor that affinity and control group allow."""
    if workers is None:
        processors = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return max(1, min(processors, quota()))
    count = as_index(workers)
    if count is None:
        raise TypeError(
            f"workers: got {workers!r} of type {type(workers).__name__}; give an int from 1, or None for all"
        )
    if not 1 <= count <= MAX_WORKERS:
        raise ValueError(f"workers: got {count}; give an int from 1 to {MAX_WORKERS}, or None for all")
    return count


@cache
def quota() -> int:
    """Return how many processors the control group of this process may use."""
    try:
        budget, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return int(budget) // int(period)
    except (OSError, ValueError):  # no such control group, or no quota: "max"
        return MAX_WORKERS


def _release_openblas() -> None:
    """Let any thread set the limits of OpenBLAS.

    Newer versions of threadpoolctl only listen to the first thread that sets a limit. Their README documents this
    method, though the class is not in `threadpoolctl.__all__`. tests/base/test_threads.py fails if the method changes.
    """
    import threadpoolctl

    controller: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):  # older versions listen to every thread
        controller.clear_controlling_thread(force=True)


class _SingleThreadedBlas:
    """A context that several threads can enter at once: the first one sets the limit, the last one removes it."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.controller: Any = None
        self.limiter: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                if self.controller is None:
                    from threadpoolctl import ThreadpoolController

                    self.controller = ThreadpoolController()
                self.limiter = self.controller.limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                _release_openblas()  # another thread may have set the limit
                self.limiter.restore_original_limits()
                _release_openblas()  # another thread may set the next one


single_threaded_blas = _SingleThreadedBlas()
"""A context in which BLAS runs matrix products on the thread that calls it.

A product of data in the cache of one thread is slower on two threads.
"""


def ordered_map(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Run jobs on a pool of threads and yield results in order; at most two per thread are in memory at a time."""
    return map(work, jobs) if workers == 1 else _pooled(work, jobs, workers, 2 * workers)


def prefetch(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Run the next `workers` jobs while the caller uses a result, and yield results in order."""
    return _pooled(work, jobs, workers, workers)


def _pooled(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int, queued: int) -> Iterator[Result]:
    jobs = iter(jobs)
    pool = ThreadPoolExecutor(workers)
    try:
        pending = [pool.submit(work, job) for job in islice(jobs, queued)]
        while pending:
            done = pending.pop(0).result()
            pending.extend(pool.submit(work, job) for job in islice(jobs, 1))
            yield done
            del done  # frees its memory while the next one is awaited
    finally:  # also if a job fails or the caller stops early
        pool.shutdown(cancel_futures=True)
