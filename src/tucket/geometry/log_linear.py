r"""Log-linear models of distributions: θ is free at chosen indices and 0 at all others.

The divergence from a distribution P to the model is convex in the free θ. Its gradient is :math:`\eta - \hat\eta`,
the difference of the expectation parameters, and its Hessian is the Fisher matrix

.. math:: G[u, v] = \eta[u \vee v] - \eta[u]\, \eta[v]

in which :math:`u \vee v` is the larger of the two indices in every mode.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.backends import Backend, get_backend, get_namespace
from tucket.base.partition import Partition
from tucket.geometry.bingos import bingo_indices
from tucket.geometry.checks import Dense, check_positive, refuse_traced, shares, to_host
from tucket.geometry.coordinates import sums_below

MAX_PARAMETERS = 4000
"""The most free parameters with a Fisher matrix: it has the square of this many entries, and is solved."""

ROUNDING = 1e-14
"""The rounding error of a divergence of two distributions: smaller differences say nothing."""

LEAST_STEP = 1e-12
"""The step at which a line search gives up, as a share of the direction."""

Basis = Partition | ArrayLike


def prepare(x: Any, basis: Basis) -> tuple[Dense, float, LogLinear]:
    """Return a positive tensor as a distribution, its total, and the log-linear model of a basis."""
    tensor = refuse_traced(check_positive(x))
    shape = tuple(tensor.shape)
    free = free_indices(basis, shape)
    p, total = shares(tensor)
    return p, total, LogLinear.of(free, get_backend(p), shape)


def free_indices(basis: Any, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return the indices with a free θ, one per row, without the first index of all."""
    if isinstance(basis, Partition):
        name, marked = "partition", ~bingo_indices(basis)
    else:
        name, given = "basis", to_host(basis)
        marked = given.copy() if given.dtype == bool else _mark(given, shape)
    if marked.shape != shape:
        raise ValueError(f"x has shape {shape}, but the {name} is of shape {marked.shape}")
    marked.flat[0] = False
    return np.argwhere(marked)


def _mark(basis: NDArray[Any], shape: tuple[int, ...]) -> NDArray[np.bool]:
    marked, indices = np.zeros(shape, bool), basis.reshape(-1, len(shape)).astype(np.intp)
    outside = ((indices < 0) | (indices >= shape)).any(axis=1)
    if outside.any():
        raise ValueError(f"basis: index {tuple(indices[outside][0].tolist())} is outside of shape {shape}")
    marked[tuple(indices.T)] = True
    return marked


class LogLinear(NamedTuple):
    """A log-linear model, on the device of its tensor.

    `free` has one free index per row, and `places` their positions in the flat tensor. `slots` says for each entry of
    the tensor which free parameter is its θ, counted from 1; 0 stands for a θ of 0.
    """

    shape: tuple[int, ...]
    free: Any
    places: Any
    slots: Any
    zeros: Any

    @classmethod
    def of(cls, free: NDArray[np.intp], backend: Backend, shape: tuple[int, ...]) -> LogLinear:
        """Return the model of free indices."""
        places, slots = np.ravel_multi_index(tuple(free.T), shape), np.zeros(math.prod(shape), np.intp)
        slots[places] = np.arange(1, len(free) + 1)
        return cls(shape, *map(backend.from_numpy, (free, places, slots, np.zeros(len(free) + 1))))

    def check_size(self, remedy: str = "") -> None:
        """Raise if there are too many free parameters for a Fisher matrix."""
        count = self.free.shape[0]
        if count > MAX_PARAMETERS:
            raise ValueError(f"basis: {count} parameters are free; give at most {MAX_PARAMETERS}{remedy}")

    def at_free(self, values: Any) -> Dense:
        """Return the entries of a tensor at the free indices."""
        xp = get_namespace(values)
        return xp.take(xp.reshape(values, (-1,)), self.places)

    def spread(self, parameters: Any) -> Dense:
        """Return θ as a tensor, from the free parameters."""
        xp = get_namespace(parameters)
        return xp.reshape(xp.take(xp.concat([self.zeros[:1], parameters]), self.slots), self.shape)

    def distribution(self, parameters: Any) -> Dense:
        """Return the distribution that has these free parameters."""
        xp, logs = get_namespace(parameters), sums_below(self.spread(parameters))
        q = xp.exp(logs - xp.max(logs))
        return q / xp.sum(q)

    def search_line(
        self, parameters: Any, direction: Any, step: float, loss: Callable[[Dense], float], limit: float
    ) -> tuple[Any, Dense, float, float]:
        """Halve a step until the loss is at most `limit`; return the parameters, distribution, loss and step."""
        while True:
            ahead = parameters + step * direction
            q = self.distribution(ahead)
            reached = loss(q)
            if reached <= limit or step < LEAST_STEP:
                return ahead, q, reached, step
            step /= 2


def fisher(sums: Any, free: Any) -> Dense:
    """Return the Fisher matrix of the free parameters, from η."""
    xp = get_namespace(sums)
    joined: Any = 0
    for mode, size in enumerate(sums.shape):
        indices = free[:, mode]
        joined = joined * size + xp.maximum(indices[:, None], indices[None, :])
    above = xp.reshape(xp.take(xp.reshape(sums, (-1,)), xp.reshape(joined, (-1,))), joined.shape)
    own = xp.linalg.diagonal(above)
    return above - own[:, None] * own[None, :]


def solve(matrix: Any, vector: Any) -> Dense:
    """Solve linear equations, by least squares where the matrix is singular."""
    xp = get_namespace(matrix)
    with suppress(np.linalg.LinAlgError, RuntimeError):  # torch raises RuntimeError
        found = xp.linalg.solve(matrix, vector)
        if bool(xp.all(xp.isfinite(found))):
            return found
    return get_backend(matrix).from_numpy(np.linalg.lstsq(to_host(matrix), to_host(vector))[0])


def largest(vector: Any) -> float:
    """Return the largest absolute value of a vector; 0 if it is empty."""
    xp = get_namespace(vector)
    return float(xp.max(xp.abs(vector))) if vector.shape[0] else 0.0
