"""What every kernel brings back from its pass over a tensor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

KL_RECHECK = 1e-2
"""Divergence over the total below which logarithms in float32 have too few digits for it."""


class Moments(NamedTuple):
    """Sums over all entries v of a tensor; within the logarithm v is counted in some unit, 1 by default."""

    v_log_v: float
    v_squared: float

    def plus(self, other: Moments) -> Moments:
        """Return the moments of two disjoint pieces together."""
        return Moments(self.v_log_v + other.v_log_v, self.v_squared + other.v_squared)


class Sums(NamedTuple):
    """Block sums and marginals, whether any entry was negative, and which kernel found them."""

    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    has_negative: bool
    moments: Moments | None
    kernel: str
    low_precision: bool = False  # whether logarithms were taken in float32
