"""The slow and obviously right versions: definitions, written as loops."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Dense = NDArray[np.float64]


def rank1_matrix(matrix: Dense) -> Dense:
    """Best rank-1 matrix by KL: row sums times column sums over the total."""
    total = matrix.sum()
    if total == 0:
        return matrix
    return np.outer(matrix.sum(axis=1) / total, matrix.sum(axis=0))


def rank1_tensor(tensor: Dense) -> Dense:
    """BestRank1 of the paper: λ s1 ⊗ .. ⊗ sd with λ = sum^(1-d), at the scale of the entries."""
    top = tensor.max()
    if top == 0:
        return tensor
    tensor = tensor / top  # keeps sum^(1-d) within float64
    product: Dense = np.asarray(tensor.sum() ** (1 - tensor.ndim))
    for mode in range(tensor.ndim):
        others = tuple(m for m in range(tensor.ndim) if m != mode)
        product = np.multiply.outer(product, tensor.sum(axis=others))
    return np.asarray(top * product)


def members(labels: NDArray[Any], block: int) -> list[int]:
    return [index for index, label in enumerate(labels) if label == block]


def project(x: NDArray[Any], labels: Sequence[NDArray[Any]], order: Sequence[int] | None = None) -> Dense:
    """Definition of LTR: mode after mode, each block's slab gets a rank-1 mode-k unfolding."""
    tensor = x.astype(np.float64)
    for mode in order if order is not None else range(tensor.ndim):
        unfolded = np.moveaxis(tensor, mode, 0).copy()
        for block in range(max(labels[mode]) + 1):
            rows = members(labels[mode], block)
            slab = unfolded[rows]
            unfolded[rows] = rank1_matrix(slab.reshape(len(rows), -1)).reshape(slab.shape)
        tensor = np.moveaxis(unfolded, 0, mode)
    return tensor


def algorithm1(x: NDArray[Any], starts: Sequence[NDArray[Any]]) -> Dense:
    """Algorithm 1 of the paper to the letter, with the λ of its Eq. (1)."""
    tensor = x.astype(np.float64)
    for mode in range(tensor.ndim):
        bounds = [*starts[mode], tensor.shape[mode]]
        for begin, end in itertools.pairwise(bounds):
            if begin != end - 1:
                where = (slice(None),) * mode + (slice(begin, end),)
                tensor[where] = rank1_tensor(tensor[where])
    return tensor


def block_sums(x: NDArray[Any], labels: Sequence[NDArray[Any]]) -> Dense:
    core = np.zeros([max(mode) + 1 for mode in labels])
    for index in np.ndindex(x.shape):
        core[tuple(mode[i] for mode, i in zip(labels, index))] += float(x[index])
    return core


def marginal(x: NDArray[Any], mode: int) -> Dense:
    sums = np.zeros(x.shape[mode])
    for index in np.ndindex(x.shape):
        sums[index[mode]] += float(x[index])
    return sums


def kl(p: NDArray[Any], q: NDArray[Any]) -> float:
    total = 0.0
    for a, b in zip(p.ravel().tolist(), q.ravel().tolist()):
        if a > 0:
            total += math.inf if b == 0 else a * (math.log(a) - math.log(b)) - a + b
        else:
            total += b
    return total


def unfolding_rank(tensor: Dense, mode: int) -> int:
    unfolded = np.moveaxis(tensor, mode, 0).reshape(tensor.shape[mode], -1)
    top = unfolded.max()
    return int(np.linalg.matrix_rank(unfolded / top, tol=1e-9)) if top else 0


def expand(core: Dense, factors: Sequence[Dense]) -> Dense:
    """The tensor of a Tucker model, by its definition: one term a combination of components."""
    tensor = np.zeros([len(factor) for factor in factors])
    for components in np.ndindex(core.shape):
        term: Dense = np.asarray(core[components])
        for factor, component in zip(factors, components):
            term = np.multiply.outer(term, factor[:, component])
        tensor += term
    return tensor


def derivatives(weights: Dense, core: Dense, factors: Sequence[Dense]) -> tuple[Dense, list[Dense]]:
    """The derivatives of sum(weights * Q) by the core and the factors of Q, which are linear in each."""
    by_core = np.zeros_like(core)
    for components in np.ndindex(core.shape):
        one = np.zeros_like(core)
        one[components] = 1
        by_core[components] = (weights * expand(one, factors)).sum()
    by_factors = []
    for mode, factor in enumerate(factors):
        found = np.zeros_like(factor)
        for entry in np.ndindex(factor.shape):
            one = np.zeros_like(factor)
            one[entry] = 1
            found[entry] = (weights * expand(core, [*factors[:mode], one, *factors[mode + 1 :]])).sum()
        by_factors.append(found)
    return by_core, by_factors


def fit_in_turn(x: Dense, exposure: Dense, labels: Sequence[NDArray[Any]], rounds: int = 3000) -> Dense:
    """The block model of least divergence from x for an exposure: core and weights in turn, over the whole tensor."""
    blocks = np.zeros(x.shape, np.intp)
    for mode, own in enumerate(labels):
        shape = [-1 if k == mode else 1 for k in range(x.ndim)]
        blocks = blocks * (max(own) + 1) + np.reshape(own, shape)
    model = np.ones(x.shape)
    for _ in range(rounds):
        before = model
        for group in [blocks, *np.indices(x.shape)]:
            wanted = np.bincount(group.ravel(), x.ravel())
            now = np.bincount(group.ravel(), (exposure * model).ravel())
            model = model * np.divide(wanted, now, where=now > 0, out=np.ones_like(now))[group]
        if np.allclose(model, before, rtol=1e-13, atol=0):
            break
    return model
