"""Dense arrays, of NumPy or of any other library: in memory, on a device, or in a mapped file."""

from __future__ import annotations

import mmap
from collections.abc import Generator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends import NUMPY, Backend, get_backend
from tucket.base.axes import Axes
from tucket.base.boxes import Box, slabs, whole
from tucket.base.checks import bad_value, check_real, check_shape
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.kernels import array_api
from tucket.sources.source import Chunk, Reduction, Result, Source


def as_tensor(x: Any, name: str = "x") -> NDArray[Any]:
    """Return `x` as a NumPy array of real numbers with at least one mode and no empty one, uncopied if possible.

    Its values are checked where they are read: see `check_values`.
    """
    if isinstance(x, str | Path):
        raise TypeError(f"{name} is a path: open it first, as with tucket.open({str(x)!r})")
    if np.ma.is_masked(x):
        raise TypeError(
            f"{name} has masked entries, and this needs a tensor without gaps; tucket.ltr, ntd, collect and "
            f"cross_validate take the mask as it is. Zeros in place of gaps would be data, and bias the model"
        )
    try:
        tensor = np.asarray(x)
    except ValueError as error:
        if "inhomogeneous" in str(error):
            raise ValueError(f"{name} has rows of unequal length; give a full n-dimensional array") from None
        raise ValueError(f"{name} cannot be read as an array: {error}") from error
    except RuntimeError as error:  # from arrays that are made dense only when asked to
        raise TypeError(f"{name} is a {type(x).__name__}, and this needs a dense array: {error}") from None
    if tensor.dtype.kind == "O" and hasattr(x, "columns"):
        raise TypeError(
            f"{name} is a table; say which of its columns are modes, "
            f"as with tucket.from_table({name}, modes=[...], value=...)"
        )
    check_real(tensor.dtype, name, type(x).__name__)
    check_shape(tensor.shape, name)
    return tensor


