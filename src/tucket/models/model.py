"""What all Tucker models can do, on every backend, and the rules that their parts must keep."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from threading import Lock
from types import EllipsisType
from typing import TYPE_CHECKING, Any, ClassVar, Self, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tucket.backends import NUMPY, Backend, get_backend
from tucket.base import archive
from tucket.base.axes import Axes
from tucket.base.boxes import Box, slabs
from tucket.base.checks import as_index, check_dtype, check_shape_match, frozen
from tucket.base.run import Progress, ProgressCallback, Run
from tucket.kernels import array_api, measures
from tucket.models.distances import DivergenceFrom, SquaresFrom, is_sparse, part_at
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array, as_tensor, check_values
from tucket.sources.reductions import check_chunk
from tucket.sources.source import Chunk, Source

if TYPE_CHECKING:
    import os

Index = SupportsIndex | slice | EllipsisType

PART_ENTRIES = 1 << 24
"""Entries of a tensor that are written at a time where progress is reported."""


class Model(ABC):
    """What all Tucker models can do; see `Tucker` and `BlockTucker`.

    The parts of a model are arrays of one library, on one device. Where a method needs NumPy it says so, and brings the
    parts to the host, which are small.
    """

    __slots__ = ()

    _others: ClassVar[str]

    core: Any
    axes: Axes | None

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """The core, and what the model holds of each mode."""

    @abstractmethod
    def _with(self, parts: Sequence[Any]) -> Self:
        """Return the same model with other parts, which are not checked."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""

    @abstractmethod
    def dense_factors(self) -> list[Any]:
        """Return the factor matrices, one per mode, of shape (size, rank)."""

    @abstractmethod
    def _expand(self, part: Any, mode: int, rows: slice) -> Any:
        """Carry one mode of `part` from its rank to the chosen rows of its full size."""

    @property
    def backend(self) -> Backend:
        """The library of the parts, and the device that they are on."""
        return get_backend(self.core)

    @property
    def device(self) -> Any:
        """Where the parts are, as their library names it; None for NumPy."""
        return self.backend.device

    @property
    def rank(self) -> tuple[int, ...]:
        """Size of each mode of the core: no unfolding of the tensor has a larger rank."""
        return tuple(self.core.shape)

    @property
    def dtype(self) -> Any:
        """Type of the core, the factors and the tensor."""
        return self.core.dtype

    @property
    def n_parameters(self) -> int:
        """Number of entries of all parts."""
        return sum(math.prod(map(int, part.shape)) for part in self.parts)

    def to_numpy(self) -> Self:
        """Return the same model with NumPy arrays as its parts."""
        backend = self.backend
        if backend is NUMPY:
            return self
        try:
            parts = backend.to_numpy_all(self.parts)
        except (RuntimeError, TypeError):
            if not self._is_traced():
                raise
            raise backend.explain_traced(self.core, "the model", can_detach=False) from None
        return self._with([check_part(part, name) for part, name in zip(parts, self._names())])

    def _to_backend(self, backend: Backend) -> Self:
        """Return a model of NumPy arrays as one of another backend."""
        if backend is NUMPY:
            return self
        model = self.astype(backend.widest(self.dtype))  # with a check of its range
        return model._with(backend.from_numpy_all(model.parts))

    def to_tensor(
        self,
        *,
        out: NDArray[Any] | None = None,
        dtype: DTypeLike | None = None,
        workers: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Any:
        """Return the whole tensor that the model stands for, dense.

        Parameters
        ----------
        out : NumPy array of float32 or float64, of the model's shape, optional
            Where to write the tensor; by default a new array. Only for models of NumPy arrays.
        dtype : float32 or float64, optional
            Type of the tensor; by default that of `out`, or else of the model.
        workers : int, optional
            Threads that may write; by default as many as the process has processors.
        progress : callable, optional
            Called with a `Progress` after each part that is written.

        Returns
        -------
        array of the model's shape
            Of the model's library, on its device.
        """
        run = Run.of(workers, progress)
        if self.backend is not NUMPY:
            if out is not None:
                raise TypeError(f"out: is for models of NumPy arrays, and this one is of {self.backend}; leave it out")
            model = self if dtype is None else self.astype(dtype)
            return model._tensor_on_device()
        if out is None:
            model = self.astype(self.dtype if dtype is None else dtype)
            out = np.empty(self.shape, model.dtype)
        else:
            _check_out(out, self.shape, dtype)
            model = self.astype(out.dtype)
        if progress is None:
            model._write(out, run.workers)
            return out
        boxes, written = list(slabs(self.shape, PART_ENTRIES)), 0
        for done, box in enumerate(boxes, 1):
            part = out[box]
            model._part(box)._write(part, run.workers)
            written += part.nbytes
            progress(Progress(done, len(boxes), written, out.nbytes, part.nbytes))
        return out

    def _tensor_on_device(self) -> Any:
        backend = self.backend
        if not self._is_traced() and get_backend(backend.native(self.core)) is NUMPY:  # in the memory of the host
            return backend.from_numpy(self.to_numpy().to_tensor())
        return self[...]

    @abstractmethod
    def _part(self, box: Box) -> Self:
        """Return the model of a part of the tensor."""

    def _write(self, out: NDArray[Any], workers: int) -> None:  # noqa: ARG002
        out[...] = self[...]

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the model in float32 or float64."""
        backend = self.backend
        target = backend.widest(check_dtype(dtype))
        if backend is NUMPY:
            return self if target == self.dtype else self._cast(target)
        if self._is_traced():
            return self._with([backend.xp.astype(part, getattr(backend.xp, target.name)) for part in self.parts])
        return self.to_numpy().astype(target)._to_backend(backend)

    def _cast(self, dtype: np.dtype[Any]) -> Self:
        """Return the model of NumPy arrays in another float type, in which no entry may be out of range."""
        return self._with([cast_part(part, name, dtype) for part, name in zip(self.parts, self._names())])

    def _names(self) -> list[str]:
        """Return what to call the parts in errors."""
        return ["core", *(f"{self._others}[{mode}]" for mode in range(len(self.parts) - 1))]

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""
        rows, kept = parse_index(index, self.shape)
        counts = [len(range(size)[chosen]) for chosen, size in zip(rows, self.shape)]
        part = self.core
        with self.backend.full_precision():
            # the mode that grows least goes first: the largest array is then written once
            for mode in sorted(range(part.ndim), key=lambda mode: counts[mode] / self.rank[mode]):
                part = self._expand(part, mode, rows[mode])
        return part[kept]

    @abstractmethod
    def _at(self, coords: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the entries of the tensor at some indices, `coords[k]` in mode k; for NumPy."""

    @abstractmethod
    def _total(self) -> float:
        """Return the sum of the tensor; for NumPy."""

    @abstractmethod
    def _square_sum(self, scale: float) -> float:
        """Return the sum of the squares of the tensor over a scale; for NumPy."""

    @abstractmethod
    def _most(self) -> float:
        """Return a bound of the entries of the tensor; for NumPy."""

    def kl(self, x: Any, *, workers: int | None = None, progress: ProgressCallback | None = None) -> Any:
        """Return the generalised Kullback-Leibler divergence of `x` from the model, in nats: see `metrics.kl`.

        Parameters
        ----------
        x : array or source
            The tensor: anything that `ltr` takes, of the model's shape and, for a model on a device, of its library
            and on the same device.
        workers : int, optional
            Threads that may read; by default as many as the process has processors.
        progress : callable, optional
            Called with a `Progress` after each chunk.

        Returns
        -------
        float
            Or an array of one number, where `x` or the model requires a gradient or is inside of a compiled function.
        """
        source, run = self._source_of(x), Run.of(workers, progress)
        if self._is_traced(source):
            return measures.divergence(source.given, self.to_tensor())  # type: ignore[attr-defined]
        found = self._kl_on_device(source) if progress is None else None
        return self.to_numpy()._kl(source, run) if found is None else found

    def _kl(self, source: Source, run: Run) -> float:
        divergence, *kinds = source.reduce(DivergenceFrom(self), run)
        return max(0.0, float(divergence) + (self._total() if is_sparse(*kinds) else 0.0))

    def _kl_on_device(self, source: Source) -> float | None:  # noqa: ARG002
        """Do it on a GPU, where the whole of it is launched at once; None where that cannot be done, or went wrong."""
        return None

    def relative_error(self, x: Any, *, workers: int | None = None, progress: ProgressCallback | None = None) -> Any:
        """Return the Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`.

        For a sparse `x` its square is a difference of sums, so that an error below 1e-8 cannot be told from 0.

        Parameters
        ----------
        x : array or source
            The tensor, as for `kl`.
        workers : int, optional
            Threads that may read; by default as many as the process has processors.
        progress : callable, optional
            Called with a `Progress` after each chunk.

        Returns
        -------
        float
            Or an array of one number, where `x` or the model requires a gradient or is inside of a compiled function.
        """
        source, run = self._source_of(x), Run.of(workers, progress)
        if self._is_traced(source):
            return measures.relative_error(source.given, self.to_tensor())  # type: ignore[attr-defined]
        found = self._error_on_device(source) if progress is None else None
        return self.to_numpy()._relative_error(source, run) if found is None else found

    def _relative_error(self, source: Source, run: Run) -> float:
        scale, residual, norm, *kinds = source.reduce(SquaresFrom(self, self._most()), run)
        if is_sparse(*kinds):
            residual = max(0.0, residual + self._square_sum(scale))
        return measures.error_ratio(residual, norm)

    def _error_on_device(self, source: Source) -> float | None:  # noqa: ARG002
        """Do it on a GPU, with the parts where they are; None where that cannot be done, or went wrong."""
        return None

    def _misfit(self, chunk: Chunk, most: float, workers: int) -> tuple[float, float, float]:
        """Return a scale, and the sums of squares of chunk - model and of the chunk, over the square of that scale.

        The scale is 1 unless the squares are too large or too small without one.
        """
        scale = 1.0
        residual, norm, negative = self._residual(chunk, scale, workers)
        if not (negative or (math.isfinite(residual) and measures.SAFE_SQUARES < norm < math.inf)):
            largest = array_api.largest(chunk.array)
            check_chunk(chunk, math.isfinite(largest))
            scale = measures.power_of_two(max(largest, most))
            residual, norm, negative = self._residual(chunk, scale, workers)
        check_chunk(chunk, not negative and norm < math.inf)
        return scale, residual, norm

    def _residual(self, chunk: Chunk, scale: float, workers: int) -> tuple[float, float, bool]:
        return array_api.misfit(chunk.array, part_at(self, chunk), scale, workers)

    def _source_of(self, x: Any) -> Source:
        """Return a tensor that is to be compared with the model, and must fit it."""
        backend = self.backend
        source = as_source(x, shape=self.shape, allow_traced=backend is not NUMPY)
        if backend is not NUMPY and source.backend != backend:
            raise ValueError(
                f"x is of {source.backend}, but the model of {backend}; bring one to the other, or use model.to_numpy()"
            )
        check_shape_match(source, self.shape, "the model")
        return source

    def _is_traced(self, source: Source | None = None) -> bool:
        """Say whether the model, or a tensor that is compared with it, is traced."""
        backend = self.backend
        return (isinstance(source, Array) and source.is_traced) or any(map(backend.is_traced, self.parts))

    def to_xarray(self) -> Any:
        """Return the model, with its labels, as an xarray Dataset of NumPy arrays.

        The variables are `core`, and `factor_<mode>` for each mode. The dimensions are the modes and, for the core,
        `block_<mode>`.

        Returns
        -------
        xarray.Dataset

        Examples
        --------
        >>> from tucket import Axes, Tucker
        >>> axes = Axes(("city", "hour"), (["Bonn", "Kyoto"], None))
        >>> Tucker([[2.0]], [[[0.5], [0.5]], [[1.0]]], axes).to_xarray()["factor_city"].dims
        ('city', 'block_city')
        """
        from tucket.sources.labelled import to_dataset

        model = self.to_numpy()
        return to_dataset(model.core, model.dense_factors(), model.axes)

    def plot(self) -> Any:
        """Draw the model as `tucket.plot.model` does.

        Returns
        -------
        matplotlib.figure.Figure
        """
        import tucket  # by its public name: drawing stands above this room

        return tucket.plot.model(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to exactly this path, as an npz archive of NumPy arrays; `load` reads it back.

        It is written under a temporary name and renamed, so that no reader finds half a model.

        Parameters
        ----------
        path : str or path
            Where to write it; an existing file is replaced.
        """
        model = self.to_numpy()
        axes = {} if model.axes is None else model.axes._to_arrays()
        archive.write(path, model._kind(), {"shape": np.array(model.shape), **model._to_arrays(), **axes})

    def _kind(self) -> str:
        """Return what is saved: the name of the class that reads it back."""
        return type(self).__name__

    @abstractmethod
    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is saved."""

    @classmethod
    @abstractmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Model:
        """Build a model from what was saved."""

    @abstractmethod
    def _same_structure(self, other: Any) -> bool:
        """Say whether two models of this kind have the same structure, whatever their parts."""

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Model) or not (isinstance(other, type(self)) or isinstance(self, type(other))):
            return NotImplemented
        if not all(hasattr(part, "shape") for part in (*self.parts, *other.parts)):  # as functions of JAX's trees leave
            return self is other
        if self.axes != other.axes or self.backend != other.backend or not self._same_structure(other):
            return False
        ours, theirs = self.to_numpy().parts, other.to_numpy().parts
        return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the dense tensor, so that NumPy's functions take a model."""
        if copy is False:
            raise ValueError("a model holds no dense tensor to be shared; leave copy=False out")
        return np.asarray(self.to_tensor(), dtype)

    def __iter__(self) -> Iterator[Any]:
        """Unpack as `core, factors = model`, the form that TensorLy's functions take."""
        yield self.core
        yield self.dense_factors()

    def __repr__(self) -> str:
        if not hasattr(self.core, "shape"):
            return f"{type(self).__name__}(core={self.core!r})"
        elements, place = math.prod(self.shape), "" if self.backend is NUMPY else f", {self.backend}"
        return (
            f"{type(self).__name__}(shape={self.shape}, rank={self.rank}, dtype={self.dtype}{place}): "
            f"{self.n_parameters:,} parameters for {elements:,} elements, "
            f"{elements / self.n_parameters:,.1f} x smaller"
        )


_registered: set[type[Model]] = set()
_registering = Lock()


def register_with_jax(kind: type[Model], structure: Any, build: Any) -> None:
    """Let functions that JAX transforms take models of a kind, and return them.

    `structure` returns what of a model is no array, and `build` makes a model of that and its parts.
    """
    with _registering:
        if kind not in _registered:
            from jax.tree_util import register_pytree_node

            register_pytree_node(kind, lambda model: (model.parts, structure(model)), build)
            _registered.add(kind)


def check_part(values: Any, name: str, like: Any = None) -> Any:
    """Return one part of a model: of the core's library and type, or, for the core, as it came or else in float64.

    NumPy arrays are returned read-only.
    """
    backend = get_backend(values)
    if backend is not NUMPY:
        backend.check(values, name)
        if not backend.is_traced(values):
            check_values(values, name)
        return values
    array = check_values(as_tensor(values, name), name)
    dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64) if like is None else like.dtype
    return frozen(cast_part(array, name, dtype))


