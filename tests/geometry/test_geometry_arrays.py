"""The geometry of arrays of other libraries: NumPy's results, in the same library, wherever they are."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from elsewhere import read_elsewhere, to_numpy
from tucket import geometry
from tucket.backends import get_backend
from tucket.geometry.log_linear import solve

jax = pytest.importorskip("jax")
strict = pytest.importorskip("array_api_strict")
torch = pytest.importorskip("torch")

Make = Callable[[Any], Any]

FAR = strict.Device("device1")
LIBRARIES: dict[str, Make] = {
    "torch": lambda x: torch.from_numpy(np.array(x)),
    "jax": lambda x: jax.numpy.asarray(x),
    "strict": lambda x: strict.asarray(np.asarray(x)),
    "far": lambda x: strict.asarray(np.asarray(x), device=FAR),
    "coarse": lambda x: strict.asarray(coarse(x), device=strict.Device("no_float64")),
}
if torch.cuda.is_available():
    cupy = pytest.importorskip("cupy")
    LIBRARIES |= {"cuda": lambda x: torch.from_numpy(np.array(x)).cuda(), "cupy": cupy.asarray}


def coarse(x: Any) -> NDArray[Any]:
    return np.asarray(x, np.float32) if np.asarray(x).dtype == np.float64 else np.asarray(x)


@pytest.fixture(params=LIBRARIES)
def make(request: pytest.FixtureRequest) -> Make:
    return LIBRARIES[request.param]


RNG = np.random.default_rng(0)
X, Y = np.exp(RNG.normal(size=(2, 3, 4, 5)) / 2)
HOLES = np.where(RNG.random(X.shape) < 0.3, 0.0, X)
HOLES[1] = 0
PARTITION = tk.Partition.uniform(X.shape, (2, 2, 3))
LOW = tk.ltr(X, blocks=PARTITION).to_tensor()
BIAS, UPPER = RNG.normal(size=5), np.triu(RNG.normal(size=(5, 5)), 1)
WEIGHTS = UPPER + UPPER.T

CASES: dict[str, Callable[[Make], list[Any]]] = {
    "theta": lambda to: [geometry.theta(to(X))],
    "theta of integers": lambda to: [geometry.theta(to(np.arange(1, 7).reshape(2, 3)))],
    "eta": lambda to: [geometry.eta(to(X)), geometry.eta(to(HOLES)), geometry.eta(to(HOLES > 0))],
    "from_theta": lambda to: [geometry.from_theta(to(geometry.theta(X)))],
    "from_eta": lambda to: [geometry.from_eta(to(geometry.eta(HOLES)))],
    "there and back": lambda to: [
        geometry.from_theta(geometry.theta(to(X))),
        geometry.from_eta(geometry.eta(to(HOLES))),
    ],
    "geodesic": lambda to: [geometry.geodesic(to(X), to(Y), 0.3), geometry.geodesic(to(X), to(Y), 0.3, "e")],
    "legendre": lambda to: list(parts(tk.legendre(to(X), PARTITION))),
    "legendre by gradient": lambda to: list(
        parts(tk.legendre(to(X), [(1, 0, 0), (0, 2, 0)], method="gradient", n_iter_max=300))
    ),
    "legendre of the scale": lambda to: list(parts(tk.legendre(to(X), []))),
    "m_project": lambda to: [geometry.m_project(to(X), PARTITION)],
    "e_project": lambda to: [geometry.e_project(to(X), PARTITION)],
    "many_body": lambda to: [geometry.many_body(to(each), [(0, 1), (2,)]) for each in (X, HOLES, 0 * X)],
    "many_body of all": lambda to: [geometry.many_body(to(X), [(0, 1, 2)])],
    "one_body": lambda to: [*geometry.one_body(to(HOLES)), *geometry.one_body(to(X[0, 0]))],
    "one_body_theta": lambda to: [geometry.one_body_theta(to([1.0, 0.75, 0.25]))],
    "one_body_eta": lambda to: [geometry.one_body_eta(to(BIAS)), geometry.one_body_eta(to(BIAS[:0]))],
    "boltzmann": lambda to: [geometry.boltzmann(to(BIAS), to(WEIGHTS))],
    "mean_field": lambda to: list(means(geometry.mean_field(to(BIAS), to(WEIGHTS)))),
}


def parts(found: geometry.Legendre) -> tuple[Any, Any]:
    assert found.stopped == "converged"
    return found.tensor, found.theta


def means(found: geometry.MeanField) -> tuple[Any, Any]:
    expected = geometry.mean_field(BIAS, WEIGHTS)
    assert found.kl_exact == pytest.approx(expected.kl_exact, rel=1e-4)
    assert found.kl_approximate == pytest.approx(expected.kl_approximate, rel=1e-4)
    assert abs(found.iterations - expected.iterations) <= 2
    return found.exact, found.approximate


@pytest.mark.parametrize("case", CASES)
def test_as_with_numpy(make: Make, case: str) -> None:
    given: list[tuple[Any, NDArray[Any]]] = []

    def keep(x: Any) -> Any:
        given.append((make(x), np.array(x)))
        return given[-1][0]

    results, expected = CASES[case](keep), CASES[case](np.asarray)
    backend = get_backend(given[0][0])
    for ours, theirs in zip(results, expected, strict=True):
        assert type(theirs) is np.ndarray
        assert theirs.dtype == np.float64
        assert type(ours) is type(given[0][0])
        assert get_backend(ours) == backend
        assert ours.dtype == (backend.xp.float64 if backend.has_float64 else backend.xp.float32)
        tolerance = 1e-9 if backend.has_float64 else 1e-4
        if case in ("legendre by gradient", "e_project"):  # which end where the divergence, flat there, falls no more
            tolerance = math.sqrt(tolerance)
        np.testing.assert_allclose(to_numpy(ours), theirs, rtol=tolerance, atol=tolerance)
    for array, before in given:
        np.testing.assert_allclose(to_numpy(array), before, rtol=1e-6)


@pytest.mark.parametrize("case", CASES)
def test_nothing_large_is_moved(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Arrays on a device of the strict library's can be had from there in one way, which is watched here."""
    moved: list[int] = []
    fetch = np.from_dlpack

    def watched(x: Any, **options: Any) -> Any:
        moved.append(math.prod(x.shape))
        return fetch(x, **options)

    read_elsewhere(monkeypatch)
    monkeypatch.setattr(np, "from_dlpack", watched)
    results = CASES[case](LIBRARIES["far"])
    assert max(moved, default=0) <= WEIGHTS.size < 2**5 < X.size
    for ours in results:
        assert ours.device == FAR
        with pytest.raises(RuntimeError, match="device1"):
            np.asarray(ours)


