"""How every mode of a tensor is cut into blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import lru_cache, reduce
from typing import Any, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.blocks import Blocks
from tucket.base.checks import Rank, check_rank, check_rng, check_sizes, in_mode, one_per_mode


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Partition:
    """A cut of every mode of a tensor into blocks.

    Parameters
    ----------
    modes : sequence of Blocks
        The blocks of each mode.

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
            raise TypeError(f"modes: cannot use {self.modes!r}; give the Blocks of each mode, at least one")
        object.__setattr__(self, "modes", modes)

    def __reduce__(self) -> tuple[Any, ...]:
        return Partition, (self.modes,)

    @classmethod
    def uniform(cls, shape: Sequence[int], rank: Rank) -> Self:
        """Cut every mode into blocks of nearly equal size: block b of r starts at floor(b * size / r).

        Parameters
        ----------
        shape : sequence of int
            Shape of the tensor.
        rank : int, or one int or None per mode
            Number of blocks; None leaves a mode whole.

        Returns
        -------
        Partition

        Examples
        --------
        >>> Partition.uniform((7,), 3)[0].starts
        array([0, 2, 4])
        """
        shape = check_sizes(shape)
        return cls(tuple(map(Blocks.uniform, shape, check_rank(rank, shape))))

    @classmethod
    def random(cls, shape: Sequence[int], rank: Rank, rng: np.random.Generator | SupportsIndex | None = None) -> Self:
        """Draw contiguous blocks as in Step 1 of the paper: all starts but the first, without replacement.

        Parameters
        ----------
        shape : sequence of int
            Shape of the tensor.
        rank : int, or one int or None per mode
            Number of blocks; None leaves a mode whole.
        rng : None, int or numpy.random.Generator, optional
            Draws the starts.

        Returns
        -------
        Partition

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
        """Cut every mode into contiguous blocks that begin at the given indices.

        Parameters
        ----------
        shape : sequence of int
            Shape of the tensor.
        starts : one sequence of int or None per mode
            First index of each block, increasing from 0; None leaves a mode whole.

        Returns
        -------
        Partition
        """
        shape = check_sizes(shape)
        modes = [
            Blocks.uniform(size, size) if cuts is None else in_mode(mode, Blocks.from_starts, size, cuts)
            for mode, (size, cuts) in enumerate(zip(shape, one_per_mode(starts, shape, "starts")))
        ]
        return cls(tuple(modes))

    @classmethod
    def from_labels(cls, labels: Iterable[ArrayLike]) -> Self:
        """Group the indices of every mode freely.

        Parameters
        ----------
        labels : one sequence of int per mode
            Block of each index; the blocks of a mode count from 0 without gaps.

        Returns
        -------
        Partition

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

    def _cells(self) -> NDArray[np.float64]:
        """Return the number of cells of each combination of blocks."""
        return np.asarray(reduce(np.multiply.outer, [sizes.astype(np.float64) for sizes in self.block_sizes]))

    def refines(self, coarse: Partition) -> bool:
        """Say whether every block of this partition lies within one block of another.

        Parameters
        ----------
        coarse : Partition
            The other partition.

        Returns
        -------
        bool

        Examples
        --------
        >>> fine, coarse = Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> fine.refines(coarse), coarse.refines(fine)
        (True, False)
        """
        check_partition(coarse, "coarse")
        return len(self) == len(coarse) and all(map(Blocks._refines, self.modes, coarse.modes))

    def quotient(self, coarse: Partition) -> Partition:
        """Return the partition of this one's core that gives another: the inverse of `compose`.

        Parameters
        ----------
        coarse : Partition
            A partition into unions of these blocks.

        Returns
        -------
        Partition

        Examples
        --------
        >>> fine, coarse = Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> fine.quotient(coarse)
        Partition(shape=(4,), rank=(2,))
        """
        check_partition(coarse, "coarse")
        if self.shape != coarse.shape:
            raise ValueError(f"the partitions are of shapes {self.shape} and {coarse.shape}; give equal ones")
        pairs = enumerate(zip(self.modes, coarse.modes))
        return Partition(tuple(in_mode(mode, fine._quotient, other) for mode, (fine, other) in pairs))

    def compose(self, outer: Partition) -> Partition:
        """Join blocks into larger ones.

        Parameters
        ----------
        outer : Partition
            A partition of this one's core.

        Returns
        -------
        Partition

        Examples
        --------
        >>> Partition.uniform((8,), 4).compose(Partition.from_starts((4,), [[0, 3]]))[0].starts
        array([0, 6])
        """
        check_partition(outer, "outer")
        if outer.shape != self.rank:
            raise ValueError(f"the outer partition is of shape {outer.shape}; give this partition's rank {self.rank}")
        return Partition(tuple(map(Blocks._compose, self.modes, outer.modes)))

    def _replace(self, mode: int, blocks: Blocks) -> Partition:
        """Return a partition with other blocks in one mode."""
        return Partition((*self.modes[:mode], blocks, *self.modes[mode + 1 :]))

    def _within(self, box: Sequence[slice]) -> tuple[Partition, tuple[NDArray[np.intp], ...]]:
        """Return the partition of a box of the tensor, and the index of its blocks in the whole core."""
        blocks, places = zip(*(mode._within(rows) for mode, rows in zip(self.modes, box)))
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
        object.__setattr__(self, "_hash", found)  # hashing long labels takes time
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
