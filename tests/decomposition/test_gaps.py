"""Decompositions of tensors with gaps: the loss is the true one, never rises, and what is hidden comes back."""

from __future__ import annotations

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
from tucket.decomposition.gaps import ObservedDivergence
from tucket.sources import observed as observed_module
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observed, observe


@st.composite
def gappy(draw: st.DrawFn) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    x = draw(tensors(max_dims=4, dtypes=("<f8", "u1"))).astype(np.float64)
    kinds = st.sampled_from(draw(st.sampled_from([[0.0, 1.0, 1.0], [0.0, 0.5, 3.0]])))
    return x, np.array(draw(st.lists(kinds, min_size=x.size, max_size=x.size))).reshape(x.shape)


@settings(max_examples=60)
@given(gappy(), st.sampled_from([1, 8, 1000]), st.integers(0, 100))
def test_the_divergence_is_the_true_one_and_never_rises(case: Any, few: int, seed: int) -> None:
    x, exposure = case
    mask = exposure > 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed_module, "FEW", few)
        known = observe(as_source(np.where(mask, x, np.nan)), mask, None if mask.all() else exposure)
    if not isinstance(known, Observed) or not x[mask].sum():
        return
    if known.weights is None:
        exposure = mask.astype(float)
    problem, rng = ObservedDivergence(known, Run.of(2)), np.random.default_rng(seed)
    parts = problem.begin((rng.random((2,) * x.ndim), [rng.random((size, 2)) for size in x.shape]))
    steps = problem.descend(parts)
    losses = []
    for _ in range(12):
        core, factors, divergence = next(steps)
        q = exposure * oracles.expand(core, factors)
        assert divergence == pytest.approx(oracles.kl(x[mask], q[mask]), rel=1e-7, abs=1e-9 * (1 + x[mask].sum()))
        losses.append(divergence)
    assert losses == sorted(losses, reverse=True)


@pytest.mark.parametrize("share", [0.1, 0.5, 0.8])
@pytest.mark.parametrize("few", [8, 1000])
def test_what_is_hidden_comes_back(share: float, few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observed_module, "FEW", few)
    rng = np.random.default_rng(0)
    true = tk.Tucker(
        rng.random((2, 3, 2)), [rng.gamma(0.7, size=(size, r)) for size, r in zip((20, 25, 15), (2, 3, 2))]
    )
    x = true.to_tensor()
    hidden = rng.random(x.shape) < share
    x[hidden] = np.nan
    fit = tk.ntd(x, (2, 3, 2), observed="finite", n_iter_max=5000, tol=1e-12)
    # the divergence is known to some 1e-14 of the total: errors whose squares are less than that are not seen
    assert np.abs(fit.to_tensor() - true.to_tensor()).max() < 2e-5 * true.to_tensor().max()
    np.testing.assert_array_equal(fit.fill(x)[~hidden], x[~hidden])


def test_the_same_fit_in_every_form() -> None:
    rng = np.random.default_rng(1)
    x, mask = rng.poisson(rng.gamma(0.5, 4.0, (12, 10, 8))).astype(float), rng.random((12, 10, 8)) < 0.6
    coords = np.nonzero(mask)
    start = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in x.shape])
    expected = tk.ntd(np.where(mask, x, np.nan), init=start, observed="finite", n_iter_max=20)
    for form, observed in (
        (x, mask),
        (np.ma.array(x, mask=~mask), "all"),
        (tk.from_entries(coords, x[mask], x.shape), "stored"),
        (tk.from_entries(np.nonzero(x), x[x > 0], x.shape), mask),
        (x, tk.from_entries(coords, np.ones(len(coords[0])), x.shape)),
    ):
        found = tk.ntd(form, init=start, observed=observed, n_iter_max=20)
        assert found.loss == pytest.approx(expected.loss, rel=1e-8)
        assert found.loss == pytest.approx(found.kl(form, observed=observed), rel=1e-9)
    assert expected.kl(x, observed=mask) <= start.kl(x, observed=mask)


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
        ({"loss": "ls"}, "observed: loss='ls' is for tensors without gaps; leave loss out"),
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
