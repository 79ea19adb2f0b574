"""The passes over arrays of other libraries: on a GPU by fused kernels, elsewhere by the array API, slab by slab."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.home import Home, home_of, on_gpu, to_numpy
from tucket.base.boxes import Box, slabs
from tucket.base.partition import Partition
from tucket.kernels import pure
from tucket.kernels.sums import Moments, Sums

__all__ = [
    "SLAB",
    "block_sums",
    "bring",
    "bring_all",
    "core_there",
    "divergence",
    "is_fine",
    "largest",
    "misfit",
    "piece_of",
    "residual",
]

SLAB = 1 << 24
"""Entries that are worked on at a time, in float64."""


def block_sums(tensor: Any, partition: Partition, unit: float | None = None) -> Sums:
    """Read the tensor where it is, for its block sums, its marginals and its moments, which come to the host."""
    fast = on_gpu(tensor)
    if fast is not None:
        from tucket.kernels.gpu import passes as gpu

        return gpu.block_sums(fast, partition, unit)
    home, core = _home(tensor), np.zeros(partition.rank)
    marginals = tuple(np.zeros(size) for size in partition.shape)
    negative, found = False, Moments(0.0, 0.0)
    for box in slabs(partition.shape, SLAB):
        part, (inside, blocks) = tensor[box], partition.within(box)
        with np.errstate(all="ignore"):  # where the library is NumPy in disguise
            sums, by_mode = pure.block_sums(home, part, inside)
        core[blocks] += bring(sums)
        for marginal, rows, some in zip(marginals, box, by_mode):
            marginal[rows] += bring(some)
        negative = negative or _has_negative(home, part)
        if unit is not None:
            found = found.plus(Moments(*pure.moments(home, part, unit)))
    is_rough = not home.has_float64()
    return Sums(core, marginals, negative, None if unit is None else found, "array API", is_rough)


def piece_of(tensor: Any, most: int) -> int:
    """Return how many entries, at most so many, are read at a time: on a GPU no more than have room for their rows."""
    fast = on_gpu(tensor)
    if fast is None:
        return most
    from tucket.kernels.gpu.plan import ROWS, Rows

    if fast.numel() <= ROWS * (fast.shape[-1] if fast.is_contiguous() else 1):
        return most
    return min(most, ROWS * Rows.of(fast.shape, fast.stride()).columns)


def core_there(tensor: Any, partition: Partition) -> Any:
    """Return the block sums of a tensor on a GPU, there; None if it is elsewhere, or something is wrong with it."""
    fast = on_gpu(tensor)
    if fast is None:
        return None
    from tucket.kernels.gpu import passes as gpu

    return gpu.core(fast, partition)


def residual(
    tensor: Any, core: NDArray[Any], partition: Partition, weights: Sequence[NDArray[Any]], scale: float = 1.0
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and tensor, over a scale, and whether any entry is negative."""
    fast = on_gpu(tensor)
    if fast is not None:
        from tucket.kernels.gpu import passes as gpu

        return gpu.residual(fast, core, partition, weights, scale)
    home = _home(tensor)
    middle = pure.as_float(home, home.take(np.array(core)))
    vectors = [pure.as_float(home, home.take(np.array(vector))) for vector in weights]

    def part_of(box: Box) -> Any:
        labels = [blocks.labels_at(rows) for blocks, rows in zip(partition.modes, box)]
        return pure.expand(home, middle, labels, [vector[rows] for vector, rows in zip(vectors, box)])

    return misfit(tensor, part_of, scale)


def misfit(tensor: Any, part_of: Callable[[Box], Any], scale: float = 1.0) -> tuple[float, float, bool]:
    """Do so for any model, of which the part in a box can be had."""
    home, sums, negative = _home(tensor), np.zeros(2), False
    for box in slabs(tuple(tensor.shape), SLAB):
        part = tensor[box]
        with np.errstate(all="ignore"):  # where the library is NumPy in disguise
            sums += [float(pure.square_sum(home, part, other, scale)) for other in (part_of(box), None)]
        negative = negative or _has_negative(home, part)
    return float(sums[0]), float(sums[1]), negative


def divergence(tensor: Any, part_of: Callable[[Box], Any]) -> tuple[float, bool]:
    """Return the divergence from a model, of which the part in a box can be had, and whether any entry is negative."""
    home, total, negative = _home(tensor), 0.0, False
    for box in slabs(tuple(tensor.shape), SLAB):
        part = tensor[box]
        with np.errstate(all="ignore"):  # where the library is NumPy in disguise
            total += float(pure.divergence(home, part, part_of(box)))
        negative = negative or _has_negative(home, part)
    return total, negative


def is_fine(tensor: Any) -> bool:
    """Say whether every entry is finite and not negative."""
    home = _home(tensor)
    if not home.xp.isdtype(tensor.dtype, "real floating"):
        return not _has_negative(home, tensor)
    parts = (tensor[box] for box in slabs(tuple(tensor.shape), SLAB))
    return all(bool(home.xp.all((part >= 0) & home.xp.isfinite(part))) for part in parts)


def largest(tensor: Any) -> float:
    """Return the largest entry."""
    home = _home(tensor)
    # in floats, since not every library can compare all of its integers and truth values
    parts = (tensor[box] for box in slabs(tuple(tensor.shape), SLAB))
    return float(np.max([float(home.xp.max(pure.as_float(home, part))) for part in parts]))


def bring(x: Any) -> NDArray[Any]:
    """Bring a small array to the host."""
    import array_api_compat

    if hasattr(x, "detach"):
        return np.array(to_numpy(x))
    if array_api_compat.is_cupy_array(x):
        return np.asarray(x.get())
    if array_api_compat.is_jax_array(x):
        return np.array(x, np.float32 if x.dtype == "bfloat16" else None)
    return np.array(np.from_dlpack(x))


def bring_all(arrays: Sequence[Any]) -> list[NDArray[Any]]:
    """Bring several small arrays of one type to the host, from a device of torch's together."""
    if not hasattr(arrays[0], "detach") or str(arrays[0].device) == "cpu":
        return [bring(array) for array in arrays]
    import torch

    whole = torch.cat([array.detach().reshape(-1) for array in arrays]).cpu().numpy()
    ends = np.cumsum([array.numel() for array in arrays])
    return [whole[end - array.numel() : end].reshape(array.shape) for end, array in zip(ends, arrays)]


def _has_negative(home: Home, part: Any) -> bool:
    return home.xp.isdtype(part.dtype, ("signed integer", "real floating")) and bool(home.xp.any(part < 0))


def _home(tensor: Any) -> Home:
    home = home_of(tensor)
    assert home is not None
    return home
