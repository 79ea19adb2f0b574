"""Sequential non-negative Tucker decomposition, and decompositions that go on from LTR."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import tensors

pytest.importorskip("sklearn")


@settings(max_examples=60)
@given(x=tensors(), data=st.data())
def test_it_is_not_negative_and_no_further_than_zero(x: NDArray[Any], data: st.DataObject) -> None:
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    model = tk.lra_sntd(x, rank)
    assert model.rank == tuple(rank)
    assert model.shape == x.shape
    assert model.core.min() >= 0
    assert all(factor.min() >= 0 for factor in model.factors)
    assert model.relative_error(x) <= 1 + 1e-9


def test_it_finds_what_is_there() -> None:
    rng = np.random.default_rng(0)
    factors = [rng.random((size, 2)) ** 4 for size in (12, 10, 8)]
    x = tk.Tucker(rng.random((2, 2, 2)), factors).to_tensor()
    assert tk.lra_sntd(x, 2).relative_error(x) < 0.02
    assert tk.lra_sntd(x, 2) == tk.lra_sntd(x, 2)
    assert tk.lra_sntd(x, 2, rng=3) == tk.lra_sntd(x, 2, rng=np.random.default_rng(3))
    assert tk.lra_sntd(x, 2, dtype="f4").dtype == np.float32


@pytest.mark.parametrize("exponent", [-900, 900])
def test_scale_changes_nothing_else(exponent: int) -> None:
    x = np.random.default_rng(0).random((6, 5, 4))
    assert tk.lra_sntd(x * 2.0**exponent, 2).relative_error(x * 2.0**exponent) == pytest.approx(
        tk.lra_sntd(x, 2).relative_error(x), rel=1e-6
    )


def test_its_core_is_the_best_for_its_factors() -> None:
    """No other core, however small the change, is nearer."""
    rng = np.random.default_rng(0)
    x = rng.random((7, 6, 5))
    model = tk.lra_sntd(x, 3)
    least = model.relative_error(x)
    for _ in range(50):
        core = np.maximum(model.core + 1e-3 * model.core.max() * rng.normal(size=model.rank), 0)
        assert tk.Tucker(core, model.factors).relative_error(x) >= least - 1e-6


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_ntd_goes_on_from_blocks(loss: Any) -> None:
    x = np.random.default_rng(0).gamma(0.5, size=(20, 15, 10))
    block = tk.ltr(x, 3, blocks="segments")
    model = tk.ntd(x, init=block, loss=loss).model
    assert isinstance(model, tk.Tucker)
    if loss == "kl":
        assert model.kl(x) < block.kl(x)
    else:
        assert model.relative_error(x) < block.relative_error(x)
    kept, printed = tk.ltr(x, retain=0.5), tk.ltr(x, 3, variant="published", rng=0)
    assert tk.ntd(x, init=kept, loss=loss, budget=1e-9, dtype="f4").model.dtype == np.float32
    assert tk.ntd(x, init=printed, loss=loss).model.rank == (3, 3, 3)
    nothing = np.zeros((4, 3, 5))
    assert not tk.ntd(nothing, init=tk.ltr(nothing, 2), loss=loss).model.core.any()


def test_matrices_of_lower_rank_than_asked() -> None:
    """Where scikit-learn's own start is no number."""
    x = np.zeros((1, 1, 3, 3))
    x[0, 0, 2, 2] = 1
    assert tk.lra_sntd(x, (1, 1, 3, 1)).relative_error(x) < 0.1
    for seed in range(20):
        rng = np.random.default_rng(seed)
        sparse = rng.poisson(0.1, (4, 5, 3)).astype(np.float64)
        assert np.isfinite(tk.lra_sntd(sparse, (4, 5, 3)).to_tensor()).all()


def test_more_rows_than_a_matrix_of_their_products_could_have() -> None:
    tall = np.random.default_rng(0).random((5000, 3))
    assert tk.lra_sntd(tall, (3, 2)).rank == (3, 2)
