"""The steps of the iterative decompositions, against their definitions."""

from __future__ import annotations

import itertools
import math
from functools import partial
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import tensors
from tucket.base.run import Run
from tucket.decomposition.data import ArrayData, Data, EntriesData, data_of, load_for_passes
from tucket.decomposition.data import array as pieces
from tucket.decomposition.data import entries as entries_module
from tucket.decomposition.losses.kl import Divergence
from tucket.decomposition.losses.ls import LeastSquares
from tucket.kernels import entries as sorted_module
from tucket.kernels.algebra import to_mixture
from tucket.kernels.entries import SortedEntries
from tucket.kernels.updates import eigenvalue_bound, multiply_by_all, nearest
from tucket.sources import chunked
from tucket.sources.as_source import as_source
from tucket.sources.chunked import Chunked
from tucket.sources.dense import Array

Model = tuple[NDArray[np.float64], list[NDArray[np.float64]]]


@pytest.fixture(
    params=[(1, 1, 1), (6, 9, 2), (1 << 17, 1 << 21, 1 << 17)], ids=["tiny", "small", "usual"], autouse=True
)
def _pieces(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Cut even the small tensors of these tests into pieces."""
    for name, size in zip(("PIECE_ENTRIES", "HELD_SUMS", "THREAD_ENTRIES"), request.param):
        monkeypatch.setattr(pieces, name, size)
    monkeypatch.setattr(chunked, "BOX_BYTES", request.param[1])
    monkeypatch.setattr(entries_module, "HELD_ENTRIES", request.param[1])
    monkeypatch.setattr(sorted_module, "PIECE_ENTRIES", request.param[0])
    monkeypatch.setattr(sorted_module, "THREAD_ENTRIES", request.param[2])


@st.composite
def models(draw: st.DrawFn, shape: tuple[int, ...], zeros: bool = True) -> Model:
    rank = tuple(draw(st.integers(1, size)) for size in shape)
    rng = np.random.default_rng(draw(st.integers(0, 1000)))

    def part(extent: tuple[int, ...]) -> NDArray[np.float64]:
        return np.asarray(rng.random(extent) * (rng.random(extent) < 0.7 if zeros else 1))

    return part(rank), [part(extent) for extent in zip(shape, rank)]


@st.composite
def problems(draw: st.DrawFn, zeros: bool = True) -> tuple[NDArray[Any], Data, Model]:
    x = draw(tensors(max_dims=6))
    scale = draw(st.sampled_from([1.0, 0.25]))
    return x.astype(np.float64) * scale, draw(readings(x, scale)), draw(models(x.shape, zeros))


@st.composite
def readings(draw: st.DrawFn, x: NDArray[Any], scale: float) -> Data:
    """The data of a tensor in memory, of its entries, or of chunks of any size."""
    run = Run(draw(st.integers(1, 3)))
    match draw(st.sampled_from(["dense", "entries", "entries", "chunks"])):
        case "dense":
            return data_of(Array(x), scale, run)
        case "chunks":
            return data_of(Chunked(x, [draw(st.integers(1, size)) for size in x.shape]), scale, run)
    at = np.flatnonzero(x) if draw(st.booleans()) else np.arange(x.size)
    values = x.astype(np.float64).ravel()[at]
    if draw(st.booleans()):  # some entries twice, which are to be added
        again = at[:: draw(st.integers(1, 3))]
        at = np.concatenate([at, again])
        values = x.astype(np.float64).ravel()[at] / np.where(np.isin(at, again), 2, 1)
    order = np.array(draw(st.permutations(range(len(at)))), np.intp) if len(at) < 50 else np.argsort(-at)
    coords = np.unravel_index(at[order], x.shape)
    return data_of(load_for_passes(tk.from_entries(coords, values[order], x.shape)), scale, run)


@settings(max_examples=40)
@given(problems(), st.data())
def test_contraction(problem: tuple[NDArray[Any], Data, Model], choice: st.DataObject) -> None:
    x, data, (_, factors) = problem
    modes = choice.draw(st.sets(st.integers(0, x.ndim - 1)))
    expected = x
    for mode in modes:
        expected = np.moveaxis(np.tensordot(expected, factors[mode], (mode, 0)), -1, mode)
    np.testing.assert_allclose(data.contract({mode: factors[mode] for mode in modes}), expected, atol=1e-9)
    mode = choice.draw(st.integers(0, x.ndim - 1))
    rows = np.moveaxis(x, mode, 0).reshape(x.shape[mode], -1)
    if isinstance(data, ArrayData):
        np.testing.assert_allclose(data.gram(mode), rows @ rows.T, atol=1e-6)
    others = {k: factor for k, factor in enumerate(factors) if k != mode}
    found = list(data.contract_to(mode, others))
    joined = np.concatenate([part for _, part in found], mode)
    assert [(some.start, some.stop) for some, _ in found] == list(
        itertools.pairwise([0, *itertools.accumulate(part.shape[mode] for _, part in found)])
    )
    np.testing.assert_allclose(joined, data.contract(others), atol=1e-9)
    if data.is_in_memory and x.any():
        vectors = data.singular_vectors(mode, 1)
        largest = np.linalg.norm(rows, 2)
        assert np.linalg.norm(vectors[:, 0] @ rows) == pytest.approx(largest, rel=1e-6)
    metric = [factor[:, 0] for factor in factors]
    weights = oracles.expand(np.ones((1,) * x.ndim), [vector[:, None] for vector in metric])
    assert data.square_sum(metric) == pytest.approx(float(np.square(x * weights).sum()), rel=1e-9, abs=1e-9)


@settings(max_examples=40)
@given(problems(zeros=False))
def test_slopes_are_derivatives(problem: tuple[NDArray[Any], Data, Model]) -> None:
    x, data, (core, factors) = problem
    q = oracles.expand(core, factors)
    by_core, by_factors, divergence = Divergence(data, float(x.sum())).slopes(core, factors)
    expected_core, expected_factors = oracles.derivatives(x / q, core, factors)
    np.testing.assert_allclose(by_core, expected_core, rtol=1e-9, atol=1e-9)
    for found, expected in zip(by_factors, expected_factors):
        np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)
    assert divergence == pytest.approx(oracles.kl(x, q), rel=1e-9, abs=1e-9 * (1 + x.sum()))


@settings(max_examples=40)
@given(tensors(max_dims=6), st.data())
def test_slopes_are_the_same_wherever_the_tensor_is(x: NDArray[Any], choice: st.DataObject) -> None:
    dask = pytest.importorskip("dask.array")
    core, factors = choice.draw(models(x.shape, zeros=False))
    sides = [choice.draw(st.integers(1, size)) for size in x.shape]
    order = choice.draw(st.permutations(range(x.ndim)))
    x = x.astype(np.float64)
    x[choice.draw(st.integers(0, len(x) - 1))] = 0  # a slice without entries
    at, q = np.nonzero(x), oracles.expand(core, factors)
    weights, total = x / q, float(x[at] @ np.log(x[at] / q[at]))
    coords, halves = [np.tile(indices, 2) for indices in at], np.tile(x[at] / 2, 2)
    run, entries = Run(2), EntriesData(tk.from_entries(at, x[at], x.shape).entries)
    entries.orders[frozenset()] = SortedEntries.of(at, x[at], x.shape, order)
    readings = {
        "dense": data_of(Array(x), 1.0, run),
        "entries": data_of(load_for_passes(tk.from_entries(coords, halves, x.shape)), 1.0, run),
        "entries in any order of modes": entries,
        "chunks": data_of(Chunked(x, sides), 1.0, run),
        "stream": data_of(as_source(tk.Stream(np.array_split(x, min(3, len(x))))), 1.0, run),
        "dask": data_of(as_source(dask.from_array(x, chunks=tuple(sides))), 1.0, run),
    }
    expected = (*oracles.derivatives(weights, core, factors), total)
    scale = 1 + abs(total)
    for name, data in readings.items():
        by_core, by_factors, with_total = data.slopes(core, factors, lambda data, part, model: data.ratios(part, model))
        np.testing.assert_allclose(by_core, expected[0], rtol=1e-12, atol=1e-12, err_msg=name)
        for found, wanted in zip(by_factors, expected[1]):
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-12 * (1 + wanted.max()), err_msg=name)
        assert float(with_total) == pytest.approx(total, rel=1e-12, abs=1e-12 * scale), name


@settings(max_examples=40)
@given(problems())
def test_a_model_without_mass_where_the_tensor_has_some_is_infinitely_far(
    problem: tuple[NDArray[Any], Data, Model],
) -> None:
    x, data, (core, factors) = problem
    q = oracles.expand(core, factors)
    *_, divergence = Divergence(data, float(x.sum())).slopes(core, factors)
    assert divergence == pytest.approx(oracles.kl(x, q), rel=1e-9, abs=1e-9 * (1 + x.sum()))


@settings(max_examples=40)
@given(problems(), st.booleans())
def test_least_squares_never_rise_and_tell_the_truth(problem: tuple[NDArray[Any], Data, Model], weighted: bool) -> None:
    x, data, model = problem
    rng = np.random.default_rng(x.size)
    metric = [np.asarray(rng.random(size)) if weighted else np.ones(size) for size in x.shape]
    weights = oracles.expand(np.ones((1,) * x.ndim), [vector[:, None] for vector in metric])
    squares = LeastSquares(data, metric)
    slack = 1e-9 * (1 + squares.norm)
    before = float(np.square(x * weights - oracles.expand(*model)).sum())
    for core, factors, distance in itertools.islice(squares.descend(model), 8):
        assert core.min() >= 0
        assert all(factor.min() >= 0 for factor in factors)
        assert distance <= before + slack
        before = float(np.square(x * weights - oracles.expand(core, factors)).sum())
        assert distance == pytest.approx(before, abs=slack)


@settings(max_examples=40)
@given(problems(zeros=False))
def test_the_divergence_never_rises_and_keeps_the_total(problem: tuple[NDArray[Any], Data, Model]) -> None:
    x, data, model = problem
    total = float(x.sum())
    if total == 0:
        return
    mixture = to_mixture(*model)
    np.testing.assert_allclose(oracles.expand(*mixture), oracles.expand(*model), atol=1e-12)
    before, steps = np.inf, Divergence(data, total).descend(mixture)
    for step, (core, factors, divergence) in enumerate(itertools.islice(steps, 12)):
        assert divergence <= before
        q = oracles.expand(core, factors)
        assert divergence == pytest.approx(oracles.kl(x, q), rel=1e-9, abs=1e-9 * total)
        assert step == 0 or q.sum() == pytest.approx(total)
        before = divergence


@settings(max_examples=40)
@given(problems(zeros=False))
def test_published_updates_never_raise_their_loss(problem: tuple[NDArray[Any], Data, Model]) -> None:
    x, data, (core, factors) = problem
    squares = LeastSquares(data, [np.ones(size) for size in x.shape])
    before = float(np.square(x - oracles.expand(core, factors)).sum())
    for found, parts, distance in itertools.islice(squares.published((core, factors)), 4):
        assert distance <= before * (1 + 1e-9) + 1e-6
        before = float(np.square(x - oracles.expand(found, parts)).sum())
        assert distance == pytest.approx(before, rel=1e-6, abs=1e-6)
    if x.sum() > 0:
        least = oracles.kl(x, oracles.expand(core, factors))
        for found, parts, divergence in itertools.islice(
            Divergence(data, float(x.sum())).published((core, factors)), 4
        ):
            assert divergence <= least * (1 + 1e-9) + 1e-6
            least = oracles.kl(x, oracles.expand(found, parts))
            assert divergence == pytest.approx(least, rel=1e-6, abs=1e-6)


def test_the_nearest_core_is_the_best() -> None:
    """At the end the gradient is zero where the core is positive, and not negative where it is zero."""
    rng = np.random.default_rng(0)
    factors = [rng.random((6, 2)), rng.random((7, 3)), rng.random((5, 2))]
    x = rng.random((6, 7, 5))
    grams = [factor.T @ factor for factor in factors]
    multiply, bound = partial(multiply_by_all, matrices=grams), math.prod(map(eigenvalue_bound, grams))
    target = ArrayData(x).contract(dict(enumerate(factors)))
    core, objective = nearest(target, multiply, bound, np.ones((2, 3, 2)), 20_000)
    gradient = ArrayData(oracles.expand(core, factors)).contract(dict(enumerate(factors))) - target
    assert np.abs(gradient[core > 0]).max() < 1e-6
    assert gradient.min() > -1e-6
    assert (core == 0).any()
    assert 2 * objective + np.square(x).sum() == pytest.approx(np.square(x - oracles.expand(core, factors)).sum())
