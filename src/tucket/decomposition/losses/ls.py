r"""Squared error: coordinate descent on the factors, accelerated projected gradient on the core.

With the tensor X, the factors A and the core G, what is lowered is

.. math:: \lVert X - G \times_k A_k \rVert^2
          = \lVert X \rVert^2 - 2 \langle X \times_k A_k^T, G \rangle + \langle G, G \times_k A_k^T A_k \rangle

Only the contraction of X with the factors reads the tensor; all other terms are as small as the model.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from tucket.backends import get_namespace
from tucket.decomposition.data import Data, Known
from tucket.decomposition.losses.loss import FREE, Fixed, Loss, Problem, Update, accelerated, published_ratio
from tucket.kernels.algebra import (
    Matrix,
    Parts,
    at_least,
    distance_of,
    inner_product,
    join,
    multiply,
    multiply_all,
    unfold,
    weigh,
    without,
)
from tucket.kernels.measures import error_ratio
from tucket.kernels.updates import descend_rows, eigenvalue_bound, multiply_by_all, nearest, objective

if TYPE_CHECKING:
    from tucket.decomposition.levels import Level, Pyramid

ROW_SWEEPS, FEW_ROW_SWEEPS, ROW_TOLERANCE = 30, 3, 1e-6
"""Maximum sweeps over a row of a factor, usually and where they are slow, and the relative change that ends them."""

ROW_PRODUCTS = 100
"""Maximum cost of the sweeps over the rows of a factor, in products per entry of the tensor."""

FIRST_STEPS, CORE_STEPS = 1, 5
"""Steps of the core after each factor: only one in the first sweep, when the factors are still far off."""

PACE, FASTER, SLOWER = 0.5, 1.05, 1.5
"""Extrapolation: share of the last change that is added, its growth after a success, its decay after a failure."""


class SquaredError(Loss):
    """The Frobenius norm of the difference, over that of the tensor."""

    name: ClassVar[str] = "ls"
    has_levels: ClassVar[bool] = True
    is_prepared: ClassVar[bool] = False

    def problem(self, level: Level, pyramid: Pyramid) -> LeastSquares:  # noqa: ARG002
        """Return the squared distance of models from the level's block sums."""
        return level.squares

    def offset(self, level: Level, pyramid: Pyramid) -> float:
        """Return the squares that block averages leave out."""
        return pyramid.square_sum() - level.squares.norm

    def value(self, distance: float, level: Level, pyramid: Pyramid) -> float:  # noqa: ARG002
        """Return the relative error of the whole tensor."""
        return level.relative_error(distance)

    def observed(self, known: Known, measures: Sequence[Matrix], total: float) -> ObservedSquares:  # noqa: ARG002
        """Return the squared distance of models from what is known."""
        return ObservedSquares(known, measures)

    def observed_value(self, distance: float, norm: float, scale: float) -> float:  # noqa: ARG002
        """Return the relative error of what is known."""
        return error_ratio(distance, norm)


