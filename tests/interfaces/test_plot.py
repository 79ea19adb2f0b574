"""Plots show what they say, on the axes that the user gives."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import tucket as tk
from tucket.interfaces import plot
from tucket.interfaces.compare import compare

mpl = pytest.importorskip("matplotlib")
plt = pytest.importorskip("matplotlib.pyplot")


@pytest.fixture(autouse=True)
def _offscreen() -> Iterator[None]:
    mpl.use("agg")
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def x() -> Any:
    return np.random.default_rng(0).gamma(0.5, size=(12, 10, 8))


def test_blocks_over_the_marginal(x: Any) -> None:
    _, ax = plt.subplots()
    model = tk.ltr(x, 3)
    assert plot.blocks(model, 1, ax=ax) is ax
    heights = [bar.get_height() for bar in ax.patches]
    np.testing.assert_allclose(heights, x.sum(axis=(0, 2)))
    colours = {bar.get_facecolor() for bar in ax.patches}
    assert len(colours) == 3
    named = tk.BlockTucker(model.core, model.partition, model.weights, tk.Axes("abc", (None, list("klmnopqrst"), None)))
    shown = plot.blocks(named, "b")
    assert shown.get_xlabel() == "b"
    assert [tick.get_text() for tick in shown.get_xticklabels()] == list("klmnopqrst")


def test_core(x: Any) -> None:
    model = tk.ltr(x, (4, 3, 2))
    ax = plot.core(model, (2, 0))
    np.testing.assert_allclose(ax.images[0].get_array(), model.core.sum(axis=1).T)
    with pytest.raises(ValueError, match="give two different ones"):
        plot.core(model, (1, 1))


def test_information(x: Any) -> None:
    curve = tk.information_curve(x)
    ax = plot.information(curve)
    assert len(ax.lines) == 5
    np.testing.assert_allclose(ax.lines[0].get_ydata(), [point.kept for point in curve.joint])


def test_errors(x: Any) -> None:
    entries = list(compare(x, (3, 3, 2)))
    assert [entry.method for entry in entries][:6] == [
        "LTR, random", "LTR, uniform", "LTR, segments", "LTR, clusters", "ntd, KL", "ntd, LS",
    ]  # fmt: skip
    assert "TensorLy, HALS" in [entry.method for entry in entries]
    by_name = {entry.method: entry for entry in entries}
    assert by_name["LTR, clusters"].relative_error == pytest.approx(tk.ltr(x, (3, 3, 2)).relative_error(x))
    ax = plot.errors(entries, measure="kl")
    assert [line.get_ydata()[0] for line in ax.lines] == [entry.kl for entry in entries]
    fit = tk.ntd(x, 2)
    assert len(plot.errors(fit).lines[0].get_xdata()) == len(fit.trace)
    for wrong, kind in ((tk.ltr(x, 2), "BlockTucker"), (3, "int"), ([3], "list")):
        with pytest.raises(TypeError, match=f"takes a Fit or the entries of compare; got a {kind}"):
            plot.errors(wrong)  # type: ignore[arg-type]


def test_slices() -> None:
    photographs = np.random.default_rng(0).integers(0, 256, (2, 20, 30, 3))
    model = tk.ltr(photographs, (2, 5, 6, 3), blocks="uniform")
    axes = plot.slices(photographs, model, [1])
    np.testing.assert_allclose(axes[0].images[0].get_array(), photographs[1] / photographs[1].max())
    grey = plot.slices(photographs[..., 0], tk.ltr(photographs[..., 0], 2))
    assert grey[2].get_title() == "residual"
    with pytest.raises(ValueError, match=r"index: got 2 numbers; give 1, one for each of the modes \[0\]"):
        plot.slices(photographs, model, [1, 2])
    with pytest.raises(ValueError, match="but the model is of shape"):
        plot.slices(photographs[0], model)


def test_a_model_draws_itself(x: Any) -> None:
    assert len(tk.ltr(x, 3).plot().axes) == 3 + 2 + 2  # blocks, cores and their scales
    assert len(tk.ntd(x, 2).model.plot().axes) == 2 + 2
    assert tk.ltr([1.0, 2, 3], 2).plot()


def test_peaks_of_long_modes_are_seen() -> None:
    x = np.ones((20_000, 3))
    x[::997] = 50
    ax = plot.blocks(tk.ltr(x, (50, 2), blocks="uniform"), 0)
    heights = [bar.get_height() for bar in ax.patches]
    assert len(heights) <= plot.MAX_BARS
    assert sum(height > 100 for height in heights) == len(x[::997])


def test_models_of_one_mode() -> None:
    model = tk.ntd(np.random.default_rng(0).random(50), 5).model
    assert model.plot()
    with pytest.raises(TypeError, match=r"got a Tucker, which has no blocks; give a model made by tucket\.ltr"):
        plot.blocks(model, 0)  # type: ignore[arg-type]
