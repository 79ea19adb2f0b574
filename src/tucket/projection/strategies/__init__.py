"""How the blocks of one mode are chosen: one file per strategy, all under one contract."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tucket.projection.strategies.clusters import Clusters
from tucket.projection.strategies.fixed import Random, Uniform
from tucket.projection.strategies.segments import Segments
from tucket.projection.strategies.strategy import BlockStrategy

__all__ = ["STRATEGIES", "BlockStrategy", "Clusters", "Segments", "StrategyName"]

StrategyName = Literal["clusters", "segments", "uniform", "random"]

STRATEGIES: Mapping[str, BlockStrategy] = {
    "clusters": Clusters(),
    "segments": Segments(),
    "uniform": Uniform(),
    "random": Random(),
}
