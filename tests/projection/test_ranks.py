"""Every rank from one pass, and the rank that is chosen from them."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from numpy.typing import NDArray

import tucket as tk
from strategies import cut_tensors, tensors
from tucket.models import collect as collecting
from tucket.projection import information_curve as ranks

SMALL = ("u1", "<f8", "<f4")


def assert_true_of_models(x: NDArray[Any], curve: tk.InformationCurve) -> None:
    """Compare every point with the model of its blocks."""
    total, whole = float(x.sum(dtype=float)), tk.metrics.total_correlation(x)
    for point in itertools.chain(curve.joint, *curve.modes):
        model = tk.ltr(x, blocks=point.partition)
        assert point.rank == model.rank
        assert point.n_parameters == model.n_parameters
        assert point.kl == pytest.approx(model.kl(x), rel=1e-9, abs=1e-12 * total)
        if whole > 1e-9:
            assert point.kept == pytest.approx(1 - model.kl(x) / (total * whole), abs=1e-9 / whole)


def assert_nested(path: tuple[ranks.Point, ...]) -> None:
    for finer, coarser in itertools.pairwise(path):
        assert finer.partition.refines(coarser.partition)
        assert sum(finer.rank) == sum(coarser.rank) + 1
        assert coarser.kl >= finer.kl - 1e-9 * (1 + finer.kl)


@settings(max_examples=40)
@given(tensors(max_dims=4, dtypes=SMALL))
def test_a_curve_tells_the_truth_about_every_model(x: NDArray[Any]) -> None:
    curve = tk.information_curve(x)
    assert curve.joint[0].rank == x.shape
    assert curve.joint[-1].rank == (1,) * x.ndim
    assert_true_of_models(x, curve)
    assert_nested(curve.joint)
    for mode, path in enumerate(curve.modes):
        assert_nested(path)
        assert [point.rank[mode] for point in path] == list(range(x.shape[mode], 0, -1))


@settings(max_examples=40)
@given(cut_tensors(max_dims=3, dtypes=SMALL))
def test_a_curve_of_statistics(case: tuple[NDArray[Any], tk.Partition]) -> None:
    x, partition = case
    curve = tk.information_curve(tk.collect(x, partition, moments=True))
    assert curve.joint[0].partition == partition
    assert_true_of_models(x, curve)
    own = tk.information_curve(tk.collect(x, partition))  # no moments: counted from these blocks on
    assert own.joint[0].kl == 0
    assert own.joint[0].kept == 1


@settings(max_examples=30)
@given(tensors(min_dims=2, max_dims=3, dtypes=SMALL))
def test_each_step_loses_least_for_a_parameter_saved(x: NDArray[Any]) -> None:
    total = float(x.sum(dtype=float))
    for finer, coarser in itertools.pairwise(tk.information_curve(x).joint):
        prices = []
        for mode, blocks in enumerate(finer.partition.modes):
            for cut in range(1, blocks.rank):
                starts = np.delete(blocks.starts, cut)
                other = finer.partition._replace(mode, tk.Blocks.from_starts(blocks.size, starts))
                saved = math.prod(finer.rank) - math.prod(other.rank)
                prices.append((tk.ltr(x, blocks=other).kl(x) - finer.kl) / saved)
        saved = math.prod(finer.rank) - math.prod(coarser.rank)
        assert (coarser.kl - finer.kl) / saved <= min(prices) + 1e-11 * (1 + total)


def test_large_tensors_begin_with_fine_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(collecting, "FINE_CELLS", 500)
    x = np.random.default_rng(0).random((16, 12, 10))
    curve = tk.information_curve(x)
    assert math.prod(curve.joint[0].rank) <= 500
    assert_true_of_models(x, curve)


def test_retain_keeps_the_share_with_the_fewest_parameters_of_the_path() -> None:
    x = np.random.default_rng(1).gamma(0.3, size=(14, 12, 10))
    whole = tk.metrics.total_correlation(x) * x.sum()
    curve = tk.information_curve(x)
    for share in (0.2, 0.5, 0.9, 1.0):
        point = curve.retain(share)
        assert point.kept >= share
        assert all(p.kept < share for p in curve.joint if p.n_parameters < point.n_parameters)
        for blocks in ("segments", "clusters"):
            model = tk.ltr(x, retain=share, blocks=blocks)
            assert model.rank == point.rank
            assert 1 - model.kl(x) / whole >= share - 1e-9


def test_max_parameters_is_a_limit() -> None:
    x = np.random.default_rng(2).gamma(0.3, size=(14, 12, 10))
    for most in (37, 60, 500, 10_000):
        assert tk.ltr(x, max_parameters=most).n_parameters <= most
    assert tk.ltr(x, max_parameters=37).rank == (1, 1, 1)
    assert tk.ltr(x, max_parameters=10_000).rank == x.shape


def test_description_length_finds_the_blocks_that_counts_came_from() -> None:
    rng = np.random.default_rng(3)
    for core_shape, repeats in (((3, 4, 2), (6, 5, 8)), ((4, 3), (9, 12)), ((1, 1, 1), (8, 8, 8))):
        rates = np.kron(rng.integers(1, 60, core_shape), np.ones(repeats))
        assert tk.ltr(rng.poisson(rates), "mdl").rank == core_shape


def test_statistics_serve_for_every_choice() -> None:
    x = np.random.default_rng(4).gamma(0.3, size=(16, 12, 10))
    stats = tk.collect(x, tk.Partition.uniform(x.shape, (8, 6, 5)), moments=True)
    model = tk.ltr(stats, retain=0.1)
    assert stats.partition.refines(model.partition)
    assert 1 - model.kl(x) / (tk.metrics.total_correlation(x) * x.sum()) >= 0.1 - 1e-9
    with pytest.raises(
        ValueError, match=r"retain: the finest model, of rank \(8, 6, 5\), keeps 0\.\d+, less than 0\.99"
    ):
        tk.ltr(stats, retain=0.99)


def test_knee_table_and_text() -> None:
    pytest.importorskip("pandas")
    rates = np.kron(np.random.default_rng(5).integers(1, 60, (3, 4)), np.ones((10, 10)))
    curve = tk.information_curve(np.random.default_rng(6).poisson(rates))
    assert curve.knee().rank == (3, 4)
    table = curve.to_pandas()
    assert set(table["path"]) == {"joint", "mode 0", "mode 1"}
    assert len(table) == len(curve.joint) + sum(map(len, curve.modes))
    assert "InformationCurve of 69 models" in repr(curve)
    assert "(3, 4)" in repr(curve)


def test_steps_are_reported() -> None:
    seen: list[tk.Step] = []
    curve = tk.information_curve(np.add.outer([1, 2, 3, 9], [1, 1, 8]), callback=seen.append)
    assert [step.iteration for step in seen] == list(range(1, 6))
    assert [step.loss for step in seen] == [point.kl for point in curve.joint[1:]]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"rank": 2, "retain": 0.9}, r"rank=2 and retain=0.9 contradict each other; give one of"),
        ({"retain": 0.9, "max_parameters": 50}, r"retain=0.9 and max_parameters=50 contradict each other"),
        ({"rank": "mdl", "retain": 0.9}, r"rank='mdl' and retain=0.9 contradict each other"),
        ({"retain": 0}, r"retain: got 0; give a share above 0, up to 1"),
        ({"retain": 1.5}, r"retain: got 1.5; give a share above 0, up to 1"),
        ({"retain": "all"}, r"retain: got 'all'; give a share"),
        ({"retain": math.nan}, r"retain: got nan; give a share"),
        ({"max_parameters": 0}, r"max_parameters: got 0; give an int from 1"),
        ({"max_parameters": 2.5}, r"max_parameters: got 2.5; give an int from 1"),
        ({"max_parameters": 9}, r"max_parameters: got 9, but the rank-1 model has 10; give at least that"),
        ({"retain": 0.9, "blocks": "uniform"}, r"blocks: a rank is chosen only for blocks that are searched for"),
        ({"rank": "aic"}, r"rank: unknown 'aic'; give one of 'mdl'"),
    ],
)
def test_bad_choices(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tk.ltr(np.ones((2, 3, 4)), **arguments)


def test_modes_that_know_nothing_of_each_other() -> None:
    """What is left of their information is rounding, of which nothing is to be kept."""
    rng = np.random.default_rng(0)
    for _ in range(100):
        assert tk.ltr(rng.poisson(540, 20).astype(np.float64), retain=0.9).rank == (1,)
        product = np.outer(rng.integers(1, 900, 20), rng.integers(1, 900, 30))
        assert tk.ltr(product, retain=0.9).rank == (1, 1)
        assert tk.information_curve(product).joint[-1].kept == 1
