"""How models of arrays of other libraries are made where these are: on a GPU, or of arrays without values yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from tucket.backends.home import Home, namespace_of, on_gpu
from tucket.base.partition import Partition
from tucket.kernels import pure
from tucket.models.arrays import ArrayBlockTucker, taken
from tucket.sources.foreign import Foreign

__all__ = ["hand_over", "project_abroad", "traced_ltr"]


def project_abroad(source: Any, partition: Partition, dtype: np.dtype[Any]) -> ArrayBlockTucker | None:
    """Reduce an array on a GPU where it is, so that the host waits for nothing but to know that all went well.

    None where that cannot be done, or went wrong: then the long way will say why.
    """
    if not isinstance(source, Foreign) or source.size > source.piece:
        return None
    tensor, home = on_gpu(source.array), source.home
    if tensor is None or home is None:
        return None
    from tucket.kernels.gpu import passes as gpu

    whole_core, whole_weights, found = gpu.project(tensor, partition)
    whole = parts = [whole_core, *whole_weights]
    if dtype == np.float32:
        parts = [part.float() for part in whole]
    core, *weights = hand_over(parts, home)
    model = ArrayBlockTucker(core, partition, tuple(weights), source.axes)
    if not found.is_fine():
        return None
    return None if dtype == np.float32 and not _is_kept(whole, parts) else model


def _is_kept(whole: Sequence[Any], parts: Sequence[Any]) -> bool:
    """Say whether tensors of torch's have lost nothing in a narrower type, none beyond its range and none to zero."""
    from torch import cat

    exact, found = (cat([each.reshape(-1) for each in some]) for some in (whole, parts))
    return bool((found.isfinite() & ((found > 0) | (exact == 0))).all())


def hand_over(parts: Iterable[Any], home: Home) -> list[Any]:
    """Return arrays, of its own or tensors of torch's where it is, as a library has them."""
    # each in memory of its own, since not every library takes what begins anywhere
    return [part if namespace_of(part) is home.xp else taken(part.clone(), home) for part in parts]


def traced_ltr(x: Any, home: Home, partition: Partition, dtype: np.dtype[Any]) -> ArrayBlockTucker:
    """Reduce an array that is followed for a gradient or a compiled function: no value of it is looked at."""
    core, marginals = pure.block_sums(home, x, partition)
    core = core * 1  # never the user's own
    weights = pure.project(home, marginals, partition)
    if dtype == np.float32:
        core, weights = (
            home.xp.astype(core, home.xp.float32),
            [home.xp.astype(each, home.xp.float32) for each in weights],
        )
    return ArrayBlockTucker(core, partition, tuple(weights))
