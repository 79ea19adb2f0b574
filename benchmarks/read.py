"""A plain read of memory: the lower bound of the time of any pass over a tensor."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray


@njit(nogil=True, fastmath=True)
def _read(x):  # type: ignore[no-untyped-def]
    total = 0.0
    for i in range(x.size):
        total += x[i]
    return total


def read(x: NDArray[Any], workers: int) -> float:
    """Read a contiguous array once, as sums that the compiler may reorder."""
    flat = x.reshape(-1)
    if workers == 1:
        return float(_read(flat))
    with ThreadPoolExecutor(workers) as pool:
        return float(sum(pool.map(_read, np.array_split(flat, workers))))