def check_parts(values: Any, name: str, core: Any) -> tuple[Any, ...]:
    """Return a part for each mode of the core."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: got a {type(values).__name__}; give one for each of the {core.ndim} modes")
    given, backend = tuple(values), get_backend(core)
    for mode, part in enumerate(given):
        if get_backend(part) != backend:
            raise ValueError(f"{name}[{mode}] is of {get_backend(part)}, but the core of {backend}; give parts of one")
    if len(given) != core.ndim:
        raise ValueError(f"{name}: got {len(given)} for a core of {core.ndim} modes; give one per mode")
    return tuple(check_part(part, f"{name}[{mode}]", core) for mode, part in enumerate(given))


def check_range(core: NDArray[Any], most: Iterable[Any]) -> None:
    """Refuse a model with a tensor that may be too large for its type: no entry exceeds this product."""
    if math.prod(map(float, most), start=float(core.max())) > float(np.finfo(core.dtype).max):
        raise ValueError(f"the core and what multiplies it are together too large for {core.dtype}; scale them down")


def cast_part(array: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return a NumPy array in another float type, in which no entry may be out of range."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(dtype)
    lost = (cast == np.inf) | ((cast == 0) & (array > 0))
    if lost.any():
        raise ValueError(f"{name} holds {array[lost][0]}, which is out of {dtype}'s range; keep float64")
    return frozen(cast)


def _check_out(out: object, shape: tuple[int, ...], dtype: DTypeLike | None) -> None:
    if not isinstance(out, np.ndarray) or isinstance(out, np.ma.MaskedArray):
        raise TypeError(f"out: got a {type(out).__name__}; give a plain NumPy array")
    if out.dtype not in (np.float32, np.float64) or not out.dtype.isnative:
        raise TypeError(f"out: got an array of {out.dtype}; give one of float32 or float64")
    if dtype is not None and out.dtype != check_dtype(dtype):
        raise TypeError(f"out: got an array of {out.dtype}, but dtype {np.dtype(dtype)}; leave dtype out")
    check_shape_match(out, shape, "the model", "out")
    if not out.flags.writeable:
        raise ValueError("out: got a read-only array; give one that can be written to")


def parse_index(index: Any, shape: tuple[int, ...]) -> tuple[list[slice], tuple[int | slice, ...]]:
    """Return a slice per mode, and what of the result is kept: an int drops its mode, as in NumPy."""
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
