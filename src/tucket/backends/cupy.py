"""CuPy: arrays on an NVIDIA GPU."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.array_api import ArrayApi


class CuPy(ArrayApi):
    """CuPy arrays on one GPU."""

    __slots__ = ()

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a small array as a NumPy array."""
        return np.asarray(array.get())
