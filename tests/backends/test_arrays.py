"""Arrays of other libraries: the same results as NumPy's, in the same library, wherever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from elsewhere import read_elsewhere, to_numpy
from strategies import partitions, tensors
from tucket.backends import NUMPY, get_backend
from tucket.interfaces.report import write_report
from tucket.kernels import array_api
from tucket.projection.strategies import Clusters, Segments, segments

jax = pytest.importorskip("jax")
strict = pytest.importorskip("array_api_strict")
torch = pytest.importorskip("torch")
pyplot = pytest.importorskip("matplotlib.pyplot")

Make = Callable[[NDArray[Any]], Any]

LIBRARIES: dict[str, Make] = {
    "torch": lambda x: torch.from_numpy(x.copy()),
    "jax": lambda x: jax.numpy.asarray(x),
    "strict": strict.asarray,
}
if torch.cuda.is_available():
    cupy = pytest.importorskip("cupy")
    LIBRARIES |= {"cuda": lambda x: torch.from_numpy(x.copy()).cuda(), "cupy": cupy.asarray}


@pytest.fixture(params=LIBRARIES)
def make(request: pytest.FixtureRequest) -> Make:
    return LIBRARIES[request.param]


@pytest.fixture(params=["host", "elsewhere", "in pieces"])
def where(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Let arrays be read as NumPy arrays or, as on a device, by their own library alone, perhaps in pieces."""
    if request.param != "host":
        read_elsewhere(monkeypatch, 50, 100 if request.param == "in pieces" else None)
    return str(request.param)


@pytest.fixture
def x() -> NDArray[np.float32]:
    x = np.random.default_rng(0).random((6, 7, 8), np.float32)
    x[1], x[:, 2, 3] = 0, 0
    return x


