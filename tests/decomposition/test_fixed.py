"""Parts of a model that stay as they are given, while the others are fitted."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest

import tucket as tk


def made(rng: np.random.Generator) -> tuple[Any, tk.Tucker]:
    core, factors = rng.random((2, 3, 2)), [rng.random((size, r)) for size, r in zip((7, 9, 6), (2, 3, 2))]
    true = tk.Tucker(core, factors)
    start = tk.Tucker(rng.random(core.shape), [rng.random(factor.shape) for factor in factors])
    return true, start


SOME = [some for count in (1, 2, 3) for some in itertools.combinations(("core", 0, 1, 2), count)]


@pytest.mark.parametrize("loss", ["kl", "ls"])
@pytest.mark.parametrize("fixed", SOME, ids=str)
def test_fixed_parts_stay_and_the_rest_is_found(loss: Any, fixed: tuple[str | int, ...]) -> None:
    true, start = made(np.random.default_rng(0))
    parts = [true.factors[mode] if mode in fixed else start.factors[mode] for mode in range(3)]
    given = tk.Tucker(true.core if "core" in fixed else start.core, parts)
    x = true.to_tensor()
    fit = tk.ntd(x, init=given, fixed=fixed, loss=loss, tol=1e-9, n_iter_max=500)
    for mode in range(3):
        if mode in fixed:
            np.testing.assert_array_equal(fit.factors[mode], given.factors[mode])
    if "core" in fixed:
        np.testing.assert_array_equal(fit.core, given.core)
    before, after = (model.kl(x) if loss == "kl" else model.relative_error(x) for model in (given, fit))
    assert after < 0.2 * before
    assert fit.loss == pytest.approx(after, rel=1e-5, abs=1e-7 * x.sum())
    losses = [step.loss for step in fit.trace]
    assert all(b <= a * (1 + 1e-9) + 1e-12 for a, b in itertools.pairwise(losses))


def test_a_cp_model_is_a_diagonal_core_that_stays() -> None:
    rng = np.random.default_rng(0)
    core = np.zeros((3, 3, 3))
    core[range(3), range(3), range(3)] = 1
    factors = [rng.random((size, 3)) for size in (8, 9, 10)]
    x = np.einsum("ia,ja,ka->ijk", *factors)
    start = tk.Tucker(core, [rng.random(factor.shape) for factor in factors])
    for each in (x, tk.from_entries(np.nonzero(x), x[x > 0], x.shape)):
        fit = tk.ntd(each, init=start, fixed="core", tol=1e-8, n_iter_max=2000)
        np.testing.assert_array_equal(fit.core, core)
        assert fit.loss < 1e-3 * x.sum()


def test_a_fixed_mode_by_its_name() -> None:
    true, start = made(np.random.default_rng(1))
    fit = tk.ntd(true.to_tensor(), init=start, fixed="hour", names=("day", "place", "hour"))
    np.testing.assert_array_equal(fit.factors[2], start.factors[2])


def test_mistakes() -> None:
    true, start = made(np.random.default_rng(1))
    x = true.to_tensor()
    with pytest.raises(TypeError, match="fixed: what stays as it is comes from a model; give one as init"):
        tk.ntd(x, 2, fixed=0)
    with pytest.raises(ValueError, match="fixed: nothing is left to be fitted; leave out a mode or the core"):
        tk.ntd(x, init=start, fixed=("core", 0, 1, -1))
    with pytest.raises(IndexError, match="mode 3 is out of range for 3 modes"):
        tk.ntd(x, init=start, fixed=3)
    with pytest.raises(ValueError, match="fixed: what stays as it is has a value for every index"):
        tk.ntd(x, init=start, fixed=0, finest=100)


def test_a_fixed_factor_keeps_what_it_has_where_the_tensor_has_nothing() -> None:
    x = np.array([[1.0, 1], [0, 0]])
    given = tk.Tucker(np.eye(2), [np.full((2, 2), 0.5), np.eye(2)])
    fit = tk.ntd(x, init=given, fixed=0)
    np.testing.assert_allclose(fit.factors[0], given.factors[0])
    assert fit.loss == pytest.approx(fit.kl(x))
    assert fit.loss <= given.kl(x) + 1e-12
    rng = np.random.default_rng(0)
    y = rng.poisson(2.0, (6, 7, 8)).astype(float)
    y[3] = 0
    given = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in y.shape])
    for fixed in (0, 1, (0, 2), (0, "core")):
        fit = tk.ntd(y, init=given, fixed=fixed)
        assert fit.loss == pytest.approx(fit.kl(y))
        assert fit.loss <= given.kl(y)


@pytest.mark.parametrize("fixed", [None, 1.5, "cores", 3, ("a",)])
def test_what_can_be_fixed_is_said(fixed: Any) -> None:
    with pytest.raises((IndexError, TypeError), match=r"fixed: .*or give 'core'"):
        tk.ntd(np.ones((2, 3)), init=([[1.0]], [[[1.0]] * 2, [[1.0]] * 3]), fixed=fixed)
