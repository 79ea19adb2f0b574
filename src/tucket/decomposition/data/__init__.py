"""How a decomposition reads a tensor: one file per kind of tensor, all derived from `Data`."""

from __future__ import annotations

import math

import numpy as np

from tucket.backends import NUMPY, Backend, get_backend
from tucket.base.run import Run
from tucket.decomposition.data.array import ArrayData, is_filled
from tucket.decomposition.data.chunks import SourceData
from tucket.decomposition.data.data import Data
from tucket.decomposition.data.entries import EntriesData
from tucket.decomposition.data.known import Known, known_data
from tucket.sources.dense import SMALL_BYTES, Array
from tucket.sources.source import Source
from tucket.sources.sparse import Sparse, distinct_entries

__all__ = [
    "ArrayData", "Data", "EntriesData", "Known", "SourceData", "backend_of", "data_of", "known_data", "load_for_passes",
]  # fmt: skip


MANY_ENTRIES = 1 << 17
"""Entries from which it pays to look for zeros."""


def load_for_passes(source: Source) -> Source:
    """Return a tensor in the best form for many passes: in memory if small, as entries if most cells are zero."""
    if source.sparse and not source.distributed:
        entries = distinct_entries(source)
        return Sparse(entries.coords, entries.values, source.shape, source.axes, distinct=True)
    limit = min(SMALL_BYTES, getattr(source, "memory", math.inf) / 2)
    if not source.in_memory and (source.nbytes or 8 * source.size) <= limit:
        source = Array(source.to_numpy(), source.axes)
    if not isinstance(source, Array) or get_backend(source.given) is not NUMPY or source.size < MANY_ENTRIES:
        return source
    if is_filled(source.array):
        return source
    coords = np.nonzero(source.array)
    return Sparse(coords, source.array[coords], source.shape, source.axes, distinct=True)


def backend_of(source: Source) -> Backend:
    """Return the backend that a decomposition of a source computes with."""
    return get_backend(source.array) if isinstance(source, Array) else NUMPY


def data_of(source: Source, scale: float, run: Run) -> Data:
    """Return a tensor as a decomposition reads it, wherever it is."""
    if isinstance(source, Array):
        return ArrayData(source.array, scale, run.workers, backend_of(source))
    if isinstance(source, Sparse):
        return EntriesData(source.entries, scale, run.workers)
    return SourceData(source, scale, run)
