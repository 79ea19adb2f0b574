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
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.backends.home import Home, namespace_of
from tucket.base.partition import Partition, one_a_mode
from tucket.geometry.checks import Dense, check_positive, divergence, place_of, precision, shares, to_host, unfollowed
from tucket.geometry.coordinates import bingo_indices, sums_above, sums_below

__all__ = ["Legendre", "LegendreStep", "e_project", "legendre", "m_project", "many_body"]

MOST = 4000
"""Free parameters at most: their Fisher matrix must be held and solved."""

ROUNDING = 1e-14
"""What a divergence of distributions may be off by at least: below it the gradient tells more."""

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
    x: Any,
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
    p = unfollowed(check_positive(x))
    xp, free = namespace_of(p), free_indices(basis, tuple(p.shape))
    if method not in ("natural", "gradient"):
        raise ValueError(f"method: unknown {method!r}; give 'natural' or 'gradient'")
    if method == "natural" and len(free) > MOST:
        raise ValueError(f"basis: {len(free)} parameters are free; give at most {MOST}, or method='gradient'")
    began, rounding = time.perf_counter(), max(ROUNDING, 4 * precision(p))
    (p, total), model = shares(p), _Model.of(free, place_of(p), tuple(p.shape))
    target, parameters = model.read(sums_above(p)), model.zeros[1:]
    q, step, steepest = model.distribution(parameters), 1.0, math.inf
    least, trace, stopped = divergence(p, q), [], "iterations"
    for iteration in range(1, n_iter_max + 1):
        sums = sums_above(q)
        gradient = target - model.read(sums)
        slope = _largest(gradient)
        if slope <= tol:
            stopped = "converged"
            break
        direction = _solve(fisher(sums, model.free), gradient) if method == "natural" else gradient
        step = 1.0 if method == "natural" else 2 * step
        while True:
            ahead = parameters + step * direction
            moved = model.distribution(ahead)
            reached = divergence(p, moved)
            if reached <= least + rounding or step < 1e-12:
                break
            step /= 2
        if reached > least - rounding and slope >= steepest / 2:  # only rounding errors are left
            stopped = "converged"
            break
        parameters, q, least, steepest = ahead, moved, min(least, reached), min(steepest, slope)
        trace.append(LegendreStep(iteration, total * least, time.perf_counter() - began))
        if callback:
            callback(trace[-1])
    scale = xp.log(xp.reshape(q, (-1,))[:1]) + math.log(total)
    full = xp.concat([scale, xp.reshape(model.spread(parameters), (-1,))[1:]])
    return Legendre(total * q, xp.reshape(full, p.shape), tuple(trace), stopped)


