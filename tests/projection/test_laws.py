"""Laws of the projection, on tensors of 1 to 5 modes with zeros, of every dtype and layout."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import cut_tensors, partitions, tensors
from tucket import kernels

Case = tuple[NDArray[Any], tk.Partition]


@pytest.fixture(scope="module", params=["numpy", "numba"], autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run every law on both kernels, whatever the size of the tensor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COMPILED_ENTRIES", 0 if request.param == "numba" else 1 << 60)
        yield request.param


def labels(partition: tk.Partition) -> list[NDArray[np.intp]]:
    return [blocks.labels for blocks in partition.modes]


def assert_close(ours: NDArray[Any], expected: NDArray[Any], relative: float = 1e-12) -> None:
    """Compare relative to each entry: all are sums and products of non-negative numbers."""
    np.testing.assert_allclose(ours, expected, rtol=relative, atol=0)


@given(cut_tensors())
def test_equals_the_definition(case: Case) -> None:
    x, partition = case
    assert_close(tk.ltr(x, blocks=partition).to_tensor(), oracles.project(x, labels(partition)))


@given(cut_tensors(), st.randoms())
def test_order_of_modes_does_not_matter(case: Case, random: Any) -> None:
    x, partition = case
    order = random.sample(range(x.ndim), x.ndim)
    assert_close(tk.ltr(x, blocks=partition).to_tensor(), oracles.project(x, labels(partition), order))


@given(cut_tensors())
def test_equivariant_under_transposition(case: Case) -> None:
    x, partition = case
    turned = tk.ltr(x.transpose(), blocks=tk.Partition(partition.modes[::-1]))
    assert_close(turned.to_tensor().transpose(), tk.ltr(x, blocks=partition).to_tensor())


@given(cut_tensors(), st.sampled_from(["projection", "published"]))
def test_marginals_and_total_are_kept(case: Case, variant: Any) -> None:
    x, partition = case
    q = tk.ltr(x, blocks=partition, variant=variant).to_tensor()
    for mode in range(x.ndim):
        assert_close(oracles.marginal(q, mode), oracles.marginal(x, mode))


@given(cut_tensors())
def test_tucker_rank_is_at_most_the_target(case: Case) -> None:
    x, partition = case
    model = tk.ltr(x, blocks=partition)
    q = model.to_tensor()
    assert model.rank == partition.rank
    for mode, rank in enumerate(partition.rank):
        assert oracles.unfolding_rank(q, mode) <= rank


@given(cut_tensors())
def test_idempotent(case: Case) -> None:
    x, partition = case
    once = tk.ltr(x, blocks=partition).to_tensor()
    assert_close(tk.ltr(once, blocks=partition).to_tensor(), once)


@given(tensors())
def test_full_rank_gives_the_tensor_back(x: NDArray[Any]) -> None:
    model = tk.ltr(x, x.shape)
    assert_close(model.to_tensor(), x.astype(np.float64))
    assert model.relative_error(x) < 1e-12
    assert model == tk.ltr(x, (None,) * x.ndim) == tk.ltr(x, blocks=[None] * x.ndim)


@given(tensors())
def test_rank_1_is_best_rank1(x: NDArray[Any]) -> None:
    assert tk.ltr(x, 1) == tk.best_rank1(x)
    assert_close(tk.best_rank1(x).to_tensor(), oracles.rank1_tensor(x.astype(np.float64)))


@given(cut_tensors())
def test_zeros_only_where_the_tensor_is_zero(case: Case) -> None:
    x, partition = case
    assert (x[tk.ltr(x, blocks=partition).to_tensor() == 0] == 0).all()


@given(cut_tensors(free=False))
def test_published_is_algorithm_1(case: Case) -> None:
    x, partition = case
    starts = [blocks.starts for blocks in partition.modes]
    ours = tk.ltr(x, blocks=partition, variant="published")
    assert_close(ours.to_tensor(), oracles.algorithm1(x, starts))


@given(cut_tensors(min_dims=2, max_dims=2, free=False))
def test_published_is_the_projection_of_a_matrix(case: Case) -> None:
    x, partition = case
    assert_close(
        tk.ltr(x, blocks=partition, variant="published").to_tensor(),
        tk.ltr(x, blocks=partition).to_tensor(),
    )


@given(tensors(min_dims=2), st.data())
def test_published_is_rank_1_when_one_rank_is_1(x: NDArray[Any], data: st.DataObject) -> None:
    mode = data.draw(st.integers(0, x.ndim - 1))
    assume(x.shape[mode] > 1)  # a mode of one index is already one block, and is left alone
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    rank[mode] = 1
    model = tk.ltr(x, rank, variant="published")
    assert_close(model.to_tensor(), tk.best_rank1(x).to_tensor())


def test_published_is_not_the_projection_of_a_cube() -> None:
    x = np.random.default_rng(0).random((4, 4, 4))
    projection, published = (tk.ltr(x, 2, variant=variant) for variant in ("projection", "published"))
    assert published.kl(x) > 1.03 * projection.kl(x)
    turned = tk.ltr(x.transpose(2, 1, 0), 2, variant="published").to_tensor().transpose(2, 1, 0)
    assert abs(turned - published.to_tensor()).max() > 1e-3


@given(cut_tensors())
def test_statistics_are_the_sums(case: Case) -> None:
    x, partition = case
    stats = tk.collect(x, partition)
    assert_close(stats.core, oracles.block_sums(x, labels(partition)))
    for mode, marginal in enumerate(stats.marginals):
        assert_close(marginal, oracles.marginal(x, mode))
    assert stats.total == pytest.approx(float(x.sum(dtype=np.float64)), rel=1e-12)


@given(cut_tensors(), st.data())
def test_statistics_of_pieces_add_to_those_of_the_whole(case: Case, data: st.DataObject) -> None:
    x, partition = case
    mine = data.draw(st.integers(0, 2**x.size - 1))
    mask = np.array([mine >> place & 1 for place in range(x.size)], bool).reshape(x.shape)
    a, b = (tk.collect(np.where(where, x, 0), partition) for where in (mask, ~mask))
    whole = tk.collect(x, partition)
    assert_close((a + b).core, whole.core)
    for ours, expected in zip((a + b).marginals, whole.marginals):
        assert_close(ours, expected)


@given(cut_tensors(), st.data())
def test_coarsening_equals_collecting(case: Case, data: st.DataObject) -> None:
    x, fine = case
    joined = data.draw(partitions(fine.rank))
    coarse = fine.compose(joined)
    assert fine.refines(coarse)
    assert fine.quotient(coarse) == joined
    ours, expected = tk.collect(x, fine).coarsen(coarse), tk.collect(x, coarse)
    assert ours.partition == expected.partition
    assert_close(ours.core, expected.core)
    assert_close(tk.ltr(tk.collect(x, fine), blocks=coarse).to_tensor(), tk.ltr(x, blocks=coarse).to_tensor())


@given(cut_tensors())
def test_kl_is_the_information_that_the_blocks_hide(case: Case) -> None:
    x, partition = case
    total = float(x.sum(dtype=np.float64))
    model = tk.ltr(x, blocks=partition)
    hidden = tk.metrics.total_correlation(x) - tk.metrics.total_correlation(model.core)
    assert model.kl(x) == pytest.approx(total * hidden, rel=1e-9, abs=1e-12 * total)
    assert model.kl(x) == pytest.approx(oracles.kl(x, model.to_tensor()), rel=1e-9, abs=1e-12 * total)


@given(cut_tensors(), st.data())
def test_no_tensor_of_the_bingo_space_is_nearer(case: Case, data: st.DataObject) -> None:
    x, partition = case
    model = tk.ltr(x, blocks=partition)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    # a random member: any core, any weights; a mixture with the projection probes its neighbourhood too
    share = data.draw(st.sampled_from([1.0, 0.1, 1e-3]))
    core = model.core * (1 - share) + share * rng.random(model.rank) * (model.core.max() + 1)
    weights = [w * (1 - share) + share * rng.random(w.shape) for w in model.weights]
    other = tk.BlockTucker(core, partition, weights)
    total = float(x.sum(dtype=np.float64))
    assert model.kl(x) <= other.kl(x) + 1e-12 * total


@given(cut_tensors(), st.data())
def test_pythagoras(case: Case, data: st.DataObject) -> None:
    """For Q in the bingo space with the projection's weights, KL(P; Q) = KL(P; LTR) + KL(G; H)."""
    x, partition = case
    model = tk.ltr(x, blocks=partition)
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32)))
    core = 0.1 + rng.random(model.rank)
    core[tk.best_rank1(model.core).to_tensor() == 0] = 0  # where a block has no mass, Q has none either
    other = tk.BlockTucker(core, partition, model.weights)
    total = float(x.sum(dtype=np.float64)) + float(core.sum())
    expected = model.kl(x) + tk.metrics.kl(model.core, core)
    assert other.kl(x) == pytest.approx(expected, rel=1e-9, abs=1e-12 * total)


