"""What is done with arrays of other libraries and models of them: transformed, compiled, copied, shared out."""

from __future__ import annotations

import copy
import pickle
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from elsewhere import read_elsewhere, to_numpy
from tucket.backends import get_backend

jax = pytest.importorskip("jax")
strict = pytest.importorskip("array_api_strict")
torch = pytest.importorskip("torch")

MAKE: dict[str, Callable[[Any], Any]] = {
    "torch": lambda x: torch.from_numpy(np.array(x)),
    "jax": lambda x: jax.numpy.asarray(x),
    "strict": strict.asarray,
}


@pytest.fixture(params=MAKE)
def make(request: pytest.FixtureRequest) -> Callable[[Any], Any]:
    return MAKE[request.param]


@pytest.fixture
def x() -> NDArray[np.float32]:
    x = np.random.default_rng(0).random((4, 5, 6), np.float32)
    x[1, 2, 3] = 0
    return x


PARTITION = tk.Partition.from_labels([[0, 1, 1, 0], [0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]])


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda model: pickle.loads(pickle.dumps(model))])
def test_models_are_copied_and_compared(make: Any, copied: Any, x: NDArray[np.float32]) -> None:
    for model in (tk.ltr(make(x), 2), tk.ntd(make(x), 2, n_iter_max=2).model):
        assert copied(model) == model
        assert model.astype(np.float32) != model or model.dtype == model.astype(np.float32).dtype
        assert model != tk.ltr(make(x + 1), 2)
        assert model != model.to_numpy()
    assert tk.ltr(make(x), 2) == tk.ltr(make(x), 2)
    assert tk.ltr(torch.from_numpy(x), 2) != tk.ltr(jax.numpy.asarray(x), 2)


def test_a_model_is_an_array_to_numpy(x: NDArray[np.float32]) -> None:
    model = tk.ltr(torch.from_numpy(x), 2)
    np.testing.assert_allclose(np.asarray(model), tk.ltr(x, 2).to_tensor())
    assert np.asarray(model, np.float32).dtype == np.float32
    with pytest.raises(ValueError, match="leave copy=False out"):
        np.array(model, copy=False)


def test_what_is_said_in_words_of_the_library(make: Any, x: NDArray[np.float32]) -> None:
    model: Any = tk.ltr(torch.from_numpy(x), torch.tensor(2), dtype=torch.float32)
    assert model.core.dtype == torch.float32
    assert model.astype(torch.float64).core.dtype == torch.float64
    assert tk.ltr(x, jax.numpy.int32(2)).rank == tk.ltr(x, torch.tensor([2, 2, 2])).rank == (2, 2, 2)
    with pytest.raises(TypeError, match="give float32 or float64"):
        tk.ltr(x, 2, dtype=torch.float16)
    steps: list[Any] = []
    there: Any = tk.ltr(make(x), 2)
    assert there.kl(make(x), workers=1, progress=steps.append) == pytest.approx(tk.ltr(x, 2).kl(x), rel=1e-5)
    assert there.relative_error(make(x), workers=1, progress=steps.append) > 0
    assert len(steps) == 2


def test_jax_takes_and_returns_models(x: NDArray[np.float32]) -> None:
    array = jax.numpy.asarray(x)
    model = jax.jit(lambda a: tk.ltr(a, blocks=PARTITION))(array)
    assert isinstance(model, tk.BlockTucker)
    assert (model.partition, model.backend) == (PARTITION, get_backend(array))
    expected = tk.ltr(x, blocks=PARTITION)
    np.testing.assert_allclose(model.core, expected.core, rtol=1e-5)
    assert float(jax.jit(lambda m, a: m.kl(a))(model, array)) == pytest.approx(expected.kl(x), rel=1e-4)
    slopes = jax.grad(lambda m: m.relative_error(array))(model)
    assert isinstance(slopes, tk.BlockTucker)
    dense = tk.ntd(array, 2, n_iter_max=2).model
    assert jax.tree_util.tree_map(lambda part: part, dense) == dense
    many = jax.vmap(lambda a: tk.ltr(a, blocks=PARTITION).to_tensor())(jax.numpy.stack([array, 2 * array]))
    np.testing.assert_allclose(many[1], 2 * expected.to_tensor(), rtol=1e-5)


def test_trees_of_other_things_than_arrays(x: NDArray[np.float32]) -> None:
    model: Any = tk.ltr(jax.numpy.asarray(x), 2)
    here = jax.device_get(model)
    assert here.to_numpy() == model.to_numpy()
    assert here.kl(x) == pytest.approx(model.kl(jax.numpy.asarray(x)))
    empty = jax.tree.map(lambda _: None, model)
    assert repr(empty) == "BlockTucker(core=None)"
    assert empty != model
    assert jax.eval_shape(lambda m: m, model).core.shape == (2, 2, 2)


