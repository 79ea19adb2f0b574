"""The pass in plain NumPy: one call a mode, nothing to warm up."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.kernels.sums import Moments, Sums
from tucket.partition import Blocks

__all__ = ["block_sums"]


def block_sums(tensor: NDArray[Any], modes: tuple[Blocks, ...], with_moments: bool) -> Sums:
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
        moments = _moments(tensor.astype(np.float64, copy=False)) if with_moments else None
    return Sums(core, marginals, bool(tensor.min() < 0), moments, "numpy")


def _moments(tensor: NDArray[np.float64]) -> Moments:
    logs = np.log(tensor, where=tensor > 0, out=np.zeros_like(tensor))
    return Moments(float((tensor * logs).sum()), float((tensor * tensor).sum()))