@given(cut_tensors(dtypes=("<f8",)), st.integers(-300, 300), st.sampled_from(["projection", "published"]))
def test_scale_changes_nothing_but_the_scale(case: Case, exponent: int, variant: Any) -> None:
    x, partition = case
    scale = 2.0 ** (exponent * 3.32)
    one, scaled = (tk.ltr(tensor, blocks=partition, variant=variant) for tensor in (x, x * scale))
    assert_close(scaled.core / scale, one.core)
    for ours, expected in zip(scaled.weights, one.weights):
        assert_close(ours, expected)
    assert scaled.relative_error(x * scale) == pytest.approx(one.relative_error(x), rel=1e-9, abs=1e-12)
    total = float(x.sum())
    assert scaled.kl(x * scale) / scale == pytest.approx(one.kl(x), rel=1e-9, abs=1e-12 * total)


@given(cut_tensors())
def test_inputs_are_never_changed(case: Case) -> None:
    x, partition = case
    before, flags = x.copy(), x.flags.writeable
    model = tk.ltr(x, blocks=partition)
    model.kl(x)
    model.relative_error(x)
    tk.metrics.total_correlation(x)
    assert np.array_equal(x, before)
    assert x.flags.writeable == flags


@pytest.mark.parametrize("ndim", [1, 2, 3, 5])
def test_a_zero_tensor_gives_a_zero_model(ndim: int) -> None:
    x = np.zeros((3,) * ndim)
    for variant in ("projection", "published"):
        model = tk.ltr(x, 2, variant=variant)
        assert not model.to_tensor().any()
        assert model.kl(x) == model.relative_error(x) == 0


def test_every_order_of_modes_of_one_tensor() -> None:
    x = np.random.default_rng(1).random((4, 5, 3, 4))
    partition = tk.Partition.random(x.shape, 2, rng=2)
    ours = tk.ltr(x, blocks=partition).to_tensor()
    for order in itertools.permutations(range(4)):
        assert_close(ours, oracles.project(x, labels(partition), order), 1e-14)
