"""Tucker models: a small core, and for each mode what carries it to full size."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket import archive, kernels, metrics
from tucket.kernels.threads import check_workers, in_order
from tucket.partition import Blocks, Partition, as_index, check_partition, frozen
from tucket.sources.dense import as_tensor, check_shape_match, check_values, explain_values, slabs

if TYPE_CHECKING:
    import os

    from scipy.sparse import csr_array

__all__ = ["Block", "BlockTucker", "Index", "Model", "Tucker", "load"]

Index = SupportsIndex | slice | EllipsisType


class Block(NamedTuple):
    """A block of one mode: its indices, as a slice where they are neighbours, and its mass."""

    indices: slice | NDArray[np.intp]
    mass: float


class Model(ABC):
    """What all Tucker models can do; see `Tucker` and `BlockTucker`."""

    __slots__ = ()

    core: NDArray[Any]

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """How many real numbers the model holds."""

    @abstractmethod
    def dense_factors(self) -> list[NDArray[Any]]:
        """Return the factor matrices, one a mode, of shape (size, rank)."""

    @abstractmethod
    def _expand(self, part: NDArray[Any], mode: int, rows: slice) -> NDArray[Any]:
        """Carry one mode of `part` from its rank to the chosen rows of its full size."""

    @property
    def rank(self) -> tuple[int, ...]:
        """Size of each mode of the core: no unfolding of the tensor has a larger rank."""
        return self.core.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Type of the core, the factors and the tensor."""
        return self.core.dtype

    def to_tensor(
        self,
        *,
        out: NDArray[Any] | None = None,
        dtype: DTypeLike | None = None,
        workers: int | None = None,
    ) -> NDArray[Any]:
        """Return the whole tensor that the model stands for, dense.

        Parameters
        ----------
        out : array of float32 or float64, of the model's shape
            Where to write it; a new array if not given.
        dtype : float32 or float64
            Its type; that of `out`, or else of the model, if not given.
        workers : int
            How many threads may write; by default as many as the process has processors.
        """
        if out is None:
            model = self.astype(self.dtype if dtype is None else dtype)
            out = np.empty(self.shape, model.dtype)
        else:
            _check_out(out, self.shape, dtype)
            model = self.astype(out.dtype)
        model._write(out, check_workers(workers))
        return out

    def _write(self, out: NDArray[Any], workers: int) -> None:  # noqa: ARG002
        out[...] = self[...]

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the model in float32 or float64."""
        target = _check_dtype(dtype)
        return self if target == self.dtype else self._cast(target)

    @abstractmethod
    def _cast(self, dtype: np.dtype[Any]) -> Self:
        """Return the model with all its parts of another type."""

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""
        rows, kept = _parse_index(index, self.shape)
        counts = [len(range(size)[chosen]) for chosen, size in zip(rows, self.shape)]
        part = self.core
        # the mode that grows least goes first: the largest array is then written once
        for mode in sorted(range(part.ndim), key=lambda mode: counts[mode] / self.rank[mode]):
            part = self._expand(part, mode, rows[mode])
        return part[kept]

    def kl(self, x: ArrayLike, *, workers: int | None = None) -> float:
        """Generalised Kullback-Leibler divergence of `x` from the model: see `metrics.kl`."""
        tensor = check_values(self._check_shape(x))
        boxes, threads = slabs(tensor.shape), check_workers(workers)
        return max(0.0, sum(in_order(lambda box: metrics.kl_sum(tensor[box], self[box]), boxes, threads)))

    def relative_error(self, x: ArrayLike, *, workers: int | None = None) -> float:
        """Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`."""
        tensor = check_values(self._check_shape(x))
        scale = float(tensor.max())

        def squares(box: tuple[slice, ...]) -> tuple[float, float]:
            part = tensor[box]
            return metrics.square_sum(part, self[box], scale), metrics.square_sum(part, 0, scale)

        residuals, norms = zip(*in_order(squares, slabs(tensor.shape), check_workers(workers)))
        return metrics.error_ratio(sum(residuals), sum(norms))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to exactly this path, as an npz archive of plain arrays; `load` reads it back.

        It is written under a temporary name and renamed, so that no reader meets half a model.
        """
        archive.write(path, type(self).__name__, {"shape": np.array(self.shape), **self._to_arrays()})

    @abstractmethod
    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is saved."""

    @classmethod
    @abstractmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Model:
        """Build a model from what was saved."""

    def _check_shape(self, x: ArrayLike) -> NDArray[Any]:
        tensor = as_tensor(x)
        check_shape_match(tensor, self.shape, "the model")
        return tensor

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the dense tensor, so that NumPy's functions take a model."""
        if copy is False:
            raise ValueError("a model holds no dense tensor to be shared; leave copy=False out")
        return self.to_tensor().astype(dtype or self.dtype, copy=False)

    def __iter__(self) -> Iterator[Any]:
        """Unpack as `core, factors = model`, which is the form that TensorLy's functions take."""
        yield self.core
        yield self.dense_factors()

    def __repr__(self) -> str:
        elements = math.prod(self.shape)
        return (
            f"{type(self).__name__}(shape={self.shape}, rank={self.rank}, dtype={self.dtype}): "
            f"{self.n_parameters:,} parameters for {elements:,} elements, "
            f"{elements / self.n_parameters:,.1f} x smaller"
        )


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Tucker(Model):
    r"""A core and a dense factor matrix a mode.

    .. math:: Q[i_1, \dots, i_d] = \sum_{j_1 \dots j_d} G[j_1, \dots, j_d] \prod_k A_k[i_k, j_k]

    Examples
    --------
    >>> model = Tucker(np.ones((1, 1)), [np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])])
    >>> model.to_tensor()
    array([[ 3.,  5.],
           [ 6., 10.]])
    >>> model[1, :]
    array([ 6., 10.])
    """

    core: NDArray[Any]
    factors: tuple[NDArray[Any], ...]

    def __init__(self, core: ArrayLike, factors: Iterable[ArrayLike]) -> None:
        held = _check_part(core, "core")
        matrices = _check_parts(factors, "factors", held)
        for mode, (factor, rank) in enumerate(zip(matrices, held.shape)):
            if factor.ndim != 2 or factor.shape[1] != rank:
                raise ValueError(
                    f"mode {mode}: the factor is of shape {factor.shape}; "
                    f"give a matrix of {rank} columns, as many as the core has there"
                )
        _check_range(held, (factor.sum(axis=1, dtype=np.float64).max() for factor in matrices))
        object.__setattr__(self, "core", held)
        object.__setattr__(self, "factors", matrices)

    def __reduce__(self) -> tuple[Any, ...]:
        return Tucker, (self.core, self.factors)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the factors."""
        return self.core.size + sum(factor.size for factor in self.factors)

    def dense_factors(self) -> list[NDArray[Any]]:
        """Return the factor matrices, one a mode, of shape (size, rank)."""
        return list(self.factors)

    def _expand(self, part: NDArray[Any], mode: int, rows: slice) -> NDArray[Any]:
        factor = self.factors[mode][rows]
        before, after = part.shape[:mode], part.shape[mode + 1 :]
        # matrix products on the array as it lies; one product instead of many when the mode is the last
        flat = part.reshape(math.prod(before), self.rank[mode], math.prod(after))
        product: NDArray[Any] = factor @ flat if after else flat[:, :, 0] @ factor.T
        return product.reshape(*before, len(factor), *after)

    def _cast(self, dtype: np.dtype[Any]) -> Self:
        return type(self)(_cast(self.core, "core", dtype), self.factors)

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"core": self.core, **_numbered("factor", self.factors)}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Tucker:
        core = arrays["core"]
        return cls(core, (arrays[f"factor_{mode}"] for mode in range(core.ndim)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tucker):
            return NotImplemented
        return _same([self.core, *self.factors], [other.core, *other.factors])


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class BlockTucker(Model):
    r"""A core, and for each index of a mode its block and its weight within that block.

    .. math:: Q[i_1, \dots, i_d] = G[b_1(i_1), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Factor k has one non-zero entry a row, :math:`w_k[i]` in column :math:`b_k(i)`, and is built only when
    it is asked for.

    Examples
    --------
    >>> partition = Partition.from_starts((3, 2), [[0, 2], [0]])
    >>> model = BlockTucker([[8.0], [4.0]], partition, [[0.25, 0.75, 1.0], [0.5, 0.5]])
    >>> model.to_tensor()
    array([[1., 1.],
           [3., 3.],
           [2., 2.]])
    >>> core, factors = model
    >>> factors[0]
    array([[0.25, 0.  ],
           [0.75, 0.  ],
           [0.  , 1.  ]])
    """

    core: NDArray[Any]
    partition: Partition
    weights: tuple[NDArray[Any], ...]

    def __init__(self, core: ArrayLike, partition: Partition, weights: Iterable[ArrayLike]) -> None:
        held = _check_part(core, "core")
        check_partition(partition)
        if held.shape != partition.rank:
            raise ValueError(f"the core is of shape {held.shape}; give the partition's rank {partition.rank}")
        vectors = _check_parts(weights, "weights", held)
        for mode, (vector, size) in enumerate(zip(vectors, partition.shape)):
            if vector.shape != (size,):
                raise ValueError(f"mode {mode}: the weights are of shape {vector.shape}; give {size} of them")
        _check_range(held, (vector.max() for vector in vectors))
        object.__setattr__(self, "core", held)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "weights", vectors)

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockTucker, (self.core, self.partition, self.weights)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return self.partition.shape

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the weights."""
        return self.core.size + sum(self.shape)

    @property
    def factors(self) -> tuple[NDArray[Any], ...]:
        """The factor matrices, built dense, one a mode, of shape (size, rank)."""
        return tuple(self.dense_factors())

    def dense_factors(self) -> list[NDArray[Any]]:
        """Build the factor matrices, one a mode, of shape (size, rank)."""
        matrices = [np.zeros(extent, self.dtype) for extent in zip(self.shape, self.rank)]
        for matrix, blocks, vector in zip(matrices, self.partition.modes, self.weights):
            matrix[np.arange(blocks.size), blocks.labels] = vector
        return matrices

    def blocks(self, mode: int) -> list[Block]:
        """List the blocks of a mode: the indices of each, and the mass that the model puts on them.

        Examples
        --------
        >>> model = BlockTucker([[8.0], [4.0]], Partition.from_labels([[0, 1, 0], [0, 0]]), [[0.5, 1, 0.5], [0.5, 0.5]])
        >>> model.blocks(0)
        [Block(indices=array([0, 2]), mass=8.0), Block(indices=array([1]), mass=4.0)]
        >>> model.blocks(1)
        [Block(indices=slice(0, 2, None), mass=12.0)]
        """
        if not -len(self.shape) <= mode < len(self.shape):
            raise IndexError(f"mode {mode} is out of range for {len(self.shape)} modes of shape {self.shape}")
        blocks = self.partition[mode]
        masses = self._block_masses().sum(axis=tuple(k for k in range(len(self.shape)) if k != mode % len(self.shape)))
        if not blocks.contiguous:
            return [Block(blocks.indices(block), float(mass)) for block, mass in enumerate(masses)]
        edges = [*blocks.starts.tolist(), blocks.size]
        return [Block(slice(a, b), float(mass)) for a, b, mass in zip(edges, edges[1:], masses)]

    def _block_masses(self) -> NDArray[np.float64]:
        """Return the sum of the model over each block."""
        masses = self.core.astype(np.float64)
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, self.weights)):
            masses = masses * blocks.sum(vector).reshape(-1, *(1,) * (len(self.shape) - mode - 1))
        return masses

    def sparse_factors(self) -> list[csr_array[Any]]:
        """Build the factor matrices as SciPy's sparse arrays, with one stored entry a row.

        Examples
        --------
        >>> partition = Partition.uniform((1_000_000,), 1_000)
        >>> model = BlockTucker(np.ones(1_000), partition, [np.full(1_000_000, 0.001)])
        >>> model.sparse_factors()[0].nnz
        1000000
        """
        from scipy.sparse import csr_array

        return [
            csr_array((vector.copy(), blocks.labels, np.arange(blocks.size + 1)), shape=(blocks.size, blocks.rank))
            for blocks, vector in zip(self.partition.modes, self.weights)
        ]

    def kl(self, x: ArrayLike, *, workers: int | None = None) -> float:
        r"""Generalised Kullback-Leibler divergence of `x` from the model, in one pass over `x`.

        .. math:: D(P; Q) = \sum P \log P - \sum_b G_P[b] \log G[b]
                  - \sum_k \sum_i m_k[i] \log w_k[i] - \sum P + \sum Q

        with the block sums :math:`G_P` and the marginals :math:`m_k` of `x`: see `metrics.kl`. As a difference
        of sums it is good to about 1e-15 of the sum of all \|P log P\|.
        """
        tensor = self._check_shape(x)
        model_total = float(self._block_masses().sum())
        # logarithms of entries in a unit of their own size are small, and so is what rounding does to them
        unit = 2.0 ** round(math.log2(model_total / tensor.size)) if model_total else 1.0
        sums = kernels.block_sums(tensor, self.partition, workers, unit)
        if sums.has_negative or not sums.is_finite():
            raise explain_values(tensor)
        terms = [_times_log(sums.core, self.core / unit), *map(_times_log, sums.marginals, self.weights)]
        found = sums.moments.v_log_v if sums.moments else math.nan
        divergence = found - sum(terms) + (model_total - float(sums.core.sum()))
        if math.isnan(divergence) or divergence == -math.inf:  # some sum is too large for this way
            return Model.kl(self, x, workers=workers)
        return max(0.0, divergence)

    def relative_error(self, x: ArrayLike, *, workers: int | None = None) -> float:
        """Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`."""
        tensor = self._check_shape(x)
        if kernels.is_large(self.shape):
            residual, norm, negative = kernels.residual(tensor, self.core, self.partition, self.weights, workers)
            if not negative and np.isfinite(residual) and SAFE_SQUARES < norm < math.inf:
                return math.sqrt(residual / norm)
        return Model.relative_error(self, x, workers=workers)

    def _write(self, out: NDArray[Any], workers: int) -> None:
        if kernels.is_large(self.shape):
            kernels.write(out, self.core, self.partition, self.weights, workers)
        else:
            out[...] = self[...]

    def _cast(self, dtype: np.dtype[Any]) -> Self:
        return type(self)(_cast(self.core, "core", dtype), self.partition, self.weights)

    def _expand(self, part: NDArray[Any], mode: int, rows: slice) -> NDArray[Any]:
        expanded = part.take(self.partition[mode].labels_at(rows), axis=mode)
        expanded *= self.weights[mode][rows].reshape(-1, *(1,) * (part.ndim - mode - 1))
        return expanded

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        cuts = {
            f"starts_{mode}" if blocks.contiguous else f"labels_{mode}": (
                blocks.starts if blocks.contiguous else blocks.labels
            )
            for mode, blocks in enumerate(self.partition.modes)
        }
        return {"core": self.core, **_numbered("weights", self.weights), **cuts}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> BlockTucker:
        core = arrays["core"]
        weights = [arrays[f"weights_{mode}"] for mode in range(core.ndim)]
        modes = tuple(
            Blocks.from_labels(arrays[f"labels_{mode}"])
            if f"labels_{mode}" in arrays
            else Blocks.from_starts(vector.size, arrays[f"starts_{mode}"])
            for mode, vector in enumerate(weights)
        )
        return cls(core, Partition(modes), weights)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockTucker):
            return NotImplemented
        return self.partition == other.partition and _same([self.core, *self.weights], [other.core, *other.weights])


SAFE_SQUARES = 1e-280
"""Sum of squares above which none of note has underflowed."""


def load(path: str | os.PathLike[str]) -> Tucker | BlockTucker:
    """Read a model that `save` wrote. Nothing is unpickled, so a file from anywhere is safe to try."""
    kind, arrays = archive.read(path)
    for model in (Tucker, BlockTucker):
        if kind == model.__name__:
            try:
                loaded = model._from_arrays(arrays)
                if loaded.shape != tuple(np.atleast_1d(arrays["shape"]).tolist()):
                    raise ValueError(f"it is of shape {loaded.shape}, but should be {arrays['shape']}")
                return loaded
            except KeyError as error:
                raise ValueError(f"{path} is not a whole model: {error} is missing") from None
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path} is not a valid model: {error}") from error
    raise ValueError(f"{path} holds a {kind!r}, not a model")


def _numbered(name: str, parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{name}_{mode}": part for mode, part in enumerate(parts)}


def _same(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> bool:
    return len(ours) == len(theirs) and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs))


def _check_part(values: ArrayLike, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return one part of a model as a read-only float array: of the core's type, or as it came, or else float64."""
    array = check_values(as_tensor(values, name), name)
    if dtype is None:
        dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)
    return frozen(_cast(array, name, dtype))


