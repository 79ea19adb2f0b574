"""The scikit-learn transformer: the contract of scikit-learn for matrices, and ours for tensors."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import tensors

pytest.importorskip("sklearn")

from scipy.optimize import nnls
from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

ESTIMATORS = [
    tk.LTR(),
    tk.LTR(rank=2, blocks="random", random_state=0),
    tk.LTR(observed="finite"),
    tk.NTD(rank=3),
    tk.NTD(rank=2, loss="ls", random_state=0),
    tk.NTD(rank=2, observed="finite"),
]


@parametrize_with_checks(ESTIMATORS)  # type: ignore[untyped-decorator]
def test_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


@pytest.fixture(scope="module")
def images() -> NDArray[np.float64]:
    loaded: NDArray[np.float64] = load_digits().images
    return loaded


@settings(max_examples=60)
@given(x=tensors(min_dims=2, max_dims=4, dtypes=("<f8", "<i4")), data=st.data())
def test_features_are_block_sums(x: NDArray[Any], data: st.DataObject) -> None:
    rank = (None, *(data.draw(st.integers(1, size)) for size in x.shape[1:]))
    model = tk.LTR(rank, blocks=data.draw(st.sampled_from(["clusters", "segments", "uniform"])))
    features = model.fit_transform(x)
    whole = np.arange(len(x))
    labels = [whole, *(blocks.labels for blocks in model.partition_.modes)]
    np.testing.assert_allclose(features, oracles.block_sums(x, labels).reshape(len(x), -1), rtol=1e-12)
    # for the samples it was fitted to, it is LTR with the samples left whole
    partition = tk.Partition((tk.Blocks.uniform(len(x), len(x)), *model.partition_.modes))
    expected = tk.ltr(x, blocks=partition)
    np.testing.assert_allclose(model.inverse_transform(features), expected.to_tensor(), rtol=1e-9, atol=1e-12)
    total = x.sum()
    assert model.score(x) == pytest.approx(-expected.kl(x) / total if total else 0.0, abs=1e-9)


def test_new_samples(images: NDArray[np.float64]) -> None:
    model = tk.LTR((None, 4, 4)).fit(images[:1000])
    features = model.transform(images[1000:])
    assert features.shape == (797, 16)
    np.testing.assert_allclose(features.sum(axis=1), images[1000:].sum(axis=(1, 2)))
    back = model.inverse_transform(features)
    assert back.shape == (797, 8, 8)
    np.testing.assert_allclose(model.transform(back), features, rtol=1e-9)
    assert model.score(images[1000:]) < 0
    assert tk.LTR((None, 8, 8)).fit(images).score(images) == pytest.approx(0, abs=1e-12)


def test_samples_may_have_a_rank(images: NDArray[np.float64]) -> None:
    model = tk.LTR((10, 4, 4)).fit(images)
    assert model.labels_.shape == (1797,)
    assert set(model.labels_) == set(range(10))
    assert model.transform(images).shape == (1797, 16)


def test_rank_by_mode(images: NDArray[np.float64]) -> None:
    model = tk.LTR({1: 4}).fit(images)
    assert model.partition_.rank == (4, 8)
    np.testing.assert_array_equal(model.transform(images), tk.LTR((None, 4, None)).fit_transform(images))
    assert set(tk.LTR({0: 10, -1: 4}).fit(images).labels_) == set(range(10))
    with pytest.raises(IndexError, match="rank: mode 3 is out of range for 3 modes"):
        tk.LTR({3: 4}).fit(images)


def test_partial_fit_adds_data(images: NDArray[np.float64]) -> None:
    parts = tk.LTR((None, 4, 3), blocks="uniform")
    for part in np.array_split(images, 7):
        parts.partial_fit(part)
    whole = tk.LTR((None, 4, 3), blocks="uniform").fit(images)
    for ours, expected in zip(parts.weights_, whole.weights_):
        np.testing.assert_allclose(ours, expected, rtol=1e-12)
    np.testing.assert_allclose(parts.transform(images), whole.transform(images))


def test_scikit_learn_tools(images: NDArray[np.float64]) -> None:
    model = tk.LTR((None, 3, 3), random_state=0)
    assert clone(model).get_params() == model.get_params()
    model.fit(images)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(images), model.transform(images))
    assert model.get_feature_names_out().tolist() == [f"ltr{k}" for k in range(9)]
    frame = clone(model).set_output(transform="pandas").fit_transform(images)
    assert list(frame.columns) == [f"ltr{k}" for k in range(9)]
    search = GridSearchCV(tk.LTR(blocks="uniform"), {"rank": [(None, 2, 2), (None, 4, 4), (None, 8, 8)]}, cv=3)
    assert search.fit(images).best_params_ == {"rank": (None, 8, 8)}
    y = load_digits().target
    pipeline = make_pipeline(tk.LTR((None, 4, 4)), StandardScaler(), LogisticRegression(max_iter=2000))
    assert pipeline.fit(images[:1200], y[:1200]).score(images[1200:], y[1200:]) > 0.8


@pytest.fixture(scope="module")
def gaps(images: NDArray[np.float64]) -> NDArray[np.float64]:
    """Three digits in ten of which some pixels are not known; of one, none is."""
    holes = np.random.default_rng(0).random(images.shape) < 0.1
    holes[np.arange(len(images)) % 10 > 2] = False
    holes[1] = True
    return np.where(holes, np.nan, images)


def test_features_of_samples_with_gaps(gaps: NDArray[np.float64]) -> None:
    """For fixed weights, each block sum is what is known of it, scaled up by the weights there; or the mean."""
    model = tk.LTR((None, 3, 3), blocks="segments", observed="finite").fit(gaps)
    fitted = tk.ltr(gaps, (None, 3, 3), blocks=(None, "segments", "segments"), observed="finite")
    features = model.transform(gaps)
    np.testing.assert_array_equal(model.fit_transform(gaps), features)
    for ours, expected in zip(model.weights_, fitted.weights[1:]):
        np.testing.assert_allclose(ours, expected, rtol=1e-9)
    np.testing.assert_allclose(model.means_, fitted.core.mean(axis=0).ravel(), rtol=1e-9)
    rows, columns = (blocks.labels for blocks in model.partition_.modes)
    weights = np.multiply.outer(*model.weights_)
    for sample in (0, 1, 2, 5):
        for block in range(9):
            inside = np.logical_and.outer(rows == block // 3, columns == block % 3) & np.isfinite(gaps[sample])
            known, part = gaps[sample][inside].sum(), weights[inside].sum()
            expected = known / part if inside.any() and part else model.means_[block]
            assert features[sample, block] == pytest.approx(expected, rel=1e-9)


def test_gaps_are_filled() -> None:
    rng = np.random.default_rng(0)
    rates = np.multiply.outer(rng.gamma(2, 50, 300), np.multiply.outer(*rng.dirichlet(np.full(6, 4), 2)))
    x = rng.poisson(rates).astype(np.float64)
    x[rng.random(x.shape) < 0.2] = np.nan
    train, new = x[:200], x[200:]
    known = np.isfinite(new)
    model = tk.LTR((None, 1, 1), observed="finite").fit(train)
    back = model.inverse_transform(model.transform(new))
    wrong = np.abs(back - rates[200:])[~known].mean()
    assert wrong < 0.4 * np.abs(np.nanmean(train, axis=0) - rates[200:])[~known].mean()
    assert model.score(new) == pytest.approx(-tk.metrics.kl(new[known], back[known]) / np.nansum(new))


def test_what_is_masked_is_not_known(gaps: NDArray[np.float64], images: NDArray[np.float64]) -> None:
    holes = np.isnan(gaps)
    model = tk.LTR((None, 6, 6), observed="finite").fit(gaps)
    masked = np.ma.array(np.where(holes, 99.0, images), mask=holes)
    np.testing.assert_array_equal(model.transform(masked), model.transform(gaps))
    whole = tk.LTR((None, 6, 6), observed="finite").fit(images)
    np.testing.assert_array_equal(whole.transform(images), tk.LTR((None, 6, 6)).fit_transform(images))


def test_partial_fit_fills_gaps(gaps: NDArray[np.float64]) -> None:
    parts = tk.LTR((None, 4, 4), blocks="uniform", observed="finite")
    for part in np.array_split(gaps, 5):
        parts.partial_fit(part)
    whole = tk.LTR((None, 4, 4), blocks="uniform", observed="finite").fit(gaps)
    for ours, expected in zip((*parts.weights_, parts.means_), (*whole.weights_, whole.means_)):
        np.testing.assert_allclose(ours, expected, rtol=0.02, atol=0.01)


def test_rank_by_held_out_cells() -> None:
    x = np.random.default_rng(0).poisson(np.kron([[9, 1, 4], [2, 7, 4]], np.ones((10, 4)))).astype(np.float64)
    model = tk.LTR("cv").fit(x)
    assert (max(model.labels_) + 1, *model.partition_.rank) == tk.ltr(x, "cv").rank
    assert len(tk.NTD("cv").fit(x).components_) == tk.ntd(x, "cv").rank[0]
    x[3, 5] = np.nan
    model = tk.LTR("cv", observed="finite").fit(x)
    assert (max(model.labels_) + 1, *model.partition_.rank) == tk.ltr(x, "cv", observed="finite").rank


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_coordinates_are_the_nearest(images: NDArray[np.float64], loss: str) -> None:
    model = tk.NTD((6, 4, 4), loss=loss, n_iter_max=5000).fit(images[:300])
    parts = model.components_.reshape(6, -1)
    np.testing.assert_allclose(parts.sum(axis=1), 1)
    fitted = model.model_.to_tensor()
    back = model.inverse_transform(model.transform(images[:300]))
    measure = tk.metrics.kl if loss == "kl" else tk.metrics.relative_error
    assert measure(images[:300], back) <= measure(images[:300], fitted) * (1 + 1e-6)
    features, x = model.transform(images[300:330]), images[300:330].reshape(30, -1)
    if loss == "ls":
        expected = [nnls(parts.T, each)[0] for each in x]
        np.testing.assert_allclose(features, expected, atol=1e-3 * x.sum(axis=1).max())
    else:
        np.testing.assert_allclose(features.sum(axis=1), x.sum(axis=1))
        slopes = 1 - np.divide(x, features @ parts, where=x > 0, out=np.zeros_like(x)) @ parts.T
        assert slopes.min() > -1e-3
        assert np.abs(slopes * features).max() < 1e-3 * x.sum(axis=1).max()
    np.testing.assert_array_equal(model.means_.shape, (6,))
    assert model.get_feature_names_out().tolist() == [f"ntd{k}" for k in range(6)]
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).transform(images[300:330]), features)


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_components_fill_gaps(loss: str) -> None:
    rng = np.random.default_rng(0)
    x = np.tensordot(rng.gamma(2, 10, (60, 2)), rng.gamma(0.5, 1, (2, 6, 5)), axes=1)
    holes = rng.random(x.shape) < 0.2
    holes[3] = True
    gaps = np.where(holes, np.nan, x)
    model = tk.NTD((2, None, None), loss=loss, observed="finite", tol=1e-7).fit(gaps[:40])
    back = model.inverse_transform(model.transform(gaps))
    others = np.arange(60) != 3
    assert tk.metrics.relative_error(x[others], back[others]) < 0.02
    np.testing.assert_allclose(model.transform(gaps[3:4])[0], model.means_)
    assert model.score(gaps[40:]) > -1e-3


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tk.LTR((None, 9, 4)).fit(x), "mode 1: rank 9 is larger than its size 8"),
        (lambda x: tk.LTR((None, 4)).fit(x), "rank: got 2 entries for 3 modes"),
        (lambda x: tk.LTR(0).fit(x), "mode 1: rank 0 is too small"),
        (lambda x: tk.LTR(blocks="tall").fit(x), "blocks: unknown 'tall'"),
        (lambda x: tk.LTR(2).fit(-x), "Negative values"),
        (lambda x: tk.LTR(2, observed="finite").fit(np.where(x > 9, np.nan, -x)), "Negative values"),
        (lambda x: tk.LTR(2).fit(np.where(x > 9, np.nan, x)), "Input X contains NaN"),
        (lambda x: tk.LTR(2).fit(np.ma.masked_greater(x, 9)), "Input X contains NaN"),
        (lambda x: tk.LTR(2, observed="finite").fit(np.where(x > 9, np.inf, x)), "Input X contains infinity"),
        (lambda x: tk.NTD(2, loss="is").fit(x), "loss: unknown 'is'; give one of 'kl', 'ls'"),
        (lambda x: tk.NTD((2, 99, 2)).fit(x), "mode 1: rank 99 is larger than its size 8"),
        (
            lambda x: tk.NTD(2).fit(x[:9]).inverse_transform(np.ones((3, 5))),
            "one column per component",
        ),
        (lambda x: tk.NTD(2, observed="finite").fit(np.where(x > 9, np.nan, -x)), "data passed to NTD"),
        (lambda x: tk.LTR(2, observed="stored").fit(x), "observed: unknown 'stored'; give one of 'all', 'finite'"),
        (lambda x: tk.LTR(2).fit(x).transform(x[:, :, :7]), "X has samples of shape (8, 7); give (8, 8), as in fit"),
        (lambda x: tk.LTR(2).fit(x).inverse_transform(np.ones((3, 5))), "X has shape (3, 5); give (samples, 4)"),
    ],
)
def test_bad_calls(images: NDArray[np.float64], call: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call(images)
    assert message in str(caught.value)
