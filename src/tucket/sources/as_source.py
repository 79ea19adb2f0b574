"""From what the user gave to a source, or to a clear message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tucket.backends import NUMPY, get_backend
from tucket.base.checks import check_shape
from tucket.kernels import array_api
from tucket.sources.dense import Array, Mapped, as_tensor, explain_values, mapping
from tucket.sources.source import Source
from tucket.sources.stream import Stream


def as_source(
    x: Any,
    name: str = "x",
    memory: int | None = None,
    shape: tuple[int, ...] | None = None,
    allow_traced: bool = False,
) -> Source:
    """Return what the user gave as a source; nothing of it is read yet. A stream needs the shape that it fills."""
    if isinstance(x, Source):
        return x
    if get_backend(x) is not NUMPY:
        return as_array(x, name, allow_traced)
    if not isinstance(x, np.ndarray):
        for (module, kind), make in KINDS.items():
            loaded = sys.modules.get(module)  # an object of a module that is not loaded does not exist
            if loaded is not None and isinstance(x, getattr(loaded, kind, ())):
                return make(x, name, memory)
        if _is_entries(x):
            from tucket.sources.sparse import from_entries

            return from_entries(*x)
        if isinstance(x, Stream | Iterator):
            if shape is None:
                raise TypeError(f"{name} is a stream of slabs, and this needs a tensor that can be read several times")
            return Stream.of(x).filling(shape)
    tensor = as_tensor(x, name)
    return Array(tensor) if mapping(tensor) is None else Mapped(tensor, memory=memory)


def as_array(x: Any, name: str = "x", allow_traced: bool = False) -> Array:
    """Return an array of any library as a source, where it is; its entries are checked where they are read.

    Those of a traced array are checked now, if they are known.
    """
    backend = get_backend(x)
    if backend is NUMPY:
        return Array(as_tensor(x, name))
    backend.check(x, name)
    check_shape(tuple(x.shape), name)
    if not backend.is_traced(x):
        return Array(backend.native(x), None, backend, x)
    if not allow_traced:
        raise backend.explain_traced(x, name)
    if backend.has_values(x) and not array_api.is_fine(backend.detach(x)):
        raise explain_values(backend.detach(x), name)
    return Array(x, None, backend, is_traced=True)


def as_dense(x: Any, name: str = "x") -> Array | Mapped:
    """Return what the user gave, which must be one array: in memory, on a device, or in a mapped file."""
    source = as_source(x, name)
    if not isinstance(source, Array | Mapped):
        raise TypeError(
            f"{name} is a {type(x).__name__}, and this needs an array in memory; "
            f"reduce {name} by tucket.ltr, or read it as an array first"
        )
    return source


def _is_entries(x: Any) -> bool:
    """Say whether these are coords, values and shape: the last of them only ever a tuple of ints."""
    return (
        isinstance(x, tuple)
        and len(x) == 3
        and isinstance(x[2], tuple)
        and all(isinstance(size, int | np.integer) for size in x[2])
        and np.ndim(x[1]) == 1
        and all(np.ndim(indices) == 1 for indices in x[0])
    )


def _dask(x: Any, name: str, _: int | None) -> Source:
    from tucket.sources.dask import Dask

    return Dask(x, name)


def _xarray(x: Any, name: str, memory: int | None) -> Source:
    from tucket.sources.labelled import from_xarray

    return from_xarray(x, name, memory)


def _dataset(x: Any, name: str, _: int | None) -> Source:
    raise TypeError(
        f"{name} is a Dataset of {len(x.data_vars)} variables, {', '.join(map(repr, x.data_vars))}; "
        f"give one of them, as with {name}[{next(iter(x.data_vars), '...')!r}]"
    )


def _sparse(x: Any, name: str, _: int | None) -> Source:
    from tucket.sources.sparse import from_sparse

    check_shape(x.shape, name)
    return from_sparse(x, name)


def _scipy(x: Any, name: str, _: int | None) -> Source:
    from tucket.sources.sparse import from_scipy

    return from_scipy(x, name)


def _zarr(x: Any, name: str, memory: int | None) -> Source:
    from tucket.sources.chunked import Chunked

    return Chunked(x, getattr(x, "shards", None) or x.chunks, name=name, memory=memory)


def _hdf5(x: Any, name: str, memory: int | None) -> Source:
    from tucket.sources.chunked import Chunked

    return Chunked(x, x.chunks, name=name, memory=memory)


KINDS: dict[tuple[str, str], Callable[[Any, str, int | None], Source]] = {
    ("dask.array", "Array"): _dask,
    ("xarray", "DataArray"): _xarray,
    ("xarray", "Dataset"): _dataset,
    ("sparse", "SparseArray"): _sparse,
    ("scipy.sparse", "sparray"): _scipy,
    ("scipy.sparse", "spmatrix"): _scipy,
    ("zarr", "Array"): _zarr,
    ("h5py", "Dataset"): _hdf5,
}