def close(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    np.testing.assert_allclose(to_numpy(found), expected, rtol=tolerance, atol=1e-6)


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("blocks", ["uniform", "random", "segments", "clusters"])
def test_ltr(make: Make, blocks: Any, x: NDArray[np.float32]) -> None:
    array = make(x)
    model: Any = tk.ltr(array, (2, 3, 2), blocks=blocks, rng=0)
    expected = tk.ltr(x, (2, 3, 2), blocks=blocks, rng=0)
    assert isinstance(model, tk.BlockTucker)
    assert model.partition == expected.partition
    assert (model.shape, model.rank, model.n_parameters) == (expected.shape, expected.rank, expected.n_parameters)
    core, factors = model
    assert type(core) is type(array)
    close(core, expected.core)
    for ours, theirs in zip(factors, expected.factors, strict=True):
        assert type(ours) is type(array)
        close(ours, theirs)
    dense = model.to_tensor()
    assert type(dense) is type(array)
    close(dense, expected.to_tensor())
    close(model[1:5, ::-2, 3], expected[1:5, ::-2, 3])
    close(model[-1], expected[-1])
    assert model.kl(array) == pytest.approx(expected.kl(x), rel=1e-5)
    assert model.relative_error(array) == pytest.approx(expected.relative_error(x), rel=1e-5)
    assert expected.kl(array) == pytest.approx(expected.kl(x), rel=1e-5)  # a model of NumPy's, a tensor elsewhere
    assert expected.relative_error(array) == pytest.approx(expected.relative_error(x), rel=1e-5)
    np.testing.assert_array_equal(to_numpy(array), x)


@pytest.mark.usefixtures("where")
def test_intervals_too_many_to_score_exactly(
    make: Make, x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(segments, "EXACT_LOGS", 0)
    monkeypatch.setattr(segments, "SKETCH_INDICES", 5)
    model: Any = tk.ltr(make(x), (2, 3, 4), blocks="segments")
    assert model.partition == tk.ltr(x, (2, 3, 4), blocks="segments").partition


@pytest.mark.usefixtures("where")
def test_statistics_and_curves(make: Make, x: NDArray[np.float32]) -> None:
    ours, theirs = (tk.collect(each, (2, 3, None), moments=True) for each in (make(x), x))
    np.testing.assert_allclose(ours.core, theirs.core, rtol=1e-6)
    for one, other in zip(ours.marginals, theirs.marginals, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6)
    np.testing.assert_allclose(np.array(ours.moments), np.array(theirs.moments), rtol=1e-5)
    curves = [tk.information_curve(each).joint for each in (make(x), x)]
    assert [point.rank for point in curves[0]] == [point.rank for point in curves[1]]
    close(tk.best_rank1(make(x)).to_tensor(), tk.best_rank1(x).to_tensor())
    kept: Any = tk.ltr(make(x), retain=0.5)
    assert kept.rank == tk.ltr(x, retain=0.5).rank


@settings(max_examples=40)
@given(st.data())
def test_generic_kernel_is_right(data: st.DataObject) -> None:
    x = data.draw(tensors(dtypes=("u1", "<i4", "<f4", "<f8")))
    partition = data.draw(partitions(x.shape))
    sums = array_api.block_sums(strict.asarray(np.ascontiguousarray(x)), partition, 1.0)
    expected = tk.collect(x, partition, moments=True)
    np.testing.assert_allclose(sums.core, expected.core, rtol=1e-12)
    for ours, theirs in zip(sums.marginals, expected.marginals, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)
    np.testing.assert_allclose(np.array(sums.moments), np.array(expected.moments), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_ntd(make: Make, where: str, loss: Any, x: NDArray[np.float32]) -> None:
    array = make(x)
    fit, expected = tk.ntd(array, 2, loss=loss), tk.ntd(x, 2, loss=loss)
    model: Any = fit.model
    assert isinstance(model, tk.Tucker)
    assert type(model.core) is type(make(x))
    assert "loss=" in repr(fit)
    is_near = where == "host" and get_backend(get_backend(array).native(array)) is NUMPY
    assert fit.loss == pytest.approx(expected.loss, rel=1e-6 if is_near else 0.01)
    here = model.to_numpy()
    close(model.to_tensor(), here.to_tensor())
    close(model[2, :, 1:4], here[2, :, 1:4])
    assert model.kl(make(x)) == pytest.approx(here.kl(x), rel=1e-4)
    assert model.relative_error(make(x)) == pytest.approx(here.relative_error(x), rel=1e-4)
    assert fit.loss == pytest.approx(here.kl(x) if loss == "kl" else here.relative_error(x), rel=1e-4)
    np.testing.assert_array_equal(to_numpy(array), x)


WAYS: list[dict[str, Any]] = [
    {"init": "hosvd", "n_iter_max": 20},
    {"init": "random", "n_iter_max": 40},
    {"init": "ltr", "multilevel": False},
    {"preset": "paper"},
    {"finest": 100},
    {"dtype": np.float32},
    {"finest": tk.Partition.uniform((6, 7, 8), (3, 7, 4))},
]


@pytest.mark.usefixtures("where")
@pytest.mark.parametrize("loss", ["kl", "ls"])
@pytest.mark.parametrize("way", WAYS, ids=str)
def test_every_way_of_ntd(make: Make, way: dict[str, Any], loss: Any, x: NDArray[np.float32]) -> None:
    fit, expected = (tk.ntd(each, 2, loss=loss, **way) for each in (make(x), x))
    assert fit.loss == pytest.approx(expected.loss, rel=0.05)
    assert fit.levels == expected.levels
    model = fit.model.to_numpy()
    assert fit.loss == pytest.approx(model.kl(x) if loss == "kl" else model.relative_error(x), rel=1e-4)


@pytest.mark.usefixtures("where")
def test_ntd_of_odd_tensors(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    nothing: Any = tk.ntd(make(np.zeros((3, 4), np.float32)), 2)
    assert nothing.loss == 0
    assert type(nothing.model.core) is type(make(np.zeros(1)))
    long = np.random.default_rng(0).random((40, 2, 3)).astype(np.float32)  # more components than singular vectors
    assert tk.ntd(make(long), (8, 2, 2), init="hosvd", n_iter_max=5).loss < tk.ltr(long, (8, 2, 2)).kl(long)
    flat = tk.ntd(make(long[:, 0, 0]), 3, n_iter_max=5)
    assert flat.loss == pytest.approx(0, abs=1e-4)
    with pytest.raises(ValueError, match=r"x\[1, 2\] is -1"):
        tk.ntd(make(np.array([[1, 2, 3], [4, 5, -1]], np.float32)), 2)
    monkeypatch.setattr("tucket.decomposition.levels.DEVICE_COARSEST_CELLS", 20)
    monkeypatch.setattr("tucket.decomposition.levels.COARSEST_CELLS", 20)
    monkeypatch.setattr("tucket.decomposition.levels.MIN_KEPT_SHARE", 0.0)
    steps: list[Any] = []
    fit = tk.ntd(make(long), 2, n_iter_max=5, callback=steps.append)
    assert len(fit.levels) > 1
    assert len({step.level for step in steps}) > 1
    again: Any = tk.ntd(make(long), init=fit.model, n_iter_max=5)
    assert again.loss <= fit.loss * (1 + 1e-5)
    refined: Any = tk.ntd(make(long), init=tk.ltr(make(long), 2), loss="ls").model
    assert isinstance(refined, tk.Tucker)
    assert refined.relative_error(make(long)) < tk.ltr(long, 2).relative_error(long)


def test_a_dense_model_beside_a_tensor_elsewhere(make: Make, where: str, x: NDArray[np.float32]) -> None:
    assert where
    model = tk.Tucker(*tk.ltr(x, 2))
    assert model.kl(make(x)) == pytest.approx(model.kl(x), rel=1e-5)
    assert model.relative_error(make(x)) == pytest.approx(model.relative_error(x), rel=1e-5)


@pytest.mark.parametrize("measure", [tk.metrics.kl, tk.metrics.relative_error])
def test_metrics(make: Make, measure: Any, x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    other = x[::-1] + np.float32(0.1)
    expected = measure(x, other)
    assert measure(make(x), make(other)) == pytest.approx(expected, rel=1e-5)
    read_elsewhere(monkeypatch)
    monkeypatch.setattr(array_api, "SLAB_ENTRIES", 50)
    assert measure(make(x), make(other)) == pytest.approx(expected, rel=1e-5)
    with pytest.raises(ValueError, match=r"q\[0, 0, 0\] is -"):
        measure(make(x), make(-other))
    with pytest.raises(ValueError, match="q has shape"):
        measure(make(x), make(other[1:]))
    with pytest.raises(ValueError, match="q is of NumPy, but p of"):
        measure(make(x), other)


def test_saved_and_loaded(make: Make, x: NDArray[np.float32], tmp_path: Path) -> None:
    model: Any = tk.ltr(make(x), 2)
    model.save(tmp_path / "model.npz")
    assert tk.load(tmp_path / "model.npz") == model.to_numpy()
    assert "parameters for 336 elements" in repr(model)


def test_what_is_done_on_the_host(make: Make, x: NDArray[np.float32], tmp_path: Path) -> None:
    model: Any = tk.ltr(make(x), 2)
    expected = tk.ltr(x, 2)
    assert model.to_numpy().to_numpy() is not None
    assert [block.mass for block in model.blocks(0)] == pytest.approx([block.mass for block in expected.blocks(0)])
    assert to_numpy(model.astype(np.float32).core).dtype == np.float32
    assert len(model.plot().axes) == len(expected.plot().axes)
    pyplot.close("all")
    tk.plot.blocks(model, 1)
    tk.plot.core(model)
    tk.plot.slices(make(x), model)
    write_report(tmp_path / "report.html", model, make(x))
    if get_backend(get_backend(make(x)).native(make(x))) is NUMPY:
        refined = tk.ntd(make(x), init=model, n_iter_max=3)
        assert refined.loss <= expected.kl(x) * 1.0001


def test_float32_models(make: Make, x: NDArray[np.float32]) -> None:
    model: Any = tk.ltr(make(x), 2, dtype=np.float32)
    assert to_numpy(model.to_tensor()).dtype == np.float32


@pytest.mark.parametrize("library", ["torch", "jax"])
def test_bfloat16(library: str, x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    """In the memory of the host it is as good as float32, whose exponents it has."""
    rounded: Any = torch.from_numpy(x + 100).bfloat16()
    if library == "jax":
        rounded = jax.device_put(x + 100, jax.devices("cpu")[0]).astype("bfloat16")
    exact = to_numpy(rounded)
    assert exact.dtype == np.float32
    model, expected = tk.ltr(rounded, 2), tk.ltr(exact, 2)
    close(model.to_tensor(), expected.to_tensor())
    assert model.kl(rounded) == pytest.approx(expected.kl(exact), rel=1e-3)
    assert tk.ltr(rounded, retain=1.0).rank == tk.ltr(exact, retain=1.0).rank
    assert tk.ntd(rounded, 2).loss == pytest.approx(tk.ntd(exact, 2).loss, rel=1e-6)
    assert tk.metrics.relative_error(rounded, 0 * rounded) == 1
    read_elsewhere(monkeypatch)
    assert tk.collect(rounded, 2).kernel == "array API"
    close(tk.ltr(rounded, blocks=model.partition).to_tensor(), expected.to_tensor())


@pytest.mark.usefixtures("where")
def test_ntd_starts_from_parts_where_they_are(make: Make, x: NDArray[np.float32]) -> None:
    core, factors = tk.ltr(make(x), 2)
    expected = tk.ntd(x, init=tk.ltr(x, 2), n_iter_max=3).loss
    assert tk.ntd(make(x), init=(core, factors), n_iter_max=3).loss == pytest.approx(expected, rel=0.02)
    device = strict.Device("device1")
    core, factors = tk.ltr(strict.asarray(x, device=device), 2)
    assert tk.ntd(strict.asarray(x, device=device), init=(core, factors), n_iter_max=3).loss > 0
    with pytest.raises(TypeError, match=r"init: core requires a gradient, .* give core\.detach\(\)"):
        tk.ntd(x, init=(torch.ones((2, 2, 2), requires_grad=True), factors))
    with pytest.raises(TypeError, match=r"core is a sparse torch tensor"):
        tk.Tucker(torch.eye(2).to_sparse(), [np.ones((3, 2))] * 2)


def test_jax_compiles_and_differentiates(x: NDArray[np.float32]) -> None:
    array = jax.numpy.asarray(x + 0.1)
    partition = tk.ltr(x + 0.1, 2).partition  # free blocks that were found before

    def dense(a: Any) -> Any:
        return tk.ltr(a, blocks=partition).to_tensor()

    close(jax.jit(dense)(array), tk.ltr(x + 0.1, blocks=partition).to_tensor(), 1e-4)

    def divergence(a: Any) -> Any:
        return tk.ltr(a, 2, blocks="uniform").kl(a)

    expected = tk.ltr(x + 0.1, 2, blocks="uniform").kl(x + 0.1)
    compiled = jax.jit(divergence)
    assert float(compiled(array)) == pytest.approx(expected, rel=1e-3)
    slope, step = jax.grad(compiled)(array), 1e-2
    for place in ((0, 1, 2), (5, 6, 7)):
        up, down = (array.at[place].add(sign * step) for sign in (1, -1))
        steepness = (compiled(up) - compiled(down)) / (2 * step)
        assert float(slope[place]) == pytest.approx(float(steepness), abs=2e-2)
    error = jax.jit(lambda a: tk.ltr(a, 2, blocks="uniform").relative_error(a))(array)
    assert float(error) == pytest.approx(tk.ltr(x + 0.1, 2, blocks="uniform").relative_error(x + 0.1), rel=1e-4)


def test_torch_differentiates(x: NDArray[np.float32]) -> None:
    array = torch.from_numpy(x.astype(np.float64)).requires_grad_()

    def divergence(a: Any) -> Any:
        return tk.ltr(a, 2, blocks="uniform").kl(a)

    inside = torch.from_numpy(x[:4, :3, :5].astype(np.float64) + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(divergence, inside)
    assert torch.autograd.gradcheck(lambda a: tk.ltr(a, 2, blocks="uniform").to_tensor(), inside)
    divergence(array).backward()
    assert torch.isfinite(array.grad).all()  # zeros, and blocks without mass, do no harm
    model: Any = tk.ltr(array.detach(), 2, blocks="uniform")
    assert model.kl(array).requires_grad  # of the tensor alone
    with torch.no_grad():
        assert isinstance(tk.ltr(array, 2).kl(array), float)


@pytest.mark.usefixtures("where")
def test_bad_entries(make: Make, x: NDArray[np.float32]) -> None:
    for bad, message in (
        (-1, r"x\[2, 5, 6\] is -1"),
        (np.nan, r"x\[2, 5, 6\] is nan"),
        (np.inf, r"x\[2, 5, 6\] is inf"),
    ):
        wrong = x.copy()
        wrong[2, 5, 6] = bad
        model: Any = tk.ltr(make(x), 2)
        for call in (lambda a: tk.ltr(a, 2), lambda a: tk.collect(a, 2), model.kl, model.relative_error):
            with pytest.raises(ValueError, match=message):
                call(make(wrong))


@pytest.mark.usefixtures("where")
def test_scales(make: Make) -> None:
    if make is LIBRARIES["jax"]:
        pytest.skip("JAX has no float64 unless it is told to")
    x = np.random.default_rng(0).random((4, 5))
    expected = tk.ltr(x, 2, blocks="uniform").relative_error(x)
    for scale in (1e-200, 1e200):
        model: Any = tk.ltr(make(x * scale), 2, blocks="uniform")
        assert model.relative_error(make(x * scale)) == pytest.approx(expected)


def test_what_cannot_be_done(x: NDArray[np.float32]) -> None:
    followed = torch.from_numpy(x).requires_grad_()
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: tk.ltr(followed, 2), ValueError, "give blocks='uniform' or your own"),
        (lambda: tk.ltr(followed, retain=0.5), TypeError, r"give x\.detach\(\)"),
        (lambda: tk.ltr(followed, 2, variant="published", rng=0), TypeError, r"give x\.detach\(\)"),
        (lambda: tk.collect(followed, 2), TypeError, r"give x\.detach\(\)"),
        (lambda: tk.ltr(torch.eye(3).to_sparse(), 2), TypeError, r"sparse .* tucket\.from_entries"),
        (lambda: tk.ltr(torch.ones(3, 3, dtype=torch.complex64), 2), TypeError, "complex64; give real numbers"),
        (lambda: tk.ltr(torch.ones(3, 3, device="meta"), 2), TypeError, "device meta"),
        (lambda: tk.ltr(torch.ones(0, 3), 1), ValueError, "mode 0 of x is empty"),
        (lambda: tk.ltr(torch.tensor(3.0), 1), ValueError, "scalar"),
        (lambda: tk.ltr(torch.ones(3, 3), 2).kl(np.ones((3, 3))), ValueError, "bring one to the other"),
        (
            lambda: tk.ltr(torch.ones(3, 3), 2).kl(jax.numpy.ones((3, 3))),
            ValueError,
            "x is of jax on .*, but the model of torch on cpu",
        ),
        (lambda: tk.ltr(torch.ones(3, 3), 2).kl(torch.ones(3, 4)), ValueError, "shape"),
        (lambda: tk.ltr(torch.ones(3, 3), (4, 1)), ValueError, "rank"),
        (lambda: tk.ltr(torch.ones(3, 3).to(torch.float8_e4m3fn), 2), TypeError, "floats of 16 to 64 bits"),
        (lambda: tk.ltr(-followed, 2, blocks="uniform"), ValueError, r"x\[0, 0, 0\] is -"),
        (lambda: tk.collect(torch.ones(3, 3), 2, compute=False), TypeError, "compute=False"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()
    with pytest.raises(ValueError, match="blocks that are searched for"):
        jax.jit(lambda a: tk.ltr(a, 2).core)(jax.numpy.asarray(x))


def test_large_integers_do_not_overflow() -> None:
    x = np.full((3, 50), 2**62, np.int64)
    assert tk.collect(torch.from_numpy(x), 1).total == pytest.approx(150 * 2.0**62)
    assert array_api.block_sums(strict.asarray(x), tk.Partition.uniform(x.shape, 1)).core.item() == pytest.approx(
        150 * 2.0**62
    )


def test_a_device_without_float64(x: NDArray[np.float32]) -> None:
    device = strict.Device("no_float64")
    array = strict.asarray(x, device=device)
    model: Any = tk.ltr(array, 2, blocks="uniform")
    assert model.core.dtype == strict.float32
    assert model.core.device == device
    close(model.to_tensor(), tk.ltr(x, 2, blocks="uniform").to_tensor())


def test_a_followed_model_is_not_the_tensor() -> None:
    x = torch.rand(3, 3, dtype=torch.float64, requires_grad=True)
    model: Any = tk.ltr(x, np.array([3, 3]), blocks="uniform")
    assert model.core is not x
    assert model.core.data_ptr() != x.data_ptr()


def test_scikit_learn_wants_an_array_on_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    read_elsewhere(monkeypatch)
    with pytest.raises(TypeError, match="x is of torch on cpu, and scikit-learn needs a NumPy array"):
        tk.lra_sntd(torch.rand(4, 5), 2)


@pytest.mark.usefixtures("where")
def test_total_correlation(make: Make, x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    expected = tk.metrics.total_correlation(x)
    assert tk.metrics.total_correlation(make(x)) == pytest.approx(expected, rel=1e-5)
    read_elsewhere(monkeypatch)
    assert tk.metrics.total_correlation(make(x)) == pytest.approx(expected, rel=1e-5)
    assert tk.metrics.total_correlation(make(x * np.float32(1e30))) == pytest.approx(expected, rel=1e-5)
    assert tk.metrics.total_correlation(make(1e30 * x.astype(np.float64))) == pytest.approx(expected, rel=1e-5)
    assert tk.metrics.total_correlation(make(np.arange(3.0))) == pytest.approx(0, abs=1e-6)
    assert tk.metrics.total_correlation(make(0 * x)) == 0
    with pytest.raises(ValueError, match=r"p\[0, 0, 1\] is -"):
        tk.metrics.total_correlation(make(np.where(x == x[0, 0, 1], -x, x)))
    for bad in (-1.0, np.nan, np.inf):
        with pytest.raises(ValueError, match=r"p\[1\] is"):
            tk.metrics.total_correlation(make(np.array([1.0, bad, 2.0])))
    with pytest.raises(ValueError, match=r"p\[0, 0\] is -1"):
        tk.metrics.total_correlation(make(-np.ones((2, 3))))


@pytest.mark.parametrize("loss", ["kl", "ls"])
@pytest.mark.parametrize("scale", [1e-30, 1e9])
def test_ntd_without_float64(scale: float, loss: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_elsewhere(monkeypatch)
    x = np.float32(scale) * np.random.default_rng(0).random((6, 7, 8), np.float32)
    fit = tk.ntd(jax.numpy.asarray(x, jax.numpy.bfloat16), 2, loss=loss)
    expected = tk.ntd(x, 2, loss=loss)
    assert fit.loss == pytest.approx(expected.loss, rel=0.03)


def test_a_device_that_numpy_cannot_ask() -> None:
    device = strict.Device("device1")
    x, y = (strict.asarray(np.random.default_rng(seed).random((4, 5, 6)), device=device) for seed in (0, 1))
    assert 0 < tk.metrics.kl(x, y) < np.inf
    assert tk.metrics.relative_error(x, x) == 0
    assert tk.metrics.total_correlation(x) > 0
    results: list[Any] = [tk.ltr(x, 2), tk.best_rank1(x), tk.ntd(x, 2, n_iter_max=2).model, tk.ltr(x, 2).to_tensor()]
    assert all(result.device == device for result in results)


@pytest.mark.usefixtures("where")
def test_blocks_are_found_among_unfoldings_elsewhere(make: Make) -> None:
    """As on a GPU, whose unfoldings stay there."""
    rng = np.random.default_rng(1)
    rows = rng.random((30, 12))
    rows[:, 3] *= rng.random(30) > 0.5
    rows /= rows.sum()
    start = tk.Blocks.random(30, 4, rng)
    for strategy in (Clusters(0), Clusters(), Segments()):
        assert strategy.improve(make(rows), start, 1) == strategy.improve(rows, start, 1)
    crowded = tk.Blocks.from_labels(np.r_[0, 1, 2, np.zeros(27, int)])
    twins = np.repeat(rows[:1], 30, axis=0)
    assert Clusters(0).improve(make(twins), crowded, 1) == Clusters(0).improve(twins, crowded, 1)


def test_streams_of_slabs_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    read_elsewhere(monkeypatch)
    good, bad = torch.ones((2, 3)), torch.tensor([[1.0, 1.0, 1.0], [1.0, -4.0, 1.0]])
    assert tk.collect(iter([good, good]), (None, 1)).total == 12
    with pytest.raises(ValueError, match=r"x\[3, 1\] is -4"):
        tk.collect(iter([good, bad]), (None, 1))


def test_backends() -> None:
    for nothing in ([1, 2], np.ones(2), np.float64(1), "text", None, tk.ltr([[1, 2]], 1)):
        assert get_backend(nothing) is NUMPY
    assert str(get_backend(torch.ones(2))) == "torch on cpu"
    assert get_backend(torch.ones(2)) == get_backend(torch.zeros(3)) != NUMPY


def test_a_model_of_any_library_can_do_what_any_model_can(make: Make, x: NDArray[np.float32]) -> None:
    array = make(x)
    model, expected = tk.ltr(array, (2, 3, 2), names="abc", labels={"a": list("uvwxyz")}), tk.ltr(x, (2, 3, 2))
    for ours, theirs in zip(model.marginals, expected.marginals, strict=True):
        assert type(ours) is type(array)
        close(ours, theirs)
    close(model.block_masses(), expected.block_masses())
    for ours, theirs in zip(model.sparse_factors(), expected.sparse_factors(), strict=True):
        np.testing.assert_allclose(ours.toarray(), theirs.toarray(), rtol=1e-5)
    xr = pytest.importorskip("xarray")
    dataset = model.to_xarray()
    assert isinstance(dataset, xr.Dataset)
    assert dataset["factor_a"].coords["a"].to_numpy().tolist() == list("uvwxyz")
    assert [block.labels is not None for block in model.blocks("a")] == [True, True]
    assert (model.device, model.backend) == (get_backend(array).device, get_backend(array))
    fit = tk.ntd(array, 2, n_iter_max=3)
    core, factors = fit
    assert type(core) is type(factors[0]) is type(array)
    assert fit == fit.model
    close(fit[1, :, 2], fit.to_numpy()[1, :, 2], 1e-4)
