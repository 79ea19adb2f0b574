"""Conversion of user input to a source."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tucket.backends import NUMPY, get_backend
from tucket.base.checks import check_shape
from tucket.kernels import array_api
from tucket.sources.chunked import Chunked
from tucket.sources.dask import Dask
from tucket.sources.dense import Array, Mapped, as_tensor, explain_values, mapping
from tucket.sources.from_entries import from_entries
from tucket.sources.labelled import from_xarray
from tucket.sources.source import Source
from tucket.sources.sparse import from_sparse
from tucket.sources.stream import Stream, StreamSource, as_stream


def as_source(
    x: Any,
    name: str = "x",
    memory: int | None = None,
    shape: tuple[int, ...] | None = None,
    allow_traced: bool = False,
) -> Source:
    """Return user input as a source. Nothing is read yet, except a stream of unknown shape, to learn the shape."""
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
            return from_entries(*x)
        if isinstance(x, Stream | Iterator):
            return StreamSource(as_stream(x), shape)
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


def as_dense(x: Any) -> Array | Mapped:
    """Return user input as a single array: in memory, on a device, or in a mapped file."""
    source = as_source(x)
    if not isinstance(source, Array | Mapped):
        raise TypeError(
            f"x is a {type(x).__name__}, and this needs an array in memory; "
            f"read it as one, as with tucket.open(...).to_numpy(), or use tucket.ltr or tucket.ntd"
        )
    return source


def _is_entries(x: Any) -> bool:
    """Say whether `x` is a tuple of coords, values and shape; the shape must be a tuple of ints."""
    return (
        isinstance(x, tuple)
        and len(x) == 3
        and isinstance(x[2], tuple)
        and all(isinstance(size, int | np.integer) for size in x[2])
        and np.ndim(x[1]) == 1
        and all(np.ndim(indices) == 1 for indices in x[0])
    )


def _refuse_dataset(x: Any, name: str, _: int | None) -> Source:
    raise TypeError(
        f"{name} is a Dataset of {len(x.data_vars)} variables, {', '.join(map(repr, x.data_vars))}; "
        f"give one of them, as with {name}[{next(iter(x.data_vars), '...')!r}]"
    )


def _from_sparse(x: Any, name: str, _: int | None) -> Source:
    check_shape(tuple(x.shape), name)
    return from_sparse(x, name)


def _from_stored(x: Any, name: str, memory: int | None) -> Source:
    return Chunked(x, getattr(x, "shards", None) or x.chunks, name=name, memory=memory)


KINDS: dict[tuple[str, str], Callable[[Any, str, int | None], Source]] = {
    ("dask.array", "Array"): lambda x, name, _: Dask(x, name),
    ("xarray", "DataArray"): from_xarray,
    ("xarray", "Dataset"): _refuse_dataset,
    ("sparse", "SparseArray"): _from_sparse,
    ("scipy.sparse", "sparray"): _from_sparse,
    ("scipy.sparse", "spmatrix"): _from_sparse,
    ("zarr", "Array"): _from_stored,
    ("h5py", "Dataset"): _from_stored,
}
"""How to read an object of another package, by the module and the name of its type."""
