"""Block sums and marginals of a tensor: all that a projection needs."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.backends import NUMPY, Backend
from tucket.base import archive
from tucket.base.axes import Axes, find_mode, name_modes
from tucket.base.blocks import Blocks
from tucket.base.checks import frozen, seal
from tucket.base.partition import Partition, check_partition
from tucket.base.run import Run
from tucket.kernels.measures import Moments, Sums, v_log_v
from tucket.models.block_tucker import BlockTucker, blocks_from_arrays, blocks_to_arrays
from tucket.models.metrics import total_correlation
from tucket.sources.observed import Observed
from tucket.sources.reductions import block_sums
from tucket.sources.source import Source

if TYPE_CHECKING:
    import os


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Statistics:
    """Block sums and marginals of a tensor under a partition.

    Statistics of disjoint pieces of a tensor, each zero elsewhere, add to those of the tensor. Statistics under a
    coarser partition follow without the data.

    Parameters
    ----------
    partition : Partition
        The blocks.
    core : numpy.ndarray of shape `partition.rank`
        Sum of the tensor over each block.
    marginals : tuple of numpy.ndarray
        For each mode, the sums over all other modes.
    moments : Moments or None
        Sums of v log v and v**2 over all entries v, if requested.
    kernel : str
        Kernel that read the data.
    axes : Axes, optional
        Names of the modes, and labels of their indices.
    exposure : Statistics, optional
        Of a tensor with gaps or with exposure: block sums and marginals of the exposure, which is 1 for a cell that is
        known and 0 for one that is not. Such statistics add, join and coarsen like others, but they do not determine
        the projection.

    Raises
    ------
    ValueError
        If the parts do not fit each other.

    See Also
    --------
    collect : Computes statistics in one pass over a tensor.
    ltr : Accepts statistics in place of a tensor.

    Examples
    --------
    >>> from tucket import collect
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
    moments: Moments | None
    kernel: str
    axes: Axes | None = None
    exposure: Statistics | None = None

    def __post_init__(self) -> None:
        check_partition(self.partition)
        if self.axes is not None:
            self.axes._check(self.shape)
        if self.core.shape != self.rank or tuple(map(len, self.marginals)) != self.shape:
            raise ValueError(
                f"core and marginals, of shapes {self.core.shape} and {[m.shape for m in self.marginals]}, "
                f"do not fit the partition of shape {self.shape} and rank {self.rank}; use collect"
            )
        if self.exposure is not None and self.exposure.partition != self.partition:
            raise ValueError(f"exposure is of {self.exposure.partition}; give statistics under {self.partition}")
        object.__setattr__(self, "core", frozen(self.core))
        object.__setattr__(self, "marginals", tuple(map(frozen, self.marginals)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Statistics, tuple(getattr(self, part.name) for part in fields(self))

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

    @property
    def backend(self) -> Backend:
        """The NumPy backend: statistics are always NumPy arrays."""
        return NUMPY

    def _named(self, names: Any, labels: Any) -> Statistics:
        """Return these statistics with names and labels for modes without them."""
        return replace(self, axes=name_modes(self.axes, names, labels, self.shape))

    def total_correlation(self) -> float:
        """Return the total correlation of the tensor or, without moments, of its block sums.

        Returns
        -------
        float
            Total correlation in nats: see `metrics.total_correlation`.
        """
        self._check_complete("the total correlation")
        total = self.total
        if self.moments is None or total == 0:
            return total_correlation(self.core)
        apart = sum(float(v_log_v(marginal / total).sum()) for marginal in self.marginals)
        return float(self.moments.v_log_v / total - math.log(total) - apart)

    def rates(self) -> NDArray[np.float64]:
        """Return the mean of each block for one unit of exposure: the block sums over those of the exposure.

        Without exposure all cells count alike, so that these are the means of the blocks.

        Returns
        -------
        ndarray of shape `rank`
            NaN for blocks without known cells.

        Examples
        --------
        >>> from tucket import collect
        >>> x = np.array([[1, np.nan], [4, 6]])
        >>> collect(x, (2, 1), observed="finite").rates()
        array([[1.],
               [5.]])
        """
        exposed = self.partition._cells() if self.exposure is None else self.exposure.core
        return np.asarray(np.divide(self.core, exposed, where=exposed > 0, out=np.full(self.rank, np.nan)))

    def _check_complete(self, wanted: str) -> None:
        """Refuse what statistics of a tensor with gaps do not determine."""
        if self.exposure is not None:
            raise ValueError(
                f"{wanted} does not follow from statistics of a tensor with gaps or exposure; "
                f"give the tensor to ltr, with observed= or exposure="
            )

    def _join_exposures(self, other: Statistics, join: Callable[[Statistics, Statistics], Statistics]) -> Any:
        if (self.exposure is None) != (other.exposure is None):
            raise ValueError(
                "one of the statistics has an exposure and the other has none; collect both with observed= or exposure="
            )
        return None if self.exposure is None or other.exposure is None else join(self.exposure, other.exposure)

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
                f"cannot add statistics with different modes or labels, {self.axes} and {other.axes}; "
                f"give the same to both"
            )
        with np.errstate(over="ignore"):
            core = self.core + other.core
            total = core.sum()
        if not np.isfinite(total):
            raise ValueError(f"the totals {self.total} and {other.total} add to more than float64 can hold")
        return Statistics(
            self.partition,
            seal(core),
            tuple(map(seal, map(np.add, self.marginals, other.marginals))),
            self.moments.plus(other.moments) if self.moments and other.moments else None,
            _both(self.kernel, other.kernel),
            self.axes,
            self._join_exposures(other, operator.add),
        )

    def __radd__(self, other: object) -> Statistics:
        return self if other == 0 else NotImplemented  # so that sum() works

    def coarsen(self, partition: Partition) -> Statistics:
        """Return the statistics under a coarser partition, equal to those of `collect` up to rounding.

        Parameters
        ----------
        partition : Partition
            A partition into unions of the blocks.

        Returns
        -------
        Statistics

        Examples
        --------
        >>> from tucket import collect
        >>> x, fine, coarse = np.arange(8), Partition.uniform((8,), 4), Partition.uniform((8,), 2)
        >>> collect(x, fine).coarsen(coarse) == collect(x, coarse)
        True
        """
        core = self.core
        for mode, blocks in enumerate(self.partition.quotient(partition).modes):
            if not blocks.is_whole:
                core = blocks.sum(core, axis=mode)
        exposure = self.exposure and self.exposure.coarsen(partition)
        return replace(self, partition=partition, core=seal(core), exposure=exposure)

    def append(self, other: Statistics, mode: int | str = 0) -> Statistics:
        """Join the statistics of two tensors along a mode, such as time.

        Parameters
        ----------
        other : Statistics
            Statistics of the second tensor, with the same blocks in all other modes.
        mode : int or str, default 0
            Number or name of the mode.

        Returns
        -------
        Statistics

        Examples
        --------
        >>> from tucket import collect
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
            self.partition._replace(along, _after(self.partition[along], other.partition[along])),
            seal(np.concatenate((self.core, other.core), axis=along)),
            tuple(map(seal, marginals)),
            self.moments.plus(other.moments) if self.moments and other.moments else None,
            _both(self.kernel, other.kernel),
            self.axes._append(other.axes, along) if self.axes and other.axes else None,
            self._join_exposures(other, lambda ours, theirs: ours.append(theirs, along)),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the statistics to exactly this path, as an npz archive of NumPy arrays.

        Parameters
        ----------
        path : str or path
            Where to write it; an existing file is replaced.
        """
        arrays = {
            "kernel": np.array(self.kernel),
            **_sums_to_arrays(self),
            **({} if self.exposure is None else _sums_to_arrays(self.exposure, "exposure_")),
            **blocks_to_arrays(self.partition),
            **({} if self.moments is None else {"moments": np.array(self.moments)}),
            **({} if self.axes is None else self.axes._to_arrays()),
        }
        archive.write(path, "Statistics", arrays)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Statistics:
        """Read statistics that `save` wrote; nothing is unpickled, so files from others are safe to read.

        Parameters
        ----------
        path : str or path
            File to read.

        Returns
        -------
        Statistics
        """
        kind, arrays = archive.read(path)
        if kind != "Statistics":
            raise ValueError(f"{path} holds a {kind!r}, not statistics; models are read by tucket.load")
        return archive.build(path, "set of statistics", _from_arrays, arrays)

    def project(self) -> BlockTucker:
        r"""Return the m-projection onto the bingo space of the partition: the closed form of LTR.

        .. math:: w_k[i] = m_k[i] \Big/ \sum_{j : b_k(j) = b_k(i)} m_k[j]

        with the block sums as the core. A block without mass gets zero weights.

        Returns
        -------
        BlockTucker

        Examples
        --------
        >>> from tucket import collect
        >>> collect([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).project().to_tensor()
        array([[1.2, 1.8],
               [2.8, 4.2]])
        """
        self._check_complete("the projection")
        weights = map(seal, map(kernels.shares, self.marginals, self.partition.modes))
        return BlockTucker._of(self.core, self.partition, weights, self.axes)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Statistics):
            return NotImplemented
        return (
            self.partition == other.partition
            and np.array_equal(self.core, other.core)
            and all(map(np.array_equal, self.marginals, other.marginals))
            and self.moments == other.moments
            and self.axes == other.axes
            and self.exposure == other.exposure
        )

    def __repr__(self) -> str:
        exposure = "" if self.exposure is None else f", exposure={self.exposure.total:g}"
        sums = f"total={self.total:g}{exposure}, kernel={self.kernel!r}"
        return f"Statistics(shape={self.shape}, rank={self.rank}, {sums})"