class Array(Source):
    """An array in memory or on a device, as the kernels of its backend read it.

    `given` is the user's array, if the kernels read another form of it. The library of a traced array records all
    operations on it, so its values cannot be read.
    """

    in_memory = True
    nbytes: int
    n_chunks: int

    def __init__(
        self, array: Any, axes: Axes | None = None, backend: Backend = NUMPY, given: Any = None, is_traced: bool = False
    ) -> None:
        self.array, self.shape, self.axes = array, tuple(array.shape), axes
        self.backend, self.given, self.is_traced = backend, array if given is None else given, is_traced
        self.nbytes = int(array.nbytes) if hasattr(array, "nbytes") else 8 * self.size
        # one piece, unless the array is so large that sums of its rows would fill a device
        pieces = None if is_traced else kernels.kernels_for(array).piece_entries
        self.boxes = [whole(self.shape)] if pieces is None else list(slabs(self.shape, pieces(array)))
        self.n_chunks = len(self.boxes)

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the pieces."""
        for box in self.boxes:
            yield Chunk(self.array if self.n_chunks == 1 else self.array[box], box)

    def reduce(self, reduction: Reduction[Result], run: Run) -> Result:
        """Reduce the array; if it is a single piece, at once, because small arrays are reduced often."""
        if self.is_traced:
            raise self.backend.explain_traced(self.array, "x")
        if run.progress is not None or self.n_chunks > 1:
            return super().reduce(reduction, run)
        return reduction.total([reduction.of(Chunk(self.array, whole(self.shape)), run.workers)])

    def _project_in_place(self, partition: Partition, dtype: np.dtype[Any]) -> list[Any] | None:
        """Return the core and the weights of the closed form on a GPU or of a traced array.

        Return None if that is impossible or fails; the pass for statistics then raises the error.
        """
        if self.is_traced:  # no value of it is looked at
            name = self.backend.widest(dtype).name
            core, marginals = array_api.traced_sums(self.array, partition)
            parts = [core, *map(array_api.shares, marginals, partition.modes)]
            return [self.backend.xp.astype(part, getattr(self.backend.xp, name)) for part in parts]
        project = kernels.kernels_for(self.array).project
        if project is None or self.n_chunks > 1:
            return None
        core, weights, found = project(self.array, partition)
        exact = [core, *weights]
        parts = [part.float() for part in exact] if dtype == np.float32 else exact
        given = [self.backend.from_native(part) for part in parts]
        if not found.is_fine():  # the host waits for this alone
            return None
        return None if dtype == np.float32 and not is_kept(exact, parts) else given

    def to_numpy(self) -> NDArray[Any]:
        """Return the array as a NumPy array, copied if it is not one."""
        return get_backend(self.array).to_numpy(self.array)

    def load_if_small(self) -> Source:
        """Return this source; a traced array cannot be searched."""
        if self.is_traced:
            raise ValueError(
                "x is traced for a gradient or a compiled function, and blocks that are searched for depend on its "
                "values; give blocks='uniform' or your own, such as the partition of a model made before"
            )
        return self

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        return np.asarray(self.array)


def is_kept(exact: Sequence[Any], parts: Sequence[Any]) -> bool:
    """Say whether torch tensors have lost nothing in a narrower type: none is out of its range."""
    from torch import cat

    wide, narrow = (cat([each.reshape(-1) for each in some]) for some in (exact, parts))
    return bool((narrow.isfinite() & ((narrow > 0) | (wide == 0))).all())


PIECE_BYTES = 1 << 26
"""Bytes of a file that are read at a time, unless the user sets a bound."""

SMALL_BYTES = 1 << 26
"""Bytes up to which a tensor is loaded before it is read again and again."""


class Mapped(Source):
    """An array in a file that is mapped into memory, read in the order of the file.

    The operating system reads each piece ahead while the previous one is processed, and drops it afterwards, so that
    few pieces are in memory at a time.
    """

    nbytes: int

    def __init__(self, array: NDArray[Any], memory: int | None = None) -> None:
        self.array, self.shape, self.nbytes = array, array.shape, array.nbytes
        order = sorted(range(array.ndim), key=lambda mode: -abs(array.strides[mode]))
        back = np.argsort(order)
        piece_bytes = PIECE_BYTES if memory is None else memory // 4
        pieces = slabs(tuple(self.shape[mode] for mode in order), max(1, piece_bytes // array.itemsize))
        self.boxes: list[Box] = [tuple(box[place] for place in back) for box in pieces]
        self.n_chunks = len(self.boxes)

    def load_if_small(self) -> Source:
        """Return the array in memory, if it is small."""
        return Array(np.array(self.array), self.axes) if self.nbytes <= SMALL_BYTES else self

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the pieces of the file one after another."""
        self._advise(self.boxes[0], "MADV_WILLNEED")
        for box, following in zip(self.boxes, [*self.boxes[1:], None]):
            if following is not None:
                self._advise(following, "MADV_WILLNEED")
            yield Chunk(self.array[box], box)
            self._advise(box, "MADV_DONTNEED")

    def _advise(self, box: Box, advice: str) -> None:
        """Tell the system what will be done with a piece, where it takes advice."""
        owner, flag = mapping(self.array), getattr(mmap, advice, None)
        view: Any = self.array
        while view is not None and not hasattr(view, "mode"):
            view = getattr(view, "base", None)
        # pages of a private mapping ("c") may have been written to, and exist nowhere else
        if owner is None or flag is None or getattr(view, "mode", "c") == "c":
            return
        base = np.frombuffer(owner, np.uint8).__array_interface__["data"][0]
        low, high = np.lib.array_utils.byte_bounds(self.array[box])
        first = (low - base) // mmap.PAGESIZE * mmap.PAGESIZE
        owner.madvise(flag, first, high - base - first)


def mapping(array: Any) -> mmap.mmap | None:
    """Return the mapped file that an array is a view of, if it is one."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array if isinstance(array, mmap.mmap) else None


def check_values(tensor: Any, name: str = "x") -> Any:
    """Return a tensor if all its entries are finite and not negative."""
    if not array_api.is_fine(tensor):
        raise explain_values(tensor, name)
    return tensor


def explain_values(tensor: Any, name: str = "x", origin: Sequence[int] | None = None) -> ValueError:
    """Return the error for a tensor with a negative or non-finite entry: it names the first one in C order.

    Without such an entry, the total is too large. `origin` is the index at which a part begins in the whole.
    """
    found = array_api.first_bad(tensor)
    if found is None:
        largest = array_api.largest(tensor)
        return ValueError(
            f"the sum of {name} is too large for float64 (its largest entry is {largest}); scale {name} down"
        )
    index, value = found
    return bad_value(name, [at + by for at, by in zip(index, origin or (0,) * len(index))], value)