def m_project(x: Any, basis: Basis) -> Dense:
    """Return the m-projection: θ is 0 off the basis, and η is that of `x` on it. See `legendre` for the arguments.

    Examples
    --------
    >>> m_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).round(6)
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    return legendre(x, basis, tol=1e-14, n_iter_max=200).tensor


def e_project(x: Any, basis: Basis, *, n_iter_max: int = 1000, tol: float = 1e-12) -> Dense:
    """Return a tensor of the model that is nearest in the other direction: D(Q; x), at the total of `x`.

    The model is not convex for this; what is found, from the m-projection on, is the nearest around.

    Examples
    --------
    >>> q = e_project([[1, 2], [3, 4]], Partition.uniform((2, 2), 1))
    >>> round(float(q.sum()), 6)
    10.0
    """
    p = unfollowed(check_positive(x))
    xp, free = namespace_of(p), free_indices(basis, tuple(p.shape))
    if len(free) > MOST:
        raise ValueError(f"basis: {len(free)} parameters are free; give at most {MOST}")
    (p, total), model = shares(p), _Model.of(free, place_of(p), tuple(p.shape))
    parameters = model.read(legendre(p, basis, tol=1e-12, n_iter_max=200).theta)
    q = model.distribution(parameters)
    least = divergence(q, p)
    for _ in range(n_iter_max):
        sums, excess = sums_above(q), q * xp.log(q / p)
        # the covariance of each index's function with log(Q / P), which is the gradient
        gradient = model.read(sums_above(excess)) - model.read(sums) * xp.sum(excess)
        if _largest(gradient) <= tol:
            break
        direction, step = _solve(fisher(sums, model.free), gradient), 1.0
        while divergence(moved := model.distribution(parameters - step * direction), p) > least:
            step /= 2
            if step < 1e-12:
                return total * q
        gain = least - divergence(moved, p)
        parameters, q, least = parameters - step * direction, moved, least - gain
        if gain <= ROUNDING / 100:
            break
    return total * q


def many_body(x: Any, interactions: Iterable[Sequence[int]], *, n_iter_max: int = 10_000, tol: float = 1e-12) -> Dense:
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
    p, total = shares(unfollowed(check_positive(x, allow_zero=True)))
    xp = namespace_of(p)
    sets = [_check_modes(modes, p.ndim) for modes in interactions]
    # every mode keeps its own marginal
    axes = [tuple(k for k in range(p.ndim) if k not in kept) for kept in {*sets, *((mode,) for mode in range(p.ndim))}]
    q, enough = xp.full_like(p, 1 / math.prod(p.shape)), max(tol, 4 * precision(p))
    for _ in range(n_iter_max if total else 0):
        worst = 0.0
        for others in axes:
            wanted, found = xp.sum(p, axis=others, keepdims=True), xp.sum(q, axis=others, keepdims=True)
            seen = found > 0
            q = q * (xp.where(seen, wanted, xp.zeros_like(wanted)) / xp.where(seen, found, xp.ones_like(found)))
            worst = max(worst, float(xp.max(xp.abs(wanted - found))))
        if worst <= enough:
            break
    return total * q


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
        given = to_host(basis)
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


class _Model(NamedTuple):
    """Free parameters, where their tensor is: their indices, one a row, and their places in the flat tensor.

    `slots` says for each entry of the tensor which of them is its θ, counted from 1; 0 is none, for a θ of 0.
    """

    shape: tuple[int, ...]
    free: Any
    places: Any
    slots: Any
    zeros: Any

    @classmethod
    def of(cls, free: NDArray[np.intp], home: Home, shape: tuple[int, ...]) -> _Model:
        places, slots = np.ravel_multi_index(tuple(free.T), shape), np.zeros(math.prod(shape), np.intp)
        slots[places] = np.arange(1, len(free) + 1)
        return cls(shape, *map(home.take, (free, places, slots, np.zeros(len(free) + 1))))

    def read(self, values: Any) -> Dense:
        """Return the entries of a tensor at the free indices."""
        xp = namespace_of(values)
        return xp.take(xp.reshape(values, (-1,)), self.places)

    def spread(self, parameters: Any) -> Dense:
        """Return θ."""
        xp = namespace_of(parameters)
        return xp.reshape(xp.take(xp.concat([self.zeros[:1], parameters]), self.slots), self.shape)

    def distribution(self, parameters: Any) -> Dense:
        """Return the distribution of some natural parameters."""
        xp, logs = namespace_of(parameters), sums_below(self.spread(parameters))
        q = xp.exp(logs - xp.max(logs))
        return q / xp.sum(q)


def fisher(sums: Any, free: Any) -> Dense:
    """Return the Fisher matrix of the free parameters, from η."""
    xp = namespace_of(sums)
    joined: Any = 0
    for mode, size in enumerate(sums.shape):
        indices = free[:, mode]
        joined = joined * size + xp.maximum(indices[:, None], indices[None, :])
    above = xp.reshape(xp.take(xp.reshape(sums, (-1,)), xp.reshape(joined, (-1,))), joined.shape)
    own = xp.linalg.diagonal(above)
    return above - own[:, None] * own[None, :]


def _solve(matrix: Any, vector: Any) -> Dense:
    xp = namespace_of(matrix)
    with suppress(np.linalg.LinAlgError, RuntimeError):  # the latter is torch's
        found = xp.linalg.solve(matrix, vector)
        if bool(xp.all(xp.isfinite(found))):
            return found
    return place_of(matrix).take(np.linalg.lstsq(to_host(matrix), to_host(vector))[0])


def _largest(vector: Any) -> float:
    xp = namespace_of(vector)
    return float(xp.max(xp.abs(vector))) if vector.shape[0] else 0.0