def _sums_to_arrays(statistics: Statistics, prefix: str = "") -> dict[str, NDArray[Any]]:
    marginals = {f"{prefix}marginal_{mode}": marginal for mode, marginal in enumerate(statistics.marginals)}
    return {f"{prefix}core": statistics.core, **marginals}


def _after(first: Blocks, second: Blocks) -> Blocks:
    """Return the blocks of two modes joined to one."""
    return Blocks.from_labels(np.concatenate((first.labels, second.labels + first.rank)))


def _from_arrays(arrays: dict[str, NDArray[Any]]) -> Statistics:
    """Check saved arrays and return statistics made of them."""
    core, *marginals = _sums_from_arrays(arrays, "")
    partition = blocks_from_arrays(arrays, [len(marginal) for marginal in marginals])
    moments = Moments(*arrays["moments"].tolist()) if "moments" in arrays else None
    kernel, exposure = str(arrays["kernel"].item()), None
    if "exposure_core" in arrays:
        exposed, *others = _sums_from_arrays(arrays, "exposure_")
        exposure = Statistics(partition, exposed, tuple(others), None, kernel)
    return Statistics(partition, core, tuple(marginals), moments, kernel, Axes._from_arrays(arrays), exposure)


def _sums_from_arrays(arrays: dict[str, NDArray[Any]], prefix: str) -> list[NDArray[Any]]:
    """Return the block sums and the marginals."""
    names = [f"{prefix}core", *(f"{prefix}marginal_{mode}" for mode in range(arrays[f"{prefix}core"].ndim))]
    for name in names:
        array = arrays[name]
        if array.dtype != np.float64 or not (np.isfinite(array).all() and (array >= 0).all()):
            raise ValueError(f"{name.replace('_', ' ')} must hold finite float64 numbers, none negative")
    return [arrays[name] for name in names]


