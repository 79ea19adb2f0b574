"""The libraries that arrays may come from, NumPy included, behind one contract: `Backend`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tucket.backends.backend import NUMPY, Backend

__all__ = ["NUMPY", "Backend", "check_same_backend", "get_backend", "get_namespace"]


def get_backend(x: Any) -> Backend:
    """Return the backend of an array: NumPy for everything that is not an array of another library."""
    kind = type(x)
    if kind is np.ndarray or not hasattr(kind, "__dlpack__"):
        return NUMPY
    if kind.__module__ == "torch":  # checked first, since a GPU waits for the host
        from tucket.backends.torch import torch_backend

        return torch_backend(x.device)
    if isinstance(x, np.ndarray | np.generic) or hasattr(x, "dims"):
        return NUMPY
    return _by_library(x)


def _by_library(x: Any) -> Backend:
    import array_api_compat as compat

    if not compat.is_array_api_obj(x):
        return NUMPY
    if compat.is_torch_array(x):
        from tucket.backends.torch import torch_backend

        return torch_backend(x.device)
    xp, device = compat.array_namespace(x), compat.device(x)
    if compat.is_jax_array(x):
        from tucket.backends.jax import Jax

        return Jax(xp, device)
    if compat.is_cupy_array(x):
        from tucket.backends.cupy import CuPy

        return CuPy(xp, device)
    from tucket.backends.array_api import ArrayApi

    return ArrayApi(xp, device)


def get_namespace(x: Any) -> Any:
    """Return the functions for an array, by the names of the array API standard."""
    return np if isinstance(x, np.ndarray) else get_backend(x).xp


def check_same_backend(first: Any, second: Any, name: str, other: str) -> Backend:
    """Return the backend of two arrays, which must be the same."""
    backend, theirs = get_backend(first), get_backend(second)
    if backend != theirs:
        raise ValueError(f"{other} is of {theirs}, but {name} of {backend}; bring one to the other")
    return backend
