"""What the user asks for, a rank and blocks, as a start and a step for every mode."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, NamedTuple, TypeVar

import numpy as np

from tucket.base.axes import Axes, by_mode
from tucket.base.blocks import Blocks
from tucket.base.partition import (
    Partition,
    check_mode_rank,
    check_rng,
    in_mode,
    one_a_mode,
    one_rank_a_mode,
    single_indices,
)
from tucket.models.statistics import Statistics
from tucket.projection.search import Limits, Step, clusters, search, segments, tensor_correlation
from tucket.sources.source import Report, Source

__all__ = ["Plan", "Strategy", "choose", "make_plan"]

Choice = TypeVar("Choice")

Strategy = Literal["clusters", "segments", "uniform", "random"]


class Way(NamedTuple):
    """A strategy for one mode: how its blocks start, from size, rank and generator, and how they get better."""

    start: Callable[[int, int, Any], Blocks]
    step: Step | None
    needs_rng: bool


def _uniform(size: int, rank: int, _: object) -> Blocks:
    return Blocks.uniform(size, rank)


WAYS: Mapping[str, Way] = {
    "clusters": Way(_uniform, clusters, True),
    "segments": Way(_uniform, segments, True),
    "uniform": Way(_uniform, None, False),
    "random": Way(Blocks.random, None, True),
}


@dataclass(frozen=True, slots=True)
class Plan:
    """Blocks to start from, a step for each mode whose blocks are searched for, and where chance comes from."""

    start: Partition
    steps: tuple[Step | None, ...]
    rng: np.random.Generator | None

    @property
    def searches(self) -> bool:
        """Whether there is anything to search for."""
        return any(self.steps)

    def starting_at(self, start: Partition) -> Plan:
        """Return the same search from other blocks, which must be searched for in every mode."""
        if not all(self.steps):
            raise ValueError(
                "blocks: a rank is chosen only for blocks that are searched for in every mode; "
                "give 'clusters' or 'segments', or a rank"
            )
        return replace(self, start=start)

    def search(
        self,
        source: Source,
        statistics: Statistics,
        limits: Limits,
        workers: int | None,
        progress: Report | None = None,
    ) -> Partition:
        """Return the best blocks found; the callback is told the divergence, for which `statistics` serve."""
        if not self.searches or self.rng is None:
            return self.start
        callback = limits.callback
        if callback is not None:
            whole, total = tensor_correlation(statistics), statistics.total
            limits = limits._replace(callback=lambda sweep, kept: callback(sweep, total * max(0.0, whole - kept)))
        return search(source, self.start, self.steps, self.rng, limits, workers, progress)


def make_plan(blocks: object, rank: object, rng: object, base: Partition, axes: Axes | None = None) -> Plan:
    """Make a plan for the blocks of `base`, which are single indices or those of statistics."""
    is_known = isinstance(blocks, str) and (blocks == "uniform" or (blocks == "random" and type(rng) is int))
    if is_known and type(rank) is int and all(each.is_whole for each in base.modes):
        return _known_plan(blocks, rank, rng if blocks == "random" else None, base.shape)
    return _make_plan(blocks, rank, rng, base, axes)


@lru_cache(maxsize=16)
def _known_plan(blocks: object, rank: int, rng: object, shape: tuple[int, ...]) -> Plan:
    """Return blocks that are the same each time: a GPU waits for as long as it takes to make them."""
    return _make_plan(blocks, rank, rng, single_indices(shape))


def _make_plan(blocks: object, rank: object, rng: object, base: Partition, axes: Axes | None = None) -> Plan:
    rank = by_mode(rank, axes, len(base), None, "rank")
    blocks = by_mode(blocks, axes, len(base), "clusters", "blocks")
    if isinstance(blocks, str):
        choices: tuple[Any, ...] = (blocks,) * len(base)
    elif isinstance(blocks, Partition):
        if blocks.shape != base.shape:
            raise ValueError(f"x has shape {base.shape}, but the partition is of shape {blocks.shape}")
        choices = blocks.modes
    elif isinstance(blocks, Iterable):
        choices = one_a_mode(blocks, base.shape, "blocks")
    else:
        raise TypeError(
            f"blocks: cannot use {blocks!r}; give {listed(WAYS)}, one of these or starts for each mode, or a Partition"
        )
    ways = [choose(choice, WAYS, "blocks") if isinstance(choice, str) else None for choice in choices]
    if rank is None and any(ways):
        raise TypeError(
            "rank is missing; give an int, or one a mode with None where a mode stays whole, or your own blocks"
        )
    ranks = one_rank_a_mode(rank, base.shape)
    if rng is None and all(way.step for way in ways if way and way.needs_rng):
        rng = 0  # the same search for the same data
    generator = check_rng(rng) if any(way and way.needs_rng for way in ways) else None
    start = tuple(
        way.start(fine.rank, _check_rank(wanted, fine, mode), generator) if way else _given(choice, wanted, fine, mode)
        for mode, (way, choice, wanted, fine) in enumerate(zip(ways, choices, ranks, base.modes))
    )
    return Plan(Partition(start), tuple(way and way.step for way in ways), generator)


def _check_rank(wanted: object, fine: Blocks, mode: int) -> int:
    try:
        return check_mode_rank(wanted, fine.rank, mode)
    except ValueError as error:
        if fine.rank == fine.size:
            raise
        raise ValueError(f"{error} (the statistics hold {fine.rank} blocks of its {fine.size} indices)") from None


def _given(choice: Any, wanted: Any, fine: Blocks, mode: int) -> Blocks:
    """Return the blocks of one mode that the user gave, as blocks of `fine`."""
    if choice is None:
        choice = fine
    if not isinstance(choice, Blocks):
        choice = in_mode(mode, Blocks.from_starts, fine.size, choice)
    if choice.size != fine.size:
        raise ValueError(f"mode {mode}: the given blocks are of {choice.size} indices; give {fine.size}")
    if wanted is not None and check_mode_rank(wanted, fine.size, mode) != choice.rank:
        raise ValueError(f"mode {mode}: rank {wanted} contradicts the {choice.rank} given blocks; leave rank out")
    return in_mode(mode, fine.quotient, choice)


def choose(name: str, choices: Mapping[str, Choice], argument: str) -> Choice:
    """Look a name up, or list those that there are."""
    try:
        return choices[name]
    except (KeyError, TypeError):
        raise ValueError(f"{argument}: unknown {name!r}; give one of {listed(choices)}") from None


def listed(choices: Iterable[str]) -> str:
    """Write names one after another."""
    return ", ".join(map(repr, choices))
