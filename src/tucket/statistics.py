"""All that a projection needs to know of a tensor: its block sums and its marginals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket import archive, kernels, passes
from tucket.axes import Axes, by_mode, find_mode
from tucket.blocks import Blocks, frozen
from tucket.kernels import check_workers
from tucket.partition import Partition, Rank, check_mode_rank, check_partition, in_mode, one_rank_a_mode
from tucket.sources import Source, Stream, as_source
from tucket.sources.dense import check_shape_match
from tucket.sources.source import Report
from tucket.tucker import BlockTucker, blocks_from_arrays, blocks_to_arrays

if TYPE_CHECKING:
    import os

__all__ = ["Statistics", "collect", "finest"]


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
    axes : Axes or None
        Names of the modes, and labels of their indices.

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
    axes: Axes | None = None

    def __post_init__(self) -> None:
        check_partition(self.partition)
        if self.axes is not None:
            self.axes.check(self.shape)
        if self.core.shape != self.rank or tuple(map(len, self.marginals)) != self.shape:
            raise ValueError(
                f"core and marginals, of shapes {self.core.shape} and {[m.shape for m in self.marginals]}, "
                f"do not fit the partition of shape {self.shape} and rank {self.rank}; use collect"
            )
        object.__setattr__(self, "core", frozen(self.core))
        object.__setattr__(self, "marginals", tuple(map(frozen, self.marginals)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Statistics, (self.partition, self.core, self.marginals, self.moments, self.kernel, self.axes)

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
        if self.axes != other.axes:
            raise ValueError(
                f"cannot add statistics whose modes or labels differ, {self.axes} and {other.axes}; "
                f"give the same to both"
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
            _both(self.kernel, other.kernel),
            self.axes,
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
        return replace(self, partition=partition, core=_frozen(core))

    def append(self, other: Statistics, mode: int | str = 0) -> Statistics:
        """Return the statistics of two tensors one after the other along a mode, such as time.

        In all other modes both must have the same blocks.

        Examples
        --------
        >>> days = [collect([[1, 2], [3, 4]], Partition.uniform((2, 2), (1, 2))) for _ in range(2)]
        >>> days[0].append(days[1]).core
        array([[4., 6.],
               [4., 6.]])
        """
        if not isinstance(other, Statistics):
            raise TypeError(f"other: got a {type(other).__name__}; give Statistics")
        along = find_mode(mode, self.axes, len(self.shape))
        for k, (ours, theirs) in enumerate(zip(self.partition.modes, other.partition.modes)):
            if len(self.shape) != len(other.shape) or (k != along and ours != theirs):
                raise ValueError(
                    f"cannot append {other.partition} to {self.partition}: they may differ in mode {along} alone, "
                    f"and do in mode {k}"
                )
        if (self.axes is None) != (other.axes is None):
            raise ValueError(
                f"cannot append {other.axes or 'modes without names'} to {self.axes or 'modes without names'}"
            )
        marginals = [
            np.concatenate((ours, theirs)) if k == along else ours + theirs
            for k, (ours, theirs) in enumerate(zip(self.marginals, other.marginals))
        ]
        return Statistics(
            self.partition.replace(along, _after(self.partition[along], other.partition[along])),
            _frozen(np.concatenate((self.core, other.core), axis=along)),
            tuple(map(_frozen, marginals)),
            self.moments.plus(other.moments) if self.moments and other.moments else None,
            _both(self.kernel, other.kernel),
            self.axes.append(other.axes, along) if self.axes and other.axes else None,
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to exactly this path, as an npz archive of plain arrays, whole or not at all."""
        arrays = {
            "core": self.core,
            "kernel": np.array(self.kernel),
            **{f"marginal_{mode}": marginal for mode, marginal in enumerate(self.marginals)},
            **blocks_to_arrays(self.partition),
            **({} if self.moments is None else {"moments": np.array(self.moments)}),
            **({} if self.axes is None else self.axes.to_arrays()),
        }
        archive.write(path, "Statistics", arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read statistics that `save` wrote. Nothing is unpickled, so a file from anywhere is safe to try."""
        kind, arrays = archive.read(path)
        if kind != "Statistics":
            raise ValueError(f"{path} holds a {kind!r}, not statistics; models are read by tucket.load")
        return archive.build(path, "set of statistics", _from_arrays, arrays)

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
        weights = map(_weights, self.marginals, self.partition.modes)
        return BlockTucker(self.core, self.partition, weights, self.axes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return (
            self.partition == other.partition
            and np.array_equal(self.core, other.core)
            and all(map(np.array_equal, self.marginals, other.marginals))
            and self.moments == other.moments
            and self.axes == other.axes
        )

    def __repr__(self) -> str:
        return f"Statistics(shape={self.shape}, rank={self.rank}, total={self.total:g}, kernel={self.kernel!r})"


Cuts = Partition | Rank | Sequence[Blocks | ArrayLike | int | None] | Mapping[int | str, Any] | None


@overload
def collect(
    x: Any,
    partition: Cuts,
    *,
    moments: bool = False,
    workers: int | None = None,
    progress: Report | None = None,
    compute: Literal[True] = True,
) -> Statistics: ...


@overload
def collect(x: Any, partition: Cuts, *, moments: bool = False, compute: Literal[False]) -> Any: ...


def collect(
    x: Any,
    partition: Cuts,
    *,
    moments: bool = False,
    workers: int | None = None,
    progress: Report | None = None,
    compute: bool = True,
) -> Any:
    """Read a tensor once, for its block sums and marginals.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or a source; or a stream
        Any number of modes, any layout; it is not changed. An array of NumPy's, dask's, xarray's, zarr's, h5py's or
        sparse's; a matrix of SciPy's; what `open`, `from_table`, `from_parquet` or `from_entries` give; or a
        `Stream`, or an iterator, of slabs, whose number need not be known.
    partition : Partition; or an int; or one a mode, each an int, None, Blocks or starts of blocks
        The blocks, of the shape of `x`. An int asks for so many uniform blocks, None leaves a mode whole, as the mode
        must be left that a stream grows unless its size is known.
    moments : bool
        Whether to sum v log v and v**2 over all entries v in the same pass.
    workers : int
        How many threads may read; by default as many as the process has processors. The result is the same
        for the same number.
    progress
        Called with a `Progress` after each chunk.
    compute : bool
        False gives, for an array of dask's, a delayed object that is to become the statistics.

    Examples
    --------
    >>> collect([[1, 2, 3], [4, 5, 6]], Partition.uniform((2, 3), (1, 3)))
    Statistics(shape=(2, 3), rank=(1, 3), total=21, kernel='numpy')
    >>> nights = ([[night, 1, 0]] for night in range(1, 4))
    >>> collect(nights, (None, 2))
    Statistics(shape=(3, 3), rank=(3, 2), total=9, kernel='numpy')
    """
    if workers is not None:
        check_workers(workers)
    if not compute and isinstance(x, Stream | Iterator):
        raise TypeError("compute=False is for arrays of dask's, not for streams; leave it out")
    if isinstance(x, Stream | Iterator) and not isinstance(partition, Partition):
        stream = x if isinstance(x, Stream) else Stream(x)
        return grow(stream, partition, moments=moments, workers=workers, progress=progress)
    source = as_source(x, shape=getattr(partition, "shape", None))
    if isinstance(partition, Partition):
        check_shape_match(source, partition.shape, "the partition")
    else:
        partition = _cut(source, partition)
    unit = 1.0 if moments else None
    if not compute:
        return _delayed(source, partition, unit)
    return _statistics(passes.block_sums(source, [partition], workers, unit, progress)[0], partition, source.axes)


def _statistics(sums: kernels.Sums, partition: Partition, axes: Axes | None) -> Statistics:
    marginals = tuple(map(_frozen, sums.marginals))
    return Statistics(partition, _frozen(sums.core), marginals, sums.moments, sums.kernel, axes)


def _delayed(source: Source, partition: Partition, unit: float | None) -> Any:
    from tucket.sources.dask import Dask

    if not isinstance(source, Dask):
        raise TypeError(f"compute=False is for arrays of dask's, not for {source!r}; leave it out")
    reduction = passes.BlockSums((partition,), 1, unit)
    return source.delayed(reduction, partial(_finish, partition=partition, axes=source.axes))


def _finish(placed: list[passes.Placed], partition: Partition, axes: Axes | None) -> Statistics:
    """Make statistics of the sums of all chunks, wherever that is called."""
    passes.check_total(placed[0].sums)
    return _statistics(placed[0].sums, partition, axes)


def _cut(source: Source, cuts: Any) -> Partition:
    """Return the partition that is meant by an int, or by one a mode, each an int, None, Blocks or starts."""
    cuts = by_mode(cuts, source.axes, len(source.shape), None, "partition")
    modes = []
    for mode, (cut, size) in enumerate(zip(one_rank_a_mode(cuts, source.shape), source.shape)):
        if isinstance(cut, Blocks):
            if cut.size != size:
                raise ValueError(f"mode {mode}: the given blocks are of {cut.size} indices; give {size}")
            modes.append(cut)
        elif isinstance(cut, Sequence | np.ndarray) and not isinstance(cut, str):
            modes.append(in_mode(mode, Blocks.from_starts, size, cut))
        else:
            modes.append(Blocks.uniform(size, check_mode_rank(cut, size, mode)))
    return Partition(tuple(modes))


FINEST = 1 << 22
"""Entries of the finest core that a curve, or a search over a stream, begins with."""


def finest(x: Any, workers: int | None = None, progress: Report | None = None) -> Statistics:
    """Collect a tensor under blocks as fine as a search without the data can begin with, up to single indices."""
    if isinstance(x, Stream | Iterator):
        stream = x if isinstance(x, Stream) else Stream(x)
        return grow(stream, most=FINEST, moments=True, workers=workers, progress=progress)
    source = as_source(x)
    rank = halved(source.shape, FINEST)
    return collect(source, Partition.uniform(source.shape, rank), moments=True, workers=workers, progress=progress)


def halved(shape: Sequence[int], most: int) -> list[int]:
    """Halve the longest mode again and again, until there are at most so many cells."""
    rank = list(shape)
    while math.prod(rank) > most:
        longest = max(range(len(rank)), key=lambda mode: rank[mode])
        rank[longest] = -(-rank[longest] // 2)
    return rank


def grow(
    stream: Stream,
    cuts: Any = None,
    *,
    most: int | None = None,
    moments: bool,
    workers: int | None,
    progress: Report | None,
) -> Statistics:
    """Collect a stream whose length is not known.

    The mode that grows is left whole if the cuts are given. Given instead how many cells there may be, the other modes
    are cut as finely as that allows, and neighbours in the growing one are joined as often as needed to stay below it.
    """
    parts: list[Statistics] = []
    mode, width, start, unit = 0, 1, 0, 1.0 if moments else None
    for slab, mode in stream:
        end = start + slab.shape[mode]
        if most is None:
            wanted = list(one_rank_a_mode(by_mode(cuts, slab.axes, len(slab.shape), None, "partition"), slab.shape))
            if wanted[mode] is not None:
                raise ValueError(
                    f"mode {mode}: the stream grows it, so that it cannot be cut into {wanted[mode]} before its size "
                    f"is known; give None there, and coarsen the statistics, or a Partition of the whole shape"
                )
        else:
            others = halved([1 if k == mode else size for k, size in enumerate(slab.shape)], max(1, most // 64))
            while math.prod(others) * -(-end // width) > most and width < end:
                width *= 2
            wanted = [*others[:mode], _in_steps(start, end, width), *others[mode + 1 :]]
        cut = _cut(slab, wanted)
        origin = tuple(start if k == mode else 0 for k in range(len(slab.shape)))
        sums = passes.block_sums(slab, [cut], workers, unit, progress, origin)[0]
        parts.append(_statistics(sums, cut, slab.axes))
        # so that each is copied but few times, however many come
        while len(parts) > 1 and parts[-2].shape[mode] < 2 * parts[-1].shape[mode]:
            parts[-2:] = [parts[-2].append(parts[-1], mode)]
        if most is not None and sum(part.core.size for part in parts) > 2 * most:
            parts = [_joined(parts, mode, width)]
        start = end
    if not parts:
        raise ValueError("the stream holds no slab; give at least one with at least one index")
    return _joined(parts, mode, width)


def _joined(parts: Sequence[Statistics], mode: int, width: int) -> Statistics:
    """Put statistics one after another along a mode, in which they are cut at multiples of a width."""
    found = reduce(lambda first, second: first.append(second, mode), parts)
    if width == 1:
        return found
    return found.coarsen(found.partition.replace(mode, _in_steps(0, found.shape[mode], width)))


def _in_steps(start: int, end: int, width: int) -> Blocks:
    """Return blocks of indices from start to end that begin at multiples of a width."""
    first = np.arange(-(start % width), end - start, width)
    return Blocks.from_starts(end - start, np.maximum(first, 0))


def _after(first: Blocks, second: Blocks) -> Blocks:
    """Return the blocks of two modes, one after the other."""
    return Blocks.from_labels(np.concatenate((first.labels, second.labels + first.rank)))


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> Statistics:
    core = arrays["core"]
    marginals = tuple(arrays[f"marginal_{mode}"] for mode in range(core.ndim))
    for name, array in (("core", core), *((f"marginal {k}", marginal) for k, marginal in enumerate(marginals))):
        if array.dtype != np.float64 or not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name} must hold finite float64 numbers, none negative")
    return Statistics(
        blocks_from_arrays(arrays, [len(marginal) for marginal in marginals]),
        core,
        marginals,
        kernels.Moments(*arrays["moments"].tolist()) if "moments" in arrays else None,
        str(arrays["kernel"].item()),
        Axes.from_arrays(arrays),
    )


def _both(kernel: str, other: str) -> str:
    return ", ".join(dict.fromkeys([*kernel.split(", "), *other.split(", ")]))


def _weights(marginal: NDArray[np.float64], blocks: Blocks) -> NDArray[np.float64]:
    mass = blocks.expand(blocks.sum(marginal))
    return _frozen(np.divide(marginal, mass, where=mass > 0, out=np.zeros_like(marginal)))


def _frozen(fresh: NDArray[np.float64]) -> NDArray[np.float64]:
    """Make an array of our own read-only, in place."""
    fresh.flags.writeable = False
    return fresh
