"""Sparse tensors: some entries with their indices; all others are zero."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterable, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.axes import Axes
from tucket.base.checks import bad_value, check_real, check_shape, check_sizes
from tucket.sources.source import Entries, Source, check_indices


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
        """Return the same entries as part of a larger tensor, in which they begin at an index of a mode."""
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
    """Return a sparse tensor from the indices and values of its entries; all others are zero.

    Parameters
    ----------
    coords : sequence of array of int, or array of int of shape (n, d) or (d, n)
        The indices of the n entries in each of the d modes, from 0 on, in any order. Entries with the same indices are
        added.
    values : array of shape (n,)
        The entries: real numbers, finite and not negative, which is checked when they are read.
    shape : tuple of int
        The size of each mode.
    modes : iterable of str, optional
        Names of the modes.
    labels : iterable of array-like or None, optional
        For each mode, labels of its indices, or None.

    Returns
    -------
    Source
        The tensor.

    Raises
    ------
    ValueError
        If the lengths of `coords`, `values`, `modes` or `labels` do not fit each other or the shape.
    IndexError
        If an entry lies outside the shape.
    TypeError
        If indices are not ints, or values are not real numbers.

    See Also
    --------
    from_table : A sparse tensor from the rows of a table.

    Examples
    --------
    Two groups of users, each with items of its own:

    >>> users, items, ratings = [0, 0, 1, 2, 2], [0, 1, 0, 2, 3], [4, 5, 5, 2, 3]
    >>> from_entries((users, items), ratings, (3, 4), modes=("user", "item"), labels=(["ann", "bob", "cho"], None))
    <Sparse of a tensor of shape {'user': 3, 'item': 4} with 5 entries>
    """
    sizes = check_sizes(shape)
    weights = np.asarray(values)
    if weights.ndim != 1:
        raise ValueError(f"values: got shape {weights.shape}; give one number per entry")
    check_real(weights.dtype, "values", type(values).__name__)
    indices = _as_coords(coords, len(weights), len(sizes))
    check_indices(indices, sizes, "coords")
    axes = None if modes is None and labels is None else Axes._of(modes, labels, sizes)
    return Sparse(indices, weights, sizes, axes)


def _as_coords(coords: Any, entries: int, modes: int) -> list[NDArray[Any]]:
    """Return one array of indices per mode."""
    wanted = f"give {modes} arrays of {entries} ints, one per mode"
    if isinstance(coords, np.ndarray) and coords.ndim == 2:
        if coords.shape == (entries, modes) != (modes, entries):
            coords = coords.T
        elif coords.shape == (entries, modes):
            raise ValueError(f"coords: shape {coords.shape} is ambiguous: its rows may be entries or modes; {wanted}")
    arrays = [np.asarray(each) for each in coords] if isinstance(coords, Iterable) else []
    if len(arrays) != modes or any(each.shape != (entries,) for each in arrays):
        shapes = coords.shape if isinstance(coords, np.ndarray) else [each.shape for each in arrays]
        raise ValueError(f"coords: got shape {shapes} for {entries} values of a tensor of {modes} modes; {wanted}")
    for mode, each in enumerate(arrays):
        if each.dtype.kind not in "iu" and each.size:
            raise TypeError(f"coords: mode {mode} has indices of {each.dtype}; {wanted}")
    return [each if each.size else each.astype(np.intp) for each in arrays]


def from_scipy(x: Any, name: str) -> Sparse:
    """Return a SciPy sparse array or matrix as a source."""
    entries = x.tocoo()
    check_real(entries.dtype, name, type(x).__name__)
    check_shape(entries.shape, name)
    return Sparse(list(entries.coords), entries.data, tuple(entries.shape))


def from_sparse(x: Any, name: str) -> Sparse:
    """Return an array of the package sparse, in which no index occurs twice, as a source."""
    if x.fill_value != 0:
        raise ValueError(f"{name} has fill value {x.fill_value}; give a sparse array whose other entries are 0")
    entries = x.asformat("coo")
    check_real(entries.dtype, name, type(x).__name__)
    return Sparse(list(entries.coords), entries.data, tuple(entries.shape), distinct=True)


def coalesce(parts: Iterable[Entries]) -> Entries:
    """Add entries that share an index, in float64, and return all distinct entries, which are held in memory.

    Examples
    --------
    >>> coalesce([Entries((np.array([1, 0, 1]),), np.array([2, 3, 4]), (5,))]).values
    array([3., 6.])
    """
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
