"""Tensors with gaps, and with exposure: the one best model, whatever stands where nothing is known."""

from __future__ import annotations

from functools import reduce
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
from strategies import partitions, tensors
from tucket.base.run import Run
from tucket.projection.proportional import Fitting
from tucket.sources import observed as observed_module
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observed, observe

Case = tuple[NDArray[np.float64], NDArray[np.float64], tk.Partition]


@st.composite
def gappy(draw: st.DrawFn, max_dims: int = 4, whole: bool = True) -> Case:
    """Draw counts, an exposure that may be 0, and blocks."""
    x = draw(tensors(max_dims=max_dims, dtypes=("<f8", "u1")))
    kinds = st.sampled_from([0.0, 1.0, 1.0] if whole else [0.0, 0.5, 1.0, 3.0])
    exposure = np.array(draw(st.lists(kinds, min_size=x.size, max_size=x.size))).reshape(x.shape)
    return x.astype(np.float64), exposure, draw(partitions(x.shape))


def known(case: Case) -> Observed | None:
    x, exposure, _ = case
    found = observe(as_source(x), exposure > 0, exposure)
    return found if isinstance(found, Observed) else None


def expected(case: Case, model: tk.BlockTucker) -> NDArray[np.float64]:
    return np.asarray(case[1] * model.to_tensor())


@given(gappy(whole=False))
def test_observed_sums_are_kept(case: Case) -> None:
    x, exposure, partition = case
    x += 1  # with zeros the best weights may be infinitely far
    seen = np.where(exposure > 0, x, 0)
    model = tk.ltr(x, blocks=partition, observed=exposure > 0, exposure=exposure)
    ours, theirs = tk.collect(expected(case, model), partition), tk.collect(seen, partition)
    tolerance = 1e-7 * max(seen.sum(), 1e-300)
    np.testing.assert_allclose(ours.core, theirs.core, atol=tolerance)
    for one, other in zip(ours.marginals, theirs.marginals):
        np.testing.assert_allclose(one, other, atol=tolerance)
    assert np.isfinite(model.to_tensor()).all()


@settings(max_examples=60)
@given(gappy(max_dims=3, whole=False))
def test_it_ends_where_the_slow_way_does(case: Case) -> None:
    x, exposure, partition = case
    x += 1  # with zeros the best weights may be infinitely far
    model = tk.ltr(x, blocks=partition, observed=exposure > 0, exposure=exposure)
    slow = oracles.fit_in_turn(np.where(exposure > 0, x, 0), exposure, [blocks.labels for blocks in partition.modes])
    np.testing.assert_allclose(expected(case, model), exposure * slow, rtol=1e-5, atol=1e-6 * x.max(initial=0))


@given(gappy(), st.sampled_from([np.nan, 1e300, -1.0, np.inf]))
def test_what_is_hidden_has_no_influence(case: Case, hidden: float) -> None:
    x, exposure, partition = case
    mask = exposure > 0
    first, second = (tk.ltr(np.where(mask, x, each), blocks=partition, observed=mask) for each in (0.0, hidden))
    assert first == second
    if not np.isfinite(hidden):
        assert tk.ltr(np.where(mask, x, hidden), blocks=partition, observed="finite") == first


@given(gappy(), st.sampled_from([1, 8, 1000]))
def test_it_is_the_same_in_every_form(case: Case, few: int) -> None:
    x, exposure, partition = case
    x += 1
    mask = exposure > 0
    dense = tk.ltr(x, blocks=partition, observed=mask)
    stored = tk.from_entries(np.nonzero(mask), x[mask], x.shape) if mask.any() else None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed_module, "FEW", few)
        forms = [tk.ltr(x, blocks=partition, observed=mask), tk.ltr(x, blocks=partition, exposure=mask.astype(float))]
        if stored is not None:
            cells = tk.from_entries(np.nonzero(mask), np.ones(mask.sum()), x.shape)
            forms += [
                tk.ltr(stored, blocks=partition, observed="stored"),
                tk.ltr(stored, blocks=partition, observed=mask),
                tk.ltr(x, blocks=partition, observed=cells),
                tk.ltr(stored, blocks=partition, observed=cells),
            ]
    for model in forms:
        np.testing.assert_allclose(
            mask * model.to_tensor(), mask * dense.to_tensor(), rtol=1e-6, atol=1e-8 * x.max(initial=0)
        )


