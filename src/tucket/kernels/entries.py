"""Sorted entries of a sparse tensor, and the sums over them that Tucker models need, each in one pass."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import runs
from tucket.base.run import ordered_map
from tucket.kernels.algebra import Matrix

PIECE_ENTRIES = 1 << 16
"""Entries that are worked on at a time: what is kept for each of them stays in the second-level cache."""

THREAD_ENTRIES = 1 << 14
"""Entries from which another thread is worth starting."""

SAMPLE_ENTRIES = 1 << 18
"""Number of entries in the sample from which the order of the modes is chosen."""

Weigh = Callable[[NDArray[np.float64], NDArray[np.float64]], tuple[NDArray[np.float64], Any]]
"""Maps entries of a tensor and of a model, which may be overwritten, to a weight per entry and a sum over all."""


@dataclass(frozen=True, slots=True)
class Layout:
    """Where the compiled loops find the factors, and the contracted cores, in flat arrays."""

    offsets: NDArray[np.uint64]
    ranks: NDArray[np.uint64]
    starts: NDArray[np.uint64]

    @classmethod
    def of(cls, factors: Sequence[Matrix]) -> Self:
        """Return the layout for factors in the order of the entries."""
        ranks = [factor.shape[1] for factor in factors]
        widths = [math.prod(ranks[mode:]) for mode in range(len(ranks) + 1)]
        flat = np.cumsum([0, *(factor.size for factor in factors[:-1])]), ranks, np.cumsum([0, *widths])
        return cls(*(np.array(each, np.uint64) for each in flat))

    def workspace(self) -> NDArray[np.float64]:
        """Return zeros for the contracted cores, or for sums."""
        return np.zeros(int(self.starts[-1]))


@dataclass(frozen=True)
class SortedEntries:
    """Distinct entries sorted by their indices.

    Attributes
    ----------
    order : tuple of int
        The modes, from the first to sort by.
    coords : array of shape (entries, modes)
        Indices, with the modes in this order.
    changes : array of uint8
        For each entry, the first column in which it differs from the entry before.
    values : array of float64
        The entries; with a second column, the exposure of each.
    rows : array of int
        The number of each entry before it was sorted.
    """

    order: tuple[int, ...]
    coords: NDArray[np.unsignedinteger[Any]]
    changes: NDArray[np.uint8]
    values: NDArray[np.float64]
    rows: NDArray[np.intp]

    @classmethod
    def of(
        cls, coords: Sequence[NDArray[Any]], values: NDArray[Any], shape: Sequence[int], order: Sequence[int]
    ) -> Self:
        """Sort entries, no two of which have the same index."""
        columns, sizes = [coords[mode] for mode in order], [shape[mode] for mode in order]
        if math.prod(sizes) < 2**63:
            cells = np.ravel_multi_index(columns, sizes)
            rows = np.arange(len(cells)) if (np.diff(cells) > 0).all() else np.argsort(cells)
        else:
            rows = np.lexsort(columns[::-1])
        found = np.empty((len(values), len(order)), np.uint32 if max(sizes) <= 2**32 else np.uint64)
        changes = np.zeros(len(values), np.uint8)
        for column in reversed(range(len(order))):
            found[:, column] = columns[column][rows]
            changes[1:][found[1:, column] != found[:-1, column]] = column
        if len(rows) < 2**31:
            rows = rows.astype(np.int32)
        return cls(tuple(order), found, changes, values[rows].astype(np.float64, copy=False), rows)

    def model_values(self, core: Matrix, factors: Sequence[Matrix]) -> NDArray[np.float64]:
        """Return the values of a model at the entries, in their order before they were sorted."""
        from tucket.kernels.cpu.entries import model_values

        factors = [factors[mode] for mode in self.order]
        layout, found = Layout.of(factors), np.empty(len(self.values))
        workspace, flat = layout.workspace(), np.concatenate([factor.ravel() for factor in factors])
        workspace[: core.size] = core.transpose(self.order).ravel()
        model_values(self.coords, self.changes, flat, layout.offsets, layout.ranks, layout.starts, workspace, found)
        unsorted = np.empty(len(found))
        unsorted[self.rows] = found
        return unsorted

    @cached_property
    def inverse_order(self) -> list[int]:
        """The place of each mode in the order."""
        return [self.order.index(mode) for mode in range(len(self.order))]

    def slopes(
        self, core: Matrix, factors: Sequence[Matrix], weigh: Weigh | None, workers: int
    ) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of the sum of weights times the model, with respect to core and factors, in one pass.

        Return also what `weigh` sums over all entries. Without it, the weights are the entries themselves.
        """
        from tucket.kernels.cpu.entries import add_slopes, model_values

        factors = [factors[mode] for mode in self.order]
        layout, flat = Layout.of(factors), np.concatenate([factor.ravel() for factor in factors])
        start, extent = core.transpose(self.order), tuple(core.shape[mode] for mode in self.order)

        def work(share: slice) -> tuple[Matrix, Matrix, Any]:
            workspace, sums, slopes, total = layout.workspace(), layout.workspace(), np.zeros(flat.size), 0.0
            workspace[: core.size] = start.ravel()
            model = np.empty(min(PIECE_ENTRIES, share.stop - share.start))
            places = flat, layout.offsets, layout.ranks, layout.starts, workspace
            for piece in runs(share.stop - share.start, PIECE_ENTRIES):
                some = slice(share.start + piece.start, share.start + piece.stop)
                coords, changes, values = self.coords[some], self.changes[some], self.values[some]
                weights = values
                if weigh is not None:
                    model_values(coords, changes, *places, model[: len(values)])
                    weights, more = weigh(values, model[: len(values)])
                    total += more
                add_slopes(coords, changes, weights, *places, sums, slopes)
            return sums[: core.size], slopes, total

        found = [reduce(operator.iadd, each) for each in zip(*_share(work, len(self.values), workers))]
        pieces = np.split(found[1], layout.offsets[1:].astype(np.intp))
        by_factor = [pieces[at].reshape(factors[at].shape) for at in self.inverse_order]
        return found[0].reshape(extent).transpose(self.inverse_order), by_factor, found[2]

    def contract(
        self, matrices: Sequence[Matrix], sizes: Sequence[int], workers: int, rows: slice | None = None
    ) -> Matrix:
        """Sum over the last modes in the order, against the columns of a matrix for each, in one pass.

        `sizes` are the sizes of the first modes in the order, which are kept. `rows` selects some indices of the very
        first mode. The result has its modes in this order.
        """
        from tucket.kernels.cpu.entries import contract

        kept, extent = len(sizes), (*sizes, *(matrix.shape[1] for matrix in matrices))
        coords, changes, values = self.coords, self.changes, self.values
        if rows is not None:
            some = slice(*np.searchsorted(coords[:, 0], (rows.start, rows.stop)).tolist())
            coords, changes, values = coords[some].copy(), changes[some], values[some]
            coords[:, 0] -= rows.start
            extent = (rows.stop - rows.start, *extent[1:])
        if kept == len(self.order):
            out = np.zeros(extent)
            out[tuple(coords.T)] = values
            return out
        # kept modes have no factors: an empty one with a single column stands in
        factors = [*(np.empty((0, 1)) for _ in sizes), *matrices]
        layout, flat = Layout.of(factors), np.concatenate([factor.ravel() for factor in factors])
        width = math.prod(extent[kept:])
        strides = np.array([math.prod(extent[mode + 1 :]) for mode in range(kept)], np.uint64)
        out = np.zeros(math.prod(extent))

        def work(share: slice) -> Matrix:
            own = out if kept else np.zeros(width)
            contract(
                coords[share], changes[share], values[share], flat, layout.offsets, layout.ranks, layout.starts,
                layout.workspace(), kept, strides, own,
            )  # fmt: skip
            return own

        # threads write to one array, so each begins where an index of the kept modes changes
        found = _share(work, len(values), workers, np.flatnonzero(changes < kept) if kept else None)
        return (out if kept else reduce(operator.iadd, found)).reshape(extent)


