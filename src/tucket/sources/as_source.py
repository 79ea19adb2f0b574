"""From what the user gave to a source, or a clear message."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from tucket.backends.home import home_of
from tucket.sources.dense import Array, Mapped, as_tensor, check_shape, mapping
from tucket.sources.foreign import Foreign, from_array
from tucket.sources.source import Source
from tucket.sources.stream import Stream

__all__ = ["as_dense", "as_source"]


def as_source(x: Any, name: str = "x", memory: int | None = None, shape: tuple[int, ...] | None = None) -> Source:
    """Return what the user gave as a source: nothing of it is read yet. A stream must be told the shape it fills."""
    if (home := home_of(x)) is not None:
        return from_array(x, home, name)
    if isinstance(x, Source):
        return x
    if not isinstance(x, np.ndarray):
        for (module, kind), make in KINDS.items():
            # who holds one of these has imported its module
            loaded = sys.modules.get(module)
            if loaded is not None and isinstance(x, getattr(loaded, kind, ())):
                return make(x, name, memory)
        if _is_entries(x):
            from tucket.sources.sparse import from_entries

            return from_entries(*x)
        if isinstance(x, Stream | Iterator):
            if shape is None:
                raise TypeError(
                    f"{name} is a stream of slabs, and this needs a tensor that can be read again and again"
                )
            return Stream.of(x).filling(shape)
    tensor = as_tensor(x, name)
    return Array(tensor) if mapping(tensor) is None else Mapped(tensor, memory=memory)


def as_dense(x: Any, name: str = "x") -> Array | Mapped | Foreign:
    """Return what the user gave, which must be one array, in memory, of a device too, or in a mapped file."""
    source = as_source(x, name)
    if not isinstance(source, Array | Mapped | Foreign):
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