@given(gappy())
def test_all_observed_is_the_closed_form(case: Case) -> None:
    x, _, partition = case
    model, ones = tk.ltr(x, blocks=partition), np.ones(x.shape)
    assert tk.ltr(x, blocks=partition, observed="finite") == model
    assert tk.ltr(x, blocks=partition, observed=ones > 0) == model
    found = tk.ltr(x, blocks=partition, exposure=ones)
    np.testing.assert_allclose(found.to_tensor(), model.to_tensor(), rtol=1e-12, atol=1e-12 * x.max(initial=0))


def test_rates_for_a_known_exposure() -> None:
    rng = np.random.default_rng(0)
    people = rng.integers(100, 100_000, (12, 9)).astype(float)
    events = people * 0.01
    model = tk.ltr(events, 1, exposure=people)
    np.testing.assert_allclose(model.to_tensor(), 0.01)
    assert model.kl(events, exposure=people) == pytest.approx(0, abs=1e-9)


def test_a_few_cycles_are_enough() -> None:
    rng = np.random.default_rng(0)
    x = rng.poisson(rng.gamma(1.0, 5.0, (30, 25, 20))).astype(float)
    partition = tk.Partition.uniform(x.shape, (5, 5, 4))
    for share, most in ((0.01, 6), (0.1, 8), (0.4, 12)):
        found = observe(as_source(x), rng.random(x.shape) > share)
        assert isinstance(found, Observed)
        fitting = Fitting(found, partition, Run.of())
        fitting.run_from(fitting.begin())
        assert fitting.cycles <= most


def test_a_poisson_regression_with_an_offset_ends_at_the_same_point() -> None:
    models = pytest.importorskip("statsmodels.api", reason="the oracle is statsmodels")
    rng = np.random.default_rng(1)
    x, exposure = rng.poisson(4.0, (4, 5, 3)).astype(float), rng.uniform(0.5, 2, (4, 5, 3))
    exposure[rng.random(x.shape) < 0.2] = 0
    partition = tk.Partition.uniform(x.shape, (2, 2, 1))
    cells = np.argwhere(exposure > 0)
    block = np.ravel_multi_index([blocks.labels[i] for blocks, i in zip(partition.modes, cells.T)], partition.rank)
    columns = [block[:, None] == np.arange(np.prod(partition.rank))]
    firsts = [set(blocks.starts.tolist()) for blocks in partition.modes]  # without them the columns are independent
    columns += [
        cells[:, mode, None] == [index for index in range(size) if index not in firsts[mode]]
        for mode, size in enumerate(x.shape)
    ]
    family, counts = models.families.Poisson(), x[exposure > 0]
    regression = models.GLM(counts, np.hstack(columns).astype(float), family, offset=np.log(exposure[exposure > 0]))
    found = regression.fit(tol=1e-14, maxiter=200).fittedvalues
    model = tk.ltr(x, blocks=partition, observed=exposure > 0, exposure=exposure)
    np.testing.assert_allclose((exposure * model.to_tensor())[exposure > 0], found, rtol=1e-8)
    deviance = 2 * model.kl(x, observed=exposure > 0, exposure=exposure)
    assert deviance == pytest.approx(regression.fit(tol=1e-14, maxiter=200).deviance, rel=1e-9)


@given(gappy(whole=False))
def test_the_divergence_of_what_is_observed(case: Case) -> None:
    x, exposure, partition = case
    mask, model = exposure > 0, tk.ltr(case[0] + 1, blocks=partition)
    q = exposure * model.to_tensor()
    found = model.kl(np.where(mask, x, np.nan), observed="finite", exposure=exposure) if mask.any() else 0.0
    assert found == pytest.approx(oracles.kl(x[mask], q[mask]), rel=1e-9, abs=1e-9 * (1 + model.to_tensor().sum()))


def test_blocks_are_found_in_spite_of_gaps() -> None:
    rng = np.random.default_rng(0)
    labels = [rng.permutation(np.arange(size) % 3) for size in (30, 40, 20)]
    rates = rng.gamma(0.5, 20.0, (3, 3, 3))[np.ix_(*labels)]
    x, mask = rng.poisson(rates).astype(float), rng.random(rates.shape) > 0.4
    for blocks in ("clusters", "segments"):
        model = tk.ltr(np.where(mask, x, np.nan), 3, blocks=blocks, observed="finite")
        uniform = tk.ltr(x, 3, blocks="uniform", observed=mask)
        assert model.kl(x, observed=mask) < uniform.kl(x, observed=mask)
    model = tk.ltr(np.where(mask, x, np.nan), 3, observed="finite")
    for found, true in zip(model.partition.modes, labels):
        assert len(np.unique(np.stack([found.labels, true]), axis=1).T) == 3
    hidden = model.kl(x, observed=~mask) / x[~mask].sum()
    assert hidden < 1.2 * model.kl(x, observed=mask) / x[mask].sum()


