"""Tensors with gaps: which cells are known, and for what exposure.

The entries of a tensor are modelled as counts with mean E Q, with a known exposure E and the model Q. A cell that is
not known has exposure 0, and whatever stands there is not looked at.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket import kernels
from tucket.backends import NUMPY, Backend, get_backend
from tucket.base.axes import Axes
from tucket.base.checks import bad_value, check_shape_match, is_all, listed
from tucket.sources.as_source import as_source
from tucket.sources.chunked import Chunked
from tucket.sources.dense import Array, Mapped
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.sparse import Sparse, distinct_entries
from tucket.sources.transformed import Transformed

Observation = Literal["all", "finite", "stored"] | ArrayLike | Source

NAMES = ("all", "finite", "stored")

FEW = 8
"""Where at most one in so many cells is hidden, or known, these cells are listed."""

PIECE_BYTES = 1 << 22
"""Bytes of an array in memory that are looked at at a time."""


@dataclass(frozen=True)
class Observed:
    """A tensor with cells that are not known, or are known for some exposure.

    Attributes
    ----------
    x : Source
        The tensor, with 0 where nothing is known.
    part : Source
        The exposure, or what it lacks to 1.
    is_complement : bool
        Whether the exposure is 1 less `part`.
    weights : array, optional
        The exposure of cells that are known, where it is not 1.
    backend : Backend
        The library, and the device, that the tensor came from; all else is in the memory of the host.
    """

    x: Source
    part: Source
    is_complement: bool = False
    weights: NDArray[np.float64] | None = None
    backend: Backend = NUMPY

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode."""
        return self.x.shape


def observe(source: Any, observed: Any = "all", exposure: Any = None) -> Source | Observed:
    """Return what is known of a tensor: the source itself if that is everything."""
    if isinstance(observed, str):
        if observed not in NAMES:
            raise ValueError(f"observed: unknown {observed!r}; give {listed(NAMES)}, or a Boolean array, True = known")
        if observed == "stored" and not source.sparse:
            raise TypeError(f"observed='stored' is for sparse tensors, not for {source!r}; give 'finite' or an array")
    if not isinstance(source, Source):
        raise TypeError("observed: statistics have no gaps; give the tensor")
    if exposure is None and is_all(observed):
        return source
    if source.backend is not NUMPY:
        found = observe(_on_host(source), observed, exposure)
        return replace(found, backend=source.backend) if isinstance(found, Observed) else source
    weights = None if exposure is None else check_exposure(exposure, source.shape)
    mask = None if isinstance(observed, str) else _check_mask(observed, source)
    if source.sparse:
        return _of_entries(distinct_entries(source), source.axes, observed if mask is None else mask, weights)
    if isinstance(mask, Sparse):
        return _listed(source, mask.entries.coords, weights)
    known = _Known(None if mask is None else mask.array, weights, mask is None and observed == "finite")
    pieces = _pieces(source)
    found = Observed(Transformed(pieces, known.fill), Transformed(pieces, known.weigh), weights=weights)
    return found if weights is not None or not source.in_memory else _shortened(source, found, known)


def all_known(source: Source) -> Observed:
    """Return a tensor without hidden cells."""
    return Observed(source, _cells([np.empty(0, np.intp)] * len(source.shape), source.shape), is_complement=True)


@dataclass(frozen=True)
class _Known:
    """What is known of the cells of dense chunks."""

    mask: Any  # sliceable, or None
    weights: NDArray[np.float64] | None
    is_finite: bool

    def _where(self, chunk: Chunk) -> NDArray[np.float64]:
        """Return the exposure of the cells of a chunk."""
        if self.mask is not None:
            found = np.asarray(self.mask[chunk.box])
        else:
            found = np.isfinite(chunk.array) if self.is_finite else np.ones(chunk.array.shape, np.bool)
        return found if self.weights is None else np.where(found, self.weights[chunk.box], 0.0)

    def fill(self, chunk: Chunk | Entries, workers: int) -> Chunk:  # noqa: ARG002
        """Return a chunk with 0 where nothing is known."""
        assert isinstance(chunk, Chunk)
        return Chunk(np.where(self._where(chunk), chunk.array, chunk.array.dtype.type(0)), chunk.box)

    def weigh(self, chunk: Chunk | Entries, workers: int) -> Chunk:  # noqa: ARG002
        """Return the exposure of a chunk."""
        assert isinstance(chunk, Chunk)
        return Chunk(self._where(chunk), chunk.box)


