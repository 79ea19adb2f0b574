"""How every mode of a tensor is cut into blocks."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.blocks import Blocks, as_index

__all__ = [
    "Partition",
    "Rank",
    "check_mode_rank",
    "check_partition",
    "check_rank",
    "check_rng",
    "check_sizes",
    "in_mode",
    "one_a_mode",
    "one_rank_a_mode",
]

Rank = SupportsIndex | Sequence[SupportsIndex | None]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition:
    """A cut of every mode into blocks: of a shape, down to a rank.

    Examples
    --------
    >>> partition = Partition.from_starts((5, 4), [[0, 3], [0, 1, 2]])
    >>> partition
    Partition(shape=(5, 4), rank=(2, 3))
    >>> partition.block_sizes
    (array([3, 2]), array([1, 1, 2]))
    >>> partition[0].labels
    array([0, 0, 0, 1, 1])
    """

    modes: tuple[Blocks, ...]
    _hash: int | None = field(default=None, init=False)

    def __post_init__(self) -> None:
        modes = tuple(self.modes) if isinstance(self.modes, Iterable) else ()
        if not modes or not all(isinstance(blocks, Blocks) for blocks in modes):
            raise TypeError(f"modes: cannot use {self.modes!r}; give the Blocks of each mode, of at least one")
        object.__setattr__(self, "modes", modes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Partition, (self.modes,)

    @classmethod
    def uniform(cls, shape: Sequence[int], rank: Rank) -> Self:
        """Contiguous blocks of nearly equal size: block b of r starts at floor(b * size / r).

        Examples
        --------
        >>> Partition.uniform((7,), 3)[0].starts
        array([0, 2, 4])
        """
        shape = check_sizes(shape)
        return cls(tuple(map(Blocks.uniform, shape, check_rank(rank, shape))))

    @classmethod
    def random(cls, shape: Sequence[int], rank: Rank, rng: np.random.Generator | SupportsIndex | None = None) -> Self:
        """Contiguous blocks drawn as in Step 1 of the paper.

        The first block starts at the first index; the other r - 1 starts are drawn without replacement
        from the rest and sorted.

        Examples
        --------
        >>> Partition.random((100, 50), (10, None), rng=0).rank
        (10, 50)
        """
        shape = check_sizes(shape)
        generator = check_rng(rng)
        return cls(tuple(Blocks.random(s, r, generator) for s, r in zip(shape, check_rank(rank, shape))))

    @classmethod
    def from_starts(cls, shape: Sequence[int], starts: Iterable[ArrayLike | None]) -> Self:
        """Contiguous blocks that start where the user says: 0-based, beginning with 0.

        None for a mode leaves that mode whole.
        """
        shape = check_sizes(shape)
        given = one_a_mode(starts, shape, "starts")
        return cls(
            tuple(
                Blocks.uniform(size, size) if cuts is None else in_mode(mode, Blocks.from_starts, size, cuts)
                for mode, (size, cuts) in enumerate(zip(shape, given))
            )
        )

    @classmethod
    def from_labels(cls, labels: Iterable[ArrayLike]) -> Self:
        """Free blocks: `labels[k][i]` is the block of index i of mode k, counted from 0 without gaps.

        Examples
        --------
        >>> Partition.from_labels([[0, 1, 0], [1, 0]]).shape
        (3, 2)
        """
        if not isinstance(labels, Iterable):
            raise TypeError(f"labels: cannot use {labels!r}; give one sequence of labels a mode")
        modes = tuple(in_mode(mode, Blocks.from_labels, cuts) for mode, cuts in enumerate(labels))
        if not modes:
            raise ValueError("labels: got none; give one sequence of labels a mode")
        return cls(modes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return tuple(blocks.size for blocks in self.modes)

    @property
    def rank(self) -> tuple[int, ...]:
        """Number of blocks of each mode."""
        return tuple(blocks.rank for blocks in self.modes)

    @property
    def block_sizes(self) -> tuple[NDArray[np.intp], ...]:
        """Number of indices in each block, a mode at a time."""
        return tuple(blocks.sizes for blocks in self.modes)

    def refines(self, coarse: Partition) -> bool:
        """Say whether every block of this partition lies within one block of `coarse`.

        Examples
        --------
        >>> fine, coarse = Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> fine.refines(coarse), coarse.refines(fine)
        (True, False)
        """
        check_partition(coarse, "coarse")
        return len(self) == len(coarse) and all(map(Blocks.refines, self.modes, coarse.modes))

    def quotient(self, coarse: Partition) -> Partition:
        """Give the partition of this one's blocks that makes `coarse`: the inverse of `compose`.

        Examples
        --------
        >>> fine, coarse = Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> fine.quotient(coarse)
        Partition(shape=(4,), rank=(2,))
        """
        check_partition(coarse, "coarse")
        if self.shape != coarse.shape:
            raise ValueError(f"the partitions are of shapes {self.shape} and {coarse.shape}; give equal ones")
        return Partition(
            tuple(
                in_mode(mode, fine.quotient, other) for mode, (fine, other) in enumerate(zip(self.modes, coarse.modes))
            )
        )

    def compose(self, outer: Partition) -> Partition:
        """Join this partition's blocks into larger ones, as `outer` joins the entries of its core.

        Examples
        --------
        >>> Partition.uniform((8,), 4).compose(Partition.from_starts((4,), [[0, 3]]))[0].starts
        array([0, 6])
        """
        check_partition(outer, "outer")
        if outer.shape != self.rank:
            raise ValueError(f"the outer partition is of shape {outer.shape}; give this partition's rank {self.rank}")
        return Partition(tuple(map(Blocks.compose, self.modes, outer.modes)))

    def replace(self, mode: int, blocks: Blocks) -> Partition:
        """Return the same partition but for one mode."""
        return Partition((*self.modes[:mode], blocks, *self.modes[mode + 1 :]))

    def within(self, box: Sequence[slice]) -> tuple[Partition, tuple[NDArray[np.intp], ...]]:
        """Return the partition of a part of the tensor, and where its blocks are among these: an index of the core.

        Examples
        --------
        >>> part, place = Partition.uniform((8, 4), (4, 2)).within((slice(3, 5), slice(0, 4)))
        >>> part.shape, part.rank
        ((2, 4), (2, 2))
        >>> place[0].ravel()
        array([1, 2])
        """
        blocks, places = zip(*(mode.within(rows) for mode, rows in zip(self.modes, box)))
        return Partition(blocks), np.ix_(*places)

    def __getitem__(self, mode: int) -> Blocks:
        if not -len(self) <= mode < len(self):
            raise IndexError(f"mode {mode} is out of range for {len(self)} modes of shape {self.shape}")
        return self.modes[mode]

    def __iter__(self) -> Iterator[Blocks]:
        return iter(self.modes)

    def __len__(self) -> int:
        return len(self.modes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Partition):
            return NotImplemented
        return self.modes == other.modes

    def __hash__(self) -> int:
        found = hash(self.modes) if self._hash is None else self._hash
        object.__setattr__(self, "_hash", found)  # kept, as labels may be many
        return found

    def __repr__(self) -> str:
        free = [mode for mode, blocks in enumerate(self.modes) if not blocks.contiguous]
        note = f", free={free}" if free else ""
        return f"Partition(shape={self.shape}, rank={self.rank}{note})"


def check_rank(rank: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return one rank a mode: an int serves all modes, None leaves a mode whole.

    Examples
    --------
    >>> check_rank((10, None), (92, 112))
    (10, 112)
    """
    ranks = one_rank_a_mode(rank, shape)
    return tuple(check_mode_rank(r, size, mode) for mode, (r, size) in enumerate(zip(ranks, shape)))


