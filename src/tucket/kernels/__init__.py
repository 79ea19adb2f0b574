"""The one pass over the data: checked arrays in, small arrays out. `block_sums` chooses the kernel."""

from __future__ import annotations

from typing import Any

from numpy.typing import NDArray

from tucket.kernels import plain
from tucket.kernels.plain import Sums
from tucket.partition import Partition

__all__ = ["Sums", "block_sums"]


def block_sums(tensor: NDArray[Any], partition: Partition) -> Sums:
    """Read the tensor once, for its block sums and the marginal of every mode."""
    return plain.block_sums(tensor, partition.modes)
