"""Non-negative Tucker decomposition: laws of the whole road, from any start to a model."""

from __future__ import annotations

import importlib
import itertools
import math
from threading import Event, Thread
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import partitions, tensors
from tucket.base.run import Run
from tucket.decomposition import levels
from tucket.decomposition.data import ArrayData
from tucket.decomposition.levels import make_pyramid
from tucket.decomposition.losses import LOSSES as BY_NAME
from tucket.decomposition.losses.kl import Divergence
from tucket.kernels.algebra import to_mixture
from tucket.sources.as_source import as_array

LOSSES: tuple[Any, ...] = ("kl", "ls")


def loss_of(model: tk.Tucker, x: NDArray[Any], loss: str) -> float:
    return float(model.kl(x) if loss == "kl" else model.relative_error(x))


def known(fit: tk.Fit) -> list[float]:
    assert not any(math.isnan(step.loss) for step in fit.trace)
    return [step.loss for step in fit.trace]


def hidden_blocks(
    rng: np.random.Generator, kinds: int, shape: tuple[int, ...], spread: float, mean: float
) -> NDArray[np.int64]:
    """Draw counts of a few kinds of indices in every mode, in any order."""
    labels = [rng.integers(0, kinds, size) for size in shape]
    return rng.poisson(rng.gamma(spread, mean, (kinds,) * len(shape))[np.ix_(*labels)])


@pytest.fixture
def small_sketch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tensors of these tests be too large for their single indices."""
    module = importlib.import_module("tucket.decomposition.ntd")
    monkeypatch.setattr(module, "FULL_ENTRIES", 1000)
    monkeypatch.setattr(module, "SKETCH_CELLS", 8000)


@pytest.fixture
def small_levels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let even the small tensors of these tests have several levels."""
    monkeypatch.setattr(levels, "COARSEST_CELLS", 8)
    monkeypatch.setattr(levels, "MIN_KEPT_SHARE", 0.0)


@pytest.mark.parametrize("loss", LOSSES)
@settings(max_examples=60)
@given(x=tensors(), data=st.data())
def test_the_loss_never_rises_and_is_that_of_the_model(x: NDArray[Any], data: st.DataObject, loss: Any) -> None:
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    init: Any = data.draw(st.sampled_from(["ltr", "random", "hosvd"]))
    before = x.copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "COARSEST_CELLS", data.draw(st.sampled_from([4, 1 << 19])))
        patch.setattr(levels, "MIN_KEPT_SHARE", data.draw(st.sampled_from([0.0, 0.5])))
        fit = tk.ntd(x, rank, loss=loss, init=init, n_iter_max=8, tol=0)
    np.testing.assert_array_equal(x, before)
    assert fit.model.rank == tuple(rank)
    assert fit.model.shape == x.shape
    losses = known(fit)
    slack = 1e-7 * (1 if loss == "ls" else 1 + float(x.sum(dtype=float)))
    assert all(later <= earlier + slack for earlier, later in itertools.pairwise(losses))
    assert fit.loss == pytest.approx(loss_of(fit.model, x, loss), abs=slack * 10)
    assert all(np.isfinite(part).all() for part in (fit.model.core, *fit.model.factors))
    sums = [factor.sum(axis=0) for factor in fit.model.factors]
    assert all(np.allclose(column[column > 0], 1) for column in sums)
    if x.any() and loss == "kl" and init == "ltr":
        assert fit.model.to_tensor().sum() == pytest.approx(float(x.sum(dtype=float)), rel=1e-2)


