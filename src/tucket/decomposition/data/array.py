"""An array as a decomposition reads it: what is the same for NumPy arrays and for those of other libraries."""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Self

from numpy.typing import NDArray

from tucket.backends import get_namespace
from tucket.decomposition.data.data import Data, Terms
from tucket.kernels.algebra import Matrix, join, kronecker, multiply_all, reshape, unfold, without
from tucket.sources.as_source import as_array
from tucket.sources.dense import Array

NARROW_COLUMNS, TALL_COST = 64, 200
"""Number of columns below which a product is slow, and the cost of a matrix entry relative to a multiplication."""


class ArrayData(Data):
    """An array."""

    tensor: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return tuple(self.tensor.shape)

    @property
    def source(self) -> Array:
        """The array as a source."""
        return as_array(self.tensor)

    def with_tensor(self, tensor: NDArray[Any]) -> Self:
        """Return data about another tensor, given as a NumPy array, in the same unit."""
        return replace(self, tensor=self.place(tensor))  # type: ignore[type-var]

    @abstractmethod
    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""

    @abstractmethod
    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix with one row per index of the first `split` modes, some rows at a time.

        Each item is the slice of row numbers and the rows, which are valid until the next item is read.
        """

    @abstractmethod
    def each(self, work: Callable[[slice, Any], Any]) -> list[Any]:
        """Do some work on runs of indices of the first mode, and return the results in order."""

    def singular_vectors(self, mode: int, rank: int) -> Matrix:
        """Return the first left singular vectors of the unfolding along a mode, as many as there are."""
        size = self.shape[mode]
        if size <= self.size // size:
            # the eigenvectors of a Gram matrix come with the largest eigenvalue last
            gram = self.gram(mode)
            xp = get_namespace(gram)
            return xp.flip(xp.linalg.eigh(gram)[1][:, -rank:], axis=1)
        ((_, rows),) = self.rows(0)
        rows = unfold(reshape(rows, self.shape), mode)
        vectors = get_namespace(rows).linalg.svd(rows, full_matrices=False)[0]
        return vectors[:, : min(rank, vectors.shape[1])]

    def _halves(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[int, Matrix, Matrix]:
        """Return how many modes are outer, and a model as a product: rows for these modes, columns for the inner."""
        split = _choose_split(self.shape, core.shape)
        outer = multiply_all(core, {mode: factors[mode].T for mode in range(split)})
        return split, outer, kronecker(factors[split:])

    def pieces(self, split: int, outer: Matrix, inner: Matrix) -> Iterator[tuple[slice, Any, Matrix, Matrix]]:
        """Yield row numbers, entries, the rows of a product and the product: a model, given by `_halves`."""
        table = reshape(outer, (-1, inner.shape[1]))
        for some, part in self.rows(split):
            rows = table[some, :]
            yield some, part, rows, rows @ inner.T

    def slopes(self, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of <R, Q> with respect to core and factors, with weights R and model Q."""
        split, outer, inner = self._halves(core, factors)
        outer_factors = {mode: factors[mode] for mode in range(split)}
        if split:
            found = self.each(lambda rows, part: _weight_sums(part, split, outer[rows, ...], inner, terms))
        else:
            found = [_weight_sums(self, split, outer, inner, terms)]
        pieces, inner_sums, sums = zip(*found)
        outer_slopes = join(pieces)
        factor_slopes = [
            unfold(multiply_all(outer_slopes, without(outer_factors, mode)), mode) @ unfold(core, mode).T
            for mode in range(split)
        ]
        factor_slopes += _split_slopes(sum(inner_sums), factors[split:])
        return multiply_all(outer_slopes, outer_factors), factor_slopes, sum(sums)


def _weight_sums(data: ArrayData, split: int, outer: Matrix, inner: Matrix, terms: Terms) -> tuple[Matrix, Matrix, Any]:
    """Multiply the weights by both matrices of a product; also return the sum that `terms` returns."""
    outer_sums, inner_sums, total = [], 0.0, 0.0
    for _, part, rows, model in data.pieces(split, outer, inner):
        weights, more = terms(data, part, model)
        outer_sums.append(weights @ inner)
        inner_sums, total = inner_sums + weights.T @ rows, total + more
    return reshape(join(outer_sums), outer.shape), inner_sums, total


def _choose_split(shape: Sequence[int], rank: Sequence[int]) -> int:
    """Return how many modes are outer, so that the products are cheap and the matrices small.

    An entry takes as many multiplications as the inner modes have components; narrow matrices are slow, and tall
    ones take memory.
    """

    def cost(split: int) -> float:
        width, components = math.prod(shape[split:]), math.prod(rank[split:])
        too_large = split > 0 and width * components > math.prod(shape)
        if too_large:
            return math.inf
        return components * (1 + NARROW_COLUMNS / width) + TALL_COST * components / width

    return min(range(len(shape) - 1, min(1, len(shape) - 1) - 1, -1), key=cost)


def _split_slopes(slopes: Matrix, factors: Sequence[Matrix]) -> list[Matrix]:
    """Return the slopes of the factors of a Kronecker product, given those of the product."""
    xp, count = get_namespace(slopes), len(factors)
    if count == 1:
        return [slopes]
    shape = (*(factor.shape[0] for factor in factors), *(factor.shape[1] for factor in factors))
    # a factor's rows and columns side by side, so that they go in one product
    paired = xp.permute_dims(reshape(slopes, shape), tuple(axis for k in range(count) for axis in (k, count + k)))
    pairs = reshape(paired, tuple(math.prod(factor.shape) for factor in factors))
    vectors = {k: reshape(factor, (-1, 1)) for k, factor in enumerate(factors)}
    return [reshape(multiply_all(pairs, without(vectors, k)), factor.shape) for k, factor in enumerate(factors)]
