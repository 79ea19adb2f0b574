"""The limit on the threads of BLAS, which rests on a method of threadpoolctl that is not public."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from threadpoolctl import threadpool_info

from tucket.base.run import single_threaded_blas


def blas_threads() -> list[int]:
    """Threads of each BLAS library; with OpenMP, limits hold per thread and cannot be seen from another one."""
    libraries = [library for library in threadpool_info() if library["user_api"] == "blas"]
    return [library["num_threads"] for library in libraries if library.get("threading_layer") != "openmp"]


@pytest.fixture
def before() -> Iterator[list[int]]:
    assert np.ones((2, 2)).dot(np.ones((2, 2))).sum() == 8  # loads the library
    threads = blas_threads()
    if max(threads, default=1) < 2:
        pytest.skip("BLAS has a single thread here")
    yield threads
    assert blas_threads() == threads


def test_the_last_thread_to_leave_removes_the_limit_of_the_first(before: list[int]) -> None:
    """Fails if threadpoolctl ignores the second thread, that is, if its `clear_controlling_thread` has changed."""
    one = [1] * len(before)
    with ThreadPoolExecutor(1) as first, ThreadPoolExecutor(1) as second:
        for _ in range(2):  # the second time, the thread that left last must not be the only one to set limits
            first.submit(single_threaded_blas.__enter__).result()
            second.submit(single_threaded_blas.__enter__).result()
            assert blas_threads() == one
            first.submit(single_threaded_blas.__exit__).result()
            assert blas_threads() == one
            second.submit(single_threaded_blas.__exit__).result()
            assert blas_threads() == before
            first, second = second, first


def test_an_error_removes_the_limit(before: list[int]) -> None:
    def fail() -> None:
        with single_threaded_blas:
            assert blas_threads() == [1] * len(before)
            raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        fail()
    assert blas_threads() == before
