"""NumPy, a backend like any other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends.backend import Backend


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
