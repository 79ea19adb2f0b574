"""The paper's statements, a test each, by tucket.geometry: what is true of LTR, and where the text says too much."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import partitions, shapes
from tucket import geometry
from tucket.geometry.log_linear import fisher, free_indices

Dense = NDArray[np.float64]


@st.composite
def positive(draw: st.DrawFn, min_dims: int = 1, max_dims: int = 4) -> Dense:
    shape = draw(shapes(min_dims, max_dims))
    rng = np.random.default_rng(draw(st.integers(0, 10_000)))
    return np.asarray(np.exp(rng.normal(size=shape)) * draw(st.sampled_from([1.0, 1e-3, 1e3])))


@st.composite
def cut(draw: st.DrawFn, min_dims: int = 1, max_dims: int = 3) -> tuple[Dense, tk.Partition]:
    x = draw(positive(min_dims, max_dims))
    return x, draw(partitions(x.shape, free=False))


def many_body(array: Dense) -> Dense:
    """Entries with at least two indices that are not the first."""
    return np.asarray(array[np.add.reduce([index > 0 for index in np.indices(array.shape)]) > 1])


def member(partition: tk.Partition, rng: np.random.Generator, total: float) -> Dense:
    """Draw a tensor of a partition's bingo space."""
    parameters = rng.normal(size=partition.shape)
    parameters[geometry.bingo_indices(partition)] = 0
    q = geometry.from_theta(parameters)
    return np.asarray(q * (total / q.sum()))


# coordinates


@given(positive(max_dims=5))
def test_coordinates_identify_a_tensor(x: Dense) -> None:
    np.testing.assert_allclose(geometry.from_theta(geometry.theta(x)), x, rtol=1e-9)
    np.testing.assert_allclose(geometry.from_eta(geometry.eta(x)), x, rtol=1e-6, atol=1e-12 * x.sum())
    assert geometry.eta(x).flat[0] == pytest.approx(x.sum())
    assert geometry.theta(x).flat[0] == pytest.approx(np.log(x.flat[0]))


@settings(max_examples=20)
@given(positive(max_dims=3))
def test_coordinates_are_those_of_the_moebius_function(x: Dense) -> None:
    mu = geometry.mobius(x.shape)
    np.testing.assert_allclose(mu @ geometry.eta(x).ravel(), x.ravel(), rtol=1e-6, atol=1e-9 * x.sum())
    np.testing.assert_allclose(mu.T @ np.log(x).ravel(), geometry.theta(x).ravel(), atol=1e-9)
    signs = np.linalg.inv(mu)  # the zeta function: which index is above which
    assert set(np.unique(signs.round(9))) <= {0.0, 1.0}


@pytest.mark.parametrize("scale", [1e-300, 1e300])
def test_coordinates_at_any_scale(scale: float) -> None:
    x = np.random.default_rng(0).random((4, 3, 2)) + 0.1
    np.testing.assert_allclose(geometry.from_theta(geometry.theta(x * scale)), x * scale, rtol=1e-9)
    np.testing.assert_allclose(geometry.from_eta(geometry.eta(x * scale)), x * scale, rtol=1e-9)
    assert geometry.bingos(tk.ltr(x * scale, 1).to_tensor()).rank_bound == (1, 1, 1)


@given(positive(max_dims=3))
def test_the_fisher_matrix_is_the_derivative_of_eta(x: Dense) -> None:
    """And it is the covariance of the functions of the indices."""
    p = x / x.sum()
    free = free_indices(np.ones(p.shape, bool), p.shape)
    if len(free) == 0:
        return
    above = np.array([[(np.array(i) >= u).all() for i in np.ndindex(p.shape)] for u in free], float)
    means = above @ p.ravel()
    covariance = (above * p.ravel()) @ above.T - np.outer(means, means)
    np.testing.assert_allclose(fisher(geometry.eta(p), free), covariance, atol=1e-12)


# statements


