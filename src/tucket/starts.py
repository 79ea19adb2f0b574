"""Where an iterative decomposition starts: from LTR, from singular vectors, or anywhere."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tucket.blocks import Blocks
from tucket.collecting import collect
from tucket.partition import Partition
from tucket.search import Limits, clusters, descend, reassign, search
from tucket.sources.dense import Array
from tucket.updates.data import Data, Matrix, Parts, unfold

__all__ = ["STARTS", "Start"]

Start = Callable[..., Parts]
"""From a tensor to a model, given a rank and a generator."""

SHORT = 1000
"""Size of a mode, or of all others together, up to which singular vectors are soon found."""

SMALL_CORE = 1 << 14
"""Entries of a core up to which a random start is tried beside others."""

SMALL = 1 << 16
"""Entries up to which the blocks are searched for with as much care as for a model of their own."""

CHEAP = 2_000_000
"""Logarithms up to which indices are moved one by one for blocks that are only a start."""


def from_ltr(data: Data, rank: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Project the tensor under the blocks of a search, a short one if the tensor is not small."""
    start = Partition.uniform(data.shape, rank)
    if data.tensor.size <= SMALL:
        blocks = search(Array(data.tensor), start, [clusters] * len(rank), rng, Limits(), data.workers)
    else:
        blocks, _ = descend(Array(data.tensor), start, [_step] * len(rank), Limits(sweeps=1), data.workers)
    core, factors = collect(data.tensor, blocks).project()
    return core * data.scale, factors


def _step(unfolding: Matrix, blocks: Blocks, workers: int) -> Blocks:
    improve = clusters if unfolding.size * blocks.rank <= CHEAP else reassign
    return improve(unfolding, blocks, workers)


def from_singular_vectors(data: Data, rank: tuple[int, ...], rng: object) -> Parts:  # noqa: ARG001
    """Take the absolute values of the higher-order singular value decomposition."""
    vectors = [_singular_vectors(data, mode, r) for mode, r in enumerate(rank)]
    return np.abs(data.contract(dict(enumerate(vectors)))), [np.abs(matrix) for matrix in vectors]


def _singular_vectors(data: Data, mode: int, rank: int) -> Matrix:
    size = data.shape[mode]
    if size <= data.tensor.size // size:
        # the eigenvectors of a Gram matrix come with the largest eigenvalue last
        return np.linalg.eigh(data.gram(mode))[1][:, : -rank - 1 : -1]
    rows = unfold(np.asarray(data.tensor * np.float64(data.scale)), mode)
    vectors = np.linalg.svd(rows, full_matrices=False)[0][:, :rank]
    missing = rank - vectors.shape[1]  # more components than there are singular vectors
    return np.hstack([vectors, np.full((size, missing), size**-0.5)]) if missing else vectors


def from_singular_vectors_if_cheap(data: Data, rank: tuple[int, ...], rng: object) -> Parts:
    """Take the singular vectors if they need no longer than a few sweeps; else a model without mass."""
    if all(min(size, data.tensor.size // size) <= SHORT for size in data.shape):
        return from_singular_vectors(data, rank, rng)
    return _nothing(data, rank)


def from_chance(data: Data, rank: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Draw every number from 0 to 1, and give the model the total of the tensor."""
    factors = [rng.random((size, r)) for size, r in zip(data.shape, rank)]
    core = rng.random(rank)
    mass = core
    for factor in factors:
        mass = np.tensordot(factor.sum(axis=0), mass, 1)
    total = data.contract({mode: np.ones((size, 1)) for mode, size in enumerate(data.shape)}).item()
    return core * (total / float(mass)), factors


def from_chance_if_cheap(data: Data, rank: tuple[int, ...], rng: np.random.Generator) -> Parts:
    """Draw a model whose core is small, of which sweeps cost little; else one without mass."""
    if math.prod(rank) <= SMALL_CORE:
        return from_chance(data, rank, rng)
    return _nothing(data, rank)


def _nothing(data: Data, rank: tuple[int, ...]) -> Parts:
    return np.zeros(rank), [np.zeros(extent) for extent in zip(data.shape, rank)]


STARTS: Mapping[str, tuple[Start, ...]] = {
    "auto": (from_ltr, from_singular_vectors_if_cheap, from_chance_if_cheap),
    "ltr": (from_ltr,),
    "hosvd": (from_singular_vectors,),
    "random": (from_chance,),
}
