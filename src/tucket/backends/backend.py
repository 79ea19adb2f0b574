"""What every backend can do: a library of arrays, on one of its devices. NumPy is the plainest one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

INDICATOR_ENTRIES = 1 << 22
"""Entries of a matrix that says which index is in which group."""


class Backend(ABC):
    """A library of arrays, on one of its devices.

    Attributes
    ----------
    xp : module
        The library's functions, by the names of the array API standard.
    device : object
        The device, as the library names it; None where its arrays have no device of their own.
    kernels : str
        Which module of `tucket.kernels` reads its arrays.
    """

    __slots__ = ("device", "xp")

    kernels: ClassVar[str] = "array_api"

    def __init__(self, xp: Any, device: Any) -> None:
        self.xp, self.device = xp, device

    @abstractmethod
    def from_numpy(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array as an array of this library; memory may be shared."""

    @abstractmethod
    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a small array as a NumPy array."""

    def from_numpy_all(self, arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Return small NumPy arrays of one dtype as arrays of this library, in one transfer where these are slow."""
        return [self.from_numpy(array) for array in arrays]

    def to_numpy_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Return small arrays of one dtype as NumPy arrays, in one transfer where these are slow."""
        return [self.to_numpy(array) for array in arrays]

    @property
    def has_float64(self) -> bool:
        """Whether there are floats of 64 bits: not on every device, and in JAX only if they are enabled."""
        return True

    def widest(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return a float dtype, or float32 where there is no float64."""
        return dtype if self.has_float64 else np.dtype(np.float32)

    def as_float(self, array: Any) -> Any:
        """Return an array in the widest floats that there are."""
        widest = self.xp.float64 if self.has_float64 else self.xp.float32
        return array if array.dtype == widest else self.xp.astype(array, widest)

    def full_precision(self) -> AbstractContextManager[object]:
        """Return a context in which matrix products have all digits."""
        return nullcontext()

    def check(self, array: Any, name: str) -> None:  # noqa: B027
        """Refuse an array that is not dense, or does not hold real numbers."""

    def native(self, array: Any) -> Any:
        """Return the array as the fastest kernels read it, not copied: as a NumPy array or torch tensor if possible."""
        return array

    def from_native(self, array: Any, *, copy: bool = True) -> Any:  # noqa: ARG002
        """Return what kernels made of a native array as an array of this library.

        Not every library takes an array that begins anywhere in memory: without `copy` it must have memory of its own.
        """
        return array

    def is_traced(self, array: Any) -> bool:  # noqa: ARG002
        """Say whether the library records what is done with an array, for a gradient or a compiled function."""
        return False

    def has_values(self, array: Any) -> bool:  # noqa: ARG002
        """Say whether the entries of an array can be looked at: not while a function is being compiled."""
        return True

    def detach(self, array: Any) -> Any:
        """Return the array as a constant, through which no gradient flows."""
        return array

    def explain_traced(self, array: Any, name: str, can_detach: bool = True) -> TypeError:  # noqa: ARG002
        """Make the error for a traced array where its values are needed."""
        return TypeError(
            f"{name} is traced by {self}, for a gradient or a compiled function, and this needs its values; "
            f"call it outside of the function that is transformed"
        )

    def take_rows(self, array: Any, rows: slice) -> Any:
        """Return some rows of an array: by their numbers, since not every library has slices that go back."""
        return self.xp.take(array, self.from_numpy(np.arange(array.shape[0])[rows]), axis=0)

    def sum_groups(self, array: Any, labels: NDArray[np.intp], count: int) -> Any:
        """Sum the entries of the last axis over groups: `labels[i]` is the group of entry i."""
        total, step = 0.0, max(1, INDICATOR_ENTRIES // count)
        for first in range(0, len(labels), step):
            rows = slice(first, min(first + step, len(labels)))
            total = self.xp.matmul(array[..., rows], self.indicator(labels[rows], count)) + total
        return total

    def indicator(self, labels: NDArray[np.intp], count: int) -> Any:
        """Return a matrix of zeros and ones: row i has its one in column `labels[i]`."""
        rows = self.from_numpy(labels)[:, None] == self.from_numpy(np.arange(count))[None, :]
        return self.xp.astype(rows, self.xp.float64 if self.has_float64 else self.xp.float32)

    def __eq__(self, other: object) -> bool:
        """Say whether arrays of two backends can be worked on together."""
        if not isinstance(other, Backend):
            return NotImplemented
        return self.xp is other.xp and (self.device == other.device or None in (self.device, other.device))

    def __hash__(self) -> int:
        return hash(self.xp.__name__)

    def __str__(self) -> str:
        library = self.xp.__name__.rpartition("array_api_compat.")[2].partition(".")[0]
        return library if self.device is None else f"{library} on {self.device}"


class NumPy(Backend):
    """NumPy arrays, in the memory of the host."""

    __slots__ = ()

    kernels: ClassVar[str] = "numpy"

    def from_numpy(self, array: NDArray[Any]) -> NDArray[Any]:
        """Return the array."""
        return array

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return the array."""
        return np.asarray(array)

    def to_numpy_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Return the arrays."""
        return list(arrays)

    def as_float(self, array: Any) -> NDArray[np.float64]:
        """Return an array in float64."""
        return np.asarray(array, np.float64)

    def take_rows(self, array: Any, rows: slice) -> NDArray[Any]:
        """Return some rows of an array, as a view."""
        return array[rows]  # type: ignore[no-any-return]

    def __str__(self) -> str:
        return "NumPy"


NUMPY = NumPy(np, None)
"""The backend of everything that is not an array of another library."""
