"""Blocks that keep the most information, against all partitions of tiny tensors."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import blocks as any_blocks
from strategies import partitions, tensors
from tucket import kernels
from tucket.base.blocks import Blocks
from tucket.base.run import Run
from tucket.kernels.cpu import scores
from tucket.projection.search import Search
from tucket.projection.strategies import STRATEGIES, Clusters, Segments, clusters, segments
from tucket.sources.dense import Mapped

SMALL = ("u1", "<f8", "<f4")


def unfold(x: NDArray[Any], partition: tk.Partition, mode: int) -> NDArray[np.float64]:
    whole = partition._replace(mode, Blocks.uniform(x.shape[mode], x.shape[mode]))
    core = tk.collect(x, whole).core
    return np.moveaxis(core, mode, 0).reshape(x.shape[mode], -1)


def all_contiguous(size: int, rank: int) -> Iterator[Blocks]:
    for rest in itertools.combinations(range(1, size), rank - 1):
        yield Blocks.from_starts(size, [0, *rest])


def all_free(size: int, rank: int) -> Iterator[Blocks]:
    for labels in itertools.product(range(rank), repeat=size):
        if len(set(labels)) == rank:
            yield Blocks.from_labels(labels)


def kl(x: NDArray[Any], partition: tk.Partition) -> float:
    return float(tk.ltr(x, blocks=partition).kl(x))


def slack(x: NDArray[Any]) -> float:
    return 1e-11 * (1 + float(x.sum(dtype=float)))


@given(tensors(min_dims=2, max_dims=4, dtypes=SMALL), st.data())
def test_segments_of_one_mode_are_the_best_of_all(x: NDArray[Any], data: st.DataObject) -> None:
    partition = data.draw(partitions(x.shape))
    mode = data.draw(st.integers(0, x.ndim - 1))
    rank = data.draw(st.integers(1, x.shape[mode]))
    start = Blocks.uniform(x.shape[mode], rank)
    found = Segments().improve(unfold(x, partition, mode), start, 1)
    assert found.rank == rank
    assert found.contiguous
    best = min(kl(x, partition._replace(mode, blocks)) for blocks in all_contiguous(x.shape[mode], rank))
    assert kl(x, partition._replace(mode, found)) <= best + slack(x)


@given(tensors(min_dims=2, max_dims=4, dtypes=SMALL), st.data())
def test_clusters_of_one_mode_never_lose(x: NDArray[Any], data: st.DataObject) -> None:
    partition = data.draw(partitions(x.shape))
    mode = data.draw(st.integers(0, x.ndim - 1))
    start = partition[mode]
    found = Clusters().improve(unfold(x, partition, mode), start, 1)
    assert found.rank == start.rank
    assert kl(x, partition._replace(mode, found)) <= kl(x, partition) + slack(x)


@given(st.data())
def test_long_modes_never_lose(data: st.DataObject) -> None:
    """The sketch, the approximate score and the moves of starts, which long modes need, on short ones."""
    x = data.draw(tensors(min_dims=2, max_dims=2, dtypes=SMALL))
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(segments, "SKETCH_INDICES", data.draw(st.integers(2, 5)))
        patch.setattr(segments, "EXACT_LOGS", data.draw(st.sampled_from([0, 10**9])))
        patch.setattr(clusters, "CHUNK_SCORES", 3)
        for blocks in ("segments", "clusters"):
            model = tk.ltr(x, rank, blocks=blocks)
            assert model.rank == tuple(rank)
            assert model.kl(x) <= tk.ltr(x, rank, blocks="uniform").kl(x) + slack(x)


@settings(max_examples=50)
@given(tensors(min_dims=1, max_dims=4, dtypes=SMALL), st.data())
def test_segments_beat_uniform_and_clusters_beat_segments(x: NDArray[Any], data: st.DataObject) -> None:
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    uniform, segments, clusters = (tk.ltr(x, rank, blocks=way) for way in ("uniform", "segments", "clusters"))
    assert segments.kl(x) <= uniform.kl(x) + slack(x)
    assert clusters.kl(x) <= segments.kl(x) + slack(x)
    assert segments.rank == clusters.rank == tuple(rank)
    assert tk.ltr(x, rank) == clusters


def test_the_best_of_all_partitions_is_found_where_it_is_plain() -> None:
    """Blocks that are really there come out, in any order of the indices."""
    rng = np.random.default_rng(0)
    labels = [
        rng.permutation(np.arange(12) % 3),
        rng.permutation(np.arange(15) % 4),
        rng.permutation(np.arange(10) % 2),
    ]
    core = rng.integers(1, 100, (3, 4, 2))
    x = core[np.ix_(*labels)] * rng.random(12)[:, None, None] * rng.random(15)[:, None]
    model = tk.ltr(x, (3, 4, 2))
    assert model.kl(x) < 1e-9 * x.sum()
    assert tk.ltr(x, (3, 4, 2), blocks="segments").kl(x) > 0.01 * x.sum()


def test_tiny_tensors_reach_the_best_of_all_free_partitions() -> None:
    for seed in range(5):
        x = np.random.default_rng(seed).random((5, 4))
        best = min(kl(x, tk.Partition((a, b))) for a in all_free(5, 2) for b in all_free(4, 2))
        assert tk.ltr(x, 2).kl(x) <= best * (1 + 1e-9), seed


def test_one_strategy_per_mode() -> None:
    rng = np.random.default_rng(1)
    x = rng.random((12, 9, 7, 8))
    given = Blocks.from_labels([0, 1, 1, 0, 2, 0, 1])
    model = tk.ltr(x, (3, 4, None, None), blocks=("segments", "clusters", given, [0, 5]))
    assert model.rank == (3, 4, 3, 2)
    assert model.partition[0].contiguous
    assert model.partition[2] == given
    assert model.partition[3].starts.tolist() == [0, 5]
    whole = tk.ltr(x, (3, None, 2, None), blocks=("segments", "clusters", "random", None), rng=3)
    assert whole.rank == (3, 9, 2, 8)


def test_a_search_is_reproducible() -> None:
    x = np.random.default_rng(2).random((20, 15, 10))
    assert tk.ltr(x, 4) == tk.ltr(x, 4)
    assert tk.ltr(x, 4, rng=5) == tk.ltr(x, 4, rng=np.random.default_rng(5))


def test_a_search_tells_how_far_it_is_and_stops_when_told() -> None:
    x = np.random.default_rng(3).random((30, 25, 20))
    seen: list[tk.Step] = []
    model = tk.ltr(x, 5, blocks="segments", callback=seen.append)
    assert [step.iteration for step in seen] == list(range(1, len(seen) + 1))
    for descent in range(seen[-1].level + 1):
        divergences = [step.loss for step in seen if step.level == descent]
        assert divergences == sorted(divergences, reverse=True)
    assert min(step.loss for step in seen) == pytest.approx(model.kl(x), rel=1e-9)
    short: list[tk.Step] = []
    tk.ltr(x, 5, max_sweeps=1, callback=short.append)
    assert len(short) == short[-1].level + 1
    late: list[tk.Step] = []
    began = time.monotonic()
    assert tk.ltr(x, 5, max_seconds=1e-9, callback=late.append).rank == (5, 5, 5)
    assert not late
    assert time.monotonic() - began < 60


def test_statistics_are_searched_without_the_data() -> None:
    x = np.random.default_rng(4).random((24, 20, 16))
    stats = tk.collect(x, tk.Partition.uniform(x.shape, (12, 10, 8)), moments=True)
    seen: list[float] = []
    model = tk.ltr(stats, (3, None, 2), callback=lambda step: seen.append(step.loss))
    assert model.rank == (3, 10, 2)
    assert model.kl(x) <= tk.ltr(stats, (3, None, 2), blocks="uniform").kl(x)
    assert min(seen) == pytest.approx(model.kl(x), rel=1e-9)
    assert stats.partition.refines(model.partition)
    fixed = tk.ltr(stats, (3, None, None), blocks=("segments", [0, 4], None))
    assert fixed.rank == (3, 2, 8)
    assert fixed.partition[1].starts.tolist() == [0, 4]


@pytest.mark.parametrize("blocks", ["segments", "clusters"])
@settings(max_examples=25)
@given(x=tensors(min_dims=2, max_dims=4, dtypes=SMALL), data=st.data())
def test_a_file_is_read_once_per_sweep(
    x: NDArray[Any], data: st.DataObject, blocks: Any, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """All modes move after one look at each piece of the tensor, and nothing is lost."""
    path = tmp_path_factory.mktemp("mapped") / "x.npy"
    np.save(path, x)
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    start, strategies = tk.Partition.uniform(x.shape, rank), [STRATEGIES[blocks]] * x.ndim
    reads: list[tk.Progress] = []
    sweeps: list[float] = []
    mapped = Mapped(np.load(path, mmap_mode="r"), memory=data.draw(st.integers(4, 4 * x.nbytes)))
    run = Run(progress=reads.append, callback=lambda step: sweeps.append(step.loss))
    found, kept = Search(mapped, run).descend(start, strategies, 50)
    assert len(sweeps) == sum(read.chunks == read.n_chunks for read in reads)
    assert sum(read.new_bytes for read in reads) == len(sweeps) * x.nbytes
    assert all(later <= earlier + slack(x) for earlier, later in itertools.pairwise(sweeps))
    if sweeps:
        assert kept == pytest.approx(tk.metrics.total_correlation(kernels.block_sums(x, found).core), abs=1e-12)
        assert sweeps[-1] == pytest.approx(kl(x, found), abs=slack(x))
    assert kl(x, found) <= kl(x, start) + slack(x)


@pytest.mark.parametrize("blocks", ["segments", "clusters"])
def test_zeros_and_equal_rows(blocks: Any) -> None:
    for x in (np.zeros((6, 5)), np.ones((6, 5)), np.eye(6)[:, :5], np.diag([0.0, 0, 1, 0, 2])):
        model = tk.ltr(x, (3, 2), blocks=blocks)
        assert model.rank == (3, 2)
        assert np.isfinite(model.kl(x))


@given(any_blocks(9), st.integers(1, 9))
def test_empty_blocks_are_refilled(start: Blocks, columns: int) -> None:
    """Rows all alike: every block but one would be left empty."""
    assert Clusters().improve(np.ones((9, columns)), start, 1).rank == start.rank


def test_real_tensors_reach_the_known_figures(data: Any) -> None:
    x = np.load(data / "attface.npz")["tensor"]
    for rank, most in ((10, {"segments": 0.0524, "clusters": 0.0450}), (40, {"segments": 0.0288, "clusters": 0.0284})):
        for blocks, limit in most.items():
            assert tk.ltr(x, rank, blocks=blocks).kl(x) / x.sum() <= limit


def test_digits_reach_the_known_figure() -> None:
    x = pytest.importorskip("sklearn.datasets").load_digits().images
    assert tk.ltr(x, (100, 4, 4)).kl(x) / x.sum() <= 0.228


@pytest.mark.parametrize("blocks", ["segments", "clusters"])
def test_many_blocks_of_a_long_mode(blocks: Any) -> None:
    """As many blocks as no table of intervals could be made for."""
    x = np.random.default_rng(0).random((20_000, 4))
    model = tk.ltr(x, (9_000, 2), blocks=blocks)
    assert model.rank == (9_000, 2)
    assert model.kl(x) <= tk.ltr(x, (9_000, 2), blocks="uniform").kl(x)


@pytest.mark.parametrize("exponent", [-990, 40, 990])
def test_scale_changes_no_choice(exponent: int) -> None:
    x = np.random.default_rng(0).gamma(0.3, size=(20, 15, 10))
    x[x < 0.1] = 0
    scaled = x * 2.0**exponent
    for blocks in ("segments", "clusters"):
        assert tk.ltr(scaled, 3, blocks=blocks).partition == tk.ltr(x, 3, blocks=blocks).partition
    assert tk.ltr(scaled, retain=0.5).partition == tk.ltr(x, retain=0.5).partition


@given(st.integers(0, 10_000), st.integers(1, 9), st.integers(2, 5), st.booleans(), st.data())
def test_pairs_are_joined_where_least_is_lost(
    seed: int, size: int, width: int, only_neighbours: bool, data: st.DataObject
) -> None:
    rows = np.random.default_rng(seed).gamma(0.5, size=(size, width))
    rank, groups = data.draw(st.integers(1, size)), [[k] for k in range(size)]

    def score(group: list[int]) -> float:
        sums = rows[group].sum(axis=0)
        return float((sums * np.log(sums)).sum() - sums.sum() * np.log(sums.sum()))

    while len(groups) > rank:
        _, first, second = min(
            (score(a) + score(b) - score(a + b), i, j)
            for (i, a), (j, b) in itertools.combinations(enumerate(groups), 2)
            if not only_neighbours or j == i + 1
        )
        groups[first] += groups.pop(second)
    expected = np.empty(size, int)
    for group in groups:
        expected[group] = min(group)
    np.testing.assert_array_equal(scores.join_pairs(rows.copy(), rank, only_neighbours), expected)


def test_a_search_finds_planted_blocks() -> None:
    found = 0
    for seed in range(8):
        rng = np.random.default_rng(seed)
        labels = [rng.permutation(np.arange(size) % rank) for size, rank in zip((60, 50, 40), (5, 4, 6))]
        x = rng.poisson(3 * rng.gamma(1.0, 1.0, (5, 4, 6))[np.ix_(*labels)])
        found += tk.ltr(x, (5, 4, 6)).kl(x) <= 1.001 * tk.ltr(x, blocks=tk.Partition.from_labels(labels)).kl(x)
    assert found == 8