def _both(kernel: str, other: str) -> str:
    """Return the names of all kernels that took part."""
    return ", ".join(dict.fromkeys([*kernel.split(", "), *other.split(", ")]))


def read(
    source: Source, partition: Partition, run: Run, moments: bool = False, origin: tuple[int, ...] | None = None
) -> Statistics:
    """Read a source once, for its statistics; `origin` is its first index in a larger tensor."""
    sums = block_sums(source, [partition], run, 1.0 if moments else None, origin)[0]
    return make_statistics(sums, partition, source.axes)


def make_statistics(sums: Sums, partition: Partition, axes: Axes | None) -> Statistics:
    """Return statistics made of sums."""
    return Statistics(partition, seal(sums.core), tuple(map(seal, sums.marginals)), sums.moments, sums.kernel, axes)


def read_observed(observed: Observed, partition: Partition, run: Run, moments: bool = False) -> Statistics:
    """Read what is known of a tensor, for its statistics and those of the exposure."""
    exposure = read(observed.part, partition, run)
    if observed.is_complement:
        cells = math.prod(partition.shape)
        marginals = (cells // size - marginal for size, marginal in zip(partition.shape, exposure.marginals))
        core = partition._cells() - exposure.core
        exposure = replace(exposure, core=seal(core), marginals=tuple(map(seal, marginals)))
    return replace(read(observed.x, partition, run, moments), exposure=exposure)