def _pieces(source: Source) -> Source:
    """Return an array in memory in pieces that stay in the cache."""
    if not isinstance(source, Array) or source.nbytes <= PIECE_BYTES:
        return source
    pieces = Chunked(source.array, axes=source.axes, memory=4 * PIECE_BYTES)
    pieces.in_memory = True
    return pieces


def _on_host(source: Source) -> Array:
    """Return an array of any library as one in the memory of the host."""
    if isinstance(source, Array) and source.is_traced:
        raise source.backend.explain_traced(source.array, "x")
    return Array(source.to_numpy(), source.axes)


def check_exposure(exposure: Any, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an exposure for every cell, as a view."""
    given = exposure.to_numpy() if isinstance(exposure, Source) else get_backend(exposure).to_numpy(exposure)
    found = np.asarray(given, np.float64)
    bad = ~(np.isfinite(found) & (found >= 0))
    if bad.any():
        at = np.unravel_index(int(np.argmax(bad)), found.shape)
        raise bad_value("exposure", [int(index) for index in at], float(found[at]))
    try:
        return np.broadcast_to(found, shape)
    except ValueError:
        raise ValueError(
            f"exposure: its shape {found.shape} does not broadcast to {shape}; give one number per cell, or sizes of 1"
        ) from None


def _check_mask(observed: Any, source: Source) -> Array | Mapped | Chunked | Sparse:
    """Return a Boolean array, or the cells that are known, as a source."""
    mask, shape = as_source(observed, "observed"), source.shape
    mask = mask if mask.backend is NUMPY else _on_host(mask)
    check_shape_match(mask, shape, "x", "observed")
    _check_labels(mask.axes, source.axes)
    if mask.sparse:
        coords, values, _ = distinct_entries(mask)
        seen = values != 0
        return _cells([indices[seen] for indices in coords], shape)
    if not isinstance(mask, Array | Mapped | Chunked) or mask.array.dtype != np.bool:
        kind = f" of {mask.array.dtype}" if hasattr(mask, "array") else ""
        raise TypeError(f"observed: got {mask!r}{kind}; give {listed(NAMES)}, or a Boolean array, True = known")
    return mask


def _check_labels(ours: Axes | None, theirs: Axes | None) -> None:
    """Refuse a mask with labels other than those of the data."""
    if ours is None or theirs is None:
        return
    for name, some, others in zip(theirs.names, ours.labels, theirs.labels):
        if some is not None and others is not None and not np.array_equal(some, others):
            raise ValueError(f"observed: mode {name!r} has other labels there than in x, or in another order")


@dataclass(frozen=True)
class _Eraser:
    """Writes 0 to some cells, given by their places in C order, of chunks that are runs of cells in this order."""

    places: NDArray[np.intp]
    shape: tuple[int, ...]

    def __call__(self, chunk: Chunk | Entries, workers: int) -> Chunk:  # noqa: ARG002
        """Return the changed chunk."""
        assert isinstance(chunk, Chunk)
        array = np.copy(chunk.array)
        begin = int(np.ravel_multi_index([rows.start for rows in chunk.box], self.shape))
        some = slice(*np.searchsorted(self.places, (begin, begin + array.size)))
        array.flat[self.places[some] - begin] = 0
        return Chunk(array, chunk.box)


def _shortened(source: Source, found: Observed, known: _Known) -> Source | Observed:
    """List the cells that are hidden, or those that are known, where they are few."""
    values = np.asarray(source if known.mask is None else known.mask[...])
    most = source.size // FEW
    hidden = kernels.find_unknown(values, most)
    if hidden is not None:
        if not len(hidden):
            return source
        x = Transformed(found.x.given, _Eraser(hidden, source.shape)) if isinstance(found.x, Transformed) else found.x
        return Observed(x, _cells(_indices(hidden, source.shape), source.shape), True)
    is_known = np.isfinite(values) if known.mask is None else values
    if np.count_nonzero(is_known) > most:
        return found
    coords = _indices(np.flatnonzero(is_known), source.shape)
    return Observed(found.x, _cells(coords, source.shape)) if source.sparse else _listed(source, coords, None)


def _indices(places: NDArray[np.intp], shape: tuple[int, ...]) -> list[NDArray[Any]]:
    """Return the indices in each mode of cells that are given by their places in C order."""
    kind = np.int32 if max(shape) < 2**31 else np.intp
    return [indices.astype(kind) for indices in np.unravel_index(places, shape)]


def _cells(
    coords: Sequence[NDArray[Any]], shape: tuple[int, ...], weights: NDArray[np.float64] | None = None
) -> Sparse:
    """Return 1, or a weight, in some cells."""
    values = np.ones(len(coords[0]), np.int8) if weights is None else weights[tuple(coords)]
    return Sparse(coords, values, shape, distinct=True)


def _listed(source: Source, coords: Sequence[NDArray[Any]], weights: NDArray[np.float64] | None) -> Observed:
    """Return the known cells of a dense tensor as entries."""
    part = _cells(coords, source.shape, weights)
    values = (source.array if isinstance(source, Array) else source.to_numpy())[tuple(coords)]
    values = np.where(part.entries.values > 0, values, values.dtype.type(0))
    return Observed(Sparse(coords, values, source.shape, source.axes, distinct=True), part, weights=weights)


def _of_entries(
    entries: Entries, axes: Axes | None, observed: Any, weights: NDArray[np.float64] | None
) -> Source | Observed:
    """Return what is known of a sparse tensor."""
    coords, values, shape = entries
    kept = np.ones(len(values), np.bool) if weights is None else weights[tuple(coords)] > 0
    if isinstance(observed, str) and observed == "finite":
        kept &= np.isfinite(values)
    elif isinstance(observed, Sparse):
        kept &= _are_among(coords, observed.entries.coords, shape)
    elif not isinstance(observed, str):
        kept &= np.asarray(observed.array[...])[tuple(coords)]
    x = Sparse([indices[kept] for indices in coords], values[kept], shape, axes, distinct=True)
    if isinstance(observed, str) and observed == "finite" and weights is None:
        return x if kept.all() else Observed(x, _cells([indices[~kept] for indices in coords], shape), True)
    if isinstance(observed, Sparse) or (isinstance(observed, str) and observed == "stored"):
        known = coords if isinstance(observed, str) else observed.entries.coords
        return Observed(x, _cells(known, shape, weights), weights=weights)
    if weights is not None and not kept.all():  # NaN among the entries
        weights = weights.copy()
        weights[tuple(indices[~kept] for indices in coords)] = 0
    rule = _Known(None if isinstance(observed, str) else observed.array, weights, False)
    part = Transformed(_pieces(Array(np.broadcast_to(np.float64(1), shape))), rule.weigh)
    found = Observed(x, part, weights=weights)
    return found if weights is not None else _shortened(x, found, rule)


def _are_among(
    coords: Sequence[NDArray[Any]], others: Sequence[NDArray[Any]], shape: tuple[int, ...]
) -> NDArray[np.bool]:
    """Say which cells are among some others."""
    if math.prod(shape) >= 2**63:
        raise ValueError(f"observed: shape {shape} has too many cells for a sparse mask; give observed='stored'")
    cells, known = (np.ravel_multi_index(list(map(np.asarray, each)), shape) for each in (coords, others))
    return np.isin(cells, known)