def test_unseen_indices_keep_what_the_rank_one_model_says() -> None:
    x = np.outer([1.0, 2, 3, 4], [5.0, 6, 7, 8])
    mask = np.ones(x.shape, bool)
    mask[2] = False
    model = tk.ltr(x, (2, 2), blocks="uniform", observed=mask)
    np.testing.assert_allclose(model.to_tensor()[mask], x[mask])
    row = model.to_tensor()[2]
    np.testing.assert_allclose(row / row.sum(), x[0] / x[0].sum())
    assert tk.ltr(x, 2, observed=np.zeros(x.shape, bool)).to_tensor().sum() == 0


def test_ratings() -> None:
    rng = np.random.default_rng(0)
    truth = np.add.outer(np.repeat([1.0, 3], 20), np.repeat([0.5, 1.5], 15))
    mask = rng.random(truth.shape) < 0.5
    ratings = scipy.sparse.coo_array((truth[mask], np.nonzero(mask)), shape=truth.shape)
    model = tk.ltr(ratings, 2, observed="stored")
    np.testing.assert_allclose(model.to_tensor(), truth, rtol=1e-6)
    np.testing.assert_allclose(model.fill(ratings, observed="stored"), truth, rtol=1e-6)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"observed": "Finite"}, r"observed: unknown 'Finite'; give 'all', 'finite', 'stored'"),
        ({"observed": "stored"}, "observed='stored' is for sparse tensors"),
        ({"observed": np.ones((3, 4))}, "give .* or a Boolean array, True = known"),
        ({"observed": np.ones((3, 5), bool)}, r"observed has shape \(3, 5\), but x is of shape \(3, 4\)"),
        ({"exposure": np.ones((3, 5))}, r"exposure: its shape \(3, 5\) does not broadcast to \(3, 4\)"),
        ({"exposure": [[1, 2, -1, 4]]}, r"exposure\[0, 2\] is -1.0"),
        ({"observed": "finite", "rank": "mdl"}, "observed: .* rank"),
        ({"observed": "finite", "variant": "published"}, "observed: variant='published'"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises((TypeError, ValueError), match=message):
        tk.ltr(np.where(np.eye(3, 4) > 0, np.nan, 1.0), **{"rank": 2, **options})


def test_masked_arrays_are_taken_as_they_are() -> None:
    x = np.ma.masked_greater(np.outer([1.0, 2, 3], [1.0, 2, 4]), 7)
    model = tk.ltr(x, 1)
    np.testing.assert_allclose(model.to_tensor(), x.data)
    np.testing.assert_allclose(model.fill(x), x.data)
    assert model.kl(x) == pytest.approx(0, abs=1e-9)
    with pytest.raises(TypeError, match="x is a masked array, and its mask says what is known; leave observed out"):
        tk.ltr(x, 1, observed="finite")
    with pytest.raises(TypeError, match="statistics have no gaps"):
        tk.ltr(tk.collect(x.data, 1), 1, exposure=np.ones((3, 3)))


def test_predictions() -> None:
    axes = tk.Axes(("city", "hour"), (["Bonn", "Kyoto"], None))
    model = tk.Tucker([[2.0]], [[[0.5], [1.5]], [[1.0], [2.0], [3.0]]], axes)
    np.testing.assert_allclose(model.predict((["Kyoto", "Bonn"], [0, 2])), [3, 3])
    np.testing.assert_allclose(model.predict((0, [0, 1, 2])), model.to_tensor()[0])
    for coords, message in (
        (([0], [0], [0]), "got 3 sequences for 2 modes"),
        (([0, 1], [0, 1, 2]), r"lengths \[2, 3\]"),
        ((["Rome"], [0]), "mode 'city': there is no label 'Rome'"),
        (([2], [0]), "mode 'city': there is no index 2; give indices from 0 to 1"),
        (([0], ["noon"]), "mode 'hour' has no labels"),
        ({"city": [0]}, "mode 'hour' is missing"),
    ):
        with pytest.raises(ValueError, match=message):
            model.predict(coords)  # type: ignore[arg-type]


def test_a_sparse_mask_is_what_it_holds() -> None:
    x = np.outer([1.0, 2, 3], [1.0, 2, 4])
    coords = np.nonzero(np.ones(x.shape))
    twice = tk.from_entries(np.tile(coords, 2), np.tile([*[1] * 8, 0], 2), x.shape)  # all but the last, each twice
    model = tk.ltr(np.where(np.arange(9).reshape(3, 3) < 8, x, 1e9), 1, observed=twice)
    np.testing.assert_allclose(model.to_tensor(), x)


def test_files_are_read_chunk_by_chunk(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    x, mask = rng.poisson(3.0, (12, 10, 8)).astype(float), rng.random((12, 10, 8)) < 0.7
    np.save(tmp_path / "x.npy", np.where(mask, x, np.nan))
    np.save(tmp_path / "mask.npy", mask)
    source, known = tk.open(tmp_path / "x.npy"), np.load(tmp_path / "mask.npy", mmap_mode="r")
    expected = tk.ltr(x, (3, 2, 2), blocks="uniform", observed=mask).to_tensor()
    for each, observed in (
        (source, "finite"),
        (source, known),
        (tk.Stream([*np.where(mask, x, np.nan)[:, None]]), mask),
    ):
        model = tk.ltr(each, (3, 2, 2), blocks="uniform", observed=observed)
        np.testing.assert_allclose(model.to_tensor(), expected, rtol=1e-6)
    assert tk.ltr(source, 2, observed="finite").kl(source, observed="finite") > 0


def test_dask_arrays_are_read_where_they_are() -> None:
    dask = pytest.importorskip("dask.array")
    rng = np.random.default_rng(0)
    x = np.where(rng.random((12, 10, 8)) < 0.7, rng.poisson(3.0, (12, 10, 8)), np.nan)
    model = tk.ltr(dask.from_array(x, chunks=(5, 10, 4)), 2, blocks="uniform", observed="finite")
    expected = tk.ltr(x, 2, blocks="uniform", observed="finite")
    np.testing.assert_allclose(model.to_tensor(), expected.to_tensor(), rtol=1e-6)


@pytest.mark.parametrize("ndim", [2, 3, 4])
def test_a_grid_of_holes_has_a_closed_form_for_rank_1(ndim: int) -> None:
    """A1GM (Ghalamkari and Sugiyama, AISTATS 2022): the hidden mass h solves h (S + h)^(d - 1) = prod (s_k + h)."""
    rng = np.random.default_rng(ndim)
    shape = (6, 5, 4, 3)[:ndim]
    x, rows = rng.gamma(1.0, 5.0, shape), [np.arange(size) < size // 2 for size in shape]
    hidden = reduce(np.multiply.outer, rows)
    seen = np.where(hidden, 0, x)
    total = seen.sum()
    marginals = [seen.sum(axis=tuple(k for k in range(ndim) if k != mode)) for mode in range(ndim)]
    inside = [marginal[row].sum() for marginal, row in zip(marginals, rows)]
    h = np.polynomial.Polynomial([0, 1])
    lack = h * (total + h) ** (ndim - 1) - np.prod([each + h for each in inside])
    mass = max(root.real for root in lack.trim(1e-9 * total).roots() if abs(root.imag) < 1e-6 * total)
    whole = [np.where(row, m * (each + mass) / each, m) for m, row, each in zip(marginals, rows, inside)]
    expected = oracles.expand(np.full((1,) * ndim, (total + mass) ** (1 - ndim)), [m[:, None] for m in whole])
    found = tk.best_rank1(np.where(hidden, np.nan, x), observed="finite")
    np.testing.assert_allclose(found.to_tensor(), expected, rtol=1e-7)


@pytest.mark.parametrize("n_hidden", [0, 1, 59, 60])
def test_none_one_all_but_one_and_all_cells_hidden(n_hidden: int) -> None:
    rng = np.random.default_rng(0)
    x = rng.poisson(5.0, (5, 4, 3)) + 1.0
    mask = (rng.permutation(60) >= n_hidden).reshape(x.shape)
    model = tk.ltr(np.where(mask, x, np.nan), 2, observed="finite")
    assert np.isfinite(model.to_tensor()).all()
    np.testing.assert_allclose(np.where(mask, model.to_tensor(), 0).sum(), x[mask].sum())
    if n_hidden == 0:
        assert model == tk.ltr(x, 2)


def test_a_slice_and_a_block_without_exposure() -> None:
    rng = np.random.default_rng(0)
    x, exposure = rng.poisson(5.0, (6, 6, 4)) + 1.0, np.full((6, 6, 4), 2.0)
    exposure[1], exposure[:2, 2:4] = 0, 0
    partition = tk.Partition.uniform(x.shape, (3, 3, 2))
    model = tk.ltr(x, blocks=partition, exposure=exposure)
    ours = tk.collect(exposure * model.to_tensor(), partition)
    theirs = tk.collect(np.where(exposure > 0, x, 0), partition)
    np.testing.assert_allclose(ours.core, theirs.core, atol=1e-7)
    assert (model.to_tensor()[1] > 0).all()
    assert np.isfinite(model.to_tensor()).all()


@given(gappy(whole=False))
def test_the_error_of_what_is_observed(case: Case) -> None:
    x, exposure, partition = case
    mask, model = exposure > 0, tk.ltr(case[0] + 1, blocks=partition)
    rates = np.divide(x, exposure, where=mask, out=np.zeros(x.shape))
    norm = (exposure * rates**2).sum()
    if norm:
        expected = np.sqrt((exposure * (rates - model.to_tensor()) ** 2).sum() / norm)
        found = model.relative_error(np.where(mask, x, np.nan), observed="finite", exposure=exposure)
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-7)


@pytest.mark.parametrize("unit", [1.0, 1e-280, 1e280])
def test_the_error_is_the_same_in_every_form_and_unit(unit: float) -> None:
    rng = np.random.default_rng(0)
    x, mask = unit * rng.poisson(3.0, (9, 8, 7)), rng.random((9, 8, 7)) < 0.95
    model, coords = tk.ltr(x, 2), np.nonzero(mask)
    q = model.to_tensor() / unit
    expected = np.linalg.norm((x / unit - q)[mask]) / np.linalg.norm(x[mask] / unit)
    for form, observed in (
        (np.where(mask, x, np.nan), "finite"),
        (np.ma.array(x, mask=~mask), "all"),
        (tk.from_entries(coords, x[mask], x.shape), "stored"),
        (tk.from_entries(np.nonzero(x), x[x > 0], x.shape), mask),
    ):
        assert model.relative_error(form, observed=observed) == pytest.approx(expected, rel=1e-9)


def test_an_array_of_another_library() -> None:
    torch = pytest.importorskip("torch")
    rng = np.random.default_rng(0)
    x = np.where(rng.random((9, 8, 7)) < 0.7, rng.poisson(3.0, (9, 8, 7)), np.nan)
    tensor = torch.tensor(x)
    for fit in (tk.ltr, tk.ntd):
        model = fit(tensor, 2, observed="finite")
        assert isinstance(model.core, torch.Tensor)
        assert model.to_numpy().parts[0].tolist() == fit(x, 2, observed="finite").parts[0].tolist()
        assert model.kl(tensor, observed="finite") == model.to_numpy().kl(x, observed=torch.isfinite(tensor))
    with pytest.raises(TypeError, match=r"x requires a gradient, and this has none; give x.detach\(\)"):
        tk.ltr(torch.ones(3, 3).requires_grad_(), 1, observed=torch.eye(3) > 0)


def test_fractions_are_no_counts() -> None:
    x = np.random.default_rng(0).poisson(5.0, (12, 10)) + 0.5
    with pytest.warns(UserWarning, match="takes entries for counts, and these are not whole numbers"):
        tk.ltr(x, "mdl")
    tk.ltr(x - 0.5, "mdl")


def test_gaps_are_filled_for_their_exposure() -> None:
    people = np.array([[1000.0, 50_000.0], [200.0, 8_000.0]])
    cases = 0.02 * people
    cases[0, 1] = np.nan
    model = tk.ltr(cases, 1, observed="finite", exposure=people)
    np.testing.assert_allclose(model.fill(cases, exposure=people), 0.02 * people)
    assert tk.ltr(cases, 1, observed="finite", exposure=as_source(people)) == model


def test_labels_of_a_mask_are_those_of_the_data() -> None:
    xarray = pytest.importorskip("xarray")
    x = xarray.DataArray(np.ones((2, 3)), dims=("user", "item"), coords={"user": ["a", "b"]})
    tk.ltr(x, 1, observed=x > 0)
    with pytest.raises(ValueError, match="observed: mode 'user' has other labels there than in x"):
        tk.ltr(x, 1, observed=(x > 0)[::-1])


def test_every_start_leads_to_the_same_point() -> None:
    rng = np.random.default_rng(2)
    x, exposure = rng.poisson(4.0, (7, 6, 5)) + 1.0, rng.choice([0.0, 0.5, 2.0], (7, 6, 5))
    partition = tk.Partition.uniform(x.shape, (2, 3, 2))
    found = observe(as_source(x), exposure > 0, exposure)
    assert isinstance(found, Observed)
    expected = exposure * tk.ltr(x, blocks=partition, observed=exposure > 0, exposure=exposure).to_tensor()
    for _ in range(5):
        core, weights = rng.gamma(0.3, 50.0, partition.rank), [0.1 + rng.random((size,)) for size in x.shape]
        fitting = Fitting(found, partition, Run.of())
        start = fitting.run_from(fitting._scaled(core, weights))
        np.testing.assert_allclose(exposure * start.to_tensor(), expected, rtol=1e-8, atol=1e-8)