def test_bingos(make: Make) -> None:
    for x in (LOW, np.outer([1, 2, 3], [4, 5]), np.ones(4)):
        found, expected = geometry.bingos(make(x), 1e-5), geometry.bingos(x, 1e-5)
        assert found.rank_bound == expected.rank_bound
        for ours, theirs in zip(found.rows, expected.rows, strict=True):
            assert type(ours) is np.ndarray
            assert ours.dtype == np.intp
            np.testing.assert_array_equal(ours, theirs)


def test_a_basis_of_the_same_library(make: Make) -> None:
    marked = ~geometry.bingo_indices(PARTITION)
    for basis in (marked, np.argwhere(marked)):
        np.testing.assert_allclose(to_numpy(geometry.m_project(make(X), make(basis))), LOW, rtol=1e-4)


def test_singular_equations(make: Make) -> None:
    matrix, vector = np.ones((2, 2)), np.array([1.0, 1.0])
    found = solve(make(matrix), make(vector))
    assert get_backend(found) == get_backend(make(vector))
    np.testing.assert_allclose(to_numpy(found), [0.5, 0.5], rtol=1e-6)


def test_bad_entries(make: Make) -> None:
    """They are refused in NumPy's words."""
    calls: list[tuple[float, Callable[[Make, Any], object], str]] = [
        (-1.0, lambda _, x: geometry.eta(x), "x[1, 2, 3] is -1.0; every entry must be finite and not negative"),
        (-1.0, lambda _, x: geometry.many_body(x, []), "x[1, 2, 3] is -1.0"),
        (-1.0, lambda _, x: geometry.one_body(x), "x[1, 2, 3] is -1.0"),
        (0.0, lambda _, x: geometry.theta(x), "x[1, 2, 3] is 0.0; every entry must be finite and positive"),
        (0.0, lambda _, x: geometry.bingos(x), "x[1, 2, 3] is 0.0"),
        (0.0, lambda _, x: tk.legendre(x, PARTITION), "x[1, 2, 3] is 0.0"),
        (0.0, lambda _, x: geometry.e_project(x, PARTITION), "x[1, 2, 3] is 0.0"),
        (np.inf, lambda to, x: geometry.geodesic(to(X), x, 0.5), "q[1, 2, 3] is inf"),
        (np.nan, lambda _, x: geometry.theta(x), "x[1, 2, 3] is nan"),
        (np.nan, lambda _, x: geometry.from_theta(x), "theta[1, 2, 3] is nan; give finite numbers"),
        (np.nan, lambda _, x: geometry.from_eta(x), "eta[1, 2, 3] is nan; give finite numbers"),
        (99.0, lambda _, x: geometry.from_eta(x), "eta: entry (0, 0, 1) of the tensor would be -"),
    ]
    for value, call, message in calls:
        wrong = X.copy()
        wrong[1, 2, 3] = value
        with pytest.raises(ValueError, match=re.escape(message)) as expected:
            call(np.asarray, wrong)
        with pytest.raises(ValueError, match=re.escape(str(expected.value))):
            call(make, make(wrong))


