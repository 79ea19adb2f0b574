"""What every kernel brings back from its pass over a tensor."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = ["CLOSE", "Moments", "Sums"]

CLOSE = 1e-2
"""The divergence, beside the total, below which logarithms of float32 are too rough for it."""


class Moments(NamedTuple):
    """Sums over all entries v of a tensor; in the logarithm v is counted in some unit, 1 if nothing is said."""

    v_log_v: float
    v_squared: float

    def plus(self, other: Moments) -> Moments:
        """Return the moments of two disjoint pieces together."""
        return Moments(self.v_log_v + other.v_log_v, self.v_squared + other.v_squared)


class Sums(NamedTuple):
    """Block sums and marginals, whether any entry was negative, and which kernel saw it."""

    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    has_negative: bool
    moments: Moments | None
    kernel: str
    is_rough: bool = False  # whether logarithms were taken in float32

    def is_finite(self) -> bool:
        """Say whether the total is: it is not where an entry is not, or where it is too large."""
        with np.errstate(all="ignore"):
            return bool(np.isfinite(self.core.sum()))
