"""Reductions over a source: a result per chunk, added at the place of the chunk."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from tucket import kernels
from tucket.base.boxes import Box, hull, into_frame, shape_of, whole
from tucket.base.checks import bad_value
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.kernels.measures import Moments, Sums
from tucket.sources.dense import explain_values
from tucket.sources.source import Chunk, Entries, Reduction, Source


def block_sums(
    source: Source,
    cuts: Sequence[Partition],
    run: Run,
    unit: float | None = None,
    origin: tuple[int, ...] | None = None,
    needs_marginals: bool = True,
) -> list[Sums]:
    """Read a source once, for its block sums and marginals under each of several partitions.

    The origin says where the source begins in a larger tensor. Marginals that are not needed may stay 0.
    """
    placed: list[Placed] = source.reduce(BlockSums(tuple(cuts), unit, origin, needs_marginals), run)
    check_total(placed[0].sums)
    return [each.sums for each in placed]


def is_finite(sums: Sums) -> bool:
    """Say whether the total is finite: it is not where an entry is not, or where the sum is too large."""
    with np.errstate(all="ignore"):
        return bool(np.isfinite(sums.core.sum()))


def check_total(sums: Sums) -> None:
    """Refuse sums that are too large."""
    if not is_finite(sums):
        raise ValueError("the sum of x is too large for float64; scale x down")


class Placed(NamedTuple):
    """Sums of a part of a tensor, where the part is, and which of all blocks the core holds."""

    sums: Sums
    box: Box
    region: Box


@dataclass(frozen=True)
class BlockSums:
    """Block sums and marginals under several partitions, and moments if a unit is given."""

    cuts: tuple[Partition, ...]
    unit: float | None = None
    origin: tuple[int, ...] | None = None
    needs_marginals: bool = True

    @property
    def distinct(self) -> bool:
        """Whether duplicate entries must be added first: for moments they must, for sums it makes no difference."""
        return self.unit is not None

    def of(self, chunk: Chunk | Entries, workers: int) -> list[Placed]:
        """Return the sums of one chunk; refuse negative and non-finite values."""
        placed = [self._place(chunk, cut, workers) for cut in self.cuts]
        fine = all(is_finite(each.sums) and not each.sums.has_negative for each in placed)
        check_chunk(chunk, fine, self.origin)
        return placed

    def _place(self, chunk: Chunk | Entries, cut: Partition, workers: int) -> Placed:
        if isinstance(chunk, Entries):
            sums = kernels.entry_sums(chunk.coords, chunk.values, cut, self.unit, workers, self.needs_marginals)
            return Placed(sums, whole(cut.shape), whole(cut.rank))
        if tuple(chunk.array.shape) == cut.shape:
            sums = kernels.block_sums(chunk.array, cut, self.unit, workers)
            return Placed(sums, chunk.box, whole(cut.rank))
        inside, blocks = cut._within(chunk.box)
        sums = kernels.block_sums(chunk.array, inside, self.unit, workers)
        seen = [index.ravel() for index in blocks]
        region = tuple(slice(int(these[0]), int(these[-1]) + 1) for these in seen)
        if shape_of(region) != sums.core.shape:
            core = np.zeros(shape_of(region))
            core[np.ix_(*(these - these[0] for these in seen))] = sums.core
            sums = sums._replace(core=core)
        return Placed(sums, chunk.box, region)

    def merge(self, results: Sequence[list[Placed]]) -> list[Placed]:
        """Add the sums of some chunks: the result covers the smallest box that holds them all."""
        merged = []
        for parts in zip(*results):
            box, region = hull([part.box for part in parts]), hull([part.region for part in parts])
            merged.append(_add(_zeros(box, region, parts[0].sums), parts))
        return merged

    def total(self, results: Iterable[list[Placed]]) -> list[Placed]:
        """Add the sums of all chunks."""
        totals: list[Placed] = []
        for parts in results:
            if totals:
                totals = [_add(total, [part]) for total, part in zip(totals, parts)]
                continue
            for cut, part in zip(self.cuts, parts):
                is_all = part.sums.core.shape == cut.rank and tuple(map(len, part.sums.marginals)) == cut.shape
                if is_all and part.sums.core.flags.writeable:  # not if it came from another process
                    totals.append(part)
                else:
                    totals.append(_add(_zeros(whole(cut.shape), whole(cut.rank), part.sums), [part]))
        return totals


def _zeros(box: Box, region: Box, like: Sums) -> Placed:
    """Return sums of a part of a tensor that are all 0."""
    core, marginals = np.zeros(shape_of(region)), tuple(map(np.zeros, shape_of(box)))
    return Placed(like._replace(core=core, marginals=marginals, moments=like.moments and Moments(0, 0)), box, region)


def _add(room: Placed, parts: Sequence[Placed]) -> Placed:
    """Add parts to the arrays of `room`, in place."""
    moments = room.sums.moments
    for part in parts:
        with np.errstate(over="ignore"):
            room.sums.core[into_frame(part.region, room.region)] += part.sums.core
            for mode, marginal in enumerate(part.sums.marginals):
                room.sums.marginals[mode][into_frame(part.box, room.box)[mode]] += marginal
        moments = moments.plus(part.sums.moments) if moments and part.sums.moments else None
    low_precision = any(part.sums.low_precision for part in (room, *parts))
    return room._replace(sums=room.sums._replace(moments=moments, low_precision=low_precision))


@dataclass(frozen=True)
class Unfoldings(Reduction[list[Any]]):
    """The unfoldings of a tensor along some modes as sparse matrices, because they are too long to be dense."""

    partition: Partition
    modes: tuple[int, ...]
    distinct: bool = False

    def of(self, chunk: Chunk | Entries, workers: int) -> list[Any]:  # noqa: ARG002
        """Return the sums over the blocks of all modes but one, for each of the modes."""
        if isinstance(chunk, Chunk):
            inside = np.nonzero(chunk.array)
            coords = [indices + rows.start for indices, rows in zip(inside, chunk.box)]
            chunk = Entries(coords, chunk.array[inside], self.partition.shape)
        check_chunk(chunk, bool(np.isfinite(chunk.values.sum(dtype=np.float64))) and not (chunk.values < 0).any())
        return [self._unfold(chunk, mode) for mode in self.modes]

    def _unfold(self, entries: Entries, mode: int) -> Any:
        from scipy.sparse import coo_array

        column, width = np.zeros(len(entries.values), np.intp), 1
        for k, blocks in enumerate(self.partition.modes):
            if k != mode:
                column = column * blocks.rank + blocks.labels[entries.coords[k]]
                width *= blocks.rank
        places = entries.coords[mode].astype(np.intp), column
        return coo_array((entries.values.astype(np.float64), places), shape=(entries.shape[mode], width)).tocsr()

    def total(self, results: Iterable[list[Any]]) -> list[Any]:
        """Add matrices."""
        totals: list[Any] = []
        for found in results:
            totals = [a + b for a, b in zip(totals, found)] if totals else found
        return totals


class Scalars(Reduction[NDArray[np.float64]]):
    """A few numbers per chunk, added over all chunks."""

    distinct = True

    def total(self, results: Iterable[NDArray[np.float64]]) -> NDArray[np.float64]:
        """Add them."""
        return np.asarray(sum(results))


def check_chunk(chunk: Chunk | Entries, is_fine: bool, origin: Sequence[int] | None = None) -> None:
    """Refuse a chunk that is not fine, and say where its first negative or non-finite entry is in the whole."""
    if is_fine:
        return
    shift = origin or (0,) * len(chunk.box if isinstance(chunk, Chunk) else chunk.shape)
    if isinstance(chunk, Chunk):
        raise explain_values(chunk.array, "x", [rows.start + by for rows, by in zip(chunk.box, shift)])
    bad = ~(np.isfinite(chunk.values) & (chunk.values >= 0))
    if not bad.any():
        raise ValueError("the sum of x is too large for float64; scale x down")
    at = int(np.argmax(bad))
    where = [int(indices[at]) + by for indices, by in zip(chunk.coords, shift)]
    raise bad_value("x", where, chunk.values[at].item())