@settings(max_examples=60)
@given(x=tensors(min_dims=1, max_dims=4), data=st.data())
def test_pythagoras_holds_on_every_level(x: NDArray[Any], data: st.DataObject) -> None:
    """What a model of the block sums loses of them, and they of the tensor, is what it loses of the tensor."""
    total = float(x.sum(dtype=float))
    if total == 0:
        return
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(levels, "COARSEST_CELLS", 1)
        patch.setattr(levels, "MIN_KEPT_SHARE", 0.0)
        by_mass = make_pyramid(as_array(x), rank, None, True, BY_NAME["kl"], Run())
        by_count = make_pyramid(as_array(x), rank, None, True, BY_NAME["ls"], Run())
    rng = np.random.default_rng(0)
    squares = float(np.square(x.astype(float)).sum())
    assert by_mass.levels[-1].offset == by_count.levels[-1].offset == 0
    for level in by_mass.levels:
        core, factors = rng.random(rank), [rng.random((size, r)) for size, r in zip(level.data.shape, rank)]
        *_, divergence = Divergence(level.data, total).slopes(core, factors)
        model = tk.Tucker(core, level.prolong(factors, by_mass.whole))
        # rows without mass are not spread: the sums of the model are those that it has elsewhere
        lost = float(tk.Tucker(core, factors).to_tensor().sum() - model.to_tensor().sum())
        assert model.kl(x) == pytest.approx(divergence - lost + level.offset, rel=1e-9, abs=1e-9 * total)
    for level in by_count.levels:
        core, factors = rng.random(rank), [rng.random((size, r)) for size, r in zip(level.data.shape, rank)]
        model = tk.Tucker(core, level.prolong(factors, by_count.whole))
        assert isinstance(level.data, ArrayData)
        coarse = level.data.tensor - tk.Tucker(core, factors).to_tensor()
        for mode, weights in enumerate(level.squares.metric):
            coarse = coarse * weights.reshape(-1, *(1,) * (x.ndim - mode - 1))
        expected = float(np.square(coarse).sum()) + level.offset
        found = float(np.square(x - model.to_tensor()).sum())
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-9 * (1 + squares))


@pytest.mark.usefixtures("small_levels")
@pytest.mark.parametrize("loss", LOSSES)
def test_levels_go_from_coarse_to_fine(loss: Any) -> None:
    rng = np.random.default_rng(1)
    smooth = np.add.outer(np.add.outer(np.sin(np.arange(24) / 9), np.arange(20) / 7), np.arange(16) / 11) ** 2
    x = smooth + rng.random((24, 20, 16)) / 9
    steps: list[tk.Step] = []
    fit = tk.ntd(x, 2, loss=loss, init="ltr", callback=steps.append)
    assert fit.levels == ((2, 2, 2), (3, 3, 2), (6, 5, 4), (12, 10, 8), (24, 20, 16))
    assert [step.level for step in steps] == sorted(step.level for step in steps)
    assert {step.level for step in steps} == set(range(5))
    assert len(steps) == fit.n_iterations
    assert [step for step in steps if not math.isnan(step.loss)] == list(fit.trace)
    free = tk.ntd(x, 2, loss=loss)  # tries other starts on the coarsest level
    assert free.levels == fit.levels
    assert free.loss <= fit.loss * (1 + 1e-3)
    plain = tk.ntd(x, 2, loss=loss, multilevel=False)
    assert plain.levels == ((24, 20, 16),)
    assert fit.loss <= 1.05 * plain.loss
    coarse = tk.ntd(x, 2, loss=loss, finest=1000)
    assert math.prod(coarse.levels[-1]) <= 1000
    assert coarse.loss == pytest.approx(loss_of(coarse.model, x, loss), rel=1e-9)
    cut = tk.Partition.uniform(x.shape, (12, 10, 8))
    given = tk.ntd(x, 2, loss=loss, finest=cut)
    assert given.levels[-1] == (12, 10, 8)
    assert given.loss == pytest.approx(loss_of(given.model, x, loss), rel=1e-9)


