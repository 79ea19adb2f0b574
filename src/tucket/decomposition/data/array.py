"""An array of any library as a decomposition reads it, piece by piece.

Pieces of NumPy arrays fit the cache, and several threads read them. Those of other arrays are larger, and stay on
their device with all results.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from itertools import chain
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from tucket.backends import NUMPY, Backend, get_namespace
from tucket.base.boxes import runs, slabs
from tucket.base.run import ordered_map
from tucket.decomposition.data.data import Data, Terms, Work
from tucket.kernels.algebra import Matrix, join, kronecker, multiply, multiply_all, reshape, unfold, without
from tucket.sources.as_source import as_array
from tucket.sources.dense import Array

Result = TypeVar("Result")

PIECE_ENTRIES, SLAB_ENTRIES = 1 << 17, 1 << 24
"""Entries that are read at a time: of a NumPy array, which as float64 fit the second-level cache, and elsewhere."""

HELD_SUMS = 1 << 21
"""Sums that a worker holds before they are summed along a further mode."""

THREAD_ENTRIES = 1 << 17
"""Entries of a NumPy array from which another thread is worth starting."""

RECORDED_ENTRIES = 1 << 22
"""Largest tensor, in entries, that is copied for a recording: launching the kernels takes longer than the copy."""

NARROW_COLUMNS, TALL_COST = 64, 200
"""Number of columns below which a product is slow, and the cost of a matrix entry relative to a multiplication."""

MAX_CELLS_PER_ENTRY = 8
"""Cells per non-zero entry below which reading all cells takes less time than reading only the entries."""


def is_filled(tensor: NDArray[Any]) -> bool:
    """Say whether a tensor has so few zeros that it is best read as a whole."""
    return bool(MAX_CELLS_PER_ENTRY * np.count_nonzero(tensor) > tensor.size)


@dataclass(frozen=True, slots=True)
class ArrayData(Data):
    """An array in memory or on a device; computations use the widest floats that there are."""

    tensor: Any
    scale: float = 1.0
    workers: int = 1
    backend: Backend = NUMPY

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return tuple(self.tensor.shape)

    @property
    def source(self) -> Array:
        """The array as a source."""
        return as_array(self.tensor)

    @property
    def piece_entries(self) -> int:
        """Number of entries that are read at a time."""
        return PIECE_ENTRIES if self.backend is NUMPY else SLAB_ENTRIES

    def with_tensor(self, tensor: NDArray[Any]) -> Self:
        """Return data about another tensor, given as a NumPy array, in the same unit."""
        return replace(self, tensor=self.place(tensor))

    def each(self, work: Callable[[slice, Any], Result]) -> list[Result]:
        """Do some work on runs of indices of the first mode, one run per worker, and return the results in order."""
        count = self.shape[0]
        workers = min(self.workers, count, 1 + self.size // THREAD_ENTRIES) if self.backend is NUMPY else 1
        if workers == 1:
            return [work(slice(0, count), self)]
        return list(ordered_map(lambda rows: work(rows, self._some(rows)), runs(count, -(-count // workers)), workers))

    def _some(self, rows: slice) -> ArrayData:
        """Return some indices of the first mode, for one thread."""
        return ArrayData(self.tensor[rows, ...], self.scale, 1, self.backend)

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum the tensor along some modes, against the columns of a matrix for each, in one pass."""

        def work(rows: slice, part: ArrayData) -> Matrix:
            return _contract(part.tensor, Reader(self), {k: m if k else m[rows, :] for k, m in matrices.items()})

        found = self.each(work)
        return reduce(operator.add, found) if 0 in matrices else join(found)

    def square_sum(self, metric: Sequence[Matrix]) -> float:
        """Sum the squares of the entries, each times the entries of the metric at its indices."""
        square = self.backend.xp.square

        def work(rows: slice, part: ArrayData) -> Matrix:
            read, (first, *others), total = Reader(self), [square(vector)[:, None] for vector in metric], 0.0
            weights = first[rows, :], *others
            for box in slabs(part.shape, self.piece_entries):
                factors = {mode: weight[some, :] for mode, (weight, some) in enumerate(zip(weights, box))}
                total = total + multiply_all(square(read(part.tensor[box])), factors)
            return total

        return float(reshape(sum(self.each(work)), ()))

    def gram(self, mode: int) -> Matrix:
        """Return the inner products of all slices of one mode."""
        tensor, split = self.backend.xp.moveaxis(self.tensor, mode, -1), len(self.shape) - 1
        moved = ArrayData(tensor, self.scale, self.workers, self.backend)

        def work(_: object, part: ArrayData) -> Matrix:
            return reduce(operator.add, (rows.T @ rows for _, rows in part.rows(split)))

        return reduce(operator.add, moved.each(work)) if split else work(None, moved)

    def rows(self, split: int) -> Iterator[tuple[slice, Any]]:
        """Yield the entries as a matrix with one row per index of the first `split` modes, some rows at a time.

        Each item is the slice of row numbers and the rows, which are valid until the next item is read.
        """
        read, width, first = Reader(self), math.prod(self.shape[split:]), 0
        for box in slabs(self.shape[:split], max(1, self.piece_entries // width)) if split else [()]:
            part = read(self.tensor[(*box, ...)])
            rows = reshape(np.ascontiguousarray(part) if self.backend is NUMPY else part, (-1, width))
            yield slice(first, first + rows.shape[0]), rows
            first += rows.shape[0]

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

    def repeated(
        self, work: Work, numbers: tuple[int, ...] = (), fixed: Sequence[Matrix] = ()
    ) -> Callable[..., Sequence[Matrix]]:
        """Bind work to this tensor, some numbers and arrays; return a function of the other arrays, for many calls.

        On a GPU the work is recorded. The recording for a small tensor is replayed for later tensors like it.
        """
        if self.backend.kernels != "cuda":
            return partial(work, self, *numbers, *fixed)
        from tucket.kernels.gpu.recorded import Recorded, recording_of

        if self.size > RECORDED_ENTRIES:
            return Recorded(partial(work, self, *numbers, *fixed))
        known = work, numbers, replace(self, tensor=None)
        return lambda *arrays: recording_of(_on_another, known, self.tensor, *fixed, *arrays)


def _on_another(work: Work, numbers: tuple[int, ...], blank: ArrayData, tensor: Any, *arrays: Matrix) -> Any:
    """Do some work on another tensor than the one that it was recorded with."""
    return work(replace(blank, tensor=tensor), *numbers, *arrays)


class Reader:
    """Reads parts of a tensor as floats, in its unit; a NumPy array that must be converted, into one reused buffer."""

    def __init__(self, data: ArrayData) -> None:
        self.scale, self.backend, self.most, self.memory = data.scale, data.backend, data.piece_entries, np.empty(0)

    def __call__(self, part: Any) -> Matrix:
        """Return the entries, which may be valid only until the next part is read."""
        if self.backend is not NUMPY:
            entries = self.backend.as_float(part)
            return entries if self.scale == 1.0 else entries * self.scale
        if part.dtype == np.float64 and self.scale == 1.0:
            return part
        if self.memory.size < part.size:
            self.memory = np.empty(part.size)
        copy = self.memory[: part.size].reshape(part.shape)
        np.copyto(copy, part)
        if self.scale != 1.0:
            copy *= self.scale
        return copy


def _contract(part: Any, read: Reader, matrices: Mapping[int, Matrix]) -> Matrix:
    """Contract a part of a tensor: its other modes piece by piece, then the first, for many of its indices at once."""
    inner, width = {mode - 1: matrix for mode, matrix in matrices.items() if mode}, math.prod(part.shape[1:])
    shifted = {mode + 1: matrix for mode, matrix in inner.items()}

    def collect(rows: slice) -> Matrix:
        pieces = (
            multiply_all(read(part[rows, ...][some, ...]), shifted)
            if width <= read.most
            else _contract(part[rows, ...][some.start, ...], read, inner)[None, ...]
            for some in runs(rows.stop - rows.start, read.most // width)
        )
        return _gathered(pieces, rows.stop - rows.start)

    if 0 not in matrices:
        return collect(slice(0, part.shape[0]))
    sizes = [inner[mode].shape[1] if mode in inner else size for mode, size in enumerate(part.shape[1:])]
    most = HELD_SUMS // math.prod(sizes) if read.backend is NUMPY else read.most // width
    return reduce(
        operator.add, (multiply(collect(rows), matrices[0][rows, :], 0) for rows in runs(part.shape[0], most))
    )


def _gathered(pieces: Iterator[Matrix], count: int) -> Matrix:
    """Join pieces with `count` rows in total; those of NumPy as they come, since the next may overwrite the last."""
    first, at = next(pieces), 0
    if not isinstance(first, np.ndarray):
        return join([first, *pieces])
    held = np.empty((count, *first.shape[1:]))
    for piece in chain([first], pieces):
        held[at : at + len(piece)] = piece
        at += len(piece)
    return held


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
