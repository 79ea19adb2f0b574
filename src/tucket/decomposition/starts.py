"""Where an iterative decomposition starts: from LTR, from singular vectors, or from random numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np

from tucket.backends import get_namespace
from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.decomposition.data import Data
from tucket.decomposition.levels import Level
from tucket.kernels.algebra import Matrix, Parts, multiply_all, unfold
from tucket.models.statistics import read
from tucket.projection.search import Search
from tucket.projection.strategies import Clusters
from tucket.projection.unfolding import information_in
from tucket.sources.source import Source

Start = Callable[..., Parts | None]
"""Maps a level, a rank and a `Run` to a model of the level, or to None where that would take too long."""

SHORT_INDICES = 1000
"""Size of a mode, or of all others together, up to which singular vectors are cheap."""

SMALL_CORE_ENTRIES = 1 << 14
"""Entries of a core up to which a random start is tried beside others."""

MIN_NEIGHBOUR_SHARE = 0.5
"""Minimum share of the information that blocks of neighbours must keep to be used as a start."""

SMALL_ENTRIES = 1 << 16
"""Largest tensor, in entries, for which a start from LTR uses the full search for blocks."""

CHEAP_LOGS = 2_000_000
"""Maximum cost, in logarithms, of moving indices one by one in the short search for a start."""


def from_ltr(level: Level, rank: tuple[int, ...], run: Run) -> Parts:
    """Start from an LTR model.

    The blocks of a small tensor come from a full search. Those of a larger tensor are runs of neighbours, or come from
    a short search if neighbours are too different.
    """
    data, blocks = level.data, Partition.uniform(level.data.shape, rank)
    source, run = data.source, _run_for(data, run)
    if data.size <= SMALL_ENTRIES:
        return from_clusters(level, rank, run)
    core, factors = _project(data, source, blocks, run)
    if information_in(core) >= MIN_NEIGHBOUR_SHARE * level.kept:
        return core, factors
    blocks, _ = Search(source, run).descend(blocks, [Clusters(CHEAP_LOGS)] * len(rank), 1)
    return _project(data, source, blocks, run)


def from_clusters(level: Level, rank: tuple[int, ...], run: Run) -> Parts:
    """Start from an LTR model with the clusters of a full search."""
    data, run = level.data, _run_for(level.data, run)
    blocks = Partition.uniform(data.shape, rank)
    blocks = Search(data.source, run).best(blocks, [Clusters()] * len(rank))
    return _project(data, data.source, blocks, run)


def _run_for(data: Data, run: Run) -> Run:
    """Return how to run over data: what is in memory has no progress to report."""
    return replace(run, progress=None) if data.is_in_memory else run


def _project(data: Data, source: Source, blocks: Partition, run: Run) -> Parts:
    parts = source._project_in_place(blocks, np.dtype(np.float64))
    if parts is not None:
        core, *weights = map(data.backend.native, parts)
        matrices = [data.backend.indicator(cut.labels, cut.rank) * w[:, None] for cut, w in zip(blocks, weights)]
        return core * data.scale, matrices
    core, factors = read(source, blocks, run).project()
    return data.place(core) * data.scale, [data.place(factor) for factor in factors]


def from_singular_vectors(level: Level, rank: tuple[int, ...], run: object) -> Parts:  # noqa: ARG001
    """Take the absolute values of the higher-order singular value decomposition."""
    data = level.data
    vectors = [_singular_vectors(data, mode, r) for mode, r in enumerate(rank)]
    absolute = get_namespace(vectors[0]).abs
    return absolute(data.contract(dict(enumerate(vectors)))), [absolute(matrix) for matrix in vectors]


def _singular_vectors(data: Data, mode: int, rank: int) -> Matrix:
    vectors = data.singular_vectors(mode, rank)
    xp, (size, found) = get_namespace(vectors), vectors.shape
    if found == rank:
        return vectors
    missing = rank - found  # more components than there are singular vectors
    return xp.concat([vectors, data.place(np.full((size, missing), size**-0.5))], axis=1)


def from_singular_vectors_if_cheap(level: Level, rank: tuple[int, ...], run: object) -> Parts | None:
    """Take the singular vectors if they need no longer than a few sweeps."""
    size = level.data.size
    is_cheap = level.data.is_in_memory and all(min(n, size // n) <= SHORT_INDICES for n in level.data.shape)
    return from_singular_vectors(level, rank, run) if is_cheap else None


def from_random(level: Level, rank: tuple[int, ...], run: Run) -> Parts:
    """Draw every parameter from 0 to 1, and scale the model to the total of the tensor."""
    data, rng = level.data, run.generator()
    factors = [rng.random((size, r)) for size, r in zip(data.shape, rank)]
    core = rng.random(rank)
    mass = multiply_all(core, {mode: factor.sum(axis=0)[:, None] for mode, factor in enumerate(factors)}).item()
    ones = {mode: data.place(np.ones((size, 1))) for mode, size in enumerate(data.shape)}
    total = float(unfold(data.contract(ones), 0)[0, 0])
    return data.place(core * (total / mass)), [data.place(factor) for factor in factors]


def from_random_if_cheap(level: Level, rank: tuple[int, ...], run: Run) -> Parts | None:
    """Draw a model with a small core, since sweeps of it cost little."""
    return from_random(level, rank, run) if math.prod(rank) <= SMALL_CORE_ENTRIES else None


STARTS: Mapping[str, tuple[Start, ...]] = {
    "auto": (from_ltr, from_singular_vectors_if_cheap, from_random_if_cheap),
    "ltr": (from_ltr,),
    "hosvd": (from_singular_vectors,),
    "random": (from_random,),
}

LATER_STARTS: tuple[Start, ...] = (
    from_clusters,
    from_singular_vectors_if_cheap,
    from_random_if_cheap,
    from_random_if_cheap,
)
"""Starts that are tried afterwards."""
