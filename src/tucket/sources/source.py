"""A source: a tensor that is read chunk by chunk, as often as needed."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Sequence
from contextlib import closing
from copy import copy
from typing import Any, NamedTuple, Protocol, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, Backend
from tucket.base.axes import Axes, name_modes
from tucket.base.boxes import Box
from tucket.base.checks import check_memory
from tucket.base.partition import Partition
from tucket.base.run import Progress, Run


class Chunk(NamedTuple):
    """A dense part of a tensor, and where it is in the whole."""

    array: Any  # of any library
    box: Box

    @property
    def nbytes(self) -> int:
        """Bytes that were read, where the library of the array says so."""
        return int(getattr(self.array, "nbytes", 0))


class Entries(NamedTuple):
    """Some entries of a tensor; all others are zero. `coords[k][e]` is the index of entry e in mode k."""

    coords: Sequence[NDArray[Any]]
    values: NDArray[Any]
    shape: tuple[int, ...]

    @property
    def nbytes(self) -> int:
        """Bytes that were read."""
        return self.values.nbytes + sum(indices.nbytes for indices in self.coords)


Result = TypeVar("Result")


class Reduction(Protocol[Result]):
    """A quantity to compute from a tensor: a result per chunk, and how to add the results."""

    @property
    def distinct(self) -> bool:
        """Whether the indices of the given entries must be distinct."""

    def of(self, chunk: Chunk | Entries, workers: int) -> Result:
        """Return the result of one chunk, computed by at most `workers` threads."""

    def merge(self, results: Sequence[Result]) -> Result:
        """Add the results of some chunks."""
        return self.total(results)

    def total(self, results: Iterable[Result]) -> Result:
        """Add the results of all chunks, as they come."""


class Source(ABC):
    """A tensor that is read chunk by chunk; made by `tucket.open`, `from_table`, `from_parquet` and `from_entries`.

    Every function that takes an array takes a source too. Use it in a `with` statement, or call `close`, to close
    its file. A source of your own derives from this class, sets `shape` and yields `chunks`.

    Attributes
    ----------
    shape : tuple of int
        Size of each mode.
    axes : Axes or None
        Names of the modes, and labels of their indices.
    backend : Backend
        The library and the device that results go to.
    in_memory : bool
        Whether the tensor is in memory.
    sparse : bool
        Whether its chunks are entries, not boxes.
    distributed : bool
        Whether its chunks are reduced where they are, by other processes.
    nbytes, n_chunks : int or None
        Bytes that a pass reads, and number of its chunks, where known.
    """

    shape: tuple[int, ...]
    axes: Axes | None = None
    backend: Backend = NUMPY
    in_memory: bool = False
    sparse: bool = False
    distributed: bool = False
    nbytes: int | None = None
    n_chunks: int | None = None

    @abstractmethod
    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:
        """Yield the parts of the tensor, in any order.

        Parameters
        ----------
        distinct : bool
            Whether the indices of sparse entries must be distinct.

        Yields
        ------
        Chunk or Entries
            A dense box or some sparse entries.
        """

    def reduce(self, reduction: Reduction[Result], run: Run) -> Result:
        """Reduce the tensor in one pass.

        Parameters
        ----------
        reduction : Reduction
            What to compute.
        run : Run
            The number of threads, and the callback for progress.

        Returns
        -------
        object
            The result of the reduction over all chunks.
        """
        # closed after an error too, so that no thread continues to read
        with closing(self.chunks(reduction.distinct)) as chunks:
            found = ((chunk.nbytes, reduction.of(chunk, run.workers)) for chunk in chunks)
            return reduction.total(self._reported(found, run))

    def _reported(self, found: Iterable[tuple[int, Result]], run: Run) -> Generator[Result]:
        """Yield what was found in each chunk, and report the progress, given the bytes read for it."""
        read, n_chunks, n_bytes = 0, self.n_chunks, self.nbytes
        for done, (size, result) in enumerate(found, 1):
            read += size
            yield result
            if run.progress is not None:
                run.progress(Progress(done, n_chunks, read, n_bytes, size))

    def _named(self, names: Any, labels: Any) -> Self:
        """Return the source with names and labels for modes that have none."""
        axes = name_modes(self.axes, names, labels, self.shape)
        if axes is self.axes:
            return self
        source = copy(self)
        source.axes = axes
        return source

    def _project_in_place(self, partition: Partition, dtype: np.dtype[Any]) -> list[Any] | None:  # noqa: ARG002
        """Return the core and the weights of the closed form where the data are; None to collect statistics instead."""
        return None

    def load_if_small(self) -> Source:
        """Read a small tensor into memory.

        Returns
        -------
        Source
            The same tensor in memory, or this source if it is in memory or too large.
        """
        return self

    def to_numpy(self) -> NDArray[Any]:
        """Read the whole tensor into a dense NumPy array.

        Returns
        -------
        ndarray
            The tensor, zeros included. Entries with the same index are added.

        Raises
        ------
        ValueError
            If it would not fit in the memory of this machine.

        Examples
        --------
        >>> import tucket as tk
        >>> tk.from_entries(([0, 1, 1], [2, 0, 0]), [5.0, 1.0, 2.0], (2, 3)).to_numpy()
        array([[0., 0., 5.],
               [3., 0., 0.]])
        """
        tensor: NDArray[Any] | None = None
        with closing(self.chunks(distinct=True)) as chunks:
            for chunk in chunks:
                values = chunk.array if isinstance(chunk, Chunk) else chunk.values
                kind = values.dtype if tensor is None else np.result_type(tensor, values)
                if tensor is None:
                    check_memory(self.size * kind.itemsize, f"{self!r} as a dense array")
                    tensor = np.zeros(self.shape, kind)
                tensor = tensor.astype(kind, copy=False)
                tensor[chunk.box if isinstance(chunk, Chunk) else tuple(chunk.coords)] = values
        return np.zeros(self.shape) if tensor is None else tensor

    @property
    def size(self) -> int:
        """Number of entries of the tensor, zeros included."""
        return math.prod(self.shape)

    def close(self) -> None:  # noqa: B027
        """Close what is open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __array__(self, *_: object, **__: object) -> NDArray[Any]:
        raise TypeError(f"{self!r} is not converted to a dense array automatically; call its method to_numpy")

    def __repr__(self) -> str:
        modes = self.shape if self.axes is None else dict(zip(self.axes.names, self.shape))
        return f"<{type(self).__name__} of a tensor of shape {modes}{self._note()}>"

    def _note(self) -> str:
        return ""