class LeastSquares(Problem):
    """The squared distance of Tucker models from a tensor, in a metric: a weight for every index of every mode.

    Each difference is multiplied by the weights at its indices. `begin` multiplies each row of the factors by its
    weight, and `end` undoes this with the roots.
    """

    def __init__(
        self,
        data: Data,
        metric: Sequence[Matrix],
        roots: Sequence[Matrix] | None = None,
        fixed: Fixed = FREE,
    ) -> None:
        self.data, self.metric, self.roots = data, metric, roots
        self.norm, flags = data.square_sum(metric), fixed.flags(len(data.shape))
        self._first_sweep = data.repeated(_sweep, (FIRST_STEPS, *flags), metric)
        self._sweep = data.repeated(_sweep, (CORE_STEPS, *flags), metric)

    def begin(self, parts: Parts) -> Parts:
        """Return a model with its factors in the metric."""
        return parts[0], [factor * weights[:, None] for factor, weights in zip(parts[1], self.metric)]

    def end(self, parts: Parts) -> Parts:
        """Return a model with its factors out of the metric."""
        assert self.roots is not None
        return parts[0], [factor * root[:, None] for factor, root in zip(parts[1], self.roots)]

    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield ever better models, and their squared distance, which never rises.

        Each sweep starts from an extrapolation of the last one. If that fails, the next sweep starts from the best
        model.
        """
        best = start = self._update(self._first_sweep(parts[0], *parts[1]))
        yield best
        pace = PACE
        while True:
            found = self._update(self._sweep(start[0], *start[1]))
            if found[2] <= best[2]:
                start = (*_further(found, best, pace), found[2])
                best, pace = found, min(1.0, pace * FASTER)
                yield best
            elif start is not best:
                start, pace = best, pace / SLOWER
            else:  # nothing is left to gain but rounding errors
                yield best

    def _update(self, found: Sequence[Matrix]) -> Update:
        core, *factors, half = found
        return core, factors, distance_of(self.norm + 2 * half)

    def distance(self, parts: Parts) -> float:
        """Return the squared distance of a model."""
        core, factors = self.begin(parts)
        target = self.contract(dict(enumerate(factors)))
        slope = multiply_by_all(core, [factor.T @ factor for factor in factors]) - target
        return distance_of(self.norm + 2 * objective(core, slope, target))

    def contract(self, factors: dict[int, Matrix]) -> Matrix:
        """Contract the tensor, in the metric, with some factors."""
        return _contract(self.data, self.metric, factors)

    def published(self, parts: Parts) -> Iterator[Update]:
        """Yield the model after each round over the factors and the core: by Kim & Choi."""
        core, factors = self.begin(parts)
        grams = {mode: factor.T @ factor for mode, factor in enumerate(factors)}
        while True:
            for mode in range(core.ndim):
                part = self.contract(without(dict(enumerate(factors)), mode))
                rows = unfold(core, mode)
                gram = rows @ unfold(multiply_all(core, without(grams, mode)), mode).T
                factors[mode] = factors[mode] * published_ratio(unfold(part, mode) @ rows.T, factors[mode] @ gram)
                grams[mode] = factors[mode].T @ factors[mode]
            target = multiply_all(part, {core.ndim - 1: factors[-1]})
            core = core * published_ratio(target, multiply_all(core, grams))
            square = float(inner_product(core, multiply_all(core, grams)) - 2 * inner_product(core, target))
            yield core, list(factors), max(0.0, self.norm + square)


class ObservedSquares(Problem):
    """The squared distance of Tucker models from what is known of a tensor: the sum of (x - E Q)**2 / E.

    The tensor is in the metric of the measures: each entry is divided by their roots. `begin` does so to the rows of
    the factors, and `end` undoes it.
    """

    def __init__(self, known: Known, measures: Sequence[Matrix]) -> None:
        self.known, self.roots = known, [np.sqrt(measure) for measure in measures]
        self.settings = *FREE.flags(len(measures)), *map(np.ones_like, measures)

    def begin(self, parts: Parts) -> Parts:
        """Return a model with its factors in the metric."""
        return parts[0], [factor / root[:, None] for factor, root in zip(parts[1], self.roots)]

    def end(self, parts: Parts) -> Parts:
        """Return a model with its factors out of the metric."""
        return parts[0], [factor * root[:, None] for factor, root in zip(parts[1], self.roots)]

    def distance(self, parts: Parts) -> float:
        """Return the squared distance of a model."""
        return self.known.fill(*self.begin(parts))[1]

    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield the given model and ever better ones: a step is a sweep over the tensor that the model fills."""
        return accelerated(parts, self._improve, Momentum)

    def _improve(self, parts: Parts) -> tuple[float, Callable[[], Parts]]:
        filled, distance = self.known.fill(*parts)

        def take() -> Parts:
            core, *factors = _sweep(filled, CORE_STEPS, *self.settings, parts[0], *parts[1])[:-1]
            return core, factors

        return distance, take


class Momentum:
    """Extends a sweep by a growing share of the change since the sweep before."""

    def __init__(self) -> None:
        self.pace = PACE
        self.before: Parts | None = None

    def __call__(self, here: Parts, step: Parts) -> Parts:  # noqa: ARG002
        """Return a model beyond `step`."""
        before, self.before = self.before, step
        if before is None:
            return step
        found = _further(step, before, self.pace)
        self.pace = min(1.0, self.pace * FASTER)
        return found


def _contract(data: Data, metric: Sequence[Matrix], factors: dict[int, Matrix]) -> Matrix:
    result = data.contract({mode: factor * metric[mode][:, None] for mode, factor in factors.items()})
    return weigh(result, {mode: weights for mode, weights in enumerate(metric) if mode not in factors})


def _contract_to(
    data: Data, metric: Sequence[Matrix], mode: int, factors: dict[int, Matrix]
) -> Iterator[tuple[slice, Matrix]]:
    weighed = {k: factor * metric[k][:, None] for k, factor in factors.items()}
    for rows, part in data.contract_to(mode, weighed):
        yield rows, weigh(part, {mode: metric[mode][rows]})


def _sweep(data: Data, steps: int, *given: Any) -> tuple[Matrix, ...]:
    """Improve every factor once, and the core after each; return them, and the objective of `_State`.

    `given` holds the flags of `Fixed.flags`, the metric, the core and the factors.
    """
    count = len(data.shape)
    flags, metric, core, factors = given[: count + 1], given[count + 1 :][:count], given[-count - 1], given[-count:]
    grams = [factor.T @ factor for factor in factors]
    state = _State(core, list(factors), grams, list(map(eigenvalue_bound, grams)), data, steps, flags)
    for some in _groups(data, list(range(count)), core.shape, state.shrink):
        others = {mode: state.factors[mode] for mode in range(count) if mode not in some}
        if len(some) == 1:
            state.improve_factor(_contract_to(data, metric, some[0], others), some[0])
        else:
            state.improve(_contract(data, metric, others), some)
    return state.core, *state.factors, state.objective


