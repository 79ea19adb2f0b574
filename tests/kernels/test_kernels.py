"""The compiled passes against the plain one, with every limit made small enough to be met."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import DTYPES, LAYOUTS, cut_tensors, lay_out
from tucket.base.run import check_workers, ordered_map, quota
from tucket.kernels import numpy as plain
from tucket.kernels.cpu import loops as cpu
from tucket.kernels.cpu import model as expanded
from tucket.kernels.cpu import sums as compiled

Case = tuple[NDArray[Any], tk.Partition]


@contextmanager
def limits(kind: str) -> Iterator[None]:
    """Leave the limits as they are, or set them so that small tensors exceed them."""
    with pytest.MonkeyPatch.context() as patch:
        if kind == "tiny":
            patch.setattr(compiled, "NARROW_COLUMNS", 6)
            patch.setattr(compiled, "SHORT_COLUMNS", 2)
            patch.setattr(compiled, "TILE_COLUMNS", 4)
            patch.setattr(expanded, "TILE_COLUMNS", 4)
            patch.setattr(compiled, "SLOT_SUMS", 12)
            patch.setattr(compiled, "COPY_ENTRIES", 7)
            patch.setattr(compiled, "CORE_ENTRIES", 10)
            patch.setattr(compiled, "CORE_BOX_ENTRIES", 20)
            patch.setattr(expanded, "MODEL_ROWS", 3)
            patch.setattr(expanded, "MODEL_ENTRIES", 3)
        yield


both_limits = pytest.mark.parametrize("kind", ["as set", "tiny"])


def assert_same(ours: Any, expected: Any, exact: bool) -> None:
    pairs = [(ours.core, expected.core), *zip(ours.marginals, expected.marginals)]
    for a, b in pairs:
        np.testing.assert_allclose(a, b, rtol=0 if exact else 1e-12, atol=0)
        assert a.shape == b.shape
    assert ours.has_negative == expected.has_negative
    if expected.moments is not None:
        assert ours.moments == pytest.approx(expected.moments, rel=1e-12, abs=1e-12)


@both_limits
@given(cut_tensors(min_dims=2), st.integers(1, 3), st.sampled_from([None, 1.0, 8.0]))
def test_sums_equal_the_plain_ones(kind: str, case: Case, workers: int, unit: float | None) -> None:
    with limits(kind):
        x, partition = case
        ours = compiled.block_sums(x, partition, unit, workers)
        assert ours.kernel == "numba"
        assert_same(ours, plain.block_sums(x, partition, unit), exact=x.dtype.kind in "biu")


@both_limits
@given(cut_tensors(min_dims=2), st.integers(1, 3), st.sampled_from(["<f8", "<f4"]), st.sampled_from(LAYOUTS[:-1]))
def test_models_are_written_anywhere(kind: str, case: Case, workers: int, dtype: str, layout: str) -> None:
    with limits(kind):
        x, partition = case
        model = tk.ltr(x, blocks=partition).astype(dtype)
        out = lay_out(np.full(x.shape, np.nan, dtype), layout)
        expanded.write(out, model.core, partition, model.weights, workers)
        np.testing.assert_allclose(out, model[...], rtol=1e-13 if dtype == "<f8" else 1e-6)


@both_limits
@given(cut_tensors(min_dims=2), st.integers(1, 3))
def test_residuals_equal_the_definition(kind: str, case: Case, workers: int) -> None:
    with limits(kind):
        x, partition = case
        model = tk.ltr(x, blocks=partition)
        residual, squares, negative = expanded.residual(x, model.core, partition, model.weights, 1.0, workers)
        dense = x.astype(np.float64)
        assert squares == pytest.approx((dense**2).sum(), rel=1e-12)
        assert residual == pytest.approx(((dense - model[...]) ** 2).sum(), rel=1e-9, abs=1e-18 + 1e-25 * squares)
        assert not negative


@both_limits
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_large_integers_are_summed_exactly(kind: str, dtype: str, layout: str) -> None:
    """The largest values of each integer type, in runs that would overflow a careless accumulator."""
    with limits(kind):
        top = 1 if np.dtype(dtype).kind in "bf" else min(np.iinfo(dtype).max, 2**40)
        x = lay_out(np.full((3, 67, 70), top, dtype), layout)
        partition = tk.Partition.uniform(x.shape, (1, 2, 3))
        assert_same(
            compiled.block_sums(x, partition, None, 2),
            plain.block_sums(x, partition, None),
            exact=True,
        )


@pytest.mark.parametrize("shape", [(70_000, 3, 5), (40, 70_000), (3, 2, 70_000), (2,) * 17, (1, 5, 1, 5000, 7)])
@pytest.mark.parametrize("free", [False, True])
def test_many_shapes(shape: tuple[int, ...], free: bool) -> None:
    rng = np.random.default_rng(0)
    rank = [max(1, min(7, size // 2)) for size in shape]
    partition = tk.Partition.uniform(shape, rank)
    if free:
        partition = tk.Partition.from_labels([rng.permutation(blocks.labels) for blocks in partition.modes])
    for dtype in ("u2", "f8"):
        x = rng.integers(0, 60_000, shape).astype(dtype)
        expected = plain.block_sums(x, partition, 1.0)
        for workers in (1, 3):
            assert_same(compiled.block_sums(x, partition, 1.0, workers), expected, exact=True)


@both_limits
@pytest.mark.parametrize(
    ("dtype", "value"),
    [(dtype, -1.0) for dtype in ("f8", "f4", "i1", "i2", "i8")]
    + [(dtype, value) for dtype in ("f8", "f4") for value in (-np.inf, np.nan, np.inf, -1e-40)],
)
def test_bad_entries_are_noticed_wherever_they_are(kind: str, dtype: str, value: float) -> None:
    with limits(kind):
        for shape in ((6, 7, 8), (5, 300), (70, 3, 2)):
            x = np.ones(shape, dtype)
            partition = tk.Partition.uniform(shape, 2)
            for place in (0, 1, x.size // 3, x.size // 2, x.size - 2, x.size - 1):
                bad = x.copy()
                bad.flat[place] = value
                for workers in (1, 3):
                    sums = compiled.block_sums(bad, partition, None, workers)
                    assert sums.has_negative == (value < 0)
                    assert sums.has_negative or not np.isfinite(sums.core.sum())


def test_minus_zero_is_zero() -> None:
    assert not compiled.block_sums(-np.zeros((5, 5)), tk.Partition.uniform((5, 5), 1)).has_negative


@given(st.floats(5e-324, 1.7e308) | st.floats(0.5, 2))
def test_logarithm_is_within_an_ulp(value: float) -> None:
    assert cpu.log(value) == pytest.approx(math.log(value), rel=2.3e-16, abs=5e-324)


def test_logarithm_at_the_edges() -> None:
    assert 0.0 * cpu.log(0.0) == 0
    assert cpu.log(1.0) == 0
    assert math.isnan(cpu.log(math.nan)) or not math.isfinite(math.nan * cpu.log(math.nan))
    for value in (5e-324, 2.2250738585072014e-308, 1.7976931348623157e308):
        assert cpu.log(value) == pytest.approx(math.log(value), rel=2.3e-16)


def test_a_result_depends_on_the_number_of_workers_only() -> None:
    x = np.random.default_rng(0).random((64, 65, 66))
    partition = tk.Partition.random(x.shape, 7, rng=0)
    for workers in (1, 2, 3):
        first, *others = (compiled.block_sums(x, partition, 1.0, workers) for _ in range(5))
        for other in others:
            assert_same(other, first, exact=True)
            assert other.moments == first.moments


def test_calls_from_many_threads_at_once() -> None:
    x = np.random.default_rng(0).integers(0, 9, (40, 50, 60))
    partition = tk.Partition.uniform(x.shape, 5)
    expected = plain.block_sums(x, partition, None)
    with ThreadPoolExecutor(8) as pool:
        for sums in pool.map(lambda _: compiled.block_sums(x, partition, None, 3), range(64)):
            assert_same(sums, expected, exact=True)
    assert threading.active_count() < 8 + 8


def test_a_failing_job_is_raised_and_no_thread_is_left() -> None:
    def fail(job: int) -> int:
        if job == 5:
            raise RuntimeError("job 5")
        return job

    before = threading.active_count()
    with pytest.raises(RuntimeError, match="job 5"):
        list(ordered_map(fail, range(100), 3))
    assert threading.active_count() == before
    assert list(ordered_map(lambda job: job, range(100), 3)) == list(range(100))


def test_workers_follow_the_affinity_and_the_quota(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(6)), raising=False)
    for content, expected in (
        ("max 100000", 6),
        ("250000 100000", 2),
        ("50000 100000", 1),
        ("900000 100000", 6),
    ):
        monkeypatch.setattr(Path, "read_text", lambda _, content=content: content)
        quota.cache_clear()
        assert check_workers(None) == expected
    quota.cache_clear()
    assert check_workers(3) == 3


def test_small_calls_do_not_load_the_compiler() -> None:
    code = (
        "import sys, numpy as np, tucket as tk\n"
        "x = np.ones((30, 30, 30))\n"
        "model = tk.ltr(x, 10, blocks='random')\n"
        "model.kl(x), model.relative_error(x), model.to_tensor(), model.save('m.npz')\n"
        "assert not {'numba', 'scipy', 'llvmlite'} & set(sys.modules), sorted(sys.modules)\n"
        "tk.ltr(np.ones((100, 100, 100)), 10)\n"
        "assert 'numba' in sys.modules\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    Path("m.npz").unlink(missing_ok=True)
    assert done.returncode == 0, done.stderr


def test_large_calls_work_without_a_folder_for_the_compiled_code() -> None:
    code = (
        "from numba.core import caching\n"
        "caching.CacheImpl._locator_classes = []\n"
        "import numpy as np, tucket as tk\n"
        "assert tk.ltr(np.ones((600, 600)), 2, blocks='uniform').core.sum() == 360_000\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("dtype", [">f2", "<f2", ">i4", "?"])
def test_large_tensors_of_odd_types(dtype: str) -> None:
    x = np.ones((600, 600), dtype)
    model = tk.ltr(x, 2, blocks="uniform")
    assert model.core.sum() == 360_000
    assert model.relative_error(x) < 1e-12


def test_a_reversed_tensor_with_a_last_box_of_one_row() -> None:
    x = np.arange(1049 * 1000.0).reshape(1049, 1000)[::-1]
    model = tk.ltr(x, (3, 4), blocks="uniform")
    np.testing.assert_allclose(model.core, plain.block_sums(x, model.partition, None).core, rtol=1e-12)
    assert model.kl(x) == pytest.approx(tk.metrics.kl(x, model.to_tensor()), abs=1e-13 * x.sum())


def test_free_blocks_of_large_rank_are_expanded_only_where_they_occur() -> None:
    rng = np.random.default_rng(0)
    shape, rank = (150, 150, 60), (100, 100, 10)
    labels = [rng.permutation(np.arange(size) % r) for size, r in zip(shape, rank)]
    x = rng.random(shape)
    model = tk.ltr(x, blocks=tk.Partition.from_labels(labels))
    tracemalloc.start()
    error = model.relative_error(x, workers=1)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20e6
    assert error == pytest.approx(np.linalg.norm(x - model[...]) / np.linalg.norm(x), rel=1e-12)


def test_a_failing_job_does_not_wait_for_its_queue() -> None:
    done: list[int] = []

    def work(job: int) -> None:
        if job == 0:
            raise RuntimeError("at once")
        time.sleep(0.05)
        done.append(job)

    with pytest.raises(RuntimeError, match="at once"):
        list(ordered_map(work, range(1000), 2))
    assert len(done) <= 4
