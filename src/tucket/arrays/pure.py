"""LTR in the functions of the array API alone: for arrays on any device, also such as have no values yet.

Nothing here looks at a value, so that JAX can trace it, and every function can be differentiated.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.arrays.home import Home
from tucket.blocks import Blocks
from tucket.partition import Partition

__all__ = ["as_float", "block_sums", "divergence", "expand", "indicator", "moments", "project", "square_sum"]

INDICATOR = 1 << 22
"""Entries of a matrix that says which index is of which block."""


def as_float(home: Home, x: Any) -> Any:
    """Return an array in float64, or in the widest floating-point type that its library has."""
    widest = home.xp.float64 if home.has_float64() else home.xp.float32
    return x if x.dtype == widest else home.xp.astype(x, widest)


def block_sums(home: Home, x: Any, partition: Partition) -> tuple[Any, list[Any]]:
    """Return the block sums and the marginals, mode by mode."""
    core, marginals, xp = as_float(home, x), [], home.xp
    for mode, blocks in enumerate(partition.modes):
        others = tuple(other for other in range(len(partition)) if other != mode)
        marginals.append(xp.sum(core, axis=others) if others else core)
        core = sum_mode(home, core, blocks, mode)
    return core, marginals


def sum_mode(home: Home, part: Any, blocks: Blocks, mode: int) -> Any:
    """Sum an array over the blocks of a mode."""
    if blocks.is_whole:
        return part
    xp, labels = home.xp, blocks.labels
    if xp.__name__.startswith("jax"):  # whose products may be of few digits
        import jax

        moved = jax.ops.segment_sum(xp.moveaxis(part, mode, 0), home.take(labels.copy()), blocks.rank)
        return xp.moveaxis(moved, 0, mode)
    moved = xp.moveaxis(part, mode, -1)
    total, step = None, max(1, INDICATOR // blocks.rank)
    for first in range(0, blocks.size, step):
        rows = slice(first, min(first + step, blocks.size))
        product = xp.matmul(moved[..., rows], indicator(home, labels[rows], blocks.rank))
        total = product if total is None else total + product
    return xp.moveaxis(total, -1, mode)


def indicator(home: Home, labels: NDArray[np.intp], rank: int) -> Any:
    """Return a matrix of floats that says which index, a row each, is of which block."""
    there, widest = home.take(labels.copy()), home.xp.float64 if home.has_float64() else home.xp.float32
    return home.xp.astype(there[:, None] == home.take(np.arange(rank))[None, :], widest)


def project(home: Home, marginals: Sequence[Any], partition: Partition) -> list[Any]:
    """Return the weights of the projection: the share of each index in its block."""
    return [_weights(home, marginal, blocks) for marginal, blocks in zip(marginals, partition.modes)]


def _weights(home: Home, marginal: Any, blocks: Blocks) -> Any:
    xp = home.xp
    mass = xp.take(sum_mode(home, marginal, blocks, 0), home.take(blocks.labels.copy()), axis=0)
    seen = mass > 0
    return xp.where(seen, marginal, xp.zeros_like(marginal)) / xp.where(seen, mass, xp.ones_like(mass))


def expand(home: Home, core: Any, labels: Sequence[Any], weights: Sequence[Any]) -> Any:
    """Return the tensor of a block model, of which labels and weights are given for some indices or all."""
    for mode, (some, vector) in enumerate(zip(labels, weights)):
        row = home.xp.reshape(vector, (-1,) + (1,) * (len(labels) - mode - 1))
        core = home.xp.take(core, home.take(np.array(some)), axis=mode) * row
    return core


def divergence(home: Home, p: Any, q: Any) -> Any:
    """Return the generalised Kullback-Leibler divergence."""
    xp, p, q = home.xp, as_float(home, p), as_float(home, q)
    seen, one = p > 0, xp.ones_like(p)
    # each logarithm is taken of something that is not zero where nothing is seen, so that gradients are numbers
    terms = p * (xp.log(xp.where(seen, p, one)) - xp.log(xp.where(seen, q, one)))
    return xp.sum(xp.where(seen, terms, xp.zeros_like(p)) - p + q)


def square_sum(home: Home, p: Any, q: Any, scale: float = 1.0) -> Any:
    """Return the sum of the squares of a difference over a scale; q may be None, for zero."""
    difference = as_float(home, p) if q is None else as_float(home, p) - as_float(home, q)
    return home.xp.sum((difference / scale) ** 2)


def moments(home: Home, x: Any, unit: float) -> tuple[float, float]:
    """Sum v log(v / unit) and v**2."""
    xp, x = home.xp, as_float(home, x)
    seen = x > 0
    logs = xp.where(seen, x * xp.log(xp.where(seen, x / unit, xp.ones_like(x))), xp.zeros_like(x))
    return float(xp.sum(logs)), float(xp.sum(x * x))
