"""Decompositions of tensors with gaps: the loss is the true one, never rises, and what is hidden comes back."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import tensors
from tucket.base.run import Run
from tucket.decomposition import gaps
from tucket.decomposition.gaps import Ladder
from tucket.decomposition.losses import LOSSES
from tucket.sources import observed as observed_module
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observed, observe


@st.composite
def gappy(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = draw(tensors(max_dims=4, dtypes=("<f8", "u1"))).astype(np.float64)
    kinds = st.sampled_from(draw(st.sampled_from([[0.0, 1.0, 1.0], [0.0, 0.5, 3.0]])))
    return x, np.array(draw(st.lists(kinds, min_size=x.size, max_size=x.size))).reshape(x.shape)


def observed(case: Any, few: int) -> tuple[Observed, NDArray[np.float64]] | None:
    """What is known of a case and its exposure, unless that is everything, or without mass."""
    x, exposure = case
    mask = exposure > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed_module, "FEW", few)
        known = observe(as_source(np.where(mask, x, np.nan)), mask, None if mask.all() else exposure)
    if not isinstance(known, Observed) or not x[mask].sum():
        return None
    return known, mask.astype(float) if known.weights is None else exposure


def slow_loss(loss: str, x: NDArray[np.float64], exposure: NDArray[np.float64], model: NDArray[np.float64]) -> float:
    """The loss by its definition."""
    mask = exposure > 0
    x, exposure, model = x[mask], exposure[mask], model[mask]
    if loss == "kl":
        return oracles.kl(x, exposure * model)
    return float(np.sqrt((exposure * (x / exposure - model) ** 2).sum() / (exposure * (x / exposure) ** 2).sum()))


@settings(max_examples=60)
@given(gappy(), st.sampled_from([1, 8, 1000]), st.integers(0, 100), st.sampled_from(["kl", "ls"]))
def test_the_loss_is_the_true_one_and_never_rises(case: Any, few: int, seed: int, loss: str) -> None:
    if (found := observed(case, few)) is None:
        return
    (known, exposure), x = found, case[0]
    ladder = Ladder(known, (2,) * x.ndim, LOSSES[loss], Run.of(2), has_levels=False)
    problem, rng = ladder.whole.problem, np.random.default_rng(seed)
    ranks = [min(2, size) for size in x.shape]
    parts = rng.random(ranks), [rng.random((size, r)) for size, r in zip(x.shape, ranks)]
    steps = problem.descend(problem.begin(parts))
    losses = []
    for _ in range(12):
        *model, distance = next(steps)
        core, factors = problem.end(tuple(model))
        reached = ladder.value(ladder.whole, distance)
        expected = slow_loss(loss, x, exposure, oracles.expand(core / ladder.scale, factors))
        assert reached == pytest.approx(expected, rel=1e-7, abs=1e-7 if loss == "ls" else 1e-9 * (1 + x.sum()))
        losses.append(reached)
    assert losses == sorted(losses, reverse=True)


@settings(max_examples=40)
@given(gappy(), st.sampled_from([1, 8, 1000]), st.integers(0, 100), st.sampled_from(["kl", "ls"]))
def test_a_coarse_level_knows_the_loss_of_the_whole(case: Any, few: int, seed: int, loss: str) -> None:
    if (found := observed(case, few)) is None:
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gaps, "COARSEST_CELLS", 1)
        patch.setattr(gaps, "MAX_OFFSET_SHARE", np.inf)
        ladder = Ladder(found[0], (1,) * case[0].ndim, LOSSES[loss], Run.of(2), has_levels=True)
    rng = np.random.default_rng(seed)
    for coarse, fine in pairwise(ladder.levels):
        parts = rng.random((2,) * case[0].ndim) * ladder.mass, [rng.random((len(m), 2)) for m in coarse.measures]
        on_both = [(coarse, parts), (fine, coarse.prolong(parts, fine))]
        one, other = (level.problem.distance(model) + level.offset for level, model in on_both)
        if np.isfinite(one):
            assert one == pytest.approx(other, rel=1e-8, abs=1e-9 * (1 + ladder.mass))


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("few", [8, 1000])
@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_what_is_hidden_comes_back(share: float, few: int, loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_module, "FEW", few)
    rng = np.random.default_rng(0)
    true = tk.Tucker(
        rng.random((2, 3, 2)), [rng.gamma(0.7, size=(size, r)) for size, r in zip((20, 25, 15), (2, 3, 2))]
    )
    x = true.to_tensor()
    hidden = rng.random(x.shape) < share
    x[hidden] = np.nan
    fit = tk.ntd(x, (2, 3, 2), loss=loss, observed="finite", n_iter_max=5000, tol=1e-12)
    assert np.abs(fit.to_tensor() - true.to_tensor()).max() < 1e-6 * true.to_tensor().max()
    np.testing.assert_array_equal(fit.fill(x)[~hidden], x[~hidden])


def test_coarse_levels_lead_to_fine_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gaps, "COARSEST_CELLS", 200)
    hours = np.exp(-((np.arange(40)[:, None] - [8, 25]) ** 2) / 50)
    x = np.random.default_rng(0).poisson(tk.Tucker(900 * np.eye(2), [hours, hours[::-1]]).to_tensor())
    mask = np.random.default_rng(1).random(x.shape) < 0.7
    for loss in ("kl", "ls"):
        fit = tk.ntd(x, 2, loss=loss, observed=mask)
        assert {step.level for step in fit.trace} == {0, 1, 2}
        exact = fit.kl(x, observed=mask) if loss == "kl" else slow_loss("ls", x, mask.astype(float), fit.to_tensor())
        assert fit.loss == pytest.approx(exact, rel=1e-9)


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_the_same_fit_in_every_form(loss: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    x, mask = rng.poisson(rng.gamma(0.5, 4.0, (12, 10, 8))).astype(float), rng.random((12, 10, 8)) < 0.6
    coords = np.nonzero(mask)
    start = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in x.shape])
    expected = tk.ntd(np.where(mask, x, np.nan), init=start, observed="finite", n_iter_max=20, loss=loss)
    np.save(tmp_path / "x.npy", np.where(mask, x, np.nan))
    for form, observed in (
        (x, mask),
        (np.ma.array(x, mask=~mask), "all"),
        (tk.from_entries(coords, x[mask], x.shape), "stored"),
        (tk.from_entries(np.nonzero(x), x[x > 0], x.shape), mask),
        (x, tk.from_entries(coords, np.ones(len(coords[0])), x.shape)),
        (tk.open(tmp_path / "x.npy"), "finite"),
        (tk.Stream(list(np.where(mask, x, np.nan)[:, None])), "finite"),
    ):
        found = tk.ntd(form, init=start, observed=observed, n_iter_max=20, loss=loss)
        assert found.loss == pytest.approx(expected.loss, rel=1e-8)
        if loss == "kl":
            assert found.loss == pytest.approx(found.kl(form, observed=observed), rel=1e-9)
    assert expected.kl(x, observed=mask) <= start.kl(x, observed=mask)


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_dask_arrays_are_read_where_they_are(loss: Any) -> None:
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    x = np.where(rng.random((12, 10, 8)) < 0.7, rng.poisson(3.0, (12, 10, 8)), np.nan)
    start = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in x.shape])
    expected = tk.ntd(x, init=start, observed="finite", n_iter_max=10, loss=loss)
    chunks = dask.from_array(x, chunks=(5, 10, 4))
    assert tk.ntd(chunks, init=start, observed="finite", n_iter_max=10, loss=loss).loss == pytest.approx(expected.loss)


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_the_unit_of_the_data_does_not_matter(loss: Any) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.poisson(4.0, (8, 7, 6)).astype(float), rng.random((8, 7, 6)) < 0.7
    start = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in x.shape])
    losses = []
    for unit in (1.0, 2.0**-900, 2.0**900):
        given = tk.Tucker(start.core * unit, start.factors)
        losses.append(tk.ntd(unit * x, init=given, observed=mask, loss=loss, n_iter_max=10).loss)
        losses[-1] /= unit if loss == "kl" else 1
    assert losses == pytest.approx([losses[0]] * 3, rel=1e-9)


def test_all_known_is_the_usual_fit() -> None:
    x = np.random.default_rng(0).poisson(3.0, (8, 7, 6)).astype(float)
    assert tk.ntd(x, 2, observed="finite") == tk.ntd(x, 2) == tk.ntd(x, 2, observed=np.ones(x.shape, bool))


def test_what_is_hidden_has_no_influence() -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.poisson(3.0, (8, 7, 6)).astype(float), rng.random((8, 7, 6)) < 0.7
    fits = [tk.ntd(np.where(mask, x, hidden), 2, observed=mask) for hidden in (0.0, -1.0, np.nan, 1e300)]
    assert all(fit == fits[0] for fit in fits)
    assert fits[0].loss <= tk.ltr(x, 2, observed=mask).kl(x, observed=mask)


def test_ratings_are_never_made_dense() -> None:
    rng = np.random.default_rng(0)
    coords = np.unique(rng.integers(0, (5000, 100), (4000, 2)), axis=0).T
    x = scipy.sparse.coo_array((rng.integers(1, 6, coords.shape[1]), tuple(coords)), shape=(5000, 100_000))
    fit = tk.ntd(x, 2, observed="stored", init="random", n_iter_max=5)
    assert fit.loss < fit.trace[0].loss
    assert fit.predict(list(coords)).shape == (coords.shape[1],)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"multilevel": False}, "observed: multilevel=False is for"),
        ({"finest": 100}, "observed: finest=100 is for"),
        ({"preset": "paper"}, "observed: preset='paper' is for"),
        ({"init": "hosvd"}, "init: 'hosvd' is for tensors without gaps; give 'auto', 'ltr', 'random', or a model"),
        ({"rank": None}, "rank is missing"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tk.ntd(np.where(np.eye(3, 4) > 0, np.nan, 1.0), **{"rank": 2, "observed": "finite", **options})
