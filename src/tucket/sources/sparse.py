"""Sparse tensors: some entries with their indices; all others are zero."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.checks import bad_value, check_real
from tucket.sources.source import Entries, Source


class Sparse(Source):
    """Entries in memory, in any order, as a single chunk; entries with the same index are added."""

    in_memory, sparse = True, True

    def __init__(
        self,
        coords: Sequence[NDArray[Any]],
        values: NDArray[Any],
        shape: tuple[int, ...],
        axes: Axes | None = None,
        distinct: bool = False,
    ) -> None:
        self.entries, self.shape, self.axes = Entries(coords, values, shape), shape, axes
        self.is_distinct, self.nbytes, self.n_chunks = distinct, self.entries.nbytes, 1

    @cached_property
    def _distinct(self) -> Entries:
        return self.entries if self.is_distinct else coalesce([self.entries])

    def chunks(self, distinct: bool) -> Generator[Entries]:
        """Yield the entries."""
        yield self._distinct if distinct else self.entries

    def at(self, mode: int, start: int, shape: tuple[int, ...]) -> Sparse:
        """Return the same entries as part of a larger tensor, in which they begin at an index of a mode."""
        coords = list(self.entries.coords)
        coords[mode] = coords[mode].astype(np.intp) + start
        return Sparse(coords, self.entries.values, shape, distinct=self.is_distinct)

    def _note(self) -> str:
        return f" with {len(self.entries.values):,} entries"


def from_sparse(x: Any, name: str) -> Sparse:
    """Return a sparse array of SciPy or of the package sparse as a source."""
    of_package_sparse = hasattr(x, "fill_value")
    if of_package_sparse and x.fill_value != 0:
        raise ValueError(f"{name} has fill value {x.fill_value}; give a sparse array with fill value 0")
    entries = x.asformat("coo")
    check_real(entries.dtype, name, type(x).__name__)
    # its arrays hold no index twice; those of SciPy may
    return Sparse(list(entries.coords), entries.data, tuple(entries.shape), distinct=of_package_sparse)


def distinct_entries(source: Source) -> Entries:
    """Return the entries of a sparse source, with those that share an index added, all in memory."""
    chunks: list[Any] = list(source.chunks(distinct=True))
    return chunks[0] if len(chunks) == 1 else coalesce(chunks)


def coalesce(parts: Iterable[Entries]) -> Entries:
    """Add entries that share an index, in float64, and return the distinct entries, all in memory."""
    done: list[Entries] = []
    for part in parts:
        bad = part.values < 0
        if bad.any():  # a sum would hide it
            at = int(np.argmax(bad))
            raise bad_value("x", [int(indices[at]) for indices in part.coords], part.values[at].item())
        done.append(_coalesced([part]))
        # parts of doubling sizes, so that each entry is sorted a few times only
        while len(done) > 1 and len(done[-2].values) < 2 * len(done[-1].values):
            done[-2:] = [_coalesced(done[-2:])]
    return _coalesced(done)


def _coalesced(parts: Sequence[Entries]) -> Entries:
    shape = parts[0].shape
    kind: Any = np.int32 if max(shape) < 2**31 else np.intp
    coords = [np.concatenate(each).astype(kind, copy=False) for each in zip(*(part.coords for part in parts))]
    values = np.concatenate([part.values for part in parts]).astype(np.float64, copy=False)
    if not len(values):
        return Entries(coords, values, shape)
    if math.prod(shape) < 2**63:
        keys = np.ravel_multi_index(coords, shape)
        order = np.argsort(keys, kind="stable")
        is_new = np.diff(keys[order]) > 0
    else:
        order = np.lexsort(coords[::-1])
        is_new = np.any([np.diff(indices[order]) != 0 for indices in coords], axis=0)
    first = np.flatnonzero(np.append(True, is_new))
    return Entries([indices[order[first]] for indices in coords], np.add.reduceat(values[order], first), shape)


def align(entries: Entries, cells: Entries) -> tuple[Entries, NDArray[Any]]:
    """Return entries in all of some cells, zeros included, and the values of these cells in the same order."""
    if len(entries.values) == len(cells.values) and all(map(np.array_equal, entries.coords, cells.coords)):
        return entries, cells.values
    # each takes the cells of the other, with the value 0, and both are sorted alike
    both = (entries, cells), (cells, entries)
    ours, theirs = (coalesce([own, other._replace(values=np.zeros(len(other.values)))]) for own, other in both)
    return ours, theirs.values
