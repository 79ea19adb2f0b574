"""What the user asks for, a rank and blocks, as blocks to start from and a strategy for every mode."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from numpy.typing import ArrayLike

from tucket.base.axes import Axes, by_mode
from tucket.base.blocks import Blocks
from tucket.base.checks import (
    as_index,
    check_mode_rank,
    check_rng,
    choose,
    in_mode,
    listed,
    one_per_mode,
    rank_per_mode,
)
from tucket.base.partition import Partition, single_indices
from tucket.base.run import Run, single_threaded_blas
from tucket.models.statistics import Statistics
from tucket.projection.search import Search
from tucket.projection.strategies import STRATEGIES, BlockStrategy, StrategyName
from tucket.sources.source import Source

BlockChoice = StrategyName | Partition | Iterable[StrategyName | Blocks | ArrayLike | None] | Mapping[int | str, Any]


ONLY_SEARCHED = (
    "blocks: a rank is chosen only for blocks that are searched for in every mode; "
    "give 'clusters' or 'segments', or a rank"
)


class Given(BlockStrategy):
    """Blocks that the user gave."""


GIVEN = Given()


@dataclass(frozen=True, slots=True)
class Plan:
    """Blocks to start from, and a strategy for each mode."""

    start: Partition
    strategies: tuple[BlockStrategy, ...]

    @property
    def searches(self) -> bool:
        """Whether there is anything to search for."""
        return any(each.searches for each in self.strategies)

    def starting_at(self, start: Partition) -> Plan:
        """Return the same search from other blocks, which must be searched for in every mode."""
        if not all(each.searches for each in self.strategies):
            raise ValueError(ONLY_SEARCHED)
        return replace(self, start=start)

    def search(self, source: Source, run: Run, max_sweeps: int, whole: Statistics | None = None) -> Partition:
        """Return the best blocks found."""
        if not self.searches:
            return self.start
        with single_threaded_blas:  # its products are small, and threads of BLAS would wait for each other
            return Search(source, run, max_sweeps, whole).best(self.start, self.strategies)


def make_plan(blocks: Any, rank: Any, rng: Any, base: Partition, axes: Axes | None = None) -> Plan:
    """Make a plan for the blocks of `base`, which are single indices or those of statistics."""
    is_fixed = isinstance(blocks, str) and (blocks == "uniform" or (blocks == "random" and type(rng) is int))
    if is_fixed and type(rank) is int and all(each.is_whole for each in base.modes):
        return _fixed_plan(blocks, rank, rng if blocks == "random" else None, base.shape)
    return _make_plan(blocks, rank, rng, base, axes)


def check_searched(blocks: Any, base: Partition, axes: Axes | None) -> None:
    """Refuse blocks that leave no rank to choose."""
    choices = _choices(by_mode(blocks, axes, len(base), "clusters", "blocks"), base)
    if not all(isinstance(choice, str) and choose(choice, STRATEGIES, "blocks").searches for choice in choices):
        raise ValueError(ONLY_SEARCHED)


@lru_cache(maxsize=16)
def _fixed_plan(blocks: str, rank: int, rng: int | None, shape: tuple[int, ...]) -> Plan:
    """Return blocks that are the same each time: a GPU waits for as long as it takes to make them."""
    return _make_plan(blocks, rank, rng, single_indices(shape))


def _make_plan(blocks: Any, rank: Any, rng: Any, base: Partition, axes: Axes | None = None) -> Plan:
    choices = _choices(by_mode(blocks, axes, len(base), "clusters", "blocks"), base)
    named = [choose(choice, STRATEGIES, "blocks") if isinstance(choice, str) else None for choice in choices]
    if rank is None and any(named):
        raise TypeError(
            "rank is missing; give an int, or one per mode with None where a mode stays whole, or retain=, "
            "max_parameters=, rank='mdl', rank='cv', or your own blocks"
        )
    ranks = rank_per_mode(by_mode(rank, axes, len(base), None, "rank"), base.rank)
    strategies = tuple(each or GIVEN for each in named)
    generator = check_rng(rng) if any(each.needs_rng for each in strategies) else None
    start = tuple(
        strategy.start(fine.rank, _check_rank(wanted, fine, mode), generator)
        if strategy is not GIVEN
        else _given(choice, wanted, fine, mode)
        for mode, (strategy, choice, wanted, fine) in enumerate(zip(strategies, choices, ranks, base.modes))
    )
    return Plan(Partition(start), strategies)


def _choices(blocks: Any, base: Partition) -> tuple[Any, ...]:
    """Return what is asked for each mode: the name of a strategy, blocks, starts, or None to leave the mode whole."""
    if isinstance(blocks, str):
        return (blocks,) * len(base)
    if isinstance(blocks, Partition):
        if blocks.shape != base.shape:
            raise ValueError(f"x has shape {base.shape}, but the partition is of shape {blocks.shape}")
        return blocks.modes
    if isinstance(blocks, Iterable):
        return one_per_mode(blocks, base.shape, "blocks")
    raise TypeError(
        f"blocks: cannot use {blocks!r}; give {listed(STRATEGIES)}, one of these or starts for each mode, "
        f"or a Partition"
    )


def _check_rank(wanted: object, fine: Blocks, mode: int) -> int:
    try:
        return check_mode_rank(wanted, fine.rank, mode)
    except ValueError as error:
        if fine.rank == fine.size:
            raise
        raise ValueError(f"{error} (the statistics hold {fine.rank} blocks of its {fine.size} indices)") from None


def _given(choice: Any, wanted: Any, fine: Blocks, mode: int) -> Blocks:
    """Return the blocks of one mode that the user gave, as blocks of `fine`."""
    blocks = fine if choice is None else choice
    if not isinstance(blocks, Blocks):
        blocks = in_mode(mode, _from_starts, fine.size, blocks)
    if blocks.size != fine.size:
        raise ValueError(f"mode {mode}: the given blocks are of {blocks.size} indices; give {fine.size}")
    if wanted is not None and check_mode_rank(wanted, fine.size, mode) != blocks.rank:
        if choice is None:
            raise ValueError(
                f"mode {mode} is left whole by blocks=None, but rank asks for {wanted}; leave one of the two out"
            )
        raise ValueError(f"mode {mode}: rank {wanted} contradicts the {blocks.rank} given blocks; leave rank out")
    return in_mode(mode, fine._quotient, blocks)


def _from_starts(size: int, starts: Any) -> Blocks:
    """Return contiguous blocks, or say that what was given looks like labels."""
    try:
        return Blocks.from_starts(size, starts)
    except ValueError as error:
        if len(starts) == size > 1 and all(as_index(each) is not None and each < size for each in starts):
            remedy = f"as these are {size} numbers, they look like labels: use Partition.from_labels"
            raise ValueError(f"{error}; {remedy}") from None
        raise
