"""What may go into the geometry: real tensors of any library, which stay where they are."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import Home, check_array, explain_followed, home_of, is_traced, namespace_of
from tucket.kernels import foreign, pure
from tucket.models.metrics import kl
from tucket.sources.dense import as_tensor, check_shape

__all__ = [
    "Dense",
    "check_positive",
    "check_real",
    "divergence",
    "explain_total",
    "first_index",
    "in_unit",
    "number_at",
    "place_of",
    "precision",
    "shares",
    "to_host",
    "unfollowed",
]

Dense = NDArray[np.float64] | Any
"""An array of NumPy's in float64, or one of another library, in the widest floats that it has."""


def check_positive(x: Any, name: str = "x", allow_zero: bool = False) -> Dense:
    """Return a tensor in floats, of which every entry is positive."""
    tensor = _as_floats(x, name)
    least = "not negative" if allow_zero else "positive, since its logarithm is taken"
    good = (tensor >= 0) if allow_zero else (tensor > 0)
    return _check(tensor, good, name, f"every entry must be finite and {least}")


def check_real(values: Any, name: str) -> Dense:
    """Return parameters in floats, all finite."""
    return _check(_as_floats(values, name), True, name, "give finite numbers")


def _as_floats(x: Any, name: str) -> Dense:
    home = home_of(x)
    if home is None:
        return as_tensor(x, name).astype(np.float64, copy=False)
    check_array(x, name)
    check_shape(tuple(x.shape), name)
    return pure.as_float(home, x)


def _check(tensor: Any, good: Any, name: str, rule: str) -> Dense:
    xp = namespace_of(tensor)
    bad = ~(xp.isfinite(tensor) & good)
    try:
        found = bool(xp.any(bad))
    except (RuntimeError, TypeError):  # of torch's and JAX's, if there are no values yet
        if not is_traced(bad):  # as it is in a compiled function, whatever the tensor is
            raise
        raise explain_followed(tensor, name) from None
    if found:
        where = first_index(bad)
        raise ValueError(f"{name}{list(where)} is {number_at(tensor, where)}; {rule}")
    return tensor


def first_index(marked: Any) -> tuple[int, ...]:
    """Return the first marked index."""
    return pure.first_index(place_of(marked), marked)


def number_at(tensor: Any, index: tuple[int, ...]) -> float:
    """Return an entry."""
    return float(pure.constant(tensor[index]))


def unfollowed(tensor: Any, name: str = "x") -> Any:
    """Refuse a tensor that its library follows for a gradient, of which there is none where steps are taken."""
    if is_traced(tensor):
        raise explain_followed(tensor, name)
    return pure.constant(tensor)


def in_unit(tensor: Any) -> tuple[Dense, float]:
    """Return a tensor over a power of two, so that no entry is much above 1 and all can be summed; and that power."""
    xp = namespace_of(tensor)
    top, bits = float(pure.constant(xp.max(tensor))), math.log2(float(xp.finfo(tensor.dtype).smallest_normal))
    unit = 2.0 ** min(-bits, max(bits, round(math.log2(top)))) if top > 0 else 1.0
    return tensor * (1 / unit), unit


def shares(tensor: Any) -> tuple[Dense, float]:
    """Return a tensor over its total, and that total, which must not be too large for its type."""
    xp = namespace_of(tensor)
    scaled, unit = in_unit(tensor)
    part = float(xp.sum(scaled))
    if part * unit > float(xp.finfo(tensor.dtype).max):
        raise explain_total(tensor)
    return (scaled / part if part else scaled), part * unit


def explain_total(tensor: Any) -> ValueError:
    """Make the error for a tensor whose total is too large."""
    bits = namespace_of(tensor).finfo(tensor.dtype).bits
    return ValueError(f"x: its total is too large for float{bits}; scale it down")


def place_of(array: Any) -> Home:
    """Return where an array lives, NumPy's too."""
    return home_of(array) or Home(np, "cpu")


def to_host(array: Any) -> NDArray[Any]:
    """Return a small array as one of NumPy's."""
    return np.asarray(array) if home_of(array) is None else foreign.bring(array)


def divergence(p: Any, q: Any) -> float:
    """Return the divergence of two distributions that are in the same place; infinity where one is not a number."""
    if home_of(p) is None:
        return float(kl(p, q))
    found, _ = foreign.divergence(p, lambda box: q[box])
    return math.inf if math.isnan(found) else max(0.0, found)


def precision(tensor: Any) -> float:
    """Return the step from 1 to the next larger number that a tensor can hold."""
    return float(namespace_of(tensor).finfo(tensor.dtype).eps)