@given(cut())
def test_proposition_1_bingos_bound_the_tucker_rank(case: tuple[Dense, tk.Partition]) -> None:
    x, partition = case
    q = member(partition, np.random.default_rng(0), float(x.sum()))
    found = geometry.bingos(q)
    for mode, blocks in enumerate(partition.modes):
        within = sorted(set(range(blocks.size)) - set(blocks.starts.tolist()))
        assert set(within) <= set(found.rows[mode].tolist())
        assert oracles.unfolding_rank(q, mode) <= found.rank_bound[mode] <= blocks.rank


@given(positive())
def test_proposition_2_rank_1_means_no_many_body_theta(x: Dense) -> None:
    assert np.abs(many_body(geometry.theta(tk.best_rank1(x).to_tensor()))).max(initial=0) < 1e-9
    parameters = geometry.theta(x)
    if np.abs(many_body(parameters)).max(initial=0) > 1e-3:
        assert max(oracles.unfolding_rank(x, mode) for mode in range(x.ndim)) > 1


@given(positive())
def test_proposition_3_rank_1_means_that_eta_factorises(x: Dense) -> None:
    def factorised(p: Dense) -> Dense:
        sums = geometry.eta(p / p.sum())
        product: Dense = np.ones(())
        for mode in range(p.ndim):
            line = tuple(slice(None) if k == mode else 0 for k in range(p.ndim))
            product = np.multiply.outer(product, sums[line])
        return sums - product

    assert np.abs(factorised(tk.best_rank1(x).to_tensor())).max() < 1e-12
    if np.abs(many_body(geometry.theta(x))).max(initial=0) > 0.1:
        assert np.abs(factorised(x)).max() > 1e-9


@settings(max_examples=40)
@given(positive(max_dims=3))
def test_proposition_4_the_product_of_marginals_is_the_projection(x: Dense) -> None:
    one = tk.Partition.uniform(x.shape, 1)
    np.testing.assert_allclose(geometry.m_project(x, one), tk.best_rank1(x).to_tensor(), rtol=1e-7)
    product: Dense = np.asarray(x.sum())
    for distribution in geometry.one_body(x):
        product = np.multiply.outer(product, distribution)
    np.testing.assert_allclose(product, tk.best_rank1(x).to_tensor(), rtol=1e-9)


@given(positive(min_dims=2))
def test_proposition_5_theta_and_eta_of_rank_1_tensors(x: Dense) -> None:
    q = tk.best_rank1(x / x.sum()).to_tensor()
    parameters, sums = geometry.theta(q), geometry.eta(q)
    for mode in range(x.ndim):
        line = tuple(slice(None) if k == mode else 0 for k in range(x.ndim))
        np.testing.assert_allclose(geometry.one_body_theta(sums[line]), parameters[line][1:], atol=1e-6)
        np.testing.assert_allclose(geometry.one_body_eta(parameters[line][1:]), sums[line], atol=1e-9)


def test_proposition_6_needs_more_than_it_says() -> None:
    """A one-body θ of 0 stays 0 under the best rank-1 tensor if the many-body θ of that index are 0 too.

    So it is in the proof of Theorem 1. As printed, from the one-body θ alone, it does not follow: the proof takes the
    sums of two slices for equal because their first entries are.
    """
    rng = np.random.default_rng(0)
    parameters = rng.normal(size=(4, 3, 3))
    parameters[2, 0, 0] = 0
    after = geometry.theta(tk.best_rank1(geometry.from_theta(parameters)).to_tensor())
    assert abs(after[2, 0, 0]) > 0.01
    parameters[2] = 0
    after = geometry.theta(tk.best_rank1(geometry.from_theta(parameters)).to_tensor())
    assert abs(after[2, 0, 0]) < 1e-12


@settings(max_examples=30)
@given(cut(max_dims=3))
def test_theorem_1_mode_after_mode_leads_to_the_projection(case: tuple[Dense, tk.Partition]) -> None:
    x, partition = case
    expected = geometry.m_project(x, partition)
    for order in itertools.permutations(range(x.ndim)):
        q = x
        for mode in order:
            whole = tk.Partition.uniform(x.shape, x.shape)._replace(mode, partition[mode])
            q = geometry.m_project(q, whole)
        np.testing.assert_allclose(q, expected, rtol=1e-6, atol=1e-9 * x.max())


