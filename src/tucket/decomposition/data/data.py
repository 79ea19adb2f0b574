"""What a decomposition asks of a tensor, wherever it lies: one file per way to read it."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tucket.backends import Backend
from tucket.kernels.algebra import Matrix

Work = Callable[..., tuple[Matrix, ...]]
"""A function of data, numbers and arrays that looks at no value of an array."""

Terms = Callable[["Data", Matrix, Matrix], tuple[Matrix, Any]]
"""From entries of a tensor and of a model to a weight for each, and the sum of something else over all of them."""


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

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Return work on this tensor, some numbers and arrays as a function of more arrays, to be called often."""
        return partial(work, self, *numbers, *fixed)
