"""How every mode of a tensor is cut into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.blocks import Blocks
from tucket.base.checks import Rank, check_rank, check_rng, check_sizes, in_mode, one_per_mode


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition:
    """A cut of every mode into blocks, from a shape down to a rank.

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
        given = one_per_mode(starts, shape, "starts")
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
            raise TypeError(f"labels: cannot use {labels!r}; give one sequence of labels per mode")
        modes = tuple(in_mode(mode, Blocks.from_labels, cuts) for mode, cuts in enumerate(labels))
        if not modes:
            raise ValueError("labels: got none; give one sequence of labels per mode")
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
        """Number of indices in each block, one array per mode."""
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


@lru_cache(maxsize=16)
def single_indices(shape: tuple[int, ...]) -> Partition:
    """Return the partition in which every index is a block."""
    return Partition(tuple(map(Blocks.uniform, shape, shape)))


def check_partition(partition: object, name: str = "partition") -> None:
    """Refuse anything but a partition."""
    if not isinstance(partition, Partition):
        raise TypeError(f"{name}: got a {type(partition).__name__}; give a tucket.Partition")