@given(cut(max_dims=4))
def test_eta_is_kept_off_the_bingos_and_theta_is_zero_on_them(case: tuple[Dense, tk.Partition]) -> None:
    x, partition = case
    q = tk.ltr(x, blocks=partition).to_tensor()
    marked = geometry.bingo_indices(partition)
    np.testing.assert_allclose(geometry.eta(q)[~marked], geometry.eta(x)[~marked], rtol=1e-9)
    assert np.abs(geometry.theta(q)[marked]).max(initial=0) < 1e-8


@given(cut(max_dims=4))
def test_sums_along_every_axis_are_kept(case: tuple[Dense, tk.Partition]) -> None:
    x, partition = case
    q = geometry.m_project(x, partition) if x.size < 60 else tk.ltr(x, blocks=partition).to_tensor()
    for mode in range(x.ndim):
        np.testing.assert_allclose(oracles.marginal(q, mode), oracles.marginal(x, mode), rtol=1e-8)


@given(cut(max_dims=4), st.integers(0, 1000))
def test_no_member_of_the_bingo_space_is_nearer(case: tuple[Dense, tk.Partition], seed: int) -> None:
    x, partition = case
    other = member(partition, np.random.default_rng(seed), float(x.sum()))
    assert tk.ltr(x, blocks=partition).kl(x) <= tk.metrics.kl(x, other) + 1e-9 * x.sum()


@given(cut(max_dims=4), st.integers(0, 1000))
def test_pythagorean_relation(case: tuple[Dense, tk.Partition], seed: int) -> None:
    x, partition = case
    q = tk.ltr(x, blocks=partition).to_tensor()
    other = member(partition, np.random.default_rng(seed), float(x.sum()))
    both = tk.metrics.kl(x, q) + tk.metrics.kl(q, other)
    assert tk.metrics.kl(x, other) == pytest.approx(both, rel=1e-9, abs=1e-9 * x.sum())


def test_the_order_of_the_modes_does_not_matter() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((6, 5, 4)) + 0.1
    partition = tk.Partition.random(x.shape, (3, 2, 2), rng)
    expected = tk.ltr(x, blocks=partition).to_tensor()
    for order in itertools.permutations(range(3)):
        turned = tk.Partition(tuple(partition[mode] for mode in order))
        q = tk.ltr(x.transpose(order), blocks=turned).to_tensor().transpose(np.argsort(order))
        np.testing.assert_allclose(q, expected, rtol=1e-12)


def test_the_printed_step_2_is_not_the_projection_of_three_modes() -> None:
    rng = np.random.default_rng(0)
    x = rng.random((6, 6, 6)) + 0.1
    partition = tk.Partition.uniform(x.shape, 3)
    printed = tk.ltr(x, blocks=partition, variant="published").to_tensor()
    exact = tk.ltr(x, blocks=partition).to_tensor()
    assert tk.metrics.kl(x, printed) > 1.01 * tk.metrics.kl(x, exact)
    marked = geometry.bingo_indices(partition)
    assert np.abs(geometry.theta(printed)[marked]).max() < 1e-9  # it is in the space,
    assert np.abs(geometry.eta(printed) - geometry.eta(x))[~marked].max() > 1e-3 * x.sum()  # but no projection
    turned = tk.ltr(x.transpose(2, 1, 0), blocks=partition, variant="published").to_tensor().transpose(2, 1, 0)
    assert np.abs(turned - printed).max() > 1e-3
    matrix = x[0]
    cut_matrix = tk.Partition.uniform(matrix.shape, 3)
    listed = tk.ltr(matrix, blocks=cut_matrix, variant="published").to_tensor()
    np.testing.assert_allclose(listed, tk.ltr(matrix, blocks=cut_matrix).to_tensor(), rtol=1e-12)


