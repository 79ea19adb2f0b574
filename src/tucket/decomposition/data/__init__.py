"""How a decomposition reads a tensor: one file per way, all under one contract, `Data`."""

from __future__ import annotations

from typing import Any

from tucket.backends import NUMPY, get_backend
from tucket.decomposition.data.data import Data
from tucket.decomposition.data.dense import DenseData
from tucket.decomposition.data.device import DeviceData

__all__ = ["Data", "DenseData", "DeviceData", "data_of"]


def data_of(tensor: Any, scale: float, workers: int) -> Data:
    """Return a tensor as a decomposition reads it, wherever it is."""
    backend = get_backend(tensor)
    return DenseData(tensor, scale, workers) if backend is NUMPY else DeviceData(tensor, backend, scale, workers)
