"""Dense arrays: anything that NumPy can see as an n-dimensional array of real numbers."""

from __future__ import annotations

import math
from collections.abc import Iterator
from mmap import mmap
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

__all__ = ["as_tensor", "check_shape_match", "check_values", "explain_values", "is_mapped", "slabs"]

SLAB = 1 << 20
"""Elements a slab: large enough to forget Python's overhead, small enough for temporary copies."""


def as_tensor(x: ArrayLike, name: str = "x") -> NDArray[Any]:
    """Return `x` as an array of real numbers with at least one mode and no empty one, not copied.

    Its values are looked at where they are read: see `check_values`.
    """
    if np.ma.is_masked(x):
        raise TypeError(f"{name} has masked entries; fill them first, as with {name}.filled(0)")
    if hasattr(x, "toarray"):
        raise TypeError(f"{name} is a sparse {type(x).__name__}; give a dense array, as from {name}.toarray()")
    try:
        tensor = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError(f"{name} has rows of unequal length; give a full n-dimensional array") from None
        raise ValueError(f"{name} cannot be read as an array: {error}") from error
    if tensor.dtype.kind not in "biuf" or tensor.dtype.itemsize > 8:
        raise TypeError(
            f"{name} is of type {type(x).__name__} and dtype {tensor.dtype}; "
            f"give real numbers: bool, integers, or float16 to float64"
        )
    if tensor.ndim == 0:
        raise ValueError(f"{name} is a scalar (0-d); give an array of at least one mode")
    if tensor.size == 0:
        empty = tensor.shape.index(0)
        raise ValueError(f"mode {empty} of {name} is empty (shape {tensor.shape}); give at least one index")
    return tensor


def is_mapped(tensor: NDArray[Any]) -> bool:
    """Say whether the entries lie in a file, which every pass over them reads again."""
    owner: Any = tensor
    while isinstance(owner, np.ndarray):
        owner = owner.base
    return isinstance(owner, mmap)


def check_shape_match(tensor: NDArray[Any], shape: tuple[int, ...], owner: str, name: str = "x") -> None:
    """Refuse a tensor whose shape is not that of its partner."""
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tensor.shape}, but {owner} is of shape {shape}")


def check_values(tensor: NDArray[Any], name: str = "x") -> NDArray[Any]:
    """Return `tensor` if all its entries are finite and not negative."""
    # neither comparison holds for NaN, which is the least and the largest entry where there is one
    if not (tensor.min() >= 0 and tensor.max() < np.inf):
        raise explain_values(tensor, name)
    return tensor


def explain_values(tensor: NDArray[Any], name: str = "x") -> ValueError:
    """Make the error for a tensor with a negative or non-finite entry: the first one in C order, and where.

    A tensor without any is one whose total is too large for float64.
    """
    for slab in slabs(tensor.shape):
        part = tensor[slab]
        bad = ~(np.isfinite(part) & (part >= 0))
        if bad.any():
            inside = np.unravel_index(np.argmax(bad), part.shape)
            index = tuple(int(i) + s.start for i, s in zip(inside, slab))
            value = tensor[index].item()
            remedy = "clip it, as with numpy.maximum" if value < 0 else "fill or drop missing values first"
            return ValueError(
                f"{name}[{', '.join(map(str, index))}] is {value}; "
                f"every entry must be finite and not negative ({remedy})"
            )
    return ValueError(
        f"the sum of {name} is too large for float64 (its largest entry is {tensor.max()}); scale {name} down"
    )


def slabs(shape: tuple[int, ...], most: int = SLAB) -> Iterator[tuple[slice, ...]]:
    """Cut a shape into boxes of at most `most` elements, in C order.

    Examples
    --------
    >>> list(slabs((3, 4), most=8))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 3, None), slice(0, 4, None))]
    """
    size, *inner = shape
    rows = most // math.prod(inner)
    if rows:
        rest = tuple(slice(0, s) for s in inner)
        for start in range(0, size, rows):
            yield slice(start, min(start + rows, size)), *rest
    else:
        for row in range(size):
            for box in slabs(tuple(inner), most):
                yield slice(row, row + 1), *box