# the slow ways lead to the same place


@pytest.mark.parametrize("shape", [(5, 4), (6, 6, 6), (4, 4, 4, 4)])
@pytest.mark.parametrize("seed", range(3))
def test_three_ways_to_one_tensor(shape: tuple[int, ...], seed: int) -> None:
    rng = np.random.default_rng(seed)
    x = np.exp(rng.normal(size=shape))
    partition = tk.Partition.random(shape, [int(rng.integers(1, size)) for size in shape], rng)
    closed = tk.ltr(x, blocks=partition).to_tensor()
    np.testing.assert_allclose(geometry.m_project(x, partition), closed, rtol=1e-8)
    found = geometry.legendre(x, partition, tol=1e-13)
    np.testing.assert_allclose(found.tensor, closed, rtol=1e-8)
    np.testing.assert_allclose(geometry.from_theta(found.theta), found.tensor, rtol=1e-9)
    assert found.stopped == "converged"
    divergences = [step.loss for step in found.trace]
    assert divergences == sorted(divergences, reverse=True)


def test_a_thousand_parameters_are_not_too_many() -> None:
    x = np.exp(np.random.default_rng(0).normal(size=(10, 10, 12)) / 2)
    found = geometry.legendre(x, np.ones(x.shape, bool), tol=1e-12)
    assert found.stopped == "converged"
    np.testing.assert_allclose(found.tensor, x, rtol=1e-6)


def test_the_plain_gradient_leads_there_too() -> None:
    x = np.exp(np.random.default_rng(0).normal(size=(3, 3, 2)) / 2)
    partition = tk.Partition.uniform(x.shape, (2, 2, 1))
    seen: list[Any] = []
    found = geometry.legendre(x, partition, method="gradient", tol=1e-9, n_iter_max=100_000, callback=seen.append)
    np.testing.assert_allclose(found.tensor, tk.ltr(x, blocks=partition).to_tensor(), rtol=1e-5)
    assert tuple(seen) == found.trace
    assert len(found.trace) > len(geometry.legendre(x, partition).trace)


def test_any_basis_will_do() -> None:
    x = np.exp(np.random.default_rng(1).normal(size=(3, 4)))
    everything = geometry.legendre(x, np.ones(x.shape, bool), tol=1e-13)
    np.testing.assert_allclose(everything.tensor, x, rtol=1e-8)
    some = geometry.legendre(x, [(0, 1), (2, 3), (1, 0)], tol=1e-13)
    for index in ((0, 0), (0, 1), (2, 3), (1, 0)):
        assert geometry.eta(some.tensor)[index] == pytest.approx(geometry.eta(x)[index], rel=1e-9)
    free = np.zeros(x.shape, bool)
    free[0, 0] = free[0, 1] = free[2, 3] = free[1, 0] = True
    assert np.abs(geometry.theta(some.tensor)[~free]).max() < 1e-8


@settings(max_examples=25)
@given(cut(min_dims=2, max_dims=3))
def test_the_other_projection_is_nearest_in_the_other_direction(case: tuple[Dense, tk.Partition]) -> None:
    x, partition = case
    q = geometry.e_project(x, partition)
    assert np.abs(geometry.theta(q)[geometry.bingo_indices(partition)]).max(initial=0) < 1e-8
    assert q.sum() == pytest.approx(x.sum())
    least, rng = tk.metrics.kl(q, x), np.random.default_rng(0)
    assert least <= tk.metrics.kl(tk.ltr(x, blocks=partition).to_tensor(), x) + 1e-9 * x.sum()
    for _ in range(10):
        parameters = geometry.theta(q)
        parameters[~geometry.bingo_indices(partition)] += 1e-3 * rng.normal(
            size=int((~geometry.bingo_indices(partition)).sum())
        )
        other = geometry.from_theta(parameters)
        assert tk.metrics.kl(other * (x.sum() / other.sum()), x) >= least - 1e-9 * x.sum()


