"""All that a projection needs to know of a tensor: its block sums and its marginals."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket import kernels
from tucket.blocks import Blocks, frozen
from tucket.partition import Partition, check_partition
from tucket.sources.dense import as_tensor, check_shape_match, explain_values
from tucket.tucker import BlockTucker

__all__ = ["Statistics", "collect"]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Statistics:
    """Block sums and marginals of a tensor under a partition.

    They add: the statistics of a tensor are the sum of those of its disjoint pieces, each zero elsewhere. And
    they coarsen: those of any partition made of unions of the blocks follow without the data.

    Attributes
    ----------
    partition : Partition
        The blocks.
    core : array of shape `partition.rank`
        Sum of the tensor over each block.
    marginals : tuple of arrays
        For each mode, the sums over all the other modes.
    moments : Moments or None
        The sums of v log v and of v**2 over all entries v, if they were asked for.
    kernel : str
        What read the data.

    Examples
    --------
    >>> partition = Partition.uniform((4, 2), (2, 1))
    >>> stats = collect([[1, 2], [3, 4], [5, 6], [7, 8]], partition)
    >>> stats.core
    array([[10.],
           [26.]])
    >>> stats.marginals
    (array([ 3.,  7., 11., 15.]), array([16., 20.]))
    >>> (stats + stats).total
    72.0
    """

    partition: Partition
    core: NDArray[np.float64]
    marginals: tuple[NDArray[np.float64], ...]
    moments: kernels.Moments | None
    kernel: str

    def __post_init__(self) -> None:
        check_partition(self.partition)
        if self.core.shape != self.rank or tuple(map(len, self.marginals)) != self.shape:
            raise ValueError(
                f"core and marginals, of shapes {self.core.shape} and {[m.shape for m in self.marginals]}, "
                f"do not fit the partition of shape {self.shape} and rank {self.rank}; use collect"
            )
        object.__setattr__(self, "core", frozen(self.core))
        object.__setattr__(self, "marginals", tuple(map(frozen, self.marginals)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Statistics, (self.partition, self.core, self.marginals, self.moments, self.kernel)

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the tensor."""
        return self.partition.shape

    @property
    def rank(self) -> tuple[int, ...]:
        """Number of blocks of each mode."""
        return self.partition.rank

    @property
    def total(self) -> float:
        """Sum of the whole tensor."""
        return float(self.core.sum())

    def __add__(self, other: Statistics) -> Statistics:
        if not isinstance(other, Statistics):
            return NotImplemented
        if self.partition != other.partition:
            raise ValueError(
                f"cannot add statistics of different partitions, {self.partition} and {other.partition}; "
                f"coarsen both to a common one first"
            )
        with np.errstate(over="ignore"):
            core = self.core + other.core
            total = core.sum()
        if not np.isfinite(total):
            raise ValueError(f"the totals {self.total} and {other.total} add to more than float64 can hold")
        return Statistics(
            self.partition,
            _frozen(core),
            tuple(map(_frozen, map(np.add, self.marginals, other.marginals))),
            self.moments.plus(other.moments) if self.moments and other.moments else None,
            self.kernel if self.kernel == other.kernel else f"{self.kernel}, {other.kernel}",
        )

    def __radd__(self, other: object) -> Statistics:
        return self if other == 0 else NotImplemented  # so that sum() works

    def coarsen(self, partition: Partition) -> Statistics:
        """Return the statistics under a coarser partition: what `collect` would give, but for rounding.

        Examples
        --------
        >>> x, fine, coarse = np.arange(8), Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> collect(x, fine).coarsen(coarse) == collect(x, coarse)
        True
        """
        core = self.core
        for mode, blocks in enumerate(self.partition.quotient(partition).modes):
            if not blocks.is_whole:
                core = blocks.sum(core, axis=mode)
        return Statistics(partition, _frozen(core), self.marginals, self.moments, self.kernel)

    def project(self) -> BlockTucker:
        r"""Return the m-projection onto the bingo space of the partition: the closed form of LTR.

        .. math:: w_k[i] = m_k[i] \Big/ \sum_{j : b_k(j) = b_k(i)} m_k[j]

        with the block sums as the core. A block without mass gets zero weights.

        Examples
        --------
        >>> collect([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).project().to_tensor()
        array([[1.2, 1.8],
               [2.8, 4.2]])
        """
        return BlockTucker(self.core, self.partition, map(_weights, self.marginals, self.partition.modes))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return (
            self.partition == other.partition
            and np.array_equal(self.core, other.core)
            and all(map(np.array_equal, self.marginals, other.marginals))
            and self.moments == other.moments
        )

    def __repr__(self) -> str:
        return f"Statistics(shape={self.shape}, rank={self.rank}, total={self.total:g}, kernel={self.kernel!r})"


def collect(x: ArrayLike, partition: Partition, *, moments: bool = False, workers: int | None = None) -> Statistics:
    """Read a tensor once, for its block sums and marginals.

    Parameters
    ----------
    x : array of real numbers, finite and not negative
        Any number of modes, any layout; it is not changed.
    partition : Partition
        The blocks, of the shape of `x`.
    moments : bool
        Whether to sum v log v and v**2 over all entries v in the same pass.
    workers : int
        How many threads may read; by default as many as the process has processors. The result is the same
        for the same number.

    Examples
    --------
    >>> collect([[1, 2, 3], [4, 5, 6]], Partition.uniform((2, 3), (1, 3)))
    Statistics(shape=(2, 3), rank=(1, 3), total=21, kernel='numpy')
    """
    check_partition(partition)
    tensor = as_tensor(x)
    check_shape_match(tensor, partition.shape, "the partition")
    sums = kernels.block_sums(tensor, partition, workers, unit=1.0 if moments else None)
    if sums.has_negative or not sums.is_finite():
        raise explain_values(tensor)
    marginals = tuple(map(_frozen, sums.marginals))
    return Statistics(partition, _frozen(sums.core), marginals, sums.moments, sums.kernel)


def _weights(marginal: NDArray[np.float64], blocks: Blocks) -> NDArray[np.float64]:
    mass = blocks.expand(blocks.sum(marginal))
    return _frozen(np.divide(marginal, mass, where=mass > 0, out=np.zeros_like(marginal)))


def _frozen(fresh: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make an array of our own read-only, in place."""
    fresh.flags.writeable = False
    return fresh
