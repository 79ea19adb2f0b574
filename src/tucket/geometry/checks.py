"""Checks of the arguments of geometry: real tensors of any array library, which stay on their device."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, get_backend, get_namespace
from tucket.base.checks import check_shape
from tucket.kernels import array_api
from tucket.kernels.measures import power_of_two
from tucket.sources.dense import as_tensor

Dense = NDArray[np.float64] | Any
"""A NumPy array of float64, or an array of another library in the widest float type that it has."""


def check_positive(x: Any, name: str = "x", allow_zero: bool = False) -> Dense:
    """Return a tensor as floats; raise if an entry is not positive, or not finite."""
    tensor = _as_floats(x, name)
    least = "not negative" if allow_zero else "positive, since its logarithm is taken"
    good = (tensor >= 0) if allow_zero else (tensor > 0)
    return _check(tensor, good, name, f"every entry must be finite and {least}")


def check_real(values: Any, name: str) -> Dense:
    """Return parameters as floats; raise if one is not finite."""
    return _check(_as_floats(values, name), True, name, "give finite numbers")


def _as_floats(x: Any, name: str) -> Dense:
    backend = get_backend(x)
    if backend is NUMPY:
        return as_tensor(x, name).astype(np.float64, copy=False)
    backend.check(x, name)
    check_shape(tuple(x.shape), name)
    return backend.as_float(x)


def _check(tensor: Any, good: Any, name: str, rule: str) -> Dense:
    xp = get_namespace(tensor)
    bad = ~(xp.isfinite(tensor) & good)
    try:
        found = bool(xp.any(bad))
    except (RuntimeError, TypeError):  # torch and JAX raise these where there are no values yet
        if not get_backend(bad).is_traced(bad):  # even where the tensor is a constant
            raise
        raise get_backend(bad).explain_traced(tensor, name) from None
    if found:
        where = array_api.first_index(bad)
        raise ValueError(f"{name}{list(where)} is {number_at(tensor, where)}; {rule}")
    return tensor


def number_at(tensor: Any, index: tuple[int, ...]) -> float:
    """Return one entry as a Python float."""
    return float(get_backend(tensor).detach(tensor[index]))


def refuse_traced(tensor: Any, name: str = "x") -> Any:
    """Raise for a tensor that requires a gradient or is being compiled: iterations have no gradient."""
    backend = get_backend(tensor)
    if backend.is_traced(tensor):
        raise backend.explain_traced(tensor, name)
    return backend.detach(tensor)


def in_unit(tensor: Any) -> tuple[Dense, float]:
    """Divide a tensor by a power of two so that its sum neither overflows nor underflows; return both."""
    xp = get_namespace(tensor)
    bits = -round(math.log2(float(xp.finfo(tensor.dtype).smallest_normal)))
    unit = power_of_two(float(get_backend(tensor).detach(xp.max(tensor))), bits)
    return tensor * (1 / unit), unit


def shares(tensor: Any) -> tuple[Dense, float]:
    """Divide a tensor by its total, and return both; raise if the total is too large for the type."""
    xp = get_namespace(tensor)
    scaled, unit = in_unit(tensor)
    part = float(xp.sum(scaled))
    if part * unit > float(xp.finfo(tensor.dtype).max):
        raise explain_total(tensor)
    return (scaled / part if part else scaled), part * unit


def explain_total(tensor: Any) -> ValueError:
    """Return the error for a tensor with a total that is too large for its type."""
    bits = get_namespace(tensor).finfo(tensor.dtype).bits
    return ValueError(f"x: its total is too large for float{bits}; scale it down")


def to_host(array: Any) -> NDArray[Any]:
    """Return a small array as a NumPy array."""
    return get_backend(array).to_numpy(array)


def divergence(p: Any, q: Any) -> float:
    """Return the divergence of two distributions on the same device; infinity where it is not a number."""
    found, _ = array_api.divergence(p, lambda box: q[box])
    return math.inf if math.isnan(found) else max(0.0, found)


def precision(tensor: Any) -> float:
    """Return the machine epsilon of the type of a tensor."""
    return float(get_namespace(tensor).finfo(tensor.dtype).eps)
