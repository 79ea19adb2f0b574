"""Sparse tensors: entries with their indices; all others are zero."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.axes import Axes
from tucket.base.partition import check_sizes
from tucket.sources.dense import bad_value, check_real, check_shape
from tucket.sources.source import Entries, Source, check_indices

__all__ = ["Sparse", "coalesce", "from_entries", "from_scipy", "from_sparse"]


class Sparse(Source):
    """Entries in memory: a single chunk, in any order; those with the same index add."""

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
        self.is_distinct = distinct

    @property
    def nbytes(self) -> int:
        """Bytes of values and indices."""
        return self.entries.nbytes

    @property
    def n_chunks(self) -> int:
        """One."""
        return 1

    @cached_property
    def _distinct(self) -> Entries:
        return self.entries if self.is_distinct else coalesce([self.entries])

    def chunks(self, distinct: bool) -> Generator[Entries]:
        """Yield the entries."""
        yield self._distinct if distinct else self.entries

    def at(self, mode: int, start: int, shape: tuple[int, ...]) -> Sparse:
        """Return the same entries as part of a larger tensor, from some index of a mode on."""
        coords = list(self.entries.coords)
        coords[mode] = coords[mode].astype(np.intp) + start
        return Sparse(coords, self.entries.values, shape, distinct=self.is_distinct)

    def _note(self) -> str:
        return f" with {len(self.entries.values):,} entries"


def from_entries(
    coords: Any,
    values: ArrayLike,
    shape: Sequence[int],
    *,
    modes: Iterable[str] | None = None,
    labels: Iterable[ArrayLike | None] | None = None,
) -> Sparse:
    """Take a sparse tensor from the indices and values of its entries; all others are zero.

    Parameters
    ----------
    coords : sequence of arrays of ints, one a mode; or an array of shape (n, d) or (d, n)
        The indices of the n entries, counted from 0, in any order. Entries with the same index add.
    values : n real numbers, finite and not negative
        The entries.
    shape : tuple of int
        Size of each of the d modes.
    modes, labels
        Names of the modes, and labels of the indices of each, if they have some.

    Examples
    --------
    >>> from_entries(([0, 0, 1], [1, 1, 2]), [5, 2, 1], (2, 4), modes=("row", "column"))
    <Sparse of a tensor of shape {'row': 2, 'column': 4} with 3 entries>
    """
    sizes = check_sizes(shape)
    weights = np.asarray(values)
    if weights.ndim != 1:
        raise ValueError(f"values: got shape {weights.shape}; give one number an entry")
    check_real(weights.dtype, "values", type(values).__name__)
    indices = _as_coords(coords, len(weights), len(sizes))
    check_indices(indices, sizes, "coords")
    axes = None if modes is None and labels is None else Axes.of(modes, labels, sizes)
    return Sparse(indices, weights, sizes, axes)


def _as_coords(coords: Any, entries: int, modes: int) -> list[NDArray[Any]]:
    wanted = f"give {modes} arrays of {entries} ints, one a mode"
    if isinstance(coords, np.ndarray) and coords.ndim == 2:
        if coords.shape == (entries, modes) != (modes, entries):
            coords = coords.T
        elif coords.shape == (entries, modes):
            raise ValueError(f"coords: an array of shape {coords.shape} may be meant by rows or by columns; {wanted}")
    arrays = [np.asarray(each) for each in coords] if isinstance(coords, Iterable) else []
    if len(arrays) != modes or any(each.shape != (entries,) for each in arrays):
        shapes = coords.shape if isinstance(coords, np.ndarray) else [each.shape for each in arrays]
        raise ValueError(f"coords: got shape {shapes} for {entries} values of a tensor of {modes} modes; {wanted}")
    for mode, each in enumerate(arrays):
        if each.dtype.kind not in "iu" and each.size:
            raise TypeError(f"coords: mode {mode} has indices of {each.dtype}; {wanted}")
    return [each if each.size else each.astype(np.intp) for each in arrays]


def from_scipy(x: Any, name: str) -> Sparse:
    """Take a sparse array or matrix of SciPy's."""
    entries = x.tocoo()
    check_real(entries.dtype, name, type(x).__name__)
    check_shape(entries.shape, name)
    return Sparse(list(entries.coords), entries.data, tuple(entries.shape))


def from_sparse(x: Any, name: str) -> Sparse:
    """Take an array of the package sparse, which holds every index once."""
    if x.fill_value != 0:
        raise ValueError(f"{name} has fill value {x.fill_value}; give a sparse array whose other entries are 0")
    entries = x.asformat("coo")
    check_real(entries.dtype, name, type(x).__name__)
    return Sparse(list(entries.coords), entries.data, tuple(entries.shape), distinct=True)


def coalesce(parts: Iterable[Entries]) -> Entries:
    """Return entries with no index twice: those that share one are added, in float64.

    All distinct ones are held in memory.

    Examples
    --------
    >>> coalesce([Entries((np.array([1, 0, 1]),), np.array([2, 3, 4]), (5,))]).values
    array([3., 6.])
    """
    known: list[Entries] = []
    for part in parts:
        bad = part.values < 0
        if bad.any():  # before it is hidden in a sum
            at = int(np.argmax(bad))
            raise bad_value("x", [int(indices[at]) for indices in part.coords], part.values[at].item())
        known.append(_coalesced([part]))
        while len(known) > 1 and len(known[-2].values) < 2 * len(known[-1].values):  # so that each is sorted few times
            known[-2:] = [_coalesced(known[-2:])]
    return _coalesced(known)


def _coalesced(parts: Sequence[Entries]) -> Entries:
    shape = parts[0].shape
    coords = [np.concatenate(each).astype(np.intp, copy=False) for each in zip(*(part.coords for part in parts))]
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
