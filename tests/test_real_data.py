"""Figures on the paper's own tensors, to the last digit given."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk


@pytest.fixture
def attface(data: Path) -> NDArray[np.uint8]:
    tensor: NDArray[np.uint8] = np.load(data / "attface.npz")["tensor"]
    return tensor


@pytest.fixture
def lightfield(data: Path) -> NDArray[np.uint8]:
    image = pytest.importorskip("PIL.Image")
    views = []
    for camera in range(81):
        with image.open(data / "lf_dino_png" / f"input_Cam{camera:03d}.png") as png:
            views.append(np.asarray(png))
    return np.stack(views).reshape(9, 9, 512, 512, 3)


def test_attface(attface: NDArray[np.uint8]) -> None:
    model = tk.ltr(attface, 40, blocks="uniform")
    assert f"{model.relative_error(attface):.5f}" == "0.20625"
    assert f"{model.kl(attface) / attface.sum():.6f}" == "0.028964"


def test_lightfield(lightfield: NDArray[np.uint8]) -> None:
    model = tk.ltr(lightfield, (3, 3, 60, 60, 1), blocks="uniform")
    assert f"{model.relative_error(lightfield):.5f}" == "0.11543"
    assert f"{model.kl(lightfield) / lightfield.sum():.6f}" == "0.008282"
    for rank in ((2, 2, 2, 2, 1), (3, 3, 60, 60, 1)):
        published = tk.ltr(lightfield, rank, blocks="random", variant="published", rng=0)
        assert f"{published.relative_error(lightfield):.4f}" == "0.2287"


@pytest.mark.parametrize("name", ["adult_7way.npz", "hangzhou_metro.npz", "lf_dino_64.npz"])
def test_kl_of_real_tensors_is_the_information_hidden(data: Path, name: str) -> None:
    archive: Any = np.load(data / name, allow_pickle=False)
    x = archive["tensor"]
    model = tk.ltr(x, [max(1, size // 2) for size in x.shape])
    hidden = tk.metrics.total_correlation(x) - tk.metrics.total_correlation(model.core)
    assert model.kl(x) / x.sum() == pytest.approx(hidden, rel=1e-10)