def test_other_errors(make: Make) -> None:
    bits = 64 if get_backend(make(X)).has_float64 else 32
    large = 1e308 if bits == 64 else 3e38
    checks: list[tuple[Callable[[], object], str]] = [
        (lambda: geometry.from_theta(make([0.0, 800.0])), rf"entry \(1,\) .* exp\(800\), too large for float{bits}"),
        (lambda: geometry.eta(make([large, large])), f"x: its total is too large for float{bits}"),
        (lambda: geometry.theta(make(np.ones((2, 0)))), "mode 1 of x is empty"),
        (lambda: geometry.theta(make(np.float64(1))), "x is a scalar"),
        (lambda: geometry.geodesic(make(X), make(X[0]), 0.5), r"q has shape \(4, 5\), but p is of shape \(3, 4, 5\)"),
        (lambda: geometry.geodesic(make(X), make(Y), 99), "t: got 99"),
        (lambda: geometry.geodesic(make(X), Y, 0.5), "q is of NumPy, but p of .* on .*; bring one to the other"),
        (lambda: geometry.geodesic(X.tolist(), make(Y), 0.5), "q is of .* on .*, but p of NumPy"),
        (lambda: geometry.boltzmann(make(BIAS), WEIGHTS), "weights is of NumPy, but bias of"),
        (lambda: geometry.mean_field(BIAS, make(WEIGHTS)), "weights is of .*, but bias of NumPy"),
        (lambda: geometry.boltzmann(make(BIAS), make(UPPER)), "weights: the matrix is not symmetric"),
        (lambda: geometry.boltzmann(make(BIAS), make(UPPER[0])), r"weights: got shape \(5,\)"),
        (lambda: geometry.boltzmann(make(WEIGHTS), make(WEIGHTS)), r"bias: got shape \(5, 5\)"),
        (lambda: geometry.one_body(make(0 * X)), "x is zero everywhere"),
        (lambda: geometry.one_body_theta(make([1.0, 1.0])), "eta: its entries must fall.*1"),
        (lambda: geometry.m_project(make(X[0]), PARTITION), r"x has shape \(4, 5\), but the partition"),
    ]
    for call, message in checks:
        with pytest.raises(ValueError, match=message):
            call()
    if make is not LIBRARIES["coarse"]:
        with pytest.raises(TypeError, match=r"x is of type .*complex.*; give real numbers"):
            geometry.theta(make(X + 1j))


def test_devices_and_layouts() -> None:
    near, far = LIBRARIES["strict"], LIBRARIES["far"]
    with pytest.raises(ValueError, match=r"q is of .*device1.*, but p of .*CPU_DEVICE"):
        geometry.geodesic(near(X), far(Y), 0.5)
    with pytest.raises(ValueError, match=r"q is of jax on .*, but p of torch on cpu"):
        geometry.geodesic(torch.ones(3), jax.numpy.ones(3), 0.5)
    with pytest.raises(TypeError, match=r"sparse torch tensor"):
        geometry.eta(torch.eye(3).to_sparse())


