"""Results of a pass over a tensor, the same for every kernel."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KL_RECHECK = 1e-2
"""Ratio of the divergence to the total below which float32 logarithms are too inexact."""


class Moments(NamedTuple):
    """Sums over all entries v of a tensor; in the logarithm, v is divided by a unit, by default 1."""

    v_log_v: float
    v_squared: float

    def plus(self, other: Moments) -> Moments:
        """Return the moments of two disjoint pieces together."""
        return Moments(self.v_log_v + other.v_log_v, self.v_squared + other.v_squared)


class Sums(NamedTuple):
    """Block sums and marginals, whether an entry is negative, and the name of the kernel."""

    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    has_negative: bool
    moments: Moments | None
    kernel: str
    low_precision: bool = False  # logarithms in float32
