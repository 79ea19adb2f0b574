"""Labelled arrays: from xarray to sources, and from models to xarray."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.base.optional import import_optional
from tucket.sources.chunked import Chunked
from tucket.sources.dask import Dask
from tucket.sources.source import Source


def from_xarray(x: Any, name: str, memory: int | None = None) -> Source:
    """Return a DataArray as a source: its dimensions name the modes, its index coordinates label their indices."""
    axes = Axes(x.dims, [x.coords[dim].to_numpy() if dim in x.coords else None for dim in x.dims])
    if x.chunks is not None:
        return Dask(x.data, name, axes)
    if _is_in_file(x):
        stored = x.encoding.get("preferred_chunks", {})
        chunks = [stored.get(dim, 1) for dim in x.dims] if stored else None
        return Chunked(_Boxes(x), chunks, axes, name, memory)
    from tucket.sources.as_source import as_source

    source = as_source(x.data, name, memory)
    source.axes = axes
    return source


def _is_in_file(x: Any) -> bool:
    """Say whether a DataArray has not been loaded yet, which xarray has no public way to ask."""
    return not x.variable._in_memory and not hasattr(x.variable._data, "todense")


class _Boxes:
    """A DataArray in a file: boxes are read and not cached."""

    def __init__(self, x: Any) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def __getitem__(self, box: Box) -> Any:
        return self.x[box].to_numpy()


def to_dataset(core: NDArray[Any], factors: Sequence[NDArray[Any]], axes: Axes | None) -> Any:
    """Return the parts of a model as a Dataset."""
    xr = import_optional("xarray", "xarray", "to_xarray")
    axes = axes or Axes([f"mode_{mode}" for mode in range(core.ndim)])

    def free(name: str) -> str:
        """Return a name that no mode has."""
        return free(name + "_") if name in axes.names else name

    blocks = [free(f"block_{name}") for name in axes.names]
    variables = {
        free(f"factor_{name}"): ((name, block), factor) for name, block, factor in zip(axes.names, blocks, factors)
    }
    coords = {name: labels for name, labels in zip(axes.names, axes.labels) if labels is not None}
    return xr.Dataset({free("core"): (blocks, core), **variables}, coords)
