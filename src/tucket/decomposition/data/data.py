"""What a decomposition asks of a tensor, wherever it lies: one file per way to read it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tucket.backends import Backend, get_namespace
from tucket.kernels.algebra import Matrix, join, kronecker, multiply_all, reshape, unfold, without

Work = Callable[..., tuple[Matrix, ...]]
"""A function of data, numbers and arrays that looks at no value of an array."""

Terms = Callable[["Data", Matrix, Matrix], tuple[Matrix, Any]]
"""From entries of a tensor and of a model to a weight for each, and the sum of something else over all of them."""


NARROW_COLUMNS, TALL_COST = 64, 200
"""Columns up to which a product is slow, and the cost of an entry of a matrix beside a multiplication."""


class Data(ABC):
    """A tensor as the iterations read it: in floats, in a unit in which no square overflows.

    Attributes
    ----------
    backend : Backend
        Where the tensor is, and all that is computed stays.
    scale : float
        The power of two that entries are multiplied by when they are read.
    workers : int
        Threads that may be used.
    """

    backend: Backend
    scale: float
    workers: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""

    @property
    def size(self) -> int:
        """Number of entries."""
        return math.prod(self.shape)

    def place(self, array: Any) -> Matrix:
        """Bring a small NumPy array to where the tensor is, in floats; an array that is there stays."""
        there = self.backend.from_numpy(array) if isinstance(array, np.ndarray) else array
        return self.backend.as_float(there)

    def place_all(self, arrays: Sequence[NDArray[Any]]) -> list[Matrix]:
        """Bring several small NumPy arrays of one dtype to where the tensor is."""
        return [self.backend.as_float(array) for array in self.backend.from_numpy_all(arrays)]

    @abstractmethod
    def with_tensor(self, tensor: NDArray[Any]) -> Self:
        """Return data about another tensor, given as a NumPy array, in the same unit."""

    @abstractmethod
    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""

    @abstractmethod
    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""

    @abstractmethod
    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""

    @abstractmethod
    def rows(self, split: int) -> Iterator[tuple[slice, Matrix]]:
        """Yield the entries as a matrix, a row for each index of the first modes: some rows at a time, until the next.

        They come with the numbers that they have among all rows.
        """

    @abstractmethod
    def each(self, work: Callable[[slice, Any], Any]) -> list[Any]:
        """Do some work on runs of indices of the first mode, and return the results in order."""

    @abstractmethod
    def ratios(self, part: Matrix, model: Matrix) -> tuple[Matrix, Any]:
        """Divide entries by those of a model, which may be overwritten; 0 where the model has no mass.

        Return also the sum of P log(P / Q): infinity where the tensor has mass and the model none.
        """

    @abstractmethod
    def descend_rows(self, targets: Matrix, gram: Matrix, rows: Matrix, sweeps: int, tolerance: float) -> Matrix:
        """Lower a N a / 2 - a m over a >= 0 for each row a, with the Gram matrix N and the row's targets m."""

    def slopes(self, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of <R, Q> by the core and by each factor, in one pass, with weights R and the model Q.

        `terms` makes the weights from the entries of the tensor and of the model; the sum that it returns for each part
        is returned for all. The model is a product of two matrices: rows for the outer modes, columns for the inner.
        """
        split = _choose_split(self.shape, core.shape)
        outer_factors = {mode: factors[mode] for mode in range(split)}
        outer = multiply_all(core, {mode: factor.T for mode, factor in outer_factors.items()})
        inner = kronecker(factors[split:])
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

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Return work on this tensor, some numbers and arrays as a function of more arrays, to be called often."""
        return partial(work, self, *numbers, *fixed)


def _weight_sums(data: Data, split: int, outer: Matrix, inner: Matrix, terms: Terms) -> tuple[Matrix, Matrix, Any]:
    """Sum the weights against either matrix of a product, and the sum that `terms` returns."""
    table, outer_sums, inner_sums, total = reshape(outer, (-1, inner.shape[1])), [], 0.0, 0.0
    for some, part in data.rows(split):
        rows = table[some, :]
        weights, more = terms(data, part, rows @ inner.T)
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
