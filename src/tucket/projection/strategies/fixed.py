"""Blocks fixed in advance: of nearly equal size, or drawn at random."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from tucket.base.blocks import Blocks
from tucket.base.checks import check_rng
from tucket.projection.strategies.strategy import BlockStrategy


class Uniform(BlockStrategy):
    """Blocks of nearly equal size."""


class Random(BlockStrategy):
    """Blocks with starts drawn as in Step 1 of the paper."""

    needs_rng: ClassVar[bool] = True

    def start(self, size: int, rank: int, rng: np.random.Generator | None) -> Blocks:
        """Draw the starts."""
        return Blocks.random(size, rank, check_rng(rng))
