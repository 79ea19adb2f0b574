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

from sklearn.base import clone
from sklearn.datasets import load_digits
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks


@parametrize_with_checks([tk.LTR(), tk.LTR(rank=2, blocks="random", random_state=0)])  # type: ignore[untyped-decorator]
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


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: tk.LTR((None, 9, 4)).fit(x), "mode 1: rank 9 is larger than its size 8"),
        (lambda x: tk.LTR((None, 4)).fit(x), "rank: got 2 entries for 3 modes"),
        (lambda x: tk.LTR(0).fit(x), "mode 1: rank 0 is too small"),
        (lambda x: tk.LTR(blocks="tall").fit(x), "blocks: unknown 'tall'"),
        (lambda x: tk.LTR(2).fit(-x), "Negative values"),
        (lambda x: tk.LTR(2).fit(x).transform(x[:, :, :7]), "X has samples of shape (8, 7); give (8, 8), as in fit"),
        (lambda x: tk.LTR(2).fit(x).inverse_transform(np.ones((3, 5))), "X has shape (3, 5); give (samples, 4)"),
    ],
)
def test_bad_calls(images: NDArray[np.float64], call: Any, message: str) -> None:
    with pytest.raises(ValueError) as caught:  # noqa: PT011
        call(images)
    assert message in str(caught.value)
