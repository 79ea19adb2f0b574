r"""Projections onto log-linear models, by their definition: the slow ways that `ltr` is checked against.

A model is a set of indices whose θ is free; all other θ are 0. The m-projection of P keeps η there, and minimises
:math:`D(P; Q)`; that problem is convex, with gradient :math:`\eta - \hat\eta` and the Fisher matrix

.. math:: G[u, v] = \eta[u \vee v] - \eta[u]\, \eta[v]

as its Hessian, in which :math:`u \vee v` is the larger of the indices in every mode.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.geometry.coordinates import Dense, bingo_indices, check_positive, eta, sums_above, sums_below
from tucket.metrics import kl
from tucket.partition import Partition, one_a_mode

__all__ = ["Legendre", "LegendreStep", "e_project", "legendre", "m_project", "many_body"]

MOST = 4000
"""Free parameters at most: their Fisher matrix must be held and solved."""

ROUNDING = 1e-14
"""What a divergence of distributions may be off by: below it the gradient tells more."""

Basis = Partition | ArrayLike


class LegendreStep(NamedTuple):
    """One iteration: the divergence after it, and the seconds since the start."""

    iteration: int
    kl: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Legendre:
    """A Legendre decomposition: its tensor, its θ, how it came about, and why it ended."""

    tensor: Dense
    theta: Dense
    trace: tuple[LegendreStep, ...]
    stopped: str


def legendre(
    x: ArrayLike,
    basis: Basis,
    *,
    method: Literal["natural", "gradient"] = "natural",
    n_iter_max: int = 10_000,
    tol: float = 1e-10,
    callback: Callable[[LegendreStep], object] | None = None,
) -> Legendre:
    """Decompose a positive tensor into few natural parameters, by gradients: Legendre decomposition.

    After Sugiyama, Nakahara & Tsuda, "Legendre decomposition for tensors", NeurIPS 2018. From the uniform tensor the
    free parameters go down the divergence, by its natural gradient, which is Newton's method here, or by its plain
    one; a step that would raise it is halved.

    Parameters
    ----------
    x : array of positive numbers
    basis : Partition, or array of bool, or sequence of indices
        Where θ is free: off the bingos of a partition, or where the array is true, or at these indices. The first
        index of all is always free, for the scale.
    method : {"natural", "gradient"}
    n_iter_max : int
    tol : float
        It ends when no η differs from that of `x` by more than this share of the total.
    callback
        Called with every step.

    Examples
    --------
    >>> x = np.arange(1.0, 13).reshape(3, 4)
    >>> found = legendre(x, Partition.uniform(x.shape, 1))
    >>> np.allclose(found.tensor, np.outer(x.sum(1), x.sum(0)) / x.sum())
    True
    """
    p = check_positive(x)
    free = free_indices(basis, p.shape)
    if method not in ("natural", "gradient"):
        raise ValueError(f"method: unknown {method!r}; give 'natural' or 'gradient'")
    if method == "natural" and len(free) > MOST:
        raise ValueError(f"basis: {len(free)} parameters are free; give at most {MOST}, or method='gradient'")
    began, total = time.perf_counter(), float(p.sum())
    p = p / total
    where = tuple(free.T)
    target, parameters = eta(p)[where], np.zeros(len(free))
    q, step, steepest = _distribution(parameters, where, p.shape), 1.0, math.inf
    divergence, trace, stopped = kl(p, q), [], "iterations"
    for iteration in range(1, n_iter_max + 1):
        sums = eta(q)
        gradient = target - sums[where]
        slope = float(np.abs(gradient).max(initial=0.0))
        if slope <= tol:
            stopped = "converged"
            break
        direction = _solve(fisher(sums, free), gradient) if method == "natural" else gradient
        step = 1.0 if method == "natural" else 2 * step
        while True:
            ahead = parameters + step * direction
            moved = _distribution(ahead, where, p.shape)
            reached = kl(p, moved)
            if reached <= divergence + ROUNDING or step < 1e-12:
                break
            step /= 2
        if reached > divergence - ROUNDING and slope >= steepest / 2:  # only rounding errors are left
            stopped = "converged"
            break
        parameters, q, divergence, steepest = ahead, moved, min(divergence, reached), min(steepest, slope)
        trace.append(LegendreStep(iteration, total * divergence, time.perf_counter() - began))
        if callback:
            callback(trace[-1])
    full = np.zeros(p.shape)
    full[where] = parameters
    full.flat[0] = np.log(q.flat[0]) + math.log(total)
    return Legendre(total * q, full, tuple(trace), stopped)


def m_project(x: ArrayLike, basis: Basis) -> Dense:
    """Return the m-projection: θ is 0 off the basis, and η is that of `x` on it. See `legendre` for the arguments.

    Examples
    --------
    >>> m_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).round(6)
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    return legendre(x, basis, tol=1e-14, n_iter_max=200).tensor


