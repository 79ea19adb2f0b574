"""The pass in plain NumPy: one call a mode, nothing to warm up."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket.partition import Blocks

__all__ = ["Sums", "block_sums"]


class Sums(NamedTuple):
    """What a kernel brings back from its pass."""

    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    has_negative: bool
    kernel: str


def block_sums(tensor: NDArray[Any], modes: tuple[Blocks, ...]) -> Sums:
    """Sum over blocks mode after mode, and over all other modes for each marginal."""
    axes = set(range(tensor.ndim))
    with np.errstate(all="ignore"):  # NaN and overflow show in the total, where they are explained
        marginals = tuple(
            tensor.sum(axis=tuple(axes - {mode}), dtype=np.float64) for mode in range(tensor.ndim)
        )
        core = tensor
        # the mode that shrinks most goes first: the others then have less to read
        for mode in sorted(axes, key=lambda mode: modes[mode].rank / modes[mode].size):
            core = modes[mode].sum(core, axis=mode)
    return Sums(core, marginals, bool(tensor.min() < 0), "numpy")
