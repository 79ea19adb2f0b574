"""Arrays that are read by their own library alone, as on a device that NumPy cannot see."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends import get_backend
from tucket.backends.array_api import ArrayApi
from tucket.kernels import array_api


def read_elsewhere(monkeypatch: pytest.MonkeyPatch, slab: int | None = None, piece: int | None = None) -> None:
    """Keep arrays of other libraries from being read as NumPy arrays.

    Perhaps work on slabs of few entries, and read pieces of few entries.
    """
    from tucket.backends.torch import Torch

    for kind in (ArrayApi, Torch):
        monkeypatch.setattr(kind, "host_view", lambda self, array: None)  # noqa: ARG005
    if slab is not None:
        monkeypatch.setattr(array_api, "SLAB_ENTRIES", slab)
        monkeypatch.setattr("tucket.decomposition.data.array.SLAB_ENTRIES", slab)
    if piece is not None:
        pieces = replace(kernels._offered("array_api"), piece_entries=lambda _: piece)
        offered = kernels._offered
        monkeypatch.setattr(kernels, "_offered", lambda name: pieces if name == "array_api" else offered(name))


def to_numpy(array: Any) -> NDArray[Any]:
    """Return an array of any library as a NumPy array."""
    return get_backend(array).to_numpy(array)