@pytest.mark.usefixtures("small_sketch")
def test_large_tensors_are_seen_through_blocks_that_are_alike() -> None:
    """A sketch of neighbours would mix what the order of the indices hides."""
    x = hidden_blocks(np.random.default_rng(0), 4, (40, 50, 60), 0.5, 20)
    fit = tk.ntd(x, 4)
    assert math.prod(fit.levels[-1]) <= 8000
    assert fit.loss == pytest.approx(fit.model.kl(x), rel=1e-9)
    assert fit.loss < tk.ltr(x, 4, blocks="uniform").kl(x) / 5
    assert fit.loss < 1.2 * tk.ntd(x, 4, multilevel=True).loss


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("init", ["ltr", "hosvd", "random"])
def test_an_exact_model_is_found(loss: Any, init: Any) -> None:
    rng = np.random.default_rng(0)
    core = rng.random((2, 2, 2))
    x = tk.Tucker(core, [rng.random((size, 2)) ** 3 for size in (12, 10, 8)]).to_tensor()
    fit = tk.ntd(x, 2, loss=loss, init=init, tol=1e-7, n_iter_max=3000)
    assert fit.model.relative_error(x) < 0.01
    assert fit.model.kl(x) < 1e-4 * x.sum()


@pytest.mark.parametrize("loss", LOSSES)
def test_at_the_end_no_direction_leads_down(loss: Any) -> None:
    """The conditions of Karush, Kuhn and Tucker, by the derivatives of the loss."""
    rng = np.random.default_rng(3)
    x = rng.gamma(0.5, size=(8, 7, 6))
    fit = tk.ntd(x, 2, loss=loss, tol=0, n_iter_max=4000)
    core, factors = fit.model
    q = fit.model.to_tensor()
    slopes = 1 - x / q if loss == "kl" else 2 * (q - x)
    whole = "abc"
    parts = [core, *factors]
    terms = ["ijk", "ai", "bj", "ck"]
    for place, part in enumerate(parts):
        others = [p for k, p in enumerate(parts) if k != place]
        inputs = ",".join([whole, *(t for k, t in enumerate(terms) if k != place)])
        gradient = np.einsum(f"{inputs}->{terms[place]}", slopes, *others)
        size = np.einsum(f"{inputs}->{terms[place]}", x / q if loss == "kl" else 2 * x, *others).max()
        assert np.abs(gradient * part).max() < 1e-3 * size * part.max()
        assert gradient.min() > -2e-2 * size


def test_the_divergence_of_a_matrix_goes_the_way_of_scikit_learn() -> None:
    """With the identity as core, Tucker is W H: zeros of the core stay zero under multiplicative updates."""
    decomposition = pytest.importorskip("sklearn.decomposition")

    rng = np.random.default_rng(0)
    x = rng.gamma(1.0, size=(20, 15)) + 0.1
    w, h = rng.random((20, 3)) + 0.1, rng.random((3, 15)) + 0.1
    peer = decomposition.NMF(3, init="custom", beta_loss="kullback-leibler", solver="mu", tol=0, max_iter=40)
    found = peer.fit_transform(x, W=w.copy(), H=h.copy()) @ peer.components_
    expected = tk.metrics.kl(x, found)
    problem, core, factors = Divergence(ArrayData(x), float(x.sum())), np.eye(3), [w, h.T]
    for _ in range(40):
        for mode in (0, 1):
            _, slopes, _ = problem.slopes(core, factors)
            factors[mode] = factors[mode] * slopes[mode] / factors[1 - mode].sum(axis=0)
    *_, divergence = problem.slopes(core, factors)
    assert divergence == pytest.approx(expected, rel=1e-9)
    published = itertools.islice(problem.published((np.eye(3), [w, h.T])), 40)
    ours = itertools.islice(problem.descend(to_mixture(np.eye(3), [w, h.T])), 40)
    for core, factors, divergence in (list(published)[-1], list(ours)[-1]):
        assert divergence <= expected
        assert np.array_equal(core, np.diag(np.diag(core)))
        assert tk.Tucker(core, factors).kl(x) == pytest.approx(divergence, rel=1e-9)


