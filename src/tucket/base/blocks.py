"""How one mode of a tensor is cut into blocks."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.checks import frozen


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Blocks:
    """The blocks of one mode: runs of neighbours, or free groups of indices.

    Use `uniform`, `random`, `from_starts` or `from_labels` to make them; the constructor does not check its arguments.

    Parameters
    ----------
    size : int
        Number of indices in the mode.
    rank : int
        Number of blocks.
    contiguous : bool
        Whether every block is a run of neighbours, in order.
    _cuts : array of int
        First index of each contiguous block, or block of each index.

    Examples
    --------
    >>> blocks = Blocks.from_starts(5, [0, 2])
    >>> blocks.labels
    array([0, 0, 1, 1, 1])
    >>> blocks.sum(np.array([1, 2, 10, 20, 30]))
    array([ 3., 60.])
    """

    size: int
    rank: int
    contiguous: bool
    _cuts: NDArray[np.intp]

    def __post_init__(self) -> None:
        object.__setattr__(self, "_cuts", frozen(self._cuts))

    def __reduce__(self) -> tuple[Any, ...]:
        return Blocks, (self.size, self.rank, self.contiguous, self._cuts)

    @classmethod
    def uniform(cls, size: int, rank: int) -> Self:
        """Cut a mode into blocks of nearly equal size: block b starts at floor(b * size / rank).

        Parameters
        ----------
        size, rank : int
            Number of indices, and of blocks.

        Returns
        -------
        Blocks
        """
        ramp = np.arange(rank)  # in two parts, so that no product overflows
        return cls(size, rank, True, ramp * (size // rank) + ramp * (size % rank) // rank)

    @classmethod
    def random(cls, size: int, rank: int, rng: np.random.Generator) -> Self:
        """Draw contiguous blocks as in Step 1 of the paper: all starts but the first, without replacement.

        Parameters
        ----------
        size, rank : int
            Number of indices, and of blocks.
        rng : numpy.random.Generator
            Draws the starts.

        Returns
        -------
        Blocks
        """
        starts = np.zeros(rank, np.intp)
        starts[1:] = 1 + rng.choice(size - 1, rank - 1, replace=False)
        starts.sort()
        return cls(size, rank, True, starts)

    @classmethod
    def from_starts(cls, size: int, starts: ArrayLike) -> Self:
        """Cut a mode into contiguous blocks that begin at the given indices.

        Parameters
        ----------
        size : int
            Number of indices.
        starts : sequence of int
            First index of each block, increasing from 0.

        Returns
        -------
        Blocks
        """
        cuts = _integers(starts, "starts")
        if cuts[0] != 0:
            raise ValueError(f"starts begin at {cuts[0]}; the first block starts at 0")
        unsorted = cuts[1:] <= cuts[:-1]
        if unsorted.any():
            at = int(np.argmax(unsorted))
            raise ValueError(f"start {cuts[at + 1]} comes after start {cuts[at]}; give increasing starts, each once")
        if cuts[-1] >= size:
            raise ValueError(f"start {cuts[-1]} is outside the mode; give starts below its size {size}")
        return cls(size, len(cuts), True, cuts)

    @classmethod
    def from_labels(cls, labels: ArrayLike) -> Self:
        """Group indices freely.

        Parameters
        ----------
        labels : sequence of int
            Block of each index; blocks count from 0 without gaps.

        Returns
        -------
        Blocks
        """
        cuts = _integers(labels, "labels")
        if cuts.min() < 0:
            raise ValueError(f"label {cuts.min()} of index {cuts.argmin()} is negative; count from 0")
        rank = int(cuts.max()) + 1
        if rank > len(cuts):
            raise ValueError(f"label {rank - 1} is too large for {len(cuts)} indices; number the blocks 0, 1, 2, ...")
        members = np.bincount(cuts, minlength=rank)
        if not members.all():
            raise ValueError(
                f"label {np.argmin(members)} is never used, though {rank - 1} is; "
                f"number the blocks 0 to r - 1 without gaps"
            )
        changes = np.diff(cuts)
        if (changes >= 0).all():  # equal blocks have equal attributes, which keeps == simple
            return cls(len(cuts), rank, True, np.append(0, 1 + np.flatnonzero(changes)))
        return cls(len(cuts), rank, False, cuts)

    @property
    def labels(self) -> NDArray[np.intp]:
        """Block of each index."""
        if self.contiguous:
            steps = np.zeros(self.size, np.intp)
            steps[self._cuts[1:]] = 1
            return steps.cumsum()
        return self._cuts

    def _labels_at(self, rows: slice) -> NDArray[np.intp]:
        """Return the block of each index in a slice; cheap for a short slice."""
        chosen = range(self.size)[rows]
        if not self.contiguous or 4 * len(chosen) > self.size:
            return self.labels[rows]
        return np.searchsorted(self._cuts, np.array(chosen, np.intp), side="right") - 1

    def _within(self, rows: slice) -> tuple[Blocks, NDArray[np.intp]]:
        """Return the blocks of the indices in a slice, numbered from 0, and their numbers in the whole mode."""
        chosen = range(self.size)[rows]
        if len(chosen) == self.size:
            return self, np.arange(self.rank)
        if self.contiguous and chosen.step == 1:
            first, last = np.searchsorted(self._cuts, (chosen[0], chosen[-1]), side="right")
            starts = np.maximum(self._cuts[first - 1 : last] - chosen[0], 0)
            return Blocks(len(chosen), len(starts), True, starts), np.arange(first - 1, last)
        seen, labels = np.unique(self._labels_at(rows), return_inverse=True)
        return Blocks.from_labels(labels), seen

    @property
    def starts(self) -> NDArray[np.intp]:
        """First index of each block, for contiguous blocks."""
        if not self.contiguous:
            raise ValueError("free blocks have no starts; use labels")
        return self._cuts

    @property
    def sizes(self) -> NDArray[np.intp]:
        """Number of indices in each block."""
        if self.contiguous:
            return np.append(self._cuts[1:], self.size) - self._cuts
        return np.bincount(self._cuts)

    def indices(self, block: int) -> NDArray[np.intp]:
        """Return the indices of one block.

        Parameters
        ----------
        block : int
            Number of the block.

        Returns
        -------
        numpy.ndarray of int
        """
        if not 0 <= block < self.rank:
            raise IndexError(f"block {block} is out of range; there are {self.rank} blocks")
        return np.flatnonzero(self.labels == block)

    def sum(self, array: NDArray[Any], axis: int = 0) -> NDArray[np.float64]:
        """Sum an array over the blocks.

        Parameters
        ----------
        array : numpy.ndarray
            Any array that has the size of this mode along `axis`.
        axis : int, default 0
            Axis to sum along.

        Returns
        -------
        numpy.ndarray of float64
            One entry per block along the axis.
        """
        if self.contiguous:
            return np.add.reduceat(array, self._cuts, axis, dtype=np.float64)
        if array.ndim == 1:
            return np.asarray(np.bincount(self._cuts, array, self.rank), np.float64)
        order = np.argsort(self._cuts, kind="stable")
        starts = np.append(0, np.cumsum(self.sizes)[:-1])
        return np.add.reduceat(array.take(order, axis), starts, axis, dtype=np.float64)

    def expand(self, array: NDArray[Any], axis: int = 0) -> NDArray[Any]:
        """Repeat the entry of each block for every index of the block.

        Parameters
        ----------
        array : numpy.ndarray
            Any array with one entry per block along `axis`.
        axis : int, default 0
            Axis to repeat along.

        Returns
        -------
        numpy.ndarray
            One entry per index along the axis.
        """
        return array.take(self.labels, axis)

    @property
    def is_whole(self) -> bool:
        """Whether every index is a block of its own, in order."""
        return self.contiguous and self.rank == self.size

    def _compose(self, outer: Blocks) -> Blocks:
        """Join these blocks as `outer` joins its indices."""
        return outer if self.is_whole else Blocks.from_labels(outer.labels[self.labels])

    def _quotient(self, coarse: Blocks) -> Blocks:
        """Return the blocks that join these blocks to `coarse`, or raise if `coarse` splits one of them."""
        if self.is_whole:
            return coarse
        split = self._split(coarse)
        if split is not None:
            raise ValueError(
                f"block {split} (indices {_brief(self.indices(split))}) is split by the other partition; "
                f"give one with unions of these {self.rank} blocks"
            )
        return Blocks.from_labels(coarse.labels[self._first()])

    def _refines(self, coarse: Blocks) -> bool:
        """Say whether every block lies within one block of `coarse`."""
        return self.size == coarse.size and self._split(coarse) is None

    def _first(self) -> NDArray[np.intp]:
        """Return the first index of each block."""
        return self._cuts if self.contiguous else np.unique(self._cuts, return_index=True)[1]

    def _split(self, coarse: Blocks) -> int | None:
        """Return the first block that `coarse` splits, or None."""
        labels, own = coarse.labels, self.labels
        split = labels != labels[self._first()][own]
        return int(own[np.argmax(split)]) if split.any() else None

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Blocks):
            return NotImplemented
        return (
            self.size == other.size and self.contiguous == other.contiguous and np.array_equal(self._cuts, other._cuts)
        )

    def __hash__(self) -> int:
        return hash((self.size, self.contiguous, self._cuts.tobytes()))

    def __repr__(self) -> str:
        kind = "starts" if self.contiguous else "labels"
        cuts = np.array2string(self._cuts, threshold=12, edgeitems=4, separator=", ")
        return f"Blocks(size={self.size}, rank={self.rank}, {kind}={cuts})"


def _integers(values: ArrayLike, name: str) -> NDArray[np.intp]:
    try:
        array = np.asarray(values)
    except ValueError:
        raise ValueError(f"{name}: cannot use {values!r}; give a flat sequence of ints") from None
    if array.ndim != 1 or array.size == 0:
        raise ValueError(f"{name}: got shape {array.shape}; give a flat sequence of at least one int")
    if array.dtype.kind not in "iu":
        raise TypeError(f"{name}: got {array.dtype} entries; give ints")
    if array.max() > np.iinfo(np.intp).max:
        raise ValueError(f"{name}: {array.max()} is too large for an index")
    return array.astype(np.intp)


def _brief(indices: NDArray[np.intp]) -> str:
    shown = ", ".join(map(str, indices[:4]))
    return f"{shown}, ..." if len(indices) > 4 else shown
