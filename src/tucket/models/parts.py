"""The parts of a model, what is written to, and how a model is indexed: checks."""

from __future__ import annotations

import math
from collections.abc import Iterable
from types import EllipsisType
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tucket.backends import NUMPY, get_backend
from tucket.base.checks import as_index, check_dtype, check_shape_match, frozen
from tucket.sources.dense import as_tensor, check_values

Index = SupportsIndex | slice | EllipsisType


def check_part(values: Any, name: str, like: Any = None) -> Any:
    """Return one part of a model: of the core's library and type, or, for the core, as it came or else in float64.

    NumPy arrays are returned read-only.
    """
    backend = get_backend(values)
    if backend is not NUMPY:
        backend.check(values, name)
        if not backend.is_traced(values):
            check_values(values, name)
        return values
    array = check_values(as_tensor(values, name), name)
    dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64) if like is None else like.dtype
    return frozen(cast_part(array, name, dtype))


def check_parts(values: Any, name: str, core: Any) -> tuple[Any, ...]:
    """Return a part for each mode of the core."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: got a {type(values).__name__}; give one for each of the {core.ndim} modes")
    given, backend = tuple(values), get_backend(core)
    for mode, part in enumerate(given):
        if get_backend(part) != backend:
            raise ValueError(f"{name}[{mode}] is of {get_backend(part)}, but the core of {backend}; give parts of one")
    if len(given) != core.ndim:
        raise ValueError(f"{name}: got {len(given)} for a core of {core.ndim} modes; give one per mode")
    return tuple(check_part(part, f"{name}[{mode}]", core) for mode, part in enumerate(given))


def check_range(core: NDArray[Any], most: Iterable[Any]) -> None:
    """Refuse a model with a tensor that may be too large for its type: no entry exceeds this product."""
    if math.prod(map(float, most), start=float(core.max())) > float(np.finfo(core.dtype).max):
        raise ValueError(f"the core and what multiplies it are together too large for {core.dtype}; scale them down")


def cast_part(array: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a NumPy array in another float type, in which no entry may be out of range."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(dtype)
    lost = (cast == np.inf) | ((cast == 0) & (array > 0))
    if lost.any():
        raise ValueError(f"{name} holds {array[lost][0]}, which is out of {dtype}'s range; keep float64")
    return frozen(cast)


def check_out(out: object, shape: tuple[int, ...], dtype: DTypeLike | None) -> None:
    """Refuse an array that a tensor cannot be written to."""
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out: got a {type(out).__name__}; give a plain NumPy array")
    if out.dtype not in (np.float32, np.float64) or not out.dtype.isnative:
        raise TypeError(f"out: got an array of {out.dtype}; give one of float32 or float64")
    if dtype is not None and out.dtype != check_dtype(dtype):
        raise TypeError(f"out: got an array of {out.dtype}, but dtype {np.dtype(dtype)}; leave dtype out")
    check_shape_match(out, shape, "the model", "out")
    if not out.flags.writeable:
        raise ValueError("out: got a read-only array; give one that can be written to")


def parse_index(index: Any, shape: tuple[int, ...]) -> tuple[list[slice], tuple[int | slice, ...]]:
    """Return a slice per mode, and what of the result is kept: an int drops its mode, as in NumPy."""
    given = index if isinstance(index, tuple) else (index,)
    dots = [place for place, entry in enumerate(given) if entry is ...]
    if len(dots) > 1:
        raise IndexError("an index may hold '...' only once")
    if len(given) - len(dots) > len(shape):
        raise IndexError(f"got {len(given) - len(dots)} indices for {len(shape)} modes of shape {shape}")
    place = dots[0] if dots else len(given)
    filled = (slice(None),) * (len(shape) - len(given) + len(dots))
    rows: list[slice] = []
    kept: list[int | slice] = []
    for mode, (entry, size) in enumerate(zip((*given[:place], *filled, *given[place + 1 :]), shape)):
        if isinstance(entry, slice):
            try:
                entry.indices(size)
            except (TypeError, ValueError) as error:
                raise type(error)(f"mode {mode}: cannot use {entry!r} as an index: {error}") from None
            rows.append(entry)
            kept.append(slice(None))
            continue
        at = as_index(entry)
        if at is None:
            raise TypeError(
                f"mode {mode}: cannot use {entry!r} of type {type(entry).__name__} as an index; "
                f"give ints, slices or '...'"
            )
        if not -size <= at < size:
            raise IndexError(f"mode {mode}: index {at} is out of range for size {size}")
        rows.append(slice(at % size, at % size + 1))
        kept.append(0)
    return rows, tuple(kept)
