"""The interface through which a decomposition reads a tensor of any kind."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, Backend
from tucket.kernels.algebra import Matrix
from tucket.kernels.updates import ratios
from tucket.sources.source import Source

Work = Callable[..., tuple[Matrix, ...]]
"""A function of data, numbers and arrays; its control flow does not depend on the values of arrays."""

Terms = Callable[["Data", Matrix, Matrix], tuple[Matrix, Any]]
"""Maps entries of a tensor and of a model to a weight per entry, and to a sum over all entries."""


class Data(ABC):
    """A tensor as the iterations read it: in floats, in a unit in which no square overflows.

    Attributes
    ----------
    backend : Backend
        The backend of all computed arrays: that of the tensor if it is on a device, else NumPy.
    scale : float
        The power of two that entries are multiplied by when they are read.
    workers : int
        Threads that may be used.
    is_in_memory : bool
        Whether the tensor is in memory.
    """

    is_in_memory: bool = True
    backend: Backend = NUMPY
    scale: float
    workers: int

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""

    @property
    @abstractmethod
    def source(self) -> Source:
        """The tensor as a source, not scaled."""

    @property
    def size(self) -> int:
        """Number of entries, zeros included."""
        return math.prod(self.shape)

    @property
    def entries_per_pass(self) -> int:
        """Number of entries that a pass reads."""
        return self.size

    def place(self, array: Any) -> Matrix:
        """Move a small NumPy array to the device of the tensor, as floats; an array already there is not moved."""
        return self.backend.as_float(self.backend.from_numpy(array) if isinstance(array, np.ndarray) else array)

    def place_all(self, arrays: Sequence[NDArray[Any]]) -> list[Matrix]:
        """Move several small NumPy arrays of one dtype to the device of the tensor."""
        return [self.backend.as_float(array) for array in self.backend.from_numpy_all(arrays)]

    @abstractmethod
    def with_tensor(self, tensor: NDArray[Any]) -> Data:
        """Return data about another tensor, given as a NumPy array, in the same unit."""

    @abstractmethod
    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""

    def contract_to(self, mode: int, matrices: Mapping[int, Matrix]) -> Iterator[tuple[slice, Matrix]]:
        """Sum the tensor along all modes but one; yield the result for some indices of that mode at a time."""
        yield slice(0, self.shape[mode]), self.contract(matrices)

    def can_hold(self, entries: int) -> bool:  # noqa: ARG002
        """Say whether a contraction of so many entries is worth its memory."""
        return True

    @abstractmethod
    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""

    @abstractmethod
    def singular_vectors(self, mode: int, rank: int) -> Matrix:
        """Return the first left singular vectors of the unfolding along a mode, as many as there are."""

    def ratios(self, part: Matrix, model: Matrix) -> tuple[Matrix, Any]:
        """Divide entries by those of a model: see `kernels.updates.ratios`."""
        return ratios(part, model)

    @abstractmethod
    def slopes(self, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
        """Return the derivatives of <R, Q> with respect to core and factors, in one pass, with weights R and model Q.

        `terms` computes the weights from entries of the tensor and of the model; they are 0 where the tensor is 0.
        Return also the sum that `terms` returns.
        """

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Bind work to this tensor, some numbers and arrays; return a function of the other arrays, for many calls."""
        return partial(work, self, *numbers, *fixed)