def _groups(data: Data, modes: list[int], rank: Sequence[int], shrink: Sequence[float]) -> Iterator[list[int]]:
    """Split the modes into groups, if possible two; one contraction with all other modes serves a group."""
    for some, _ in halves(modes, shrink):
        sizes = [data.shape[mode] if mode in some else r for mode, r in enumerate(rank)]
        if len(some) == 1 or data.can_hold(math.prod(sizes)):
            yield some
        else:
            yield from _groups(data, some, rank, shrink)


@dataclass(slots=True)
class _State:
    """A model during a sweep, with the Gram matrices of its factors and bounds of their eigenvalues.

    `objective` is half of the squared distance, minus half of the squared norm of the tensor.
    """

    core: Matrix
    factors: list[Matrix]
    grams: list[Matrix]
    bounds: list[Matrix]
    data: Data
    steps: int
    fixed: tuple[int, ...]  # the core, then each factor
    objective: Matrix = 0.0

    @property
    def shrink(self) -> list[float]:
        """Number of indices per component of each mode."""
        return [factor.shape[0] / factor.shape[1] for factor in self.factors]

    def improve(self, part: Matrix, modes: Sequence[int]) -> None:
        """Improve the factors of some modes, given the tensor contracted with all the others."""
        if len(modes) == 1:
            self.improve_factor([(slice(0, part.shape[modes[0]]), part)], modes[0])
            return
        for some, others in halves(modes, self.shrink):
            self.improve(multiply_all(part, {mode: self.factors[mode] for mode in others}), some)

    def improve_factor(self, parts: Iterable[tuple[slice, Matrix]], mode: int) -> None:
        """Improve one factor, some rows at a time, and then the core."""
        core, grams = unfold(self.core, mode), dict(enumerate(self.grams))
        gram = core @ unfold(multiply_all(self.core, without(grams, mode)), mode).T
        cheap = ROW_PRODUCTS * self.data.entries_per_pass // (self.factors[mode].shape[0] * gram.shape[0] ** 2)
        sweeps = min(ROW_SWEEPS, max(FEW_ROW_SWEEPS, cheap))
        rows, targets = [], []
        for some, part in parts:
            better = self.factors[mode][some, :]
            if not self.fixed[mode + 1]:
                goals = unfold(part, mode) @ core.T
                better = descend_rows(goals, gram, better, sweeps, ROW_TOLERANCE, self.data.workers)
            rows.append(better)
            targets.append(multiply(part, better, mode))
        self._put(mode, join(rows), sum(targets[1:], start=targets[0]))

    def _put(self, mode: int, factor: Matrix, target: Matrix) -> None:
        """Take a factor, and improve the core, given the tensor contracted with all factors."""
        xp = get_namespace(factor)
        if not any((self.fixed[0], self.fixed[mode + 1])):
            # columns of norm 1: the gradient of the core is then as well conditioned as scaling can make it
            norms = xp.sqrt(xp.sum(xp.square(factor), axis=0))
            norms = norms + xp.astype(norms == 0, norms.dtype)
            factor, target = factor / norms, weigh(target, {mode: 1 / norms})
            self.core = weigh(self.core, {mode: norms})
        self.factors[mode], self.grams[mode] = factor, factor.T @ factor
        multiply_by = partial(multiply_by_all, matrices=self.grams)
        if self.fixed[0]:
            self.objective = objective(self.core, multiply_by(self.core) - target, target)
            return
        self.bounds[mode] = eigenvalue_bound(self.grams[mode])
        self.core, self.objective = nearest(target, multiply_by, math.prod(self.bounds), self.core, self.steps)


def halves(modes: Sequence[int], shrink: Sequence[float]) -> Iterator[tuple[list[int], list[int]]]:
    """Split the modes into two halves that shrink a tensor about equally; yield each with the other."""
    groups: tuple[list[int], list[int]] = ([], [])
    for mode in sorted(modes, key=lambda mode: -shrink[mode]):
        min(groups, key=lambda group: (math.prod(shrink[k] for k in group), len(group))).append(mode)
    for some, others in (groups, groups[::-1]):
        if some:
            yield some, others


def _further(found: Parts | Update, before: Parts | Update, pace: float) -> Parts:
    def move(now: Matrix, then: Matrix) -> Matrix:
        return at_least(now + pace * (now - then), 0.0)

    return move(found[0], before[0]), list(map(move, found[1], before[1]))