def test_the_paper_preset_is_what_tensorly_does() -> None:
    """From the same start, the same ten iterations, to rounding."""
    peers = pytest.importorskip("tensorly.decomposition")

    x = np.random.default_rng(0).random((9, 8, 7))
    fit = tk.ntd(x, 3, loss="ls", preset="paper")
    assert len(fit.trace) <= 10
    vectors = [np.linalg.svd(np.moveaxis(x, k, 0).reshape(x.shape[k], -1))[0][:, :3] for k in range(3)]
    core = np.einsum("abc,ai,bj,ck->ijk", x, *vectors)
    start = np.abs(core), [np.abs(vector) for vector in vectors]
    _, errors = peers.non_negative_tucker(x, [3, 3, 3], init=start, n_iter_max=10, return_errors=True)
    np.testing.assert_allclose([step.loss for step in fit.trace], errors, rtol=1e-9)
    divergence = tk.ntd(x, 3, loss="kl", preset="paper")
    assert known(divergence) == sorted(known(divergence), reverse=True)
    assert divergence.loss == pytest.approx(divergence.model.kl(x), rel=1e-9)


@pytest.mark.parametrize("loss", LOSSES)
def test_models_come_and_go(loss: Any) -> None:
    """TensorLy's results start ours, ours start TensorLy's, and one of ours starts the next."""
    peers = pytest.importorskip("tensorly.decomposition")

    x = np.random.default_rng(0).random((9, 8, 7))
    theirs = peers.non_negative_tucker(x, [2, 3, 2], n_iter_max=5, random_state=0)
    fit = tk.ntd(x, init=theirs, loss=loss)
    assert fit.model.rank == (2, 3, 2)
    assert fit.loss <= loss_of(tk.Tucker(*theirs), x, loss)
    core, factors = fit.model
    again = peers.non_negative_tucker_hals(x, [2, 3, 2], init=(core.copy(), factors), n_iter_max=2)
    assert np.isfinite(again[0]).all()
    for start in (fit, fit.model):
        more = tk.ntd(x, (2, 3, 2), init=start, loss=loss, tol=1e-6)
        assert more.loss <= fit.loss * (1 + 1e-12)
        assert more.loss == pytest.approx(loss_of(more.model, x, loss), rel=1e-9)
    assert tk.ntd(x, init=fit, loss=loss, budget=1e-9).loss <= fit.loss * (1 + 1e-12)
    block = tk.ltr(x, (2, 3, 2))
    assert tk.ntd(x, init=block, loss=loss).loss < loss_of(tk.Tucker(*block), x, loss)


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("exponent", [-990, -300, 0, 300, 990])
def test_scale_changes_nothing_else(loss: Any, exponent: int) -> None:
    x = np.random.default_rng(0).gamma(0.5, size=(8, 7, 6))
    x[2] = 0
    fit, scaled = tk.ntd(x, 3, loss=loss), tk.ntd(x * 2.0**exponent, 3, loss=loss)
    expected = fit.loss * (2.0**exponent if loss == "kl" else 1)
    assert scaled.loss == pytest.approx(expected, rel=1e-2)
    assert not scaled.model[2].any()


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize(
    "x",
    [
        np.zeros((4, 3, 2)),
        np.eye(6),
        np.ones((1, 1, 1)),
        np.ones((5, 4), np.float32),
        np.array([3, 0, 2], np.uint8),
        np.diag([1e60, 1e-60, 1.0]),
    ],
    ids=["zeros", "identity", "one", "constant", "vector", "wide range"],
)
def test_odd_tensors(loss: Any, x: NDArray[Any]) -> None:
    for rank in (1, None):
        fit = tk.ntd(x, rank or [None] * x.ndim, loss=loss)
        assert all(np.isfinite(part).all() for part in (fit.model.core, *fit.model.factors))
        assert math.isfinite(fit.loss)
        assert fit.model.shape == x.shape
    if x.max() <= 3:  # at full rank nothing need be lost
        assert fit.model.relative_error(x) < 0.05


