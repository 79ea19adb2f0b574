"""Where an iterative decomposition starts: from LTR, from singular vectors, or anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tucket.backends.home import namespace_of
from tucket.base.blocks import Blocks
from tucket.base.partition import Partition
from tucket.decomposition.data.device import AnyData
from tucket.decomposition.levels import Level
from tucket.kernels.algebra import Matrix, Parts, multiply_all, unfold
from tucket.models.collect import collect
from tucket.models.making import project_abroad
from tucket.models.metrics import total_correlation
from tucket.projection.search import Limits, clusters, count_entries, descend, reassign, search
from tucket.sources.as_source import as_source
from tucket.sources.source import Source

__all__ = ["STARTS", "Start"]

Start = Callable[..., Parts | None]
"""From a level to a model of it, given a rank and a generator; None where that would take too long."""

SHORT = 1000
"""Size of a mode, or of all others together, up to which singular vectors are soon found."""

SMALL_CORE = 1 << 14
"""Entries of a core up to which a random start is tried beside others."""

FAIR = 0.5
"""Share of the information from which blocks of neighbours are a start as good as others."""

SMALL = 1 << 16
"""Entries up to which the blocks are searched for with as much care as for a model of their own."""

CHEAP = 2_000_000
"""Logarithms up to which indices are moved one by one for blocks that are only a start."""


def from_ltr(level: Level, rank: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Project the tensor under blocks: of a search if it is small, else of neighbours, or of a short search.

    The last where neighbours are too different to be a start.
    """
    data, blocks = level.data, Partition.uniform(level.data.shape, rank)
    source = as_source(data.tensor)
    if data.size <= SMALL:
        blocks = search(source, blocks, [clusters] * len(rank), rng, Limits(), data.workers)
        return _project(data, source, blocks)
    core, factors = _project(data, source, blocks)
    if total_correlation(core) >= FAIR * level.kept:
        return core, factors
    blocks, _ = descend(source, blocks, [_step] * len(rank), Limits(sweeps=1), data.workers)
    return _project(data, source, blocks)


def _project(data: AnyData, source: Source, blocks: Partition) -> Parts:
    there = project_abroad(source, blocks, np.dtype(np.float64))
    core, factors = there or collect(source, blocks, workers=data.workers).project()
    return data.take(core) * data.scale, [data.take(factor) for factor in factors]


def _step(unfolding: Any, blocks: Blocks, workers: int) -> Blocks:
    improve = clusters if count_entries(unfolding) * blocks.rank <= CHEAP else reassign
    return improve(unfolding, blocks, workers)


def from_singular_vectors(level: Level, rank: tuple[int, ...], rng: object) -> Parts:  # noqa: ARG001
    """Take the absolute values of the higher-order singular value decomposition."""
    data = level.data
    vectors = [_singular_vectors(data, mode, r) for mode, r in enumerate(rank)]
    absolute = namespace_of(vectors[0]).abs
    return absolute(data.contract(dict(enumerate(vectors)))), [absolute(matrix) for matrix in vectors]


def _singular_vectors(data: AnyData, mode: int, rank: int) -> Matrix:
    size = data.shape[mode]
    if size <= data.size // size:
        # the eigenvectors of a Gram matrix come with the largest eigenvalue last
        gram = data.gram(mode)
        xp = namespace_of(gram)
        return xp.flip(xp.linalg.eigh(gram)[1][:, -rank:], axis=1)
    rows = unfold(data.whole(), mode)
    xp = namespace_of(rows)
    vectors = xp.linalg.svd(rows, full_matrices=False)[0]
    missing = rank - vectors.shape[1]  # more components than there are singular vectors
    vectors = vectors[:, : min(rank, vectors.shape[1])]
    return xp.concat([vectors, data.take(np.full((size, missing), size**-0.5))], axis=1) if missing > 0 else vectors


def from_singular_vectors_if_cheap(level: Level, rank: tuple[int, ...], rng: object) -> Parts | None:
    """Take the singular vectors if they need no longer than a few sweeps."""
    size = level.data.size
    is_cheap = all(min(mode, size // mode) <= SHORT for mode in level.data.shape)
    return from_singular_vectors(level, rank, rng) if is_cheap else None


def from_chance(level: Level, rank: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Draw every number from 0 to 1, and give the model the total of the tensor."""
    data = level.data
    factors = [rng.random((size, r)) for size, r in zip(data.shape, rank)]
    core = rng.random(rank)
    mass = multiply_all(core, {mode: factor.sum(axis=0)[:, None] for mode, factor in enumerate(factors)}).item()
    ones = {mode: data.take(np.ones((size, 1))) for mode, size in enumerate(data.shape)}
    total = float(unfold(data.contract(ones), 0)[0, 0])
    return data.take(core * (total / mass)), [data.take(factor) for factor in factors]


def from_chance_if_cheap(level: Level, rank: tuple[int, ...], rng: np.random.Generator) -> Parts | None:
    """Draw a model whose core is small, of which sweeps cost little."""
    return from_chance(level, rank, rng) if math.prod(rank) <= SMALL_CORE else None


STARTS: Mapping[str, tuple[Start, ...]] = {
    "auto": (from_ltr, from_singular_vectors_if_cheap, from_chance_if_cheap),
    "ltr": (from_ltr,),
    "hosvd": (from_singular_vectors,),
    "random": (from_chance,),
}