def e_project(x: ArrayLike, basis: Basis, *, n_iter_max: int = 1000, tol: float = 1e-12) -> Dense:
    """Return a tensor of the model that is nearest in the other direction: D(Q; x), at the total of `x`.

    The model is not convex for this; what is found, from the m-projection on, is the nearest around.

    Examples
    --------
    >>> q = e_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1))
    >>> round(float(q.sum()), 6)
    10.0
    """
    p = check_positive(x)
    free = free_indices(basis, p.shape)
    if len(free) > MOST:
        raise ValueError(f"basis: {len(free)} parameters are free; give at most {MOST}")
    total, where = float(p.sum()), tuple(free.T)
    p = p / total
    parameters = legendre(p, basis, tol=1e-12, n_iter_max=200).theta[where]
    q = _distribution(parameters, where, p.shape)
    divergence = kl(q, p)
    for _ in range(n_iter_max):
        sums, excess = eta(q), np.log(q / p)
        # the covariance of each index's function with log(Q / P), which is the gradient
        gradient = sums_above(q * excess)[where] - sums[where] * float((q * excess).sum())
        if np.abs(gradient).max(initial=0.0) <= tol:
            break
        direction, step = _solve(fisher(sums, free), gradient), 1.0
        while kl(moved := _distribution(parameters - step * direction, where, p.shape), p) > divergence:
            step /= 2
            if step < 1e-12:
                return np.asarray(total * q)
        gain = divergence - kl(moved, p)
        parameters, q, divergence = parameters - step * direction, moved, divergence - gain
        if gain <= ROUNDING / 100:
            break
    return np.asarray(total * q)


def many_body(
    x: ArrayLike, interactions: Iterable[Sequence[int]], *, n_iter_max: int = 10_000, tol: float = 1e-12
) -> Dense:
    """Keep chosen interactions between modes: the nearest tensor with no others, by iterative proportional fitting.

    Each interaction is a set of modes, whose joint marginal is kept; what is not among them is made as independent as
    that allows. After Ghalamkari, Sugiyama & Kawahara, "Many-body approximation for non-negative tensors",
    NeurIPS 2023.

    Examples
    --------
    >>> x = np.random.default_rng(0).random((3, 4, 5)) + 0.1
    >>> q = many_body(x, [(0, 1), (2,)])
    >>> np.allclose(q.sum(axis=2), x.sum(axis=2)), np.allclose(q.sum(axis=(0, 1)), x.sum(axis=(0, 1)))
    (True, True)
    """
    p = check_positive(x, allow_zero=True)
    total = float(p.sum())
    sets = [_check_modes(modes, p.ndim) for modes in interactions]
    # every mode keeps its own marginal
    axes = [tuple(k for k in range(p.ndim) if k not in kept) for kept in {*sets, *((mode,) for mode in range(p.ndim))}]
    q = np.full(p.shape, total / p.size)
    for _ in range(n_iter_max if total else 0):
        worst = 0.0
        for others in axes:
            wanted, found = p.sum(axis=others, keepdims=True), q.sum(axis=others, keepdims=True)
            q = q * np.divide(wanted, found, where=found > 0, out=np.zeros_like(wanted))
            worst = max(worst, float(np.abs(wanted - found).max()))
        if worst <= tol * total:
            break
    return q


def _check_modes(modes: Sequence[int], count: int) -> tuple[int, ...]:
    found = tuple(sorted({int(mode) for mode in modes}))
    if not found or found[0] < 0 or found[-1] >= count:
        raise ValueError(f"interactions: cannot use {tuple(modes)}; give modes from 0 to {count - 1}")
    return found


def free_indices(basis: Any, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the indices whose θ is free, one a row, but for the first of all."""
    if isinstance(basis, Partition):
        if basis.shape != shape:
            raise ValueError(f"x has shape {shape}, but the partition is of shape {basis.shape}")
        marked = ~bingo_indices(basis)
    else:
        given = np.asarray(basis)
        if given.dtype == bool:
            if given.shape != shape:
                raise ValueError(f"x has shape {shape}, but the basis is of shape {given.shape}")
            marked = given.copy()
        else:
            marked = np.zeros(shape, bool)
            for index in given.reshape(-1, len(shape)) if given.size else []:
                place = one_a_mode(index, shape, "basis")
                if not all(0 <= i < size for i, size in zip(place, shape)):
                    raise ValueError(f"basis: index {tuple(map(int, place))} is outside of shape {shape}")
                marked[tuple(int(i) for i in place)] = True
    marked.flat[0] = False
    return np.argwhere(marked)


def fisher(sums: Dense, free: NDArray[np.intp]) -> Dense:
    """Return the Fisher matrix of the free parameters, from η."""
    flat = np.zeros((len(free),) * 2, np.intp)
    for size, indices in zip(sums.shape, free.T):
        flat = flat * size + np.maximum.outer(indices, indices)
    own = sums[tuple(free.T)]
    return np.asarray(sums.ravel()[flat] - np.outer(own, own))


def _solve(matrix: Dense, vector: Dense) -> Dense:
    try:
        return np.asarray(np.linalg.solve(matrix, vector))
    except np.linalg.LinAlgError:
        return np.asarray(np.linalg.lstsq(matrix, vector)[0])


def _distribution(parameters: Dense, where: tuple[Any, ...], shape: tuple[int, ...]) -> Dense:
    """Return the distribution of some natural parameters."""
    logs = np.zeros(shape)
    logs[where] = parameters
    logs = sums_below(logs)
    q = np.exp(logs - logs.max())
    return np.asarray(q / q.sum())
