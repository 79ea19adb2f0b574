"""The pass in plain NumPy: a few calls per mode, without a compiler."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.kernels.measures import Sums, moments

INDICATOR_ENTRIES = 1 << 14
"""Largest indicator matrix of blocks (rank x size) for which a matrix product is faster than `Blocks.sum`."""


def block_sums(tensor: NDArray[Any], partition: Partition, unit: float | None = None, workers: int = 1) -> Sums:  # noqa: ARG001
    """Return block sums, marginals and moments; each mode is summed over its blocks before the next one."""
    marginals = []
    core = tensor
    with np.errstate(all="ignore"):  # the caller checks the total for NaN and overflow
        for mode, blocks in enumerate(partition.modes):
            others = tuple(other for other in range(tensor.ndim) if other != mode)
            marginals.append(core.sum(axis=others, dtype=np.float64))
            core = core if blocks.is_whole else _sum_mode(core, blocks, mode)
        core = core.astype(np.float64, copy=core is tensor)  # never return the given array
        found = None if unit is None else moments(tensor, unit)
    return Sums(core, tuple(marginals), bool(tensor.min() < 0), found, "numpy")


def _sum_mode(part: NDArray[Any], blocks: Blocks, mode: int) -> NDArray[np.float64]:
    if blocks.rank * blocks.size > INDICATOR_ENTRIES:
        return blocks.sum(part, axis=mode)
    indicator = np.zeros((blocks.rank, blocks.size))
    indicator[blocks.labels, np.arange(blocks.size)] = 1
    before, after = part.shape[:mode], part.shape[mode + 1 :]
    if not after:  # one matrix product instead of a batch
        last: NDArray[np.float64] = part @ indicator.T
        return last
    sums: NDArray[np.float64] = indicator @ part.reshape(math.prod(before), blocks.size, math.prod(after))
    return sums.reshape(*before, blocks.rank, *after)
