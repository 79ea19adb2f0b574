from __future__ import annotations

import copy
import pickle
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import cut_tensors

Case = tuple[NDArray[Any], tk.Partition]


def random_tucker(shape: tuple[int, ...], rank: tuple[int, ...], seed: int = 0) -> tk.Tucker:
    rng = np.random.default_rng(seed)
    return tk.Tucker(rng.random(rank), [rng.random(extent) for extent in zip(shape, rank)])


def by_definition(model: Any) -> NDArray[np.float64]:
    core, factors = model
    tensor = np.zeros(model.shape)
    for index in np.ndindex(model.shape):
        for place in np.ndindex(core.shape):
            term = core[place]
            for factor, i, j in zip(factors, index, place):
                term *= factor[i, j]
            tensor[index] += term
    return tensor


@pytest.mark.parametrize(
    ("shape", "rank"), [((5,), (2,)), ((4, 3), (2, 3)), ((3, 1, 4), (2, 1, 2)), ((2, 3, 2, 2), (1, 2, 2, 2))]
)
def test_to_tensor_is_the_definition(shape: tuple[int, ...], rank: tuple[int, ...]) -> None:
    dense = random_tucker(shape, rank)
    np.testing.assert_allclose(dense.to_tensor(), by_definition(dense), rtol=1e-13)
    blocks = tk.ltr(dense.to_tensor(), rank)
    np.testing.assert_allclose(blocks.to_tensor(), by_definition(blocks), rtol=1e-13)
    assert dense.to_tensor().flags.c_contiguous
    assert blocks.to_tensor().flags.c_contiguous


@given(cut_tensors(), st.data())
def test_a_part_is_that_part_of_the_whole(case: Case, data: st.DataObject) -> None:
    x, partition = case
    block = tk.ltr(x, blocks=partition)
    for model in (block, tk.Tucker(*block)):
        index = data.draw(hnp.basic_indices(x.shape, allow_newaxis=False))
        np.testing.assert_allclose(model[index], model.to_tensor()[index], rtol=1e-14)
        assert np.shape(model[index]) == model.to_tensor()[index].shape


def test_a_part_costs_no_more_than_it_is() -> None:
    """The whole of this tensor would not fit any machine."""
    shape = (10**6, 10**5, 10**4)
    marginals = [np.full(size, 1 / 2) for size in shape]
    model = tk.BlockTucker(np.ones((2, 2, 2)), tk.Partition.uniform(shape, 2), marginals)
    assert model[3, 10:13, -1].tolist() == [0.125] * 3
    assert model[3, 4, 5] == 0.125
    assert model[::100_000, 0, ::5_000].shape == (10, 2)


def test_factors_of_a_long_mode_are_built_only_when_asked() -> None:
    """Dense, the factor of this mode would be of 8 TB."""
    size, rank = 10**6, 10**6
    model = tk.ltr(np.ones((size, 2)), (rank, 1))
    sparse = model.sparse_factors()
    assert sparse[0].shape == (size, rank)
    assert sparse[0].nnz == size
    assert model.n_parameters == rank + size + 2


@given(cut_tensors(max_dims=3))
def test_sparse_factors_are_the_dense_ones(case: Case) -> None:
    x, partition = case
    model = tk.ltr(x, blocks=partition)
    for sparse, dense, same in zip(model.sparse_factors(), model.dense_factors(), model.factors):
        assert np.array_equal(sparse.toarray(), dense)
        assert np.array_equal(same, dense)


def test_tensorly_takes_models_as_they_are() -> None:
    tensorly = pytest.importorskip("tensorly")
    x = np.random.default_rng(0).random((4, 5, 6))
    for model in (tk.ltr(x, 2), tk.Tucker(*tk.ltr(x, 3)), tk.ltr(x, (None, 2, 2))):
        np.testing.assert_allclose(tensorly.tucker_to_tensor(model), model.to_tensor(), rtol=1e-13)
        _, factors = model
        assert [factor.shape for factor in factors] == list(zip(model.shape, model.rank))
        validated = tensorly.tucker_tensor.TuckerTensor(model)
        np.testing.assert_allclose(validated.to_tensor(), model.to_tensor(), rtol=1e-13)
    assert tk.Tucker(*validated) == tk.Tucker(*model)


