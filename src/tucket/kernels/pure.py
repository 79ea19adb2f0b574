"""LTR in the functions of the array API alone: for arrays on any device, also such as have no values yet.

Nothing here looks at a value, so that JAX can trace it, and every function can be differentiated.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import Home
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition

__all__ = [
    "as_float",
    "block_sums",
    "constant",
    "divergence",
    "expand",
    "first_index",
    "indicator",
    "moments",
    "project",
    "relative_error",
    "square_sum",
    "total_correlation",
]

INDICATOR = 1 << 22
"""Entries of a matrix that says which index is of which block."""

RUN = 64
"""Indices whose entries may be added one by one in float32; more, if there are more blocks than that."""


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

        # it adds one by one, in what may be float32: so only runs are added like that, and then these in a tree
        run = max(RUN, blocks.rank)
        count = -(-blocks.size // run)
        places = home.take(labels + np.arange(blocks.size) // run * blocks.rank)
        runs = jax.ops.segment_sum(xp.moveaxis(part, mode, 0), places, count * blocks.rank)
        return xp.moveaxis(xp.sum(xp.reshape(runs, (count, blocks.rank, *runs.shape[1:])), axis=0), 0, mode)
    last = part.ndim - 1  # axes are permuted, since torch.vmap knows of no moveaxis
    moved = xp.permute_dims(part, (*(axis for axis in range(last + 1) if axis != mode), mode))
    total, step = None, max(1, INDICATOR // blocks.rank)
    for first in range(0, blocks.size, step):
        rows = slice(first, min(first + step, blocks.size))
        product = xp.matmul(moved[..., rows], indicator(home, labels[rows], blocks.rank))
        total = product if total is None else total + product
    return xp.permute_dims(total, (*range(mode), last, *range(mode, last)))


def first_index(home: Home, marked: Any) -> tuple[int, ...]:
    """Return the first marked index, on the host."""
    flat = int(home.xp.argmax(home.xp.astype(marked, home.xp.int8)))
    return tuple(int(i) for i in np.unravel_index(flat, tuple(marked.shape)))


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
    """Return the generalised Kullback-Leibler divergence: no number, if an entry is negative or none.

    Its gradient leaves out what an entry that is zero would add of its own, since the slope of p log p is not finite.
    """
    xp, p, q = home.xp, as_float(home, p), as_float(home, q)
    seen, one = p != 0, xp.ones_like(p)
    # each logarithm is taken of something that is not zero where nothing is seen, so that gradients are numbers
    terms = p * (xp.log(xp.where(seen, p, one)) - xp.log(xp.where(seen, q, one))) - p
    return xp.sum(xp.where(seen, terms, xp.zeros_like(p)) + q)


def relative_error(home: Home, p: Any, q: Any) -> Any:
    """Return the Frobenius norm of the difference, divided by that of p; nothing lost of nothing is 0."""
    xp, p, q = home.xp, as_float(home, p), as_float(home, q)
    most = xp.maximum(xp.max(p), xp.max(q))
    unit = constant(xp.where(most > 0, most, 1.0))  # squares of what is up to 1 cannot overflow
    residual, norm = xp.sum(((p - q) / unit) ** 2), xp.sum((p / unit) ** 2)
    found = residual / xp.where(norm > 0, norm, xp.astype(residual == 0, norm.dtype))
    # the slope of a root is not finite at 0, where all gradients are left out
    return xp.where(found == 0, found, xp.sqrt(xp.where(found == 0, 1.0, found)))


def constant(x: Any) -> Any:
    """Return an array as a constant, of which no gradient is asked."""
    if hasattr(x, "detach"):
        return x.detach()
    jax = sys.modules.get("jax")
    return jax.lax.stop_gradient(x) if jax is not None and isinstance(x, jax.Array) else x


def square_sum(home: Home, p: Any, q: Any, scale: float = 1.0) -> Any:
    """Return the sum of the squares of a difference over a scale; q may be None, for zero."""
    difference = as_float(home, p) if q is None else as_float(home, p) - as_float(home, q)
    return home.xp.sum((difference / scale) ** 2)


def total_correlation(home: Home, p: Any) -> Any:
    """Return the total correlation and the least entry, in one array: no numbers, if an entry is none."""
    xp, least = home.xp, home.xp.min(p)
    p = p / xp.max(p)  # a sum of entries up to 1 cannot overflow
    total = xp.sum(p)
    found = _v_log_v_sum(home, p / total)
    for mode in range(p.ndim):
        others = tuple(other for other in range(p.ndim) if other != mode)
        found = found - _v_log_v_sum(home, (xp.sum(p, axis=others) if others else p) / total)
    return xp.stack([found, least])


def _v_log_v_sum(home: Home, p: Any) -> Any:
    return home.xp.sum(p * home.xp.log(home.xp.where(p > 0, p, 1.0)))


def moments(home: Home, x: Any, unit: float) -> tuple[float, float]:
    """Sum v log(v / unit) and v**2."""
    xp, x = home.xp, as_float(home, x)
    seen = x > 0
    logs = xp.where(seen, x * xp.log(xp.where(seen, x / unit, xp.ones_like(x))), xp.zeros_like(x))
    return float(xp.sum(logs)), float(xp.sum(x * x))
