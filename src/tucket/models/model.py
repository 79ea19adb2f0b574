"""What all Tucker models can do, and the rules that their parts must keep."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from tucket.backends.home import check_array, explain_followed, home_of, is_traced
from tucket.base import archive
from tucket.base.axes import Axes
from tucket.base.blocks import as_index, frozen
from tucket.base.boxes import Box, from_frame, slabs
from tucket.base.threads import check_workers, in_order
from tucket.kernels import foreign
from tucket.models import metrics
from tucket.models.distances import Divergence, Squares, abroad, are_entries, check_chunk_values
from tucket.sources.as_source import as_source
from tucket.sources.dense import as_tensor, check_shape_match, check_values
from tucket.sources.reductions import check_chunk
from tucket.sources.source import Chunk, Progress, Report, Source

if TYPE_CHECKING:
    import os

__all__ = [
    "SAFE_SQUARES",
    "Index",
    "Model",
    "cast_part",
    "check_dtype",
    "check_part",
    "check_parts",
    "check_range",
    "parse_index",
]

Index = SupportsIndex | slice | EllipsisType


SAFE_SQUARES = 1e-280
"""Sum of squares above which none of note has underflowed."""


class Model(ABC):
    """What all Tucker models can do; see `Tucker` and `BlockTucker`."""

    __slots__ = ()

    core: NDArray[Any]
    axes: Axes | None

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
        progress: Report | None = None,
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
        progress
            Called with a `Progress` after each part that is written.
        """
        if out is None:
            model = self.astype(self.dtype if dtype is None else dtype)
            out = np.empty(self.shape, model.dtype)
        else:
            _check_out(out, self.shape, dtype)
            model = self.astype(out.dtype)
        if progress is None:
            model._write(out, check_workers(workers))
            return out
        boxes, written = list(slabs(self.shape, PART)), 0
        for done, box in enumerate(boxes, 1):
            part = out[box]
            model._part(box)._write(part, check_workers(workers))
            written += part.nbytes
            progress(Progress(done, len(boxes), written, out.nbytes, part.nbytes))
        return out

    @abstractmethod
    def _part(self, box: Box) -> Model:
        """Return the model of a part of the tensor."""

    def _write(self, out: NDArray[Any], workers: int) -> None:  # noqa: ARG002
        out[...] = self[...]

    def astype(self, dtype: DTypeLike) -> Self:
        """Return the model in float32 or float64."""
        target = check_dtype(dtype)
        return self if target == self.dtype else self._cast(target)

    @abstractmethod
    def _cast(self, dtype: np.dtype[Any]) -> Self:
        """Return the model with all its parts of another type."""

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""
        rows, kept = parse_index(index, self.shape)
        counts = [len(range(size)[chosen]) for chosen, size in zip(rows, self.shape)]
        part = self.core
        # the mode that grows least goes first: the largest array is then written once
        for mode in sorted(range(part.ndim), key=lambda mode: counts[mode] / self.rank[mode]):
            part = self._expand(part, mode, rows[mode])
        return part[kept]

    @abstractmethod
    def _at(self, coords: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        """Return the entries of the tensor at some indices, `coords[k]` in mode k."""

    @abstractmethod
    def _total(self) -> float:
        """Return the sum of the tensor."""

    @abstractmethod
    def _square_sum(self, scale: float) -> float:
        """Return the sum of the squares of the tensor over a scale."""

    def kl(self, x: Any, *, workers: int | None = None, progress: Report | None = None) -> float:
        """Generalised Kullback-Leibler divergence of `x` from the model: see `metrics.kl`.

        `x` may be anything that can be reduced; `progress` is told of each chunk of it.
        """
        source = self._check_shape(x)
        divergence, *kinds = source.reduce(Divergence(self, check_workers(workers)), progress)
        return max(0.0, float(divergence) + (self._total() if are_entries(*kinds) else 0.0))

    def relative_error(self, x: Any, *, workers: int | None = None, progress: Report | None = None) -> float:
        """Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`.

        Of a sparse `x` its square is a difference of sums, so that an error below 1e-8 is not told from 0.
        """
        source = self._check_shape(x)
        reduction = Squares(self, check_workers(workers), self._most())
        scale, residual, norm, *kinds = source.reduce(reduction, progress)
        if are_entries(*kinds):
            residual = max(0.0, residual + self._square_sum(scale))
        return metrics.error_ratio(residual, norm)

    @abstractmethod
    def _most(self) -> float:
        """Return what no entry of the tensor exceeds."""

    def _misfit(self, chunk: Chunk, most: float, workers: int) -> tuple[float, float, float]:
        """Return the sums of squares of chunk - model and of the chunk, over the square of a scale, and that scale."""
        if not isinstance(chunk.array, np.ndarray):
            return self._scaled_misfit_abroad(chunk, most)
        tensor = check_chunk_values(chunk).array
        scale = max(float(tensor.max()), most) or 1.0

        def squares(box: Box) -> tuple[float, float]:
            part, model = tensor[box], self[from_frame(box, chunk.box)]
            return metrics.square_sum(part, model, scale), metrics.square_sum(part, 0, scale)

        residuals, norms = zip(*in_order(squares, slabs(tensor.shape), workers))
        return scale, sum(residuals), sum(norms)

    def _scaled_misfit_abroad(self, chunk: Chunk, most: float) -> tuple[float, float, float]:
        """Do it where the chunk is, with a scale only if squares without one are too large or too small."""
        scale = 1.0
        residual, norm, negative = self._misfit_abroad(chunk, scale)
        if not (negative or (math.isfinite(residual) and SAFE_SQUARES < norm < math.inf)):
            largest = foreign.largest(chunk.array)
            check_chunk(chunk, math.isfinite(largest))
            scale = 2.0 ** round(math.log2(max(largest, most) or 1.0))
            residual, norm, negative = self._misfit_abroad(chunk, scale)
        check_chunk(chunk, not negative and norm < math.inf)
        return scale, residual, norm

    def _misfit_abroad(self, chunk: Chunk, scale: float) -> tuple[float, float, bool]:
        return foreign.misfit(chunk.array, abroad(self, chunk), scale)

    def to_numpy(self) -> Self:
        """Return the model on the host: itself. One whose parts are arrays of another library has to be brought."""
        return self

    def to_xarray(self) -> Any:
        """Return the model as an xarray Dataset: `core`, and `factor_<mode>` for each mode, with the labels.

        The dimensions are the modes and, for the core, `block_<mode>`.

        Examples
        --------
        >>> from tucket import Axes, Tucker
        >>> axes = Axes(("city", "hour"), (["Bonn", "Kyoto"], None))
        >>> Tucker([[2.0]], [[[0.5], [0.5]], [[1.0]]], axes).to_xarray()["factor_city"].dims
        ('city', 'block_city')
        """
        from tucket.sources.labelled import to_xarray

        return to_xarray(self)

    def plot(self) -> Any:
        """Draw what there is to see of the model, as `tucket.plot.model` does; returns matplotlib's figure."""
        import tucket  # by its public name: drawing stands above this room

        return tucket.plot.model(self)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model to exactly this path, as an npz archive of plain arrays; `load` reads it back.

        It is written under a temporary name and renamed, so that no reader meets half a model.
        """
        axes = {} if self.axes is None else self.axes.to_arrays()
        archive.write(path, type(self).__name__, {"shape": np.array(self.shape), **self._to_arrays(), **axes})

    @abstractmethod
    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return what is saved."""

    @classmethod
    @abstractmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Model:
        """Build a model from what was saved."""

    def _check_shape(self, x: Any) -> Source:
        source = as_source(x, shape=self.shape)
        check_shape_match(source, self.shape, "the model")
        return source

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


PART = 1 << 24
"""Entries of a tensor that are written at a time where somebody is to be told of it."""


def check_part(values: ArrayLike, name: str, dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
    """Return one part of a model as a read-only float array: of the core's type, or as it came, or else float64."""
    if home_of(values) is not None:
        check_array(values, name)
        if is_traced(values):
            raise explain_followed(values, name)
        values = foreign.bring(values)
    array = check_values(as_tensor(values, name), name)
    if dtype is None:
        dtype = np.dtype(np.float32 if array.dtype == np.float32 else np.float64)
    return frozen(cast_part(array, name, dtype))


def check_parts(values: Iterable[ArrayLike], name: str, core: NDArray[Any]) -> tuple[NDArray[Any], ...]:
    """Return a part for each mode of the core."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: got a {type(values).__name__}; give one for each of the {core.ndim} modes")
    parts = tuple(check_part(part, f"{name}[{mode}]", core.dtype) for mode, part in enumerate(values))
    if len(parts) != core.ndim:
        raise ValueError(f"{name}: got {len(parts)} for a core of {core.ndim} modes; give one a mode")
    return parts


def check_range(core: NDArray[Any], most: Iterable[Any]) -> None:
    """Refuse a model whose tensor may be too large for its type: no entry exceeds this product."""
    if math.prod(map(float, most), start=float(core.max())) > float(np.finfo(core.dtype).max):
        raise ValueError(f"the core and what multiplies it are together too large for {core.dtype}; scale them down")


def cast_part(array: NDArray[Any], name: str, dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return an array in another float type, of which every entry must be in range."""
    if array.dtype == dtype:
        return array
    with np.errstate(over="ignore", under="ignore"):
        cast = array.astype(dtype)
    lost = (cast == np.inf) | ((cast == 0) & (array > 0))
    if lost.any():
        raise ValueError(f"{name} holds {array[lost][0]}, which is out of {dtype}'s range; keep float64")
    return cast


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return the type of a model, one of two."""
    try:
        target = np.dtype(str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype)
    except TypeError:
        target = np.dtype(object)
    if target not in (np.float32, np.float64):
        raise TypeError(f"dtype: cannot use {dtype!r}; give float32 or float64")
    return target


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