def test_components_without_mass_are_told() -> None:
    fit = tk.ntd(np.zeros((3, 2)), 2)
    assert [components.tolist() for components in fit.unused] == [[0, 1], [0, 1]]
    assert "unused=[2, 2]" in repr(fit)
    rng = np.random.default_rng(0)
    assert not any(components.size for components in tk.ntd(rng.random((6, 5)), 2).unused)
    start = np.diag([1.0, 0.0]), [np.ones((6, 2)), np.ones((5, 2))]
    with_idle = tk.ntd(np.outer(np.arange(1.0, 7), np.arange(1.0, 6)), init=start, loss="ls")
    assert math.isfinite(with_idle.loss)


def test_float32_models_and_threads() -> None:
    x = np.random.default_rng(0).random((60, 50, 100)).astype(np.float32)
    fit = tk.ntd(x, 3, dtype=np.float32, n_iter_max=3)
    assert fit.model.dtype == np.float32
    one, two = (tk.ntd(x, 3, n_iter_max=3, workers=workers) for workers in (1, 2))
    assert one.loss == pytest.approx(two.loss, rel=1e-9)


def test_limits() -> None:
    x = np.random.default_rng(0).random((20, 15, 10))
    steps: list[Any] = []
    fit = tk.ntd(x, 3, loss="ls", init="ltr", n_iter_max=4, tol=0, callback=steps.append)
    assert fit.stopped == "iterations"
    assert len(fit.trace) == 4
    assert tuple(steps) == fit.trace
    assert fit.n_iterations == 4
    assert [step.iteration for step in fit.trace] == [1, 2, 3, 4]
    for loss in LOSSES:
        for budget in (1e-9, 0.01, 0.02, 0.03):
            late = tk.ntd(x, 3, loss=loss, budget=budget, tol=0)
            assert budget > 1e-3 or late.stopped == "budget"
            assert late.loss == pytest.approx(loss_of(late.model, x, loss), rel=1e-6)
    assert tk.ntd(x, 3, loss="ls", tol=0.5).stopped == "converged"
    assert tk.ntd(x, 3, init="random", rng=1).loss == tk.ntd(x, 3, init="random", rng=1).loss
    assert tk.ntd(x, 3, init="random", rng=1).loss != tk.ntd(x, 3, init="random", rng=2).loss


@pytest.mark.parametrize("loss", LOSSES)
def test_a_start_that_is_stuck_is_not_the_only_one(loss: Any) -> None:
    """Blocks that the order of the indices hides, sparse factors, and rows that are all different."""
    for seed in range(3):
        rng = np.random.default_rng(seed)
        x = hidden_blocks(rng, 6, (60, 50, 40), 0.3, 10)
        fit = tk.ntd(x, 6, loss=loss)
        assert fit.loss <= 1.02 * loss_of(tk.Tucker(*tk.ltr(x, 6)), x, loss)
        w, h = (rng.random(shape) * (rng.random(shape) < 0.3) for shape in ((60, 5), (5, 50)))
        assert tk.ntd(w @ h, 5, loss=loss).model.relative_error(w @ h) < 0.05
    one_hot = np.eye(10)[rng.integers(0, 10, 300)]
    assert tk.ntd(one_hot, 10, loss=loss).model.relative_error(one_hot) < 0.05


@pytest.mark.usefixtures("small_sketch")
@pytest.mark.parametrize("loss", LOSSES)
def test_nothing_worse_than_a_given_model_is_returned(loss: Any) -> None:
    x = hidden_blocks(np.random.default_rng(2), 8, (40, 50, 60), 0.3, 20)
    block = tk.ltr(x, 8)
    fit = tk.ntd(x, init=block, loss=loss)
    assert fit.loss <= loss_of(tk.Tucker(*block), x, loss) * (1 + 1e-9)
    assert fit.loss == pytest.approx(loss_of(fit.model, x, loss), rel=1e-9)