# mean field and beyond


@pytest.mark.parametrize("coupling", [0.0, 0.3, 1.0])
def test_mean_field_beside_the_exact_projection(coupling: float) -> None:
    rng = np.random.default_rng(0)
    bias, upper = rng.normal(size=6), np.triu(rng.normal(size=(6, 6)), 1) * coupling
    weights = upper + upper.T
    p = geometry.boltzmann(bias, weights)
    parameters = geometry.theta(p)
    for i in range(6):  # the parameters of the machine are its one- and two-body θ
        index = tuple(int(k == i) for k in range(6))
        assert parameters[index] == pytest.approx(bias[i])
        for j in range(i):
            assert parameters[tuple(int(k in (i, j)) for k in range(6))] == pytest.approx(weights[i, j], abs=1e-9)
    found = geometry.mean_field(bias, weights)
    product = tk.best_rank1(p).to_tensor()
    assert found.kl_exact == pytest.approx((tk.metrics.kl(p, product), tk.metrics.kl(product, p)))
    assert found.kl_exact[0] <= found.kl_approximate[0] + 1e-12
    assert found.kl_approximate[1] <= found.kl_exact[1] + 1e-12
    inverse = np.log(found.approximate / (1 - found.approximate))
    np.testing.assert_allclose(inverse, bias + weights @ found.approximate, atol=1e-6)
    if coupling == 0:
        np.testing.assert_allclose(found.approximate, found.exact)


def test_the_mean_field_equation_is_an_e_projection() -> None:
    bias, weights = np.array([0.3, -0.4, 0.2]), np.array([[0, 0.5, -0.3], [0.5, 0, 0.2], [-0.3, 0.2, 0]])
    q = geometry.e_project(geometry.boltzmann(bias, weights), tk.Partition.uniform((2, 2, 2), 1))
    found = geometry.mean_field(bias, weights).approximate
    np.testing.assert_allclose([d[1] for d in geometry.one_body(q)], found, atol=1e-8)


def test_geodesics_are_straight_in_their_coordinates() -> None:
    rng = np.random.default_rng(0)
    p, q = (v / v.sum() for v in np.exp(rng.normal(size=(2, 4, 3))))
    for t in (0.0, 0.3, 1.0):
        m, e = geometry.geodesic(p, q, t), geometry.geodesic(p, q, t, "e")
        assert m.sum() == pytest.approx(1)
        assert e.sum() == pytest.approx(1)
        np.testing.assert_allclose(geometry.eta(m), (1 - t) * geometry.eta(p) + t * geometry.eta(q))
        mixed = (1 - t) * geometry.theta(p) + t * geometry.theta(q)
        np.testing.assert_allclose(geometry.theta(e).ravel()[1:], mixed.ravel()[1:], atol=1e-9)
    np.testing.assert_allclose(geometry.geodesic(3 * p, 5 * q, 1.0, "e"), 5 * q)


@settings(max_examples=30)
@given(positive(min_dims=3, max_dims=3))
def test_many_body_keeps_what_is_chosen_and_nothing_else(x: Dense) -> None:
    q = geometry.many_body(x, [(0, 1), (1, 2)])
    np.testing.assert_allclose(q.sum(axis=2), x.sum(axis=2), rtol=1e-8)
    np.testing.assert_allclose(q.sum(axis=0), x.sum(axis=0), rtol=1e-8)
    parameters = geometry.theta(q)
    assert np.abs(parameters[1:, :, 1:]).max(initial=0) < 1e-6
    indices = np.indices(x.shape) > 0
    basis = ~(indices[0] & indices[2])
    np.testing.assert_allclose(geometry.m_project(x, basis), q, rtol=1e-6)
    np.testing.assert_allclose(geometry.many_body(x, []), tk.best_rank1(x).to_tensor(), rtol=1e-9)
    np.testing.assert_allclose(geometry.many_body(x, [(0, 1, 2)]), x, rtol=1e-9)
