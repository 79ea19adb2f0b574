"""How a decomposition reads a tensor: one file per way, all under one contract, `Data`."""

from __future__ import annotations

from tucket.backends import NUMPY, Backend, get_backend
from tucket.base.run import Run
from tucket.decomposition.data.chunks import SourceData
from tucket.decomposition.data.data import Data
from tucket.decomposition.data.dense import DenseData
from tucket.decomposition.data.device import DeviceData
from tucket.decomposition.data.entries import EntriesData
from tucket.sources.dense import SMALL_BYTES, Array
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse

__all__ = ["Data", "DenseData", "DeviceData", "EntriesData", "SourceData", "backend_of", "data_of", "load_for_passes"]


def load_for_passes(source: Source) -> Source:
    """Return a tensor in memory, or on its device, if it is small, or sparse; else as it is."""
    if source.sparse and not source.distributed:
        (entries,) = source.chunks(distinct=True)
        assert isinstance(entries, Entries)
        return Sparse(entries.coords, entries.values, entries.shape, source.axes, distinct=True)
    if source.in_memory or 8 * source.size > SMALL_BYTES:
        return source
    return Array(source.to_numpy(), source.axes)


def backend_of(source: Source) -> Backend:
    """Return the backend that a decomposition of a source computes with."""
    return get_backend(source.array) if isinstance(source, Array) else NUMPY


def data_of(source: Source, scale: float, run: Run) -> Data:
    """Return a tensor as a decomposition reads it, wherever it is."""
    if isinstance(source, Array):
        tensor, backend, workers = source.array, backend_of(source), run.workers
        return DenseData(tensor, scale, workers) if backend is NUMPY else DeviceData(tensor, backend, scale, workers)
    if isinstance(source, Sparse):
        return EntriesData(source.entries, scale, run.workers)
    return SourceData(source, scale, run)
