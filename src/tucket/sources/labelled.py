"""Labelled arrays: xarray in, and models out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.base.optional import need
from tucket.sources.dense import Array, Mapped, as_tensor, mapping
from tucket.sources.source import Source

if TYPE_CHECKING:
    from tucket.models.model import Model

__all__ = ["from_xarray", "to_xarray"]


def from_xarray(x: Any, name: str, memory: int | None = None) -> Source:
    """Take a DataArray: its dimensions name the modes, and its index coordinates label their indices."""
    axes = Axes(x.dims, [x.coords[dim].to_numpy() if dim in x.coords else None for dim in x.dims])
    if x.chunks is not None:
        from tucket.sources.dask import Dask

        return Dask(x.data, name, axes)
    if not x.variable._in_memory and not hasattr(
        x.variable._data, "todense"
    ):  # in a file, of which nothing but boxes is to be read
        from tucket.sources.chunked import Chunked

        stored = x.encoding.get("preferred_chunks", {})
        chunks = [stored.get(dim, 1) for dim in x.dims] if stored else None
        return Chunked(_Boxes(x), chunks, axes, name, memory)
    from tucket.sources.as_source import as_source

    if not isinstance(x.data, np.ndarray):
        source = as_source(x.data, name, memory)
        source.axes = axes
        return source
    tensor = as_tensor(x.data, name)
    return Array(tensor, axes) if mapping(tensor) is None else Mapped(tensor, axes, memory)


class _Boxes:
    """A DataArray in a file, of which boxes are read, and not kept."""

    def __init__(self, x: Any) -> None:
        self.x, self.shape, self.dtype = x, x.shape, x.dtype

    def __getitem__(self, box: Box) -> Any:
        return self.x[box].to_numpy()


def to_xarray(model: Model) -> Any:
    """Return a model as a Dataset of its core and factors."""
    xr = need("xarray", "xarray", "to_xarray")
    axes = model.axes or Axes([f"mode_{mode}" for mode in range(len(model.shape))])

    def free(name: str) -> str:
        """Return a name that no mode has."""
        return free(name + "_") if name in axes.names else name

    blocks = [free(f"block_{name}") for name in axes.names]
    factors = {
        free(f"factor_{name}"): ((name, block), factor)
        for name, block, factor in zip(axes.names, blocks, model.dense_factors())
    }
    coords = {name: labels for name, labels in zip(axes.names, axes.labels) if labels is not None}
    return xr.Dataset({free("core"): (blocks, model.core), **factors}, coords)