def test_counts_of_parameters() -> None:
    x = np.ones((4, 5, 6))
    assert tk.ltr(x, (2, 3, 1)).n_parameters == 2 * 3 * 1 + 4 + 5 + 6
    assert random_tucker((4, 5), (2, 3)).n_parameters == 2 * 3 + 4 * 2 + 5 * 3


@given(cut_tensors(dtypes=("<f4", "u1", "<f8")))
def test_float32_models(case: Case) -> None:
    x, partition = case
    model, full = tk.ltr(x, blocks=partition, dtype=np.float32), tk.ltr(x, blocks=partition)
    assert model.dtype == model.to_tensor().dtype == model.factors[0].dtype == np.float32
    assert full.dtype == np.float64
    np.testing.assert_allclose(model.to_tensor(), full.to_tensor(), rtol=1e-6)
    assert model != full
    assert model.relative_error(x) == pytest.approx(full.relative_error(x), rel=1e-5, abs=1e-6)


@given(cut_tensors())
def test_errors_are_those_of_the_dense_tensors(case: Case) -> None:
    x, partition = case
    block = tk.ltr(x, blocks=partition)
    for model in (block, tk.Tucker(*block)):
        q = model.to_tensor()
        total = float(x.sum(dtype=float))
        assert model.kl(x) == pytest.approx(tk.metrics.kl(x, q), rel=1e-12, abs=1e-13 * total)
        assert model.kl(x) == pytest.approx(oracles.kl(x, q), rel=1e-9, abs=1e-12 * total)
        assert model.relative_error(x) == pytest.approx(tk.metrics.relative_error(x, q), rel=1e-12)
        norm = np.linalg.norm(x.astype(float).ravel())
        if norm:
            expected = np.linalg.norm((x.astype(float) - q).ravel()) / norm
            assert model.relative_error(x) == pytest.approx(expected, rel=1e-12, abs=1e-15)


def test_errors_of_a_tensor_that_the_model_cannot_reach() -> None:
    model = tk.ltr([[1.0, 0.0], [1.0, 0.0]], 1)
    assert model.kl([[1.0, 1.0], [0.0, 0.0]]) == np.inf
    assert model.relative_error(np.zeros((2, 2))) == np.inf
    assert tk.metrics.kl([0.0, 0.0], [0.0, 2.0]) == 2.0
    assert tk.metrics.kl([1e-300], [1e300]) == pytest.approx(1e300)
    assert tk.metrics.kl([1e200], [1e-200]) == pytest.approx(1e200 * (400 * np.log(10) - 1))
    assert tk.metrics.total_correlation(np.zeros((2, 2))) == 0
    assert tk.metrics.total_correlation(np.full((2, 2), 1e308)) == pytest.approx(0, abs=1e-15)


def test_errors_of_tensors_larger_than_a_slab() -> None:
    x = np.random.default_rng(0).random((3, 700, 900))
    model = tk.ltr(x, (2, 3, 4))
    q = model.to_tensor()
    assert model.kl(x) == pytest.approx((x * np.log(x / q) - x + q).sum(), rel=1e-10)
    assert model.relative_error(x) == pytest.approx(np.linalg.norm(x - q) / np.linalg.norm(x), rel=1e-12)


def test_models_are_values() -> None:
    x = np.random.default_rng(0).random((4, 5, 6))
    model = tk.ltr(x, 2)
    assert model == tk.ltr(x, 2)
    assert model != tk.ltr(x, 3)
    assert model != tk.Tucker(*model)
    assert tk.Tucker(*model) == tk.Tucker(*model)
    assert tk.Tucker(*model) != model
    for one in (model, tk.Tucker(*model), tk.collect(x, model.partition)):
        assert pickle.loads(pickle.dumps(one)) == one
    for array in (model.core, model.weights[0], tk.Tucker(*model).factors[0]):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 0
    core = np.ones((1, 1))
    kept = tk.Tucker(core, [np.ones((2, 1))] * 2)
    core[:] = 5
    assert kept.core == 1
    assert core.flags.writeable


def test_repr_tells_what_a_user_asks_first() -> None:
    assert repr(tk.ltr(np.ones((10, 20, 30)), 2)) == (
        "BlockTucker(shape=(10, 20, 30), rank=(2, 2, 2), dtype=float64): "
        "68 parameters for 6,000 elements, 88.2 x smaller"
    )
    stats = tk.collect(np.ones((2, 3)), tk.Partition.uniform((2, 3), 1))
    assert repr(stats) == "Statistics(shape=(2, 3), rank=(1, 1), total=6, kernel='numpy')"


