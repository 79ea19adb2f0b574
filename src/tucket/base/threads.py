"""Thread counts, and jobs that run on a pool of threads and return their results in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from threading import Lock
from typing import Any, TypeVar

Job = TypeVar("Job")
Result = TypeVar("Result")


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