def test_torch_does_without_jax(x: NDArray[np.float32], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jax", None)
    monkeypatch.setattr("tucket.models.model._registered", set())
    assert tk.ltr(torch.from_numpy(x), 2) == tk.ltr(torch.from_numpy(x), 2)


@pytest.mark.parametrize("run", [64, 2])
def test_sums_of_many_entries_in_float32(run: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """One by one, 0.1 would come to 3 % less."""
    monkeypatch.setattr("tucket.backends.jax.RUN_INDICES", run)
    blocks = tk.Partition.uniform((300_000, 2), (1, 2))
    core = jax.jit(lambda a: tk.ltr(a, blocks=blocks).core)(jax.numpy.full((300_000, 2), 0.1))
    np.testing.assert_allclose(core, [[3e4, 3e4]], rtol=1e-6)
    read_elsewhere(monkeypatch)
    rounded = jax.numpy.full((300_000,), 0.1).astype("bfloat16")
    assert tk.collect(rounded, (1,)).total == pytest.approx(3e5 * float(rounded[0]), rel=1e-6)
    free = np.random.default_rng(0).integers(0, 3, 1000)
    sums = jax.jit(lambda a: tk.ltr(a, blocks=tk.Partition.from_labels([free])).core)(jax.numpy.ones(1000))
    np.testing.assert_array_equal(sums, np.bincount(free))


def test_a_close_model_in_float32(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of logarithms of float32 nothing would be left."""
    read_elsewhere(monkeypatch)
    rng = np.random.default_rng(0)
    x = np.multiply.outer(1 + rng.random(200), 1 + rng.random(300)).astype(np.float32)
    rounded = jax.numpy.asarray(x).astype("bfloat16")
    expected = np.asarray(rounded.astype("float32"))
    assert tk.ltr(rounded, 1).kl(rounded) == pytest.approx(tk.ltr(expected, 1).kl(expected), rel=1e-2)


@pytest.mark.parametrize("scale", [1e30, 1e-30, 0.0])
def test_relative_error_of_every_scale_where_it_is_followed(scale: float, x: NDArray[np.float32]) -> None:
    def error(a: Any) -> Any:
        return tk.ltr(a, 2, blocks="uniform").relative_error(a)

    expected = tk.ltr(x * scale, 2, blocks="uniform").relative_error(x * scale)
    assert float(jax.jit(error)(jax.numpy.asarray(x * np.float32(scale)))) == pytest.approx(expected, rel=1e-5)
    followed = (torch.from_numpy(x).double() * scale).requires_grad_()
    assert error(followed).item() == pytest.approx(expected)
    slope = torch.autograd.grad(error(followed), followed)[0]
    assert torch.isfinite(slope).all()


def test_a_loss_without_an_end_where_nothing_is_known() -> None:
    model: Any = tk.ltr(torch.ones(2, 2), 1)
    nothing = torch.zeros(2, 2, requires_grad=True)
    assert model.relative_error(nothing).item() == np.inf
    exact = torch.ones(2, 2, requires_grad=True)
    assert torch.equal(torch.autograd.grad(model.relative_error(exact), exact)[0], torch.zeros(2, 2))


def test_slopes_at_zeros(x: NDArray[np.float32]) -> None:
    """Where nothing is, p log p has no slope: what is left is the model's."""
    model: Any = tk.ltr(torch.from_numpy(x), 1)
    followed = torch.from_numpy(x).double().requires_grad_()
    slope = torch.autograd.grad(model.kl(followed), followed)[0]
    dense = model.to_tensor().double()
    logs = torch.log(followed.detach() / dense)
    logs[1, 2, 3] = 0
    torch.testing.assert_close(slope, logs)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")  # of torch's own
def test_transformations_of_torch(x: NDArray[np.float32]) -> None:
    many = torch.from_numpy(np.stack([x, 1 + x])).double()

    def divergence(a: Any) -> Any:
        return tk.ltr(a, blocks=PARTITION).kl(a)

    expected = [tk.ltr(each.numpy(), blocks=PARTITION).kl(each.numpy()) for each in many]
    np.testing.assert_allclose(torch.vmap(divergence)(many), expected)
    assert torch.vmap(torch.func.grad(divergence))(many).shape == many.shape
    value, tangent = torch.func.jvp(divergence, (many[1],), (many[1],))
    assert value.item() == pytest.approx(tangent.item()) == pytest.approx(expected[1])  # it grows with its scale
    forward = torch.autograd.forward_ad
    with forward.dual_level():
        dual = forward.make_dual(many[1], many[1])
        assert forward.unpack_dual(divergence(dual)).tangent.item() == pytest.approx(expected[1])


def test_weights_alone_may_be_followed(x: NDArray[np.float32]) -> None:
    model: Any = tk.ltr(torch.from_numpy(x), 2, blocks="uniform")
    first, *others = model.weights
    learned = tk.BlockTucker(model.core, model.partition, (first.clone().requires_grad_(), *others))
    assert learned.to_tensor().requires_grad
    assert learned.kl(torch.from_numpy(x).double()).item() == pytest.approx(model.kl(torch.from_numpy(x)))


def test_metrics_have_gradients_and_are_compiled(x: NDArray[np.float32]) -> None:
    y = x[::-1] + 1
    for measure in (tk.metrics.kl, tk.metrics.relative_error):
        expected = measure(x, y)
        followed = torch.from_numpy(y).requires_grad_()
        found = measure(torch.from_numpy(x), followed)
        assert found.item() == pytest.approx(expected, rel=1e-5)
        assert torch.isfinite(torch.autograd.grad(found, followed)[0]).all()
        assert float(jax.jit(measure)(jax.numpy.asarray(x), jax.numpy.asarray(y))) == pytest.approx(expected, rel=1e-5)
        with pytest.raises(ValueError, match="q has shape"):
            measure(torch.from_numpy(x), followed[1:])
        with pytest.raises(ValueError, match=r"q\[0, 0, 0\] is -"):
            measure(torch.from_numpy(x), -followed)
        with pytest.raises(ValueError, match="q is of torch on cpu, but p of NumPy"):
            measure(x, followed)


@pytest.mark.skipif(len(jax.devices()) < 2, reason="there is but one device")
def test_arrays_that_are_shared_out(x: NDArray[np.float32]) -> None:
    mesh, spec = jax.sharding.Mesh(np.array(jax.devices()[:2]), ("part",)), jax.sharding.PartitionSpec
    expected = tk.ltr(x, (2, 3, 2))
    for axes in (spec("part"), spec(None, None, "part"), spec()):
        array = jax.device_put(jax.numpy.asarray(x), jax.sharding.NamedSharding(mesh, axes))
        model: Any = tk.ltr(array, blocks=expected.partition)
        np.testing.assert_allclose(to_numpy(model.core), expected.core, rtol=1e-5)
        assert model.core.sharding.is_fully_replicated
        assert len(model.core.sharding.device_set) == 2
        assert model.kl(array) == pytest.approx(expected.kl(x), rel=1e-4)
        assert tk.metrics.total_correlation(array) == pytest.approx(tk.metrics.total_correlation(x), rel=1e-4)
        compiled = jax.jit(lambda a: tk.ltr(a, blocks=expected.partition).kl(a))
        assert float(compiled(array)) == pytest.approx(expected.kl(x), rel=1e-4)
    assert tk.ltr(array, (2, 3, 2)).kl(array) == pytest.approx(expected.kl(x), rel=1e-4)
    assert tk.ntd(array, 2, n_iter_max=5).loss == pytest.approx(tk.ntd(x, 2, n_iter_max=5).loss, rel=1e-2)
    other = jax.device_put(jax.numpy.asarray(x), jax.devices()[1])
    assert tk.ltr(other, 2).core.device == jax.devices()[1]
    with pytest.raises(ValueError, match="bring one to the other"):
        tk.ltr(other, 2).kl(jax.numpy.asarray(x))


@pytest.mark.skipif(len(jax.devices()) < 2, reason="there is but one device")
def test_arrays_that_are_shared_out_explicitly(x: NDArray[np.float32]) -> None:
    kinds, spec = (jax.sharding.AxisType.Explicit,), jax.sharding.PartitionSpec
    mesh = jax.make_mesh((2,), ("part",), devices=jax.devices()[:2], axis_types=kinds)
    array = jax.device_put(jax.numpy.asarray(x), jax.sharding.NamedSharding(mesh, spec("part")))
    for call in (lambda a: tk.ltr(a, 2), lambda a: tk.collect(a, 2), lambda a: tk.ntd(a, 2), tk.geometry.eta):
        with pytest.raises(TypeError, match=r"x is shared out by JAX along axes of type Explicit .* needs Auto; give"):
            call(array)
    with pytest.raises(TypeError, match=r"p is shared out by JAX along axes of type Explicit"):
        tk.metrics.total_correlation(array)
    whole = jax.device_put(jax.numpy.asarray(x), jax.sharding.NamedSharding(mesh, spec()))
    assert tk.ltr(whole, 2).kl(whole) == pytest.approx(tk.ltr(x, 2).kl(x), rel=1e-4)


def test_models_within_functions_that_torch_transforms(x: NDArray[np.float32]) -> None:
    given = torch.from_numpy(x).double()
    model: Any = tk.ltr(given, 2)
    for measure in (model.kl, model.relative_error, lambda a: (model.to_tensor() * a).sum()):
        followed = given.clone().requires_grad_()
        measure(followed).backward()
        torch.testing.assert_close(torch.func.grad(measure)(given), followed.grad)
    slope = torch.func.grad(lambda a: (tk.ltr(given, 2).to_tensor() * a).sum())(given)
    torch.testing.assert_close(slope, model.to_tensor())


def test_gradients_go_through_casts(x: NDArray[np.float32]) -> None:
    followed = torch.from_numpy(x).double().requires_grad_()
    model: Any = tk.ltr(followed, 2, blocks="uniform")
    for dtype, kind in (("float32", torch.float32), (np.float64, torch.float64)):
        cast = model.astype(dtype)
        assert cast.core.dtype == kind
        (slope,) = torch.autograd.grad(cast.core.sum(), followed, retain_graph=True)
        torch.testing.assert_close(slope, torch.ones_like(slope))
        assert all(weights.requires_grad for weights in cast.weights)
    whole: Any = tk.ltr(followed.detach(), 2).astype("float32")
    assert not whole.core.requires_grad


def test_truth_values_elsewhere(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_elsewhere(monkeypatch)
    p, q = np.array([[True, False], [True, True]]), np.ones((2, 2), bool)
    for measure in (tk.metrics.kl, tk.metrics.relative_error):
        assert measure(make(p), make(q)) == pytest.approx(measure(p, q))
    assert tk.metrics.total_correlation(make(p)) == pytest.approx(tk.metrics.total_correlation(p))


@pytest.mark.parametrize("kind", [np.uint16, np.uint32, np.uint64])
def test_integers_that_torch_hardly_knows(kind: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    read_elsewhere(monkeypatch)
    p, q = np.array([[3, 0], [1, 7]], kind), np.ones((2, 2), kind)
    for measure in (tk.metrics.kl, tk.metrics.relative_error):
        assert measure(torch.from_numpy(p), torch.from_numpy(q)) == pytest.approx(measure(p, q))
    assert tk.metrics.total_correlation(torch.from_numpy(p)) == pytest.approx(tk.metrics.total_correlation(p))


COMPILED: list[Callable[[Any], Any]] = [
    lambda a: tk.collect(a, 2).core,
    lambda a: tk.ntd(a, 2).loss,
    lambda a: tk.metrics.total_correlation(a),
    lambda a: tk.ltr(a, 2, blocks="uniform").to_numpy().core,
    lambda a: tk.geometry.theta(a),
]


@pytest.mark.parametrize("call", COMPILED)
def test_what_looks_at_values_is_not_compiled(call: Any, x: NDArray[np.float32]) -> None:
    for library, transformed, array in (("jax", jax.jit, jax.numpy), ("torch on cpu", torch.vmap, torch)):
        with pytest.raises(TypeError, match=f"is traced by {library}, .*, and this needs its values; call it outside"):
            transformed(call)(array.asarray(x + 1))


def test_what_is_refused(x: NDArray[np.float32]) -> None:
    model: Any = tk.ltr(torch.from_numpy(x), 2)
    cases: list[tuple[Callable[[], object], type[Exception], str]] = [
        (lambda: model.kl(-torch.from_numpy(x).requires_grad_()), ValueError, r"x\[0, 0, 0\] is -"),
        (lambda: model.relative_error(torch.full((4, 5, 6), np.nan, requires_grad=True)), ValueError, "is nan"),
        (lambda: tk.ltr(jax.numpy.full((10, 10), 1e38), 1), ValueError, "out of float32's range"),
        (lambda: tk.metrics.kl(torch.eye(3).to_sparse(), torch.ones(3, 3)), TypeError, "is a sparse torch tensor"),
        (lambda: tk.metrics.kl(torch.ones(3).to(torch.float8_e4m3fn), torch.ones(3)), TypeError, "16 to 64 bits"),
        (lambda: tk.metrics.total_correlation(torch.ones(3, 3, requires_grad=True)), TypeError, r"give p\.detach\(\)"),
        (
            lambda: torch.func.grad(lambda a: tk.ltr(a, blocks=PARTITION).kl(a))(-torch.from_numpy(x)),
            ValueError,
            r"x\[0, 0, 0\] is -",
        ),
        (lambda: tk.ltr(x, torch.tensor(True)), TypeError, "rank"),
    ]
    for call, error, message in cases:
        with pytest.raises(error, match=message):
            call()


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors")
def test_nested_tensors_are_refused() -> None:
    with pytest.raises(TypeError, match=r"nested torch tensor; give a dense one, such as x\.to_padded_tensor"):
        tk.ltr(torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(3, 3)]), 2)
