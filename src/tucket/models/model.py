"""What all Tucker models can do, on every backend, and the rules that their parts must keep."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from threading import Lock
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket.backends import NUMPY, Backend, get_backend
from tucket.base import archive
from tucket.base.axes import Axes, find_cells
from tucket.base.boxes import Box, slabs
from tucket.base.checks import check_dtype, check_memory, check_shape_match, split_mask
from tucket.base.run import Progress, ProgressCallback, Run
from tucket.kernels import array_api, measures
from tucket.models.distances import DivergenceFrom, SquaresFrom, is_sparse, part_at
from tucket.models.expected import divergence_of_observed, error_of_observed
from tucket.models.parts import Index, cast_part, check_out, check_part, parse_index
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array
from tucket.sources.observed import Observation, Observed, check_exposure, observe
from tucket.sources.reductions import check_chunk
from tucket.sources.source import Chunk, Source

if TYPE_CHECKING:
    import os


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
        """Return the same model with NumPy arrays as its parts.

        Returns
        -------
        Tucker or BlockTucker
        """
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
            check_out(out, self.shape, dtype)
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
        """Return the model in another float type.

        Parameters
        ----------
        dtype : float32 or float64
            Where the library has no float64, it is float32.

        Returns
        -------
        Tucker or BlockTucker
        """
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
    def _at(self, coords: Sequence[NDArray[Any]], workers: int = 1) -> NDArray[np.float64]:
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

    def kl(
        self,
        x: Any,
        *,
        observed: Observation = "all",
        exposure: ArrayLike | None = None,
        workers: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Any:
        """Return the generalised Kullback-Leibler divergence of `x` from the model, in nats: see `metrics.kl`.

        Parameters
        ----------
        x : array or source
            The tensor: anything that `ltr` takes, of the model's shape and, for a model on a device, of its library
            and on the same device.
        observed : {"all", "finite", "stored"} or Boolean array, default "all"
            Which cells count, as for `ltr`.
        exposure : array, optional
            For what exposure each cell is known, as for `ltr`: the model's entries are multiplied by it.
        workers : int, optional
            Threads that may read; by default as many as the process has processors.
        progress : callable, optional
            Called with a `Progress` after each chunk.

        Returns
        -------
        float
            Or an array of one number, where `x` or the model requires a gradient or is inside of a compiled function.
        """
        x, observed = split_mask(x, observed)
        source, run = self._source_of(x), Run.of(workers, progress)
        known = observe(source, observed, exposure)
        if isinstance(known, Observed):
            return divergence_of_observed(self.to_numpy(), known, run)
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

    def relative_error(
        self,
        x: Any,
        *,
        observed: Observation = "all",
        exposure: ArrayLike | None = None,
        workers: int | None = None,
        progress: ProgressCallback | None = None,
    ) -> Any:
        """Return the Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`.

        For a sparse `x`, and for one with gaps, its square is a difference of sums, so that an error below 1e-8 cannot
        be told from 0.

        Parameters
        ----------
        x : array or source
            The tensor, as for `kl`.
        observed : {"all", "finite", "stored"} or Boolean array, default "all"
            Which cells count, as for `ltr`.
        exposure : array, optional
            For what exposure each cell is known, as for `ltr`: rates, which are entries over exposures, are compared
            with the model's entries, and the square of each difference counts by its exposure.
        workers : int, optional
            Threads that may read; by default as many as the process has processors.
        progress : callable, optional
            Called with a `Progress` after each chunk.

        Returns
        -------
        float
            Or an array of one number, where `x` or the model requires a gradient or is inside of a compiled function.
        """
        x, observed = split_mask(x, observed)
        source, run = self._source_of(x), Run.of(workers, progress)
        known = observe(source, observed, exposure)
        if isinstance(known, Observed):
            return error_of_observed(self.to_numpy(), known, run)
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

    def predict(self, coords: Sequence[ArrayLike] | Mapping[int | str, ArrayLike]) -> NDArray[np.float64]:
        """Return the entries of the tensor that the model stands for in some cells; no others are computed.

        Parameters
        ----------
        coords : one sequence per mode, or dict from modes to sequences
            Where the cells are: `coords[k]` in mode k, as indices from 0, or as labels of the mode that are no
            integers. Sequences of length 1, and single values, count for all cells.

        Returns
        -------
        ndarray
            One number per cell.

        Raises
        ------
        ValueError
            If a mode is missing, or there is no such index or label, or the sequences differ in length.

        Examples
        --------
        >>> from tucket import Axes, Tucker
        >>> axes = Axes(("city", "hour"), (["Bonn", "Kyoto"], None))
        >>> model = Tucker([[2.0]], [[[0.5], [1.5]], [[1.0], [2.0], [3.0]]], axes)
        >>> model.predict({"city": ["Kyoto", "Bonn"], "hour": [0, 2]})
        array([3., 3.])
        """
        return self.to_numpy()._at(find_cells(coords, self.shape, self.axes))

    def fill(
        self, x: Any, *, observed: Observation = "finite", exposure: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return a tensor with what the model says in the cells that are not known.

        Parameters
        ----------
        x : array or source
            The tensor, as for `kl`; it is not changed.
        observed : {"finite", "stored"} or Boolean array, default "finite"
            Which cells are known, as for `ltr`.
        exposure : array that broadcasts to the shape of `x`, optional
            Exposure of all cells, by which the entries of the model, which are rates, are multiplied. By default 1.

        Returns
        -------
        ndarray
            Dense, of float64.

        Examples
        --------
        >>> from tucket import ltr
        >>> x = np.outer([1.0, 2, 3], [1.0, 2, 4])
        >>> x[1, 1] = np.nan
        >>> ltr(x, 1, observed="finite").fill(x).round(6)
        array([[ 1.,  2.,  4.],
               [ 2.,  4.,  8.],
               [ 3.,  6., 12.]])
        """
        x, observed = split_mask(x, "all" if np.ma.is_masked(x) else observed)
        source = self._source_of(x)
        check_memory(8 * source.size, "the filled tensor")
        known = observe(source, observed)
        if not isinstance(known, Observed):
            return known.to_numpy().astype(np.float64)
        exposed = known.part.to_numpy() != 0
        is_known = ~exposed if known.is_complement else exposed
        expected = self.to_numpy().to_tensor(dtype=np.float64)
        expected *= 1.0 if exposure is None else check_exposure(exposure, self.shape)
        return np.where(is_known, known.x.to_numpy(), expected)

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
        if not all(hasattr(part, "shape") for part in (*self.parts, *other.parts)):  # JAX may leave other things
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