@lru_cache(maxsize=16)
def single_indices(shape: tuple[int, ...]) -> Partition:
    """Return the partition of which every index is a block."""
    return Partition.uniform(shape, shape)


def check_partition(partition: object, name: str = "partition") -> None:
    """Refuse what is no partition."""
    if not isinstance(partition, Partition):
        raise TypeError(f"{name}: got a {type(partition).__name__}; give a tucket.Partition")


def one_rank_a_mode(rank: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return a rank for every mode, not yet checked: one that is no sequence serves all."""
    is_scalar = getattr(rank, "ndim", None) == 0  # an array of one number, of any library
    if is_scalar or isinstance(rank, str) or not isinstance(rank, Iterable):
        return (rank,) * len(shape)
    return one_a_mode(rank, shape, "rank")


def check_rng(rng: object) -> np.random.Generator:
    """Return a generator made of `rng` as `numpy.random.default_rng` does (SPEC 7)."""
    try:
        return np.random.default_rng(rng)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng: cannot use {rng!r}; give None, a non-negative int or a numpy.random.Generator"
        ) from error


def check_mode_rank(rank: Any, size: int, mode: int) -> int:
    """Return the rank of one mode: None leaves it whole."""
    remedy = f"give an int from 1 to {size}, or None to leave the mode alone"
    if rank is None:
        return size
    blocks = as_index(rank)
    if blocks is None:
        raise TypeError(f"mode {mode}: rank {rank!r} is of type {type(rank).__name__}; {remedy}")
    if blocks < 1:
        raise ValueError(f"mode {mode}: rank {blocks} is too small; {remedy}")
    if blocks > size:
        raise ValueError(
            f"mode {mode}: rank {blocks} is larger than its size {size}; "
            f"give at most {size}, or None to leave the mode alone"
        )
    return blocks


def check_sizes(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape: at least one mode, each of at least one index."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError as error:
        raise TypeError(f"shape: cannot use {shape!r}; give a tuple of ints, one a mode") from error
    if not sizes or min(sizes) < 1 or max(sizes) > np.iinfo(np.intp).max:
        raise ValueError(f"shape: cannot use {sizes}; give at least one mode, each of size 1 to 2**63 - 1")
    return sizes


def one_a_mode(values: Iterable[Any], shape: tuple[int, ...], name: str) -> tuple[Any, ...]:
    """Return the values as a tuple, which must be as long as the shape."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: cannot use {values!r}; give {len(shape)} entries, one a mode")
    given = tuple(values)
    if len(given) != len(shape):
        raise ValueError(f"{name}: got {len(given)} entries for {len(shape)} modes of shape {shape}; give one a mode")
    return given


def in_mode(mode: int, make: Any, *arguments: Any) -> Blocks:
    """Call `make`, naming the mode in whatever it complains of."""
    try:
        blocks: Blocks = make(*arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"mode {mode}: {error}") from None
    return blocks
