"""Tensors elsewhere as the updates read them: in slabs, by the functions of the array API, as on the host."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from elsewhere import to_numpy
from strategies import tensors
from tucket.backends import get_backend
from tucket.decomposition.data import ArrayData
from tucket.decomposition.data import array as module
from tucket.decomposition.losses import FREE
from tucket.decomposition.losses.kl import Divergence, _improve
from tucket.decomposition.losses.ls import LeastSquares, _sweep
from tucket.kernels.algebra import distance_of, to_mixture

strict = pytest.importorskip("array_api_strict")


@pytest.fixture(params=[1, 7, 1 << 24], ids=["tiny", "small", "usual"], autouse=True)
def _slabs(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLAB_ENTRIES", request.param)


def there(array: NDArray[Any]) -> Any:
    """Bring an array to where NumPy cannot look at it."""
    return strict.asarray(np.ascontiguousarray(array), device=strict.Device("device1"))


def entries(data: ArrayData) -> NDArray[np.float64]:
    return np.asarray(data.tensor * np.float64(data.scale))


def close(found: Any, expected: NDArray[Any], scale: float = 1.0) -> None:
    np.testing.assert_allclose(to_numpy(found.to_device(strict.Device("CPU_DEVICE"))), expected, 1e-9, 1e-9 * scale)


@st.composite
def problems(draw: st.DrawFn) -> tuple[ArrayData, ArrayData, NDArray[Any], list[NDArray[Any]]]:
    x = draw(tensors(max_dims=4, dtypes=("u1", "<i4", "<f4", "<f8")))
    scale = draw(st.sampled_from([1.0, 0.25]))
    rng = np.random.default_rng(draw(st.integers(0, 1000)))
    rank = tuple(draw(st.integers(1, size)) for size in x.shape)
    tensor = there(x)
    core, factors = rng.random(rank) + 0.1, [rng.random(extent) + 0.1 for extent in zip(x.shape, rank)]
    return ArrayData(x, scale), ArrayData(tensor, scale, backend=get_backend(tensor)), core, factors


@settings(max_examples=30)
@given(problems(), st.data())
def test_products(problem: Any, choice: st.DataObject) -> None:
    near, far, _, factors = problem
    modes = choice.draw(st.sets(st.integers(0, len(near.shape) - 1)))
    some = {mode: factors[mode] for mode in modes}
    expected = near.contract(some) if some else entries(near)
    close(far.contract({mode: there(factor) for mode, factor in some.items()}), expected, 1 + expected.max())
    mode = choice.draw(st.integers(0, len(near.shape) - 1))
    gram = near.gram(mode)
    close(far.gram(mode), gram, 1 + gram.max())
    metric = [factor[:, 0] for factor in factors]
    assert far.square_sum(list(map(there, metric))) == pytest.approx(near.square_sum(metric), rel=1e-9)


@settings(max_examples=30)
@given(problems())
def test_divergence(problem: Any) -> None:
    near, far, core, factors = problem
    total = float(entries(near).sum())
    if total == 0:
        return
    core, factors = to_mixture(core, factors)
    ours = Divergence(far, total).descend((there(core), list(map(there, factors))))
    for found, expected in islice(zip(ours, Divergence(near, total).descend((core, factors))), 4):
        assert found[2] == pytest.approx(expected[2], rel=1e-6, abs=1e-9 * total)
        close(found[0], expected[0], total)
        for one, other in zip(found[1], expected[1], strict=True):
            close(one, other)


@settings(max_examples=30)
@given(problems())
def test_least_squares_never_rise(problem: Any) -> None:
    near, far, core, factors = problem
    weights = [np.ones(size) for size in near.shape]
    squares, host = LeastSquares(far, list(map(there, weights))), LeastSquares(near, weights)
    before, slack = np.inf, 1e-9 * (1 + host.norm)
    for found, parts, distance in islice(squares.descend((there(core), list(map(there, factors)))), 5):
        assert distance <= before + slack
        before = distance
        here = [to_numpy(part.to_device(strict.Device("CPU_DEVICE"))) for part in (found, *parts)]
        assert min(part.min() for part in here) >= 0
        assert distance == pytest.approx(host.distance((here[0], here[1:])), abs=slack)


@settings(max_examples=10)
@given(problems())
def test_published_updates(problem: Any) -> None:
    near, far, core, factors = problem
    total, weights = float(entries(near).sum()), [np.ones(size) for size in near.shape]
    arrays = there(core), list(map(there, factors))
    pairs: list[Any] = [
        (
            LeastSquares(far, list(map(there, weights))).published(arrays),
            LeastSquares(near, weights).published((core, factors)),
        )
    ]
    if total:
        pairs.append(
            (
                Divergence(far, total).published(arrays),
                Divergence(near, total).published((core, factors)),
            )
        )
    for ours, theirs in pairs:
        for found, expected in islice(zip(ours, theirs), 3):
            assert found[2] == pytest.approx(expected[2], rel=1e-6, abs=1e-6 * (1 + total**2))


def test_a_model_without_mass_is_infinitely_far() -> None:
    x = there(np.array([[1.0, 2.0], [0.0, 3.0]]))
    empty = [there(np.array([[1.0], [0.0]])), there(np.array([[0.5], [0.5]]))]
    assert Divergence(ArrayData(x, backend=get_backend(x)), 6.0).slopes(there(np.array([[6.0]])), empty)[2] == np.inf


def test_no_number_is_no_distance() -> None:
    assert distance_of(np.nan) == np.inf
    assert distance_of(-1e-20) == 0


def test_nothing_that_is_recorded_looks_at_a_value() -> None:
    """On a GPU a look, or a number that is sent there, would end the recording."""
    torch = pytest.importorskip("torch")
    from torch.utils._python_dispatch import TorchDispatchMode

    seen: set[str] = set()

    class Watch(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.add(function.__name__.split(".")[0])
            return function(*args, **(kwargs or {}))

    rng = np.random.default_rng(0)
    x = torch.from_numpy(rng.random((4, 5, 6)).astype(np.float32))
    data = ArrayData(x, backend=get_backend(x))
    arrays = [torch.from_numpy(rng.random(extent)) for extent in ((2, 2, 2), (4, 2), (5, 2), (6, 2))]
    metric = [torch.ones(size, dtype=torch.float64) for size in x.shape]
    with Watch():
        _sweep(data, 5, *FREE.flags(3), *metric, *arrays)
        _improve(data, *FREE.flags(3), *arrays)
    assert "mm" in seen
    assert not seen & {"_local_scalar_dense", "lift_fresh", "nonzero", "index", "index_put_", "is_nonzero"}
