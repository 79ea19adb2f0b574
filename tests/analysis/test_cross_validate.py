"""Held-out cells: hidden from the fit, judged by their true loss, and enough to find the rank."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import tensors
from tucket.base.run import Run
from tucket.projection import held_out
from tucket.projection.cross_validation import Score
from tucket.projection.held_out import MIXES, choose_rank, draw_places, make_folds
from tucket.projection.ltr import fit_blocks
from tucket.sources.as_source import as_source
from tucket.sources.observed import observe


def plant_blocks(rank: tuple[int, ...], shape: tuple[int, ...], mean: float, seed: int = 0) -> NDArray[np.int64]:
    """Poisson counts with blocks of indices in any order."""
    rng = np.random.default_rng(seed)
    labels = [rng.permutation(np.arange(size) % r) for size, r in zip(shape, rank)]
    rates = rng.gamma(1.0, 1.0, rank)[np.ix_(*labels)]
    return np.asarray(rng.poisson(rates * mean / rates.mean()))


def plant_components(rank: tuple[int, ...], shape: tuple[int, ...], mean: float) -> NDArray[np.int64]:
    """Poisson counts with a mixture of components for each index."""
    rng = np.random.default_rng(0)
    core = rng.gamma(0.5, 1.0, rank)
    rates = oracles.expand(core, [rng.gamma(0.3, 1.0, (size, r)) for size, r in zip(shape, rank)])
    return np.asarray(rng.poisson(rates * mean / rates.mean()))


@given(st.integers(1, 5000), st.floats(0.01, 0.9), st.integers(0, 1000))
def test_places_are_drawn_once_and_in_order(size: int, share: float, seed: int) -> None:
    places = draw_places(size, share, np.random.default_rng(seed))
    assert (np.diff(places) > 0).all()
    assert not len(places) or (places[0] >= 0 and places[-1] < size)


def test_every_place_is_drawn_with_the_same_probability() -> None:
    rng = np.random.default_rng(0)
    counts = np.zeros(50)
    for _ in range(4000):
        counts[draw_places(50, 0.1, rng)] += 1
    assert abs(counts - 400).max() < 5 * np.sqrt(400 * 0.9)


@settings(max_examples=60)
@given(
    tensors(min_dims=1, max_dims=4, dtypes=("<f8", "u1")),
    st.sampled_from(["dense", "sparse", "stored", "hidden", "exposure"]),
    st.integers(0, 100),
)
def test_what_is_held_out_is_known_and_hidden_from_the_fit(x: NDArray[Any], form: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    exposure = np.ones(x.shape)
    coords = np.nonzero(np.ones(x.shape) if form == "stored" else x)
    given: Any = x
    if form in ("sparse", "stored") and x.ndim > 1:
        assume(x.any())
        given = tk.from_entries(coords, x[coords].astype(float), x.shape)
    if form == "hidden":
        exposure = (rng.random(x.shape) < 0.7).astype(float)
    if form == "exposure":
        exposure = rng.choice([0.0, 0.5, 2.0], x.shape)
    known = observe(
        as_source(given),
        "stored"
        if form == "stored" and x.ndim > 1
        else "all"
        if form in ("sparse", "dense", "stored")
        else exposure > 0,
        exposure if form == "exposure" else None,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(held_out, "LEAST_ENTRIES", 0)
        try:
            folds = make_folds(known, 2, 0.3, np.random.default_rng(seed), Run.of(1))
        except ValueError:  # too few entries
            assume(False)
    for fold in folds:
        at = tuple(fold.cells.coords)
        np.testing.assert_array_equal(fold.cells.x, x[at])
        np.testing.assert_array_equal(fold.cells.exposure, exposure[at])
        assert (fold.cells.exposure > 0).all()
        part = fold.train.part.to_numpy()
        seen = 1.0 - part if fold.train.is_complement else part
        expected = exposure.copy()
        expected[at] = 0
        np.testing.assert_array_equal(seen, expected)
        np.testing.assert_array_equal(fold.train.x.to_numpy(), np.where(expected > 0, x, 0))


@pytest.mark.parametrize("by_mass", [True, False])
def test_held_out_losses_are_those_of_the_definition(by_mass: bool) -> None:
    rng = np.random.default_rng(0)
    x, exposure = rng.poisson(2.0, (9, 8, 7)), rng.choice([0.0, 0.5, 2.0], (9, 8, 7))
    known = observe(as_source(x), exposure > 0, exposure)
    (fold,) = make_folds(known, 1, 0.2, rng, Run.of(1))
    model = tk.ltr(rng.poisson(1.0, x.shape), 2)
    at = tuple(fold.cells.coords)
    p, e, q, simple = x[at], exposure[at], model.to_tensor()[at], fold.rank1.to_tensor()[at]
    if by_mass:
        expected = [oracles.kl(p, e * ((1 - mix) * q + mix * simple)) for mix in MIXES]
    else:
        expected = [float((e * (p / e - q) ** 2).sum())]
    np.testing.assert_allclose(fold.losses(model, by_mass), expected, rtol=1e-9)


def test_a_model_with_zeros_has_a_finite_score() -> None:
    x = np.zeros((20, 20), int)
    x[np.arange(20), np.arange(20)] = 5
    x[3, 4] = 1
    table = tk.cross_validate(x, [20], share=0.3)
    assert np.isfinite(table.least.losses).all()
    assert table.least.mix > MIXES[0]


@pytest.mark.parametrize("mean", [0.7, 3.0, 20.0])
def test_the_rank_of_planted_blocks_is_found(mean: float) -> None:
    x = plant_blocks((4, 3, 3), (40, 30, 20), mean)
    assert np.abs(np.subtract(tk.ltr(x, "cv").rank, (4, 3, 3))).max() <= 1


@pytest.mark.parametrize("mean", [0.7, 3.0, 20.0])
def test_the_rank_of_planted_components_is_found(mean: float) -> None:
    x = plant_components((2, 3, 2), (24, 20, 16), mean)
    assert np.abs(np.subtract(tk.ntd(x, "cv").rank, (2, 3, 2))).max() <= 1


def test_ltr_and_ntd_take_the_best_rank_of_the_table() -> None:
    x = plant_blocks((2, 3), (30, 20), 4.0)
    assert tk.ltr(x, "cv") == tk.ltr(x, tk.cross_validate(x).best())
    fit = tk.cross_validate(x, method="ntd")
    assert tk.ntd(x, "cv").rank == fit.best()
    gappy = np.where(np.random.default_rng(1).random(x.shape) < 0.2, np.nan, x)
    assert tk.ltr(gappy, "cv", observed="finite").rank == tk.cross_validate(gappy, observed="finite").best()


def test_it_is_the_same_each_time_and_with_any_number_of_threads() -> None:
    x = plant_blocks((2, 3), (30, 20), 4.0)
    tables = [tk.cross_validate(x, [1, 2, 3], workers=workers) for workers in (1, 2, 5)]
    assert tables[0] == tables[1] == tables[2]
    assert tk.cross_validate(x, [1, 2, 3], rng=1) != tables[0]


def test_ranks_by_name_steps_and_tables() -> None:
    x = plant_blocks((2, 3, 2), (20, 15, 10), 4.0)
    seen: list[tk.Step] = []
    table = tk.cross_validate(
        x, [2, (1, 3, None), {"user": 2, "hour": 3}], names=("user", "item", "hour"), callback=seen.append
    )
    assert [score.rank for score in table.scores] == [(2, 2, 2), (1, 3, 10), (2, 15, 3)]
    assert [step.loss for step in seen] == [score.loss for score in table.scores]
    pytest.importorskip("pandas")
    frame = table.to_pandas()
    assert list(frame.columns[:3]) == ["user", "item", "hour"]
    assert frame.held_out.is_monotonic_increasing
    assert frame.difference.iloc[0] == frame.standard_error.iloc[0] == 0


def test_the_smallest_model_within_one_standard_error_is_best() -> None:
    def score(rank: int, *losses: float) -> Score:
        return Score((rank,), 10 * rank, losses, 0.0, 0.0)

    table = tk.CrossValidation((score(1, 3, 4), score(2, 1.1, 1.9), score(3, 1.2, 1.6)), "KL / sum")
    assert table.best("least") == (3,)
    assert table.best() == (2,)  # worse by 0.1 on average, with a standard error of 0.2
    assert "<- best" in repr(table).splitlines()[3]
    with pytest.raises(ValueError, match="rule: unknown 'most'"):
        table.best("most")  # type: ignore[arg-type]


def test_sparse_tensors_are_not_made_dense() -> None:
    rng = np.random.default_rng(0)
    coords = np.unique(rng.integers(0, (3000, 2000), (60_000, 2)), axis=0).T
    x = scipy.sparse.coo_array((rng.integers(1, 6, coords.shape[1]), tuple(coords)), shape=(3000, 2000))
    table = tk.cross_validate(x, [1, 2], folds=2)
    assert table.least.rank == (1, 1)
    stored = tk.cross_validate(x, [1, 2], folds=2, observed="stored")
    assert stored.least.loss < table.least.loss


def test_a_plot_shows_the_table() -> None:
    pytest.importorskip("matplotlib").use("agg")
    table = tk.cross_validate(plant_blocks((2, 3), (30, 20), 4.0), [1, 2, 4])
    ax = table.plot()
    assert ax.get_ylabel() == "KL / sum"
    np.testing.assert_allclose(np.array(ax.lines[0].get_ydata(), float), [score.loss for score in table.scores])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ranks": 3}, r"ranks: got 3; give a sequence of ranks to compare"),
        ({"ranks": []}, "ranks: got none"),
        ({"method": "svd"}, "method: unknown 'svd'"),
        ({"share": 1.0}, "share: got 1.0; give a share between 0 and 1"),
        ({"folds": 0}, "folds"),
        ({"loss": "ls"}, "method='ltr' has no option 'loss'; it has 'blocks', 'max_sweeps'"),
        ({"method": "ntd", "blocks": "uniform"}, "method='ntd' has no option 'blocks'"),
        ({"method": "ntd", "loss": "l1"}, "loss: unknown 'l1'"),
        ({"x": np.full((2, 2), np.nan)}, "is nan"),
        ({"x": np.zeros((9, 9))}, "too few entries above 0"),
        ({"x": scipy.sparse.coo_array(([1.0], ([0], [0])), shape=(900, 900))}, "observed='stored'"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tk.cross_validate(**{"x": np.ones((9, 9)), "ranks": [1, 2], **options})


def test_statistics_have_no_cells_and_given_blocks_no_rank() -> None:
    with pytest.raises(TypeError, match="statistics have no cells that could be held out"):
        tk.ltr(tk.collect(np.ones((4, 4)), 2), "cv")
    for blocks in ("uniform", ("clusters", [0, 2]), (None, "segments")):
        with pytest.raises(ValueError, match="a rank is chosen only for blocks that are searched for in every mode"):
            tk.ltr(np.ones((4, 4)), "cv", blocks=blocks)
    assert tk.ltr(plant_blocks((2, 2), (20, 10), 5.0), "cv", blocks="segments").partition[0].contiguous


def test_a_search_ends_with_its_time() -> None:
    x = plant_blocks((4, 5, 3), (60, 50, 40), 3.0)
    known, fit = as_source(x), fit_blocks()
    assert choose_rank(known, fit, True, Run.of(1, seconds=1e-9)) == (1, 1, 1)
    assert tk.ltr(x, "cv", max_seconds=1e-9).rank == (1, 1, 1)
