"""One pass over a tensor of any source, for its statistics."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial, reduce
from math import prod
from typing import Any, Literal, overload

import numpy as np
from numpy.typing import ArrayLike

from tucket.base.axes import Axes, by_mode
from tucket.base.blocks import Blocks
from tucket.base.boxes import halved
from tucket.base.checks import Rank, check_mode_rank, check_shape_match, in_mode, is_all, rank_per_mode, split_mask
from tucket.base.partition import Partition
from tucket.base.run import ProgressCallback, Run
from tucket.models.statistics import Statistics, make_statistics, read, read_observed
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observation, Observed, all_known, observe
from tucket.sources.reductions import BlockSums, Placed, check_total
from tucket.sources.source import Source
from tucket.sources.stream import Stream, as_stream

Cuts = Partition | Rank | Sequence[Blocks | ArrayLike | int | None] | Mapping[int | str, Any] | None


@overload
def collect(
    x: Any,
    partition: Cuts,
    *,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    moments: bool = False,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    compute: Literal[True] = True,
) -> Statistics: ...


@overload
def collect(x: Any, partition: Cuts, *, moments: bool = False, compute: Literal[False]) -> Any: ...


def collect(
    x: Any,
    partition: Cuts,
    *,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    moments: bool = False,
    workers: int | None = None,
    progress: ProgressCallback | None = None,
    compute: bool = True,
) -> Any:
    """Read a tensor once, for its block sums and marginals.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or a source or a stream
        Any number of modes, any memory layout; it is not changed. Arrays of torch, JAX, CuPy and other libraries that
        follow the array API standard are read in place, and only the sums are copied to the host. Also dask, xarray,
        zarr, h5py, sparse and SciPy sparse arrays; what `open`, `from_table`, `from_parquet` and `from_entries`
        return; and a `Stream` or an iterator of slabs, of any number.
    partition : Partition, int, or one int, None, Blocks or sequence of starts per mode
        The blocks. An int gives uniform blocks, and None leaves a mode whole. The mode that a stream grows must be None
        unless a `Partition` gives its size.
    observed : {"all", "finite", "stored"}, Boolean array, or source, default "all"
        Which cells are known, as for `ltr`. With gaps the statistics hold those of the exposure too, by which rates
        follow; the projection does not follow from them.
    exposure : array that broadcasts to the shape of `x`, optional
        For what each cell counts, as for `ltr`.
    moments : bool, default False
        Whether to sum v log v and v**2 over all entries v in the same pass.
    workers : int, optional
        Maximum number of threads; by default one per processor. Results depend on it only by rounding.
    progress : callable, optional
        Called with a `Progress` after each chunk.
    compute : bool, default True
        False returns a dask delayed object that computes the statistics; only for dask arrays.

    Returns
    -------
    Statistics
        Block sums and marginals, as NumPy arrays.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or the partition does not fit the shape.
    TypeError
        If `x` cannot be read as a tensor of real numbers.

    See Also
    --------
    ltr : Also chooses the blocks and projects.

    Examples
    --------
    >>> collect([[1, 2, 3], [4, 5, 6]], Partition.uniform((2, 3), (1, 3)))
    Statistics(shape=(2, 3), rank=(1, 3), total=21, kernel='numpy')
    >>> nights = ([[night, 1, 0]] for night in range(1, 4))
    >>> collect(nights, (None, 2))
    Statistics(shape=(3, 3), rank=(3, 2), total=9, kernel='numpy')
    """
    run = Run.of(workers, progress)
    x, observed = split_mask(x, observed)
    has_gaps = exposure is not None or not is_all(observed)
    if has_gaps and not compute:
        raise TypeError("compute=False is for tensors without gaps; leave it out")
    if isinstance(x, Stream | Iterator) and not has_gaps:
        if not compute:
            raise TypeError("compute=False is for dask arrays, not for streams; leave it out")
        if not isinstance(partition, Partition):
            return grow(as_stream(x), run, partition, moments=moments)
    source = as_source(x, shape=getattr(partition, "shape", None))
    if isinstance(partition, Partition):
        check_shape_match(source, partition.shape, "the partition")
    else:
        partition = _cut(source, partition)
    if has_gaps:
        known = observe(source, observed, exposure)
        known = known if isinstance(known, Observed) else all_known(known)
        return read_observed(known, partition, run, moments)
    return read(source, partition, run, moments) if compute else _delayed(source, partition, moments)


def _delayed(source: Source, partition: Partition, moments: bool) -> Any:
    from tucket.sources.dask import Dask

    if not isinstance(source, Dask):
        raise TypeError(f"compute=False is for dask arrays, not for {source!r}; leave it out")
    reduction = BlockSums((partition,), 1.0 if moments else None)
    return source.delayed(reduction, partial(_finish, partition=partition, axes=source.axes))


def _finish(placed: list[Placed], partition: Partition, axes: Axes | None) -> Statistics:
    """Make statistics of the sums of all chunks; this may run in another process."""
    check_total(placed[0].sums)
    return make_statistics(placed[0].sums, partition, axes)


def _cut(source: Source, cuts: Any) -> Partition:
    """Return the partition for an int, or for one int, None, Blocks or sequence of starts per mode."""
    cuts = by_mode(cuts, source.axes, len(source.shape), None, "partition")
    modes = []
    for mode, (cut, size) in enumerate(zip(rank_per_mode(cuts, source.shape), source.shape)):
        if isinstance(cut, Blocks):
            if cut.size != size:
                raise ValueError(f"mode {mode}: the given blocks are of {cut.size} indices; give {size}")
            modes.append(cut)
        elif hasattr(cut, "__len__") and not isinstance(cut, str):
            modes.append(in_mode(mode, Blocks.from_starts, size, cut))
        else:
            modes.append(Blocks.uniform(size, check_mode_rank(cut, size, mode)))
    return Partition(tuple(modes))


FINE_CELLS = 1 << 22
"""Maximum cells of the core that an information curve, or a search over a stream, starts from."""


def read_finely(x: Any, run: Run) -> Statistics:
    """Read a tensor once, under uniform blocks with at most `FINE_CELLS` cells."""
    if isinstance(x, Stream | Iterator):
        return grow(as_stream(x), run, most=FINE_CELLS, moments=True)
    source = as_source(x)
    return read(source, Partition.uniform(source.shape, halved(source.shape, FINE_CELLS)), run, moments=True)


def grow(stream: Stream, run: Run, cuts: Any = None, *, most: int | None = None, moments: bool) -> Statistics:
    """Read a stream of unknown length.

    With `cuts`, the growing mode is left whole. With `most`, a maximum number of cells, all modes are cut as finely as
    it allows: neighbours in the growing mode are joined while the stream grows.
    """
    parts: list[Statistics] = []
    mode, width, start = 0, 1, 0
    for slab, mode in stream:
        end = start + slab.shape[mode]
        if most is None:
            wanted = list(rank_per_mode(by_mode(cuts, slab.axes, len(slab.shape), None, "partition"), slab.shape))
            if wanted[mode] is not None:
                raise ValueError(
                    f"mode {mode}: the stream grows it, so that it cannot be cut into {wanted[mode]} before its size "
                    f"is known; give None there and coarsen the statistics, or give a Partition of the whole shape"
                )
        else:
            others = halved([1 if k == mode else size for k, size in enumerate(slab.shape)], max(1, most // 64))
            while prod(others) * -(-end // width) > most and width < end:
                width *= 2
            wanted = [*others[:mode], _in_steps(start, end, width), *others[mode + 1 :]]
        cut = _cut(slab, wanted)
        origin = tuple(start if k == mode else 0 for k in range(len(slab.shape)))
        parts.append(read(slab, cut, run, moments, origin))
        # joining parts of similar length copies each slab only O(log n) times
        while len(parts) > 1 and parts[-2].shape[mode] < 2 * parts[-1].shape[mode]:
            parts[-2:] = [parts[-2].append(parts[-1], mode)]
        if most is not None and sum(part.core.size for part in parts) > 2 * most:
            parts = [_joined(parts, mode, width)]
        start = end
    if not parts:
        raise ValueError("the stream holds no slab; give at least one with at least one index")
    return _joined(parts, mode, width)


def _joined(parts: Sequence[Statistics], mode: int, width: int) -> Statistics:
    """Join statistics along a mode, and cut that mode at multiples of a width."""
    found = reduce(lambda first, second: first.append(second, mode), parts)
    if width == 1:
        return found
    return found.coarsen(found.partition._replace(mode, _in_steps(0, found.shape[mode], width)))


def _in_steps(start: int, end: int, width: int) -> Blocks:
    """Cut the indices from start to end into blocks at multiples of a width."""
    first = np.arange(-(start % width), end - start, width)
    return Blocks.from_starts(end - start, np.maximum(first, 0))
