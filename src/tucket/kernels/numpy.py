"""The pass in plain NumPy: one call a mode, nothing to warm up."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.kernels.sums import Moments, Sums

__all__ = ["block_sums", "moments"]

PRODUCT = 1 << 14
"""Largest indicator matrix of blocks by which a product is faster than a sum over each block."""


def block_sums(tensor: NDArray[Any], modes: tuple[Blocks, ...], unit: float | None) -> Sums:
    """Take the modes in turn: the marginal of each, then its block sums, from which the next is taken."""
    marginals = []
    core = tensor
    with np.errstate(all="ignore"):  # NaN and overflow show in the total, where they are explained
        for mode, blocks in enumerate(modes):
            others = tuple(other for other in range(tensor.ndim) if other != mode)
            marginals.append(core.sum(axis=others, dtype=np.float64))
            core = core if blocks.is_whole else _sum_mode(core, blocks, mode)
        core = core.astype(np.float64, copy=core is tensor)  # never the user's own
        found = None if unit is None else moments(tensor.astype(np.float64, copy=False), unit)
    return Sums(core, tuple(marginals), bool(tensor.min() < 0), found, "numpy")


def _sum_mode(part: NDArray[Any], blocks: Blocks, mode: int) -> NDArray[np.float64]:
    if blocks.rank * blocks.size > PRODUCT:
        return blocks.sum(part, axis=mode)
    indicator = np.zeros((blocks.rank, blocks.size))
    indicator[blocks.labels, np.arange(blocks.size)] = 1
    before, after = part.shape[:mode], part.shape[mode + 1 :]
    if not after:  # one product instead of many
        last: NDArray[np.float64] = part @ indicator.T
        return last
    sums: NDArray[np.float64] = indicator @ part.reshape(math.prod(before), blocks.size, math.prod(after))
    return sums.reshape(*before, blocks.rank, *after)


def moments(tensor: NDArray[np.float64], unit: float) -> Moments:
    """Sum v log(v / unit) and v**2 over all entries v."""
    ratios = tensor / unit
    logs = np.log(ratios, where=ratios > 0, out=np.zeros_like(tensor))
    return Moments(float((tensor * logs).sum()), float((tensor * tensor).sum()))