@pytest.mark.parametrize("size", [2, 90])
@pytest.mark.parametrize("scale", [1e-300, 1.0, 1e200, 1e302])
def test_divergence_at_any_scale(size: int, scale: float) -> None:
    """Also where the sum of x log x would be too large for float64, and in both kernels."""
    x = np.random.default_rng(0).random((size, 60, 60))
    model, scaled = tk.ltr(x, 2, blocks="uniform"), tk.ltr(x * scale, 2, blocks="uniform")
    assert scaled.kl(x * scale) / scale == pytest.approx(model.kl(x), rel=1e-9)


def test_divergence_where_even_the_scaled_sums_are_too_large() -> None:
    x = np.array([[1e306, 3e306], [2e306, 1e305]])
    assert tk.ltr(x, 1).kl(x) == pytest.approx(1.576e306, rel=1e-3)
    assert tk.ltr([[1e307, 1e307]], 1).kl([[1e307, 1e-300]]) == pytest.approx(1e307)


def test_small_weights_do_not_vanish_in_products() -> None:
    tail = np.array([1.0] + [1e-120] * 7)
    shape = (512, 8, 8, 8, 1)
    weights = [np.full(512, 1 / 512), *[tail / tail.sum()] * 3, np.ones(1)]
    model = tk.BlockTucker(np.full((1,) * 5, 1e300), tk.Partition.uniform(shape, 1), weights)
    np.testing.assert_allclose(model.to_tensor(), model[...], rtol=1e-12)
    assert model.to_tensor()[0, 1, 1, 1, 0] > 0


def test_values_stay_frozen() -> None:
    memory = np.ones((2, 2))
    view = memory.view()
    view.flags.writeable = False
    model = tk.Tucker(view, [np.eye(2)] * 2)
    memory[:] = 7
    assert (model.core == 1).all()
    block = tk.ltr(np.ones((4, 4)), 2)
    stats = tk.collect(np.ones((4, 4)), block.partition)
    for value in (copy.deepcopy(block), pickle.loads(pickle.dumps(model)), pickle.loads(pickle.dumps(stats))):
        assert not value.core.flags.writeable
    assert not copy.deepcopy(block.partition)[0].starts.flags.writeable


def test_numpy_takes_models() -> None:
    x = np.random.default_rng(0).random((4, 5))
    model = tk.ltr(x, (4, 5))
    assert np.allclose(model, x)
    assert np.asarray(model, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="holds no dense tensor"):
        np.asarray(model, copy=False)


def test_statistics_can_be_summed() -> None:
    partition = tk.Partition.uniform((4, 4), 2)
    pieces = [tk.collect(np.eye(4) * k, partition, moments=True) for k in (1, 2, 3)]
    assert sum(pieces) == tk.collect(np.eye(4), partition, moments=True) + pieces[1] + pieces[2]


def test_blocks_of_a_mode_carry_its_mass() -> None:
    x = np.random.default_rng(0).random((6, 5, 4))
    model = tk.ltr(x, 2, blocks=("segments", "clusters", "uniform"))
    for mode in range(3):
        marginal = np.moveaxis(x, mode, 0).reshape(x.shape[mode], -1).sum(axis=1)
        for block in model.blocks(mode):
            assert block.mass == pytest.approx(marginal[block.indices].sum())


def test_sparse_factors_are_the_users_own() -> None:
    factor = tk.ltr(np.ones((4, 4)), 2).sparse_factors()[0]
    factor *= 2
    assert factor.sum() == pytest.approx(4)


def test_a_tensor_is_written_part_by_part_where_somebody_watches(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.random.default_rng(0).gamma(0.5, size=(9, 8, 7))
    monkeypatch.setattr("tucket.models.model.PART_ENTRIES", 60)
    for model in (tk.ltr(x, 3), tk.ntd(x, 2).model):
        steps: list[tk.Progress] = []
        out = np.empty(x.shape)
        model.to_tensor(out=out, progress=steps.append)
        np.testing.assert_allclose(out, model.to_tensor(), rtol=1e-12)
        assert steps[-1].bytes == steps[-1].n_bytes == x.nbytes
        assert len(steps) == steps[-1].n_chunks == 9
