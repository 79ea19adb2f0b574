"""Hypothesis strategies: tensors of every kind that users have, and partitions of them."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from numpy.typing import NDArray

from tucket import Partition
from tucket.base.blocks import Blocks

DTYPES = ("?", "i1", "u1", "<i2", ">u2", "<i4", "<u4", "<i8", "<u8", "<f2", "<f4", ">f4", "<f8", ">f8")
LAYOUTS = ("C", "Fortran", "transposed", "strided", "reversed", "read-only")


def shapes(min_dims: int = 1, max_dims: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    sides = {1: 12, 2: 8, 3: 5, 4: 4, 5: 3, 6: 2}
    return st.integers(min_dims, max_dims).flatmap(
        lambda ndim: hnp.array_shapes(min_dims=ndim, max_dims=ndim, min_side=1, max_side=sides[ndim])
    )


def values(dtype: np.dtype[Any]) -> st.SearchStrategy[Any]:
    """Entries of a type: zeros are as likely as all the rest."""
    if dtype.kind == "b":
        return st.booleans()
    if dtype.kind in "iu":
        return st.just(0) | st.integers(0, min(1000, np.iinfo(dtype).max))
    return st.just(0.0) | st.integers(1, 1024).map(lambda n: n / 32)


def lay_out(array: NDArray[Any], layout: str) -> NDArray[Any]:
    """Return an equal array that lies otherwise in memory."""
    match layout:
        case "Fortran":
            return np.asfortranarray(array)
        case "transposed":
            axes = tuple(np.roll(range(array.ndim), 1))
            return np.ascontiguousarray(array.transpose(axes)).transpose(np.argsort(axes))
        case "strided":
            wide = np.ones([2 * side for side in array.shape], array.dtype)
            wide[(slice(None, None, 2),) * array.ndim] = array
            return wide[(slice(None, None, 2),) * array.ndim]
        case "reversed":
            back = (slice(None, None, -1),) * array.ndim
            return array[back].copy()[back]
        case "read-only":
            array = array.copy()
            array.flags.writeable = False
    return array


@st.composite
def tensors(draw: st.DrawFn, min_dims: int = 1, max_dims: int = 5, dtypes: tuple[str, ...] = DTYPES) -> NDArray[Any]:
    dtype = np.dtype(draw(st.sampled_from(dtypes)))
    shape = draw(shapes(min_dims, max_dims))
    array = draw(hnp.arrays(dtype, shape, elements=values(dtype), fill=st.nothing()))
    return lay_out(array, draw(st.sampled_from(LAYOUTS)))


@st.composite
def blocks(draw: st.DrawFn, size: int, free: bool = True) -> Blocks:
    rank = draw(st.integers(1, size))
    if free and draw(st.booleans()):
        rest = draw(st.lists(st.integers(0, rank - 1), min_size=size - rank, max_size=size - rank))
        return Blocks.from_labels(draw(st.permutations([*range(rank), *rest])))
    starts = draw(st.sets(st.integers(1, size - 1), min_size=rank - 1, max_size=rank - 1)) if rank > 1 else []
    return Blocks.from_starts(size, [0, *sorted(starts)])


@st.composite
def partitions(draw: st.DrawFn, shape: tuple[int, ...], free: bool = True) -> Partition:
    return Partition(tuple(draw(blocks(size, free)) for size in shape))


@st.composite
def cut_tensors(
    draw: st.DrawFn, min_dims: int = 1, max_dims: int = 5, free: bool = True, dtypes: tuple[str, ...] = DTYPES
) -> tuple[NDArray[Any], Partition]:
    """Draw a tensor and a partition of its shape."""
    tensor = draw(tensors(min_dims, max_dims, dtypes))
    return tensor, draw(partitions(tensor.shape, free))