@pytest.mark.parametrize("size", [1, 2, 1e3])
def test_totals_near_the_end_of_the_range(make: Make, size: float) -> None:
    x = make([[3.0, 2.0], [1.0, 4.0]])
    most = float(np.finfo(np.float32 if "float32" in str(x.dtype) else np.float64).max)
    x = x * (most / 12 / size)
    np.testing.assert_allclose(to_numpy(geometry.one_body(x)[0]), [0.5, 0.5], rtol=1e-6)
    expected = np.array([[0.2, 0.3], [0.2, 0.3]])
    for found in (geometry.m_project(x, tk.Partition.uniform((2, 2), 1)), geometry.many_body(x, [(0,)])):
        np.testing.assert_allclose(to_numpy(found) / (most / 12 * 10 / size), expected, rtol=1e-5)
    np.testing.assert_allclose(to_numpy(geometry.geodesic(x, x, 0.5, "e")) / to_numpy(x), 1, rtol=1e-4)
    with pytest.raises(ValueError, match="x: its total is too large for float"):
        geometry.m_project(x * (2 * size), tk.Partition.uniform((2, 2), 1))
    with pytest.raises(ValueError, match="x: its total is too large for float"):
        geometry.many_body(x * (2 * size), [])


def test_torch_differentiates() -> None:
    x, y, bias, weights = (torch.from_numpy(each.copy()).requires_grad_() for each in (X, Y, BIAS, WEIGHTS))
    for function in (geometry.theta, geometry.eta, geometry.from_theta, geometry.one_body, geometry.one_body_eta):
        assert torch.autograd.gradcheck(function, x)
    sums = torch.from_numpy(geometry.eta(X)).requires_grad_()
    assert torch.autograd.gradcheck(geometry.from_eta, sums)
    assert torch.autograd.gradcheck(lambda p, q: geometry.geodesic(p, q, 0.3, "e"), (x, y))
    machine: Any = geometry.boltzmann(bias, weights)
    assert machine.requires_grad
    calls: list[tuple[Callable[[], Any], str]] = [
        (lambda: tk.legendre(x, PARTITION), "x"),
        (lambda: geometry.m_project(x, PARTITION), "x"),
        (lambda: geometry.e_project(x, PARTITION), "x"),
        (lambda: geometry.many_body(x, [(0, 1)]), "x"),
        (lambda: geometry.mean_field(bias, weights), "bias"),
    ]
    for call, name in calls:
        with pytest.raises(TypeError, match=rf"{name} requires a gradient, .* give {name}\.detach\(\)"):
            call()
        with torch.no_grad():
            call()
    assert geometry.bingos(x).rank_bound == X.shape
    with pytest.raises(ValueError, match=r"x\[0, 0, 0\] is -"):
        geometry.theta(-x)


def test_jax_differentiates_but_does_not_compile() -> None:
    x = jax.numpy.asarray(X)
    slope = jax.grad(lambda a: geometry.theta(a)[0, 0, 0])(x)
    assert float(slope[0, 0, 0]) == pytest.approx(1 / X[0, 0, 0], rel=1e-5)
    assert np.asarray(jax.grad(lambda a: geometry.eta(a)[0, 0, 0])(x)) == pytest.approx(1)
    slope = jax.grad(lambda a: geometry.one_body(a)[0][0])(x)
    assert float((slope * x).sum()) == pytest.approx(0, abs=1e-6)
    for call in (geometry.theta, geometry.eta, geometry.one_body, lambda a: tk.legendre(a, PARTITION).tensor):
        with pytest.raises(TypeError, match=r"x is traced by jax, .* call it outside of"):
            jax.jit(call)(x)
        with pytest.raises(TypeError, match=r"x is traced by jax.* call it outside of"):
            jax.jit(lambda s, call=call: s * call(x))(1.0)
    with pytest.raises(TypeError, match=r"theta is traced by jax"):
        jax.jit(geometry.from_theta)(x)
    with pytest.raises(TypeError, match=r"x is traced by jax"):
        jax.grad(lambda a: geometry.m_project(a, PARTITION)[0, 0, 0])(x)
