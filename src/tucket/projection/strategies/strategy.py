"""What every strategy for the blocks of a mode can do."""

from __future__ import annotations

from abc import ABC
from typing import ClassVar

import numpy as np

from tucket.base.blocks import Blocks
from tucket.projection.unfolding import Unfolding


class BlockStrategy(ABC):  # noqa: B024
    """How the blocks of one mode are chosen.

    Attributes
    ----------
    searches : bool
        Whether blocks are improved, given the unfolding of the mode. If not, they are fixed before the data are read.
    needs_rng : bool
        Whether blocks are drawn at random.
    contiguous : bool
        Whether the blocks are runs of neighbours.
    """

    searches: ClassVar[bool] = False
    needs_rng: ClassVar[bool] = False
    contiguous: ClassVar[bool] = True

    def start(self, size: int, rank: int, rng: np.random.Generator | None) -> Blocks:  # noqa: ARG002
        """Return the blocks that are fixed, or that a search starts from."""
        return Blocks.uniform(size, rank)

    def improve(self, unfolding: Unfolding, blocks: Blocks, workers: int) -> Blocks:  # noqa: ARG002
        """Return blocks that keep more information, with those of the other modes fixed; never less."""
        return blocks