def _check_parts(values: Iterable[ArrayLike], name: str, core: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return a part for each mode of the core."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: got a {type(values).__name__}; give one for each of the {core.ndim} modes")
    parts = tuple(_check_part(part, f"{name}[{mode}]", core.dtype) for mode, part in enumerate(values))
    if len(parts) != core.ndim:
        raise ValueError(f"{name}: got {len(parts)} for a core of {core.ndim} modes; give one a mode")
    return parts


def _check_range(core: NDArray[Any], most: Iterable[Any]) -> None:
    """Refuse a model whose tensor may be too large for its type: no entry exceeds this product."""
    if math.prod(map(float, most), start=float(core.max())) > float(np.finfo(core.dtype).max):
        raise ValueError(f"the core and what multiplies it are together too large for {core.dtype}; scale them down")


def _cast(array: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array in another float type, of which every entry must be in range."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(dtype)
    lost = (cast == np.inf) | ((cast == 0) & (array > 0))
    if lost.any():
        raise ValueError(f"{name} holds {array[lost][0]}, which is out of {dtype}'s range; keep float64")
    return cast


def _check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        target = np.dtype(dtype)
    except TypeError:
        target = np.dtype(object)
    if target not in (np.float32, np.float64):
        raise TypeError(f"dtype: cannot use {dtype!r}; give float32 or float64")
    return target


def _times_log(masses: NDArray[np.float64], model: NDArray[Any]) -> float:
    """Return the sum of masses times log model, where mass that the model has no room for makes it -inf."""
    seen = masses > 0
    with np.errstate(divide="ignore"):
        return float((masses[seen] * np.log(model[seen], dtype=np.float64)).sum())


def _check_out(out: object, shape: tuple[int, ...], dtype: DTypeLike | None) -> None:
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out: got a {type(out).__name__}; give a plain NumPy array")
    if out.dtype not in (np.float32, np.float64) or not out.dtype.isnative:
        raise TypeError(f"out: got an array of {out.dtype}; give one of float32 or float64")
    if dtype is not None and out.dtype != _check_dtype(dtype):
        raise TypeError(f"out: got an array of {out.dtype}, but dtype {np.dtype(dtype)}; leave dtype out")
    check_shape_match(out, shape, "the model", "out")
    if not out.flags.writeable:
        raise ValueError("out: got a read-only array; give one that can be written to")


def _parse_index(index: Any, shape: tuple[int, ...]) -> tuple[list[slice], tuple[int | slice, ...]]:
    """Return a slice a mode, and what of the result is kept: an int drops its mode, as in NumPy."""
    given = index if isinstance(index, tuple) else (index,)
    dots = [place for place, entry in enumerate(given) if entry is ...]
    if len(dots) > 1:
        raise IndexError("an index may hold '...' only once")
    if len(given) - len(dots) > len(shape):
        raise IndexError(f"got {len(given) - len(dots)} indices for {len(shape)} modes of shape {shape}")
    place = dots[0] if dots else len(given)
    filled = (slice(None),) * (len(shape) - len(given) + len(dots))
    rows: list[slice] = []
    kept: list[int | slice] = []
    for mode, (entry, size) in enumerate(zip((*given[:place], *filled, *given[place + 1 :]), shape)):
        if isinstance(entry, slice):
            try:
                entry.indices(size)
            except (TypeError, ValueError) as error:
                raise type(error)(f"mode {mode}: cannot use {entry!r} as an index: {error}") from None
            rows.append(entry)
            kept.append(slice(None))
            continue
        at = as_index(entry)
        if at is None:
            raise TypeError(
                f"mode {mode}: cannot use {entry!r} of type {type(entry).__name__} as an index; "
                f"give ints, slices or '...'"
            )
        if not -size <= at < size:
            raise IndexError(f"mode {mode}: index {at} is out of range for size {size}")
        rows.append(slice(at % size, at % size + 1))
        kept.append(0)
    return rows, tuple(kept)
