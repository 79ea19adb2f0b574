"""Algorithm 1 of the paper as printed."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from tucket.models.block_tucker import BlockTucker
from tucket.models.statistics import Statistics


def project_as_published(statistics: Statistics) -> BlockTucker:
    """Run Algorithm 1 as printed, with the λ of Eq. (1), on the core alone.

    That is enough: the sums over blocks of a best rank-1 tensor are the best rank-1 tensor of the block
    sums, and no step changes a marginal, so the weights end as those of the projection.
    """
    model = statistics.project()
    core = model.core.copy()
    for mode, sizes in enumerate(model.partition.block_sizes):
        slabs = np.moveaxis(core, mode, 0)
        for block in np.flatnonzero(sizes > 1):
            slabs[block] = _rank1(slabs[block])
    return BlockTucker(core, model.partition, model.weights, model.axes)


def _rank1(array: NDArray[np.float64]) -> NDArray[np.float64]:
    total = array.sum()
    if total == 0:
        return array
    product: NDArray[np.float64] = np.asarray(total)
    axes = set(range(array.ndim))
    for axis in axes:
        product = np.multiply.outer(product, array.sum(axis=tuple(axes - {axis})) / total)
    return product