def test_singular_vectors_that_cancel_are_no_start() -> None:
    x = np.zeros((2, 3, 3))
    x[0, 1, 2] = x[1, 1, 1] = 1
    for init in ("hosvd", "auto"):
        assert math.isfinite(tk.ntd(x, 1, init=init).loss)
    tall = np.random.default_rng(0).random((5000, 3))  # as many rows as no matrix of their products could have
    assert tk.ntd(tall, (4, 3), init="hosvd", n_iter_max=5).model.rank == (4, 3)


def test_many_modes_of_any_scale() -> None:
    x = np.random.default_rng(0).random((3,) * 7)
    plain = tk.ntd(x, 2).loss
    for scale in (1e-80, 1e80):
        assert tk.ntd(x * scale, 2).loss == pytest.approx(plain * scale, rel=1e-3)
    assert math.isfinite(tk.ntd(x[0, 0, 0] * 1e-310, 2).loss)


def test_matrix_products_get_their_threads_back() -> None:
    """Also where one call begins and ends within another, and one that fails."""
    from threadpoolctl import threadpool_info

    def threads() -> list[int]:
        return [library["num_threads"] for library in threadpool_info() if library["user_api"] == "blas"]

    def fail(_: object) -> None:
        raise KeyboardInterrupt

    x = np.random.default_rng(0).random((8, 7, 6))
    tk.ntd(x, 2)
    before, end = threads(), Event()
    late = Thread(target=lambda: tk.ntd(x, 2, n_iter_max=1, callback=lambda _: end.wait(20)))

    def begin(_: object) -> None:
        if not late.ident:
            late.start()

    tk.ntd(x, 2, callback=begin)
    end.set()
    late.join()
    with pytest.raises(KeyboardInterrupt):
        tk.ntd(x, 2, callback=fail)
    assert threads() == before


def test_small_last_modes_take_no_large_products() -> None:
    import tracemalloc

    x = np.random.default_rng(0).random((20, 2000, 3, 3))
    tk.ntd(x, (5, 30, 3, 3), init="random", multilevel=False, n_iter_max=1)  # compiles what is called below
    tracemalloc.start()
    tk.ntd(x, (5, 30, 3, 3), init="random", multilevel=False, n_iter_max=2)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 6 * x.nbytes


def test_levels_are_as_fine_as_they_may_be() -> None:
    for shape, most in (((4,) * 10, 10**6), ((120, 110, 130), 1_700_000), ((32, 9, 9, 512, 512, 3), 1 << 22)):
        sizes = levels.sketch_sizes(shape, (2,) * len(shape), most)
        assert most / 2.1 <= math.prod(sizes) <= most


@settings(max_examples=20)
@given(st.data())
def test_any_blocks_may_be_the_finest(data: st.DataObject) -> None:
    x = np.random.default_rng(0).random((6, 5, 4))
    cut = data.draw(partitions(x.shape))
    rank = [data.draw(st.integers(1, r)) for r in cut.rank]
    for loss in LOSSES:
        fit = tk.ntd(x, rank, loss=loss, finest=cut, n_iter_max=5)
        assert fit.loss == pytest.approx(loss_of(fit.model, x, loss), rel=1e-9, abs=1e-9)
        assert fit.loss >= loss_of(tk.Tucker(*tk.ltr(x, blocks=cut)), x, "kl") * (loss == "kl") - 1e-9


def test_faces_reach_the_known_figures(data: Any) -> None:
    x = np.load(data / "attface.npz")["tensor"]
    assert tk.ntd(x, 10, loss="ls").loss < 0.2125
    assert tk.ntd(x, 10, loss="kl").loss / x.sum() < 0.0314


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("faint", [1e-100, 1e-200])
def test_a_slice_of_next_to_nothing(loss: Any, faint: float) -> None:
    x = np.random.default_rng(0).random((12, 15, 10))
    x[0] *= faint
    fit = tk.ntd(x, 3, loss=loss, n_iter_max=20)
    assert fit.loss == pytest.approx(loss_of(fit.model, x, loss), rel=1e-6)
    assert fit.loss < loss_of(tk.Tucker(*tk.ltr(x, 3)), x, loss)
