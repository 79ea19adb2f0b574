"""The entries of a sparse tensor as a decomposition reads them: all others are zero, and cost nothing."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.boxes import runs
from tucket.decomposition.data.array import ArrayData, is_filled
from tucket.decomposition.data.data import Data, Terms
from tucket.kernels.algebra import Matrix
from tucket.kernels.entries import SortedEntries, choose_order
from tucket.sources.source import Entries
from tucket.sources.sparse import Sparse

HELD_ENTRIES = 1 << 22
"""Largest contraction, in entries, that is kept in memory in any case; the limit grows with the tensor."""

GRAM_SIZE = 2000
"""Size of a mode up to which singular vectors are found by the inner products of all its slices."""


@dataclass(frozen=True, slots=True)
class EntriesData(Data):
    """Entries, no two of which have the same index.

    Attributes
    ----------
    template : EntriesData, optional
        Entries of the same cells, which need not be sorted again.
    """

    entries: Entries
    scale: float = 1.0
    workers: int = 1
    orders: dict[frozenset[int], SortedEntries] = field(default_factory=dict)
    template: EntriesData | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return self.entries.shape

    @property
    def entries_per_pass(self) -> int:
        """Number of entries that a pass reads."""
        return len(self.entries.values)

    @property
    def source(self) -> Sparse:
        """The entries as a source."""
        return Sparse(*self.entries, distinct=True)

    def with_tensor(self, tensor: NDArray[Any]) -> Data:
        """Return data about another tensor in the same unit: its entries, if most are zero."""
        if is_filled(tensor):
            return ArrayData(tensor, self.scale, self.workers)
        coords = np.nonzero(tensor)
        return EntriesData(Entries(coords, tensor[coords], tensor.shape), self.scale, self.workers)

    def _sorted(self, ranks: Sequence[int], first: Sequence[int] = ()) -> SortedEntries:
        """Return the entries, scaled, sorted by some modes before the others."""
        known = frozenset(first)
        if known not in self.orders:
            coords, values, shape = self.entries
            values = values * np.float64(self.scale)
            if self.template is not None:
                like = self.template._sorted(ranks, first)
                self.orders[known] = replace(like, values=values[like.rows])
            else:
                order = choose_order(coords, shape, ranks, first)
                self.orders[known] = SortedEntries.of(coords, values, shape, order)
        return self.orders[known]

    def model_values(self, core: Matrix, factors: Sequence[Matrix]) -> NDArray[np.float64]:
        """Return the values of a model at the entries."""
        return self._sorted(core.shape).model_values(core, factors)

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""
        ((_, part),) = self._contract(matrices, [mode for mode in range(len(self.shape)) if mode not in matrices], None)
        return part

    def contract_to(self, mode: int, matrices: Mapping[int, Matrix]) -> Iterator[tuple[slice, Matrix]]:
        """Sum the tensor along all modes but one; yield the result for some indices of that mode at a time."""
        width = math.prod(matrix.shape[1] for matrix in matrices.values())
        return self._contract(matrices, [mode], HELD_ENTRIES // width)

    def _contract(
        self, matrices: Mapping[int, Matrix], kept: Sequence[int], most: int | None
    ) -> Iterator[tuple[slice, Matrix]]:
        entries = self._sorted([matrices[k].shape[1] if k in matrices else 1 for k in range(len(self.shape))], kept)
        sizes = [self.shape[mode] for mode in entries.order[: len(kept)]]
        summed = [matrices[mode] for mode in entries.order[len(kept) :]]
        contract = partial(entries.contract, summed, sizes, self.workers)
        if most is None or most >= sizes[0]:
            yield slice(0, sizes[0] if sizes else 0), contract().transpose(entries.inverse_order)
            return
        for rows in runs(sizes[0], most):
            yield rows, contract(rows=rows).transpose(entries.inverse_order)

    def can_hold(self, entries: int) -> bool:
        """Say whether a contraction of so many entries is worth its memory."""
        return entries <= max(HELD_ENTRIES, 4 * len(self.entries.values))

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""
        coords, values, _ = self.entries
        weighed = values * np.float64(self.scale)
        for indices, vector in zip(coords, metric):
            weighed *= vector[indices]
        return float(weighed @ weighed)

    def singular_vectors(self, mode: int, rank: int) -> Matrix:
        """Return the first left singular vectors of the unfolding along a mode, as many as there are."""
        from scipy.sparse import coo_array
        from scipy.sparse.linalg import svds

        shape, values = self.shape, self.entries.values
        others = [k for k in range(len(shape)) if k != mode]
        entries = self._sorted([1] * len(shape), others)
        # fibres along the mode, numbered in the order of the entries: only those with an entry
        fibres = np.cumsum(entries.changes < len(others)) - 1 if others else np.zeros(len(values), np.intp)
        rows = entries.coords[:, -1].astype(np.intp)
        matrix = coo_array((entries.values, (rows, fibres)), shape=(shape[mode], int(fibres[-1]) + 1)).tocsr()
        if shape[mode] <= GRAM_SIZE:
            return np.linalg.eigh((matrix @ matrix.T).toarray())[1][:, : -rank - 1 : -1]
        short = min(matrix.shape)
        if short <= rank + 1:
            return np.linalg.svd(matrix.toarray(), full_matrices=False)[0][:, :rank]
        vectors: Matrix = svds(matrix, rank, v0=np.ones(short))[0][:, ::-1]
        return vectors

    def slopes(self, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of <R, Q> with respect to core and factors, in one pass, with weights R and model Q.

        Only the entries are read, since the weights of all others are 0.
        """
        return self._sorted(core.shape).slopes(core, factors, partial(terms, self), self.workers)

    def product_slopes(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix]]:
        """Return the derivatives of <X, Q> with respect to core and factors, in one pass, with the entries X."""
        by_core, by_factors, _ = self._sorted(core.shape).slopes(core, factors, None, self.workers)
        return by_core, by_factors