def values_at(core: Matrix, factors: Sequence[Matrix], coords: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
    """Return the values of a model at some indices, `coords[k]` in mode k, in any order."""
    shape = [len(factor) for factor in factors]
    entries = SortedEntries.of(coords, np.empty(len(coords[0])), shape, choose_order(coords, shape, core.shape))
    wide = [np.asarray(factor, np.float64) for factor in factors]
    return entries.model_values(np.asarray(core, np.float64), wide)


def _share(work: Callable[[slice], Any], count: int, workers: int, begins: NDArray[np.intp] | None = None) -> list[Any]:
    """Do some work on runs of entries, one run per worker; runs begin only at the entries `begins`, if given."""
    workers = min(workers, 1 + count // THREAD_ENTRIES)
    edges = np.linspace(0, count, workers + 1).astype(np.intp)
    if begins is not None:
        edges[1:-1] = np.append(begins, count)[np.searchsorted(begins, edges[1:-1])]
    return list(ordered_map(work, map(slice, edges[:-1].tolist(), edges[1:].tolist()), workers))


def choose_order(
    coords: Sequence[NDArray[Any]], shape: Sequence[int], ranks: Sequence[int], first: Sequence[int] = ()
) -> tuple[int, ...]:
    """Return an order of the modes in which entries share many prefixes; the modes in `first` come first.

    The order is built from its end: each step puts last the mode without which the fewest distinct prefixes remain.
    """
    step = -(-len(coords[0]) // SAMPLE_ENTRIES) or 1
    sample = [indices[::step] for indices in coords]
    rest, order = [mode for mode in range(len(shape)) if mode not in first], []
    while rest:
        costs = {mode: ranks[mode] * _distinct(sample, shape, {*first, *rest} - {mode}) for mode in rest}
        order.append(min(rest, key=costs.__getitem__))
        rest.remove(order[-1])
    return *first, *reversed(order)


def _distinct(coords: Sequence[NDArray[Any]], shape: Sequence[int], modes: Iterable[int]) -> int:
    """Return how many different indices entries have in some modes."""
    sizes = {mode: shape[mode] for mode in modes}
    if not sizes:
        return 1
    cells, count = math.prod(sizes.values()), len(coords[0])
    if cells >= 2**63:
        return count
    flat = np.ravel_multi_index([coords[mode] for mode in sizes], tuple(sizes.values()))
    if cells > 8 * count:
        return len(np.unique(flat))
    seen = np.zeros(cells, np.bool)
    seen[flat] = True
    return int(np.count_nonzero(seen))
