"""How many threads to use, and how to use them: jobs in, results out in the same order."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

from tucket.base.blocks import as_index

__all__ = ["ahead", "check_workers", "in_order", "without_threads_of_blas"]

MOST = 1024

Job = TypeVar("Job")
Result = TypeVar("Result")


def check_workers(workers: int | None) -> int:
    """Return a number of threads: as given, or as many as this process may keep busy."""
    if workers is None:
        return available()
    count = as_index(workers)
    if count is None:
        raise TypeError(
            f"workers: got {workers!r} of type {type(workers).__name__}; give an int from 1, or None for all"
        )
    if not 1 <= count <= MOST:
        raise ValueError(f"workers: got {count}; give an int from 1 to {MOST}, or None for all")
    return count


def available() -> int:
    """Count the processors that this process may use: its affinity, and the quota of its control group."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return max(1, min(count, int(quota) // int(period)))
    except (OSError, ValueError):  # no such control group, or no quota: "max"
        return count


def _take_control() -> None:
    """Let any thread change what another has limited, where threadpoolctl would keep that to the first one."""
    import threadpoolctl

    # older versions let any thread do it
    controller: Any = getattr(threadpoolctl, "OpenBLASController", None)
    if hasattr(controller, "clear_controlling_thread"):
        controller.clear_controlling_thread(force=True)


class _Limit:
    """Holds matrix products to one thread as long as anybody wants it: the first one in limits, the last restores."""

    def __init__(self) -> None:
        self.lock, self.users = Lock(), 0
        self.libraries: Any = None
        self.limited: Any = None

    def __enter__(self) -> None:
        with self.lock:
            if self.users == 0:
                if self.libraries is None:
                    from threadpoolctl import ThreadpoolController

                    self.libraries = ThreadpoolController()
                self.limited = self.libraries.limit(limits=1, user_api="blas")
            self.users += 1

    def __exit__(self, *_: object) -> None:
        with self.lock:
            self.users -= 1
            if self.users == 0:
                _take_control()
                self.limited.restore_original_limits()
                _take_control()


without_threads_of_blas = _Limit()
"""A context in which matrix products keep to the thread that asks for them.

A product of data that one thread has just put into its own cache is slower on two.
"""


def in_order(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Do the jobs on a pool of threads of this call's own, and yield their results in the order of the jobs.

    However many the jobs, only a few results are held at a time.
    """
    return map(work, jobs) if workers == 1 else _pooled(work, jobs, workers, 2 * workers)


def ahead(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int) -> Iterator[Result]:
    """Do the jobs, in order, while the caller is busy with the results of those before; a few at a time."""
    return _pooled(work, jobs, workers, workers)


def _pooled(work: Callable[[Job], Result], jobs: Iterable[Job], workers: int, held: int) -> Iterator[Result]:
    jobs = iter(jobs)
    pool = ThreadPoolExecutor(workers)
    try:
        pending = [pool.submit(work, job) for job in islice(jobs, held)]
        while pending:
            done = pending.pop(0).result()
            pending.extend(pool.submit(work, job) for job in islice(jobs, 1))
            yield done
            del done  # or it would be held while the next is waited for
    finally:  # also when a job fails, or the caller wants no more
        pool.shutdown(cancel_futures=True)
