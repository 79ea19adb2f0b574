"""Dense arrays: anything that NumPy can see as an n-dimensional array of real numbers, in memory or in a file."""

from __future__ import annotations

import mmap
from collections.abc import Generator, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.boxes import Box, slabs, whole
from tucket.sources.source import Chunk, Progress, Reduction, Report, Result, Source

__all__ = [
    "Array",
    "Mapped",
    "as_tensor",
    "check_real",
    "check_shape_match",
    "check_values",
    "explain_values",
]


def as_tensor(x: Any, name: str = "x") -> NDArray[Any]:
    """Return `x` as an array of real numbers with at least one mode and no empty one, not copied.

    Its values are looked at where they are read: see `check_values`.
    """
    if np.ma.is_masked(x):
        raise TypeError(f"{name} has masked entries; fill them first, as with {name}.filled(0)")
    try:
        tensor = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError(f"{name} has rows of unequal length; give a full n-dimensional array") from None
        raise ValueError(f"{name} cannot be read as an array: {error}") from error
    except RuntimeError as error:  # of arrays that will not be made dense by themselves
        raise TypeError(f"{name} is a {type(x).__name__}, and this needs a dense array: {error}") from None
    if tensor.dtype.kind == "O" and hasattr(x, "columns"):
        raise TypeError(
            f"{name} is a table; say which of its columns are modes, "
            f"as with tucket.from_table({name}, modes=[...], value=...)"
        )
    check_real(tensor.dtype, name, type(x).__name__)
    check_shape(tensor.shape, name)
    return tensor


def check_real(dtype: np.dtype[Any], name: str, kind: str) -> None:
    """Refuse what are no real numbers that every kernel can read."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(
            f"{name} is of type {kind} and dtype {dtype}; give real numbers: bool, integers, or float16 to float64"
        )


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse a tensor without modes, or without indices in one of them."""
    if not shape:
        raise ValueError(f"{name} is a scalar (0-d); give an array of at least one mode")
    if 0 in shape:
        raise ValueError(f"mode {shape.index(0)} of {name} is empty (shape {shape}); give at least one index")


class Array(Source):
    """An array in memory: a single chunk."""

    in_memory = True

    def __init__(self, array: NDArray[Any], axes: Axes | None = None) -> None:
        self.array, self.shape, self.axes = array, array.shape, axes

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.array.nbytes

    @property
    def n_chunks(self) -> int:
        """One."""
        return 1

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the array."""
        yield Chunk(self.array, whole(self.shape))

    def reduce(self, reduction: Reduction[Result], progress: Report | None = None) -> Result:
        """Find out something of the array at once: small ones are reduced often, and soon."""
        total = reduction.total([reduction.of(Chunk(self.array, whole(self.shape)))])
        if progress is not None:
            progress(Progress(1, 1, self.nbytes, self.nbytes, self.nbytes))
        return total

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        return self.array


PIECE = 1 << 26
"""Bytes of a file that are read at a time, unless told otherwise."""

SMALL = 1 << 26
"""Bytes up to which a tensor is read whole before it is gone over again and again."""


class Mapped(Source):
    """An array whose entries lie in a file that is mapped into memory.

    It is read in the order of the file. Of each piece the system is told that it will be wanted while the one before
    it is worked on, and afterwards that it is wanted no more, so that few of them are in memory at a time.
    """

    def __init__(self, array: NDArray[Any], axes: Axes | None = None, memory: int | None = None) -> None:
        self.array, self.shape, self.axes = array, array.shape, axes
        self.piece = PIECE if memory is None else max(1, memory // 4)
        self.order = sorted(range(array.ndim), key=lambda mode: -abs(array.strides[mode]))

    @property
    def nbytes(self) -> int:
        """Bytes of the array."""
        return self.array.nbytes

    def held(self) -> Source:
        """Return the array in memory, if it is small."""
        return Array(np.array(self.array), self.axes) if self.nbytes <= SMALL else self

    def _boxes(self) -> list[Box]:
        turned = tuple(self.shape[mode] for mode in self.order)
        back = np.argsort(self.order)
        return [tuple(box[place] for place in back) for box in slabs(turned, max(1, self.piece // self.array.itemsize))]

    @property
    def n_chunks(self) -> int:
        """Pieces of the file."""
        return len(self._boxes())

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the pieces of the file one after another."""
        boxes = self._boxes()
        self._advise(boxes[0], "MADV_WILLNEED")
        for box, following in zip(boxes, [*boxes[1:], None]):
            if following is not None:
                self._advise(following, "MADV_WILLNEED")
            yield Chunk(self.array[box], box)
            self._advise(box, "MADV_DONTNEED")

    def _advise(self, box: Box, advice: str) -> None:
        """Tell the system what will be done with the pages of a piece, as far as it listens."""
        owner = mapping(self.array)
        flag = getattr(mmap, advice, None)
        # pages of a private mapping may have been written to, and exist nowhere else
        if owner is None or flag is None or not _is_shared(self.array):
            return
        base = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        low, high = np.lib.array_utils.byte_bounds(self.array[box])
        first = (low - base) // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(flag, first, high - base - first)


def mapping(array: Any) -> mmap.mmap | None:
    """Return the mapping of a file that an array is a view of, if it is of one."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def _is_shared(array: Any) -> bool:
    """Say whether what is written to a mapped array goes to its file, as numpy.memmap's own mode tells."""
    while array is not None and not hasattr(array, "mode"):
        array = getattr(array, "base", None)
    return getattr(array, "mode", "c") != "c"


def check_shape_match(tensor: NDArray[Any] | Source, shape: tuple[int, ...], owner: str, name: str = "x") -> None:
    """Refuse a tensor whose shape is not that of its partner."""
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {owner} is of shape {shape}")


def check_values(tensor: NDArray[Any], name: str = "x") -> NDArray[Any]:
    """Return `tensor` if all its entries are finite and not negative."""
    # neither comparison holds for NaN, which is the least and the largest entry where there is one
    if not (tensor.min() >= 0 and tensor.max() < np.inf):
        raise explain_values(tensor, name)
    return tensor


def explain_values(tensor: NDArray[Any], name: str = "x", origin: Sequence[int] | None = None) -> ValueError:
    """Make the error for a tensor with a negative or non-finite entry: the first one in C order, and where.

    A tensor without any is one whose total is too large for float64. A part of one is told of as of the whole.
    """
    origin = origin or [0] * tensor.ndim
    for slab in slabs(tensor.shape):
        part = tensor[slab]
        bad = ~(np.isfinite(part) & (part >= 0))
        if bad.any():
            inside = np.unravel_index(np.argmax(bad), part.shape)
            index = [int(i) + s.start + o for i, s, o in zip(inside, slab, origin)]
            return bad_value(name, index, part[inside].item())
    return ValueError(
        f"the sum of {name} is too large for float64 (its largest entry is {tensor.max()}); scale {name} down"
    )


def bad_value(name: str, index: Sequence[int], value: float) -> ValueError:
    """Make the error for one entry."""
    remedy = "clip it, as with numpy.maximum" if value < 0 else "fill or drop missing values first"
    return ValueError(
        f"{name}[{', '.join(map(str, index))}] is {value}; every entry must be finite and not negative ({remedy})"
    )
