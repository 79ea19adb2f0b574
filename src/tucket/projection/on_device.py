"""The closed form where the tensor is: on a GPU, or within a function that is traced."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tucket.kernels import array_api, kernels_for
from tucket.models.block_tucker import BlockTucker
from tucket.projection.plan import Plan
from tucket.sources.dense import Array

__all__ = ["project_on_device"]


def project_on_device(source: Any, plan: Plan, dtype: np.dtype[Any]) -> BlockTucker | None:
    """Return the projection of an array under fixed blocks, without statistics on the host.

    None where that cannot be done, or went wrong: then the statistics will say why.
    """
    if not isinstance(source, Array):
        return None
    if source.is_traced:
        return _project_traced(source, plan, dtype)
    project = kernels_for(source.array).project
    if project is None or plan.searches or source.n_chunks > 1:
        return None
    core, weights, found = project(source.array, plan.start)
    exact = [core, *weights]
    parts = [part.float() for part in exact] if dtype == np.float32 else exact
    core, *weights = map(source.backend.from_native, parts)
    model = BlockTucker._of(core, plan.start, weights, source.axes)
    if not found.is_fine():  # the host waits for this alone
        return None
    return None if dtype == np.float32 and not _is_kept(exact, parts) else model


def _is_kept(exact: Sequence[Any], parts: Sequence[Any]) -> bool:
    """Say whether torch tensors have lost nothing in a narrower type: none is out of its range."""
    from torch import cat

    wide, narrow = (cat([each.reshape(-1) for each in some]) for some in (exact, parts))
    return bool((narrow.isfinite() & ((narrow > 0) | (wide == 0))).all())


def _project_traced(source: Array, plan: Plan, dtype: np.dtype[Any]) -> BlockTucker:
    """Project an array that is traced for a gradient or a compiled function: no value of it is looked at."""
    if plan.searches:
        raise ValueError(
            "x is traced for a gradient or a compiled function, and blocks that are searched for depend on its "
            "values; give blocks='uniform' or your own, such as the partition of a model made before"
        )
    core, marginals = array_api.traced_sums(source.array, plan.start)
    parts = [core, *map(array_api.shares, marginals, plan.start.modes)]
    if dtype == np.float32:
        parts = [source.backend.xp.astype(part, source.backend.xp.float32) for part in parts]
    return BlockTucker._of(parts[0], plan.start, parts[1:], source.axes)
