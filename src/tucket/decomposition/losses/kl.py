r"""Kullback-Leibler divergence: expectation-maximisation of all parts of the model at once, in one pass over the data.

With columns of the factors that sum to 1, a Tucker model is a mixture: the core is the mass of each combination of
components, and a column is the distribution of a component over the indices of its mode. With the ratios R = P / Q, a
step multiplies each part by the derivative of :math:`\langle R, Q \rangle` with respect to it, and normalises the
columns to sum 1 again. This never raises the divergence, and keeps the total.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from tucket.backends import get_namespace
from tucket.decomposition.data import Data, Known
from tucket.decomposition.data.known import slopes_of_all
from tucket.decomposition.losses.loss import (
    FREE,
    Fixed,
    Further,
    Loss,
    Problem,
    Update,
    accelerated,
    published_ratio,
    slice_scales,
)
from tucket.kernels.algebra import (
    Matrix,
    Parts,
    at_least,
    distance_of,
    inner_product,
    join,
    multiply_all,
    reshape,
    share,
    to_mixture,
    unfold,
    weigh,
    without,
)

if TYPE_CHECKING:
    from tucket.decomposition.levels import Level, Pyramid

START_MIX, SOFT_MIX = 1e-3, 0.3
"""Shares of the rank-1 model that are mixed into every component at the start, because a zero would stay zero: the
usual share, and a larger one for starts with many zeros."""

LBFGS_MEMORY, LBFGS_BYTES = 4, 1 << 28
"""Number of past steps that L-BFGS remembers, and the bytes that these may take."""

SHRINK, GROW, DYING = 0.6, 1.5, 0.7
"""Limits of the factor by which an accelerated step changes the square root of an entry. An entry that plain
expectation-maximisation would multiply by less than the third number takes the plain step."""


class KullbackLeibler(Loss):
    """The generalised Kullback-Leibler divergence."""

    name: ClassVar[str] = "kl"
    by_mass: ClassVar[bool] = True
    has_levels: ClassVar[bool] = True

    def problem(self, level: Level, pyramid: Pyramid) -> Divergence:
        """Return the divergence of the level's block sums from models."""
        return Divergence(level.data, pyramid.total, level.measures, pyramid.fixed)

    def offset(self, level: Level, pyramid: Pyramid) -> float:
        """Return the divergence due to the blocks, by the Pythagorean theorem."""
        return pyramid.total * (pyramid.information - level.kept)

    def value(self, distance: float, level: Level, pyramid: Pyramid) -> float:
        """Return the divergence of the whole tensor."""
        return (distance + level.offset) / pyramid.scale

    def unit(self, pyramid: Pyramid) -> float:
        """Return the total of the tensor."""
        return pyramid.total / pyramid.scale

    def observed(self, known: Known, measures: Sequence[Matrix], total: float) -> ObservedDivergence:
        """Return the divergence of what is known from models."""
        return ObservedDivergence(known, measures, total)

    def observed_value(self, distance: float, norm: float, scale: float) -> float:  # noqa: ARG002
        """Return the divergence of what is known."""
        return distance / scale


class Divergence(Problem):
    """The divergence of a tensor, of given total, from Tucker models.

    The measures are the marginals of the tensor, one per mode; without them, models begin as they are given.
    """

    def __init__(self, data: Data, total: float, measures: Sequence[Matrix] | None = None, fixed: Fixed = FREE) -> None:
        self.data, self.total, self.measures, self.fixed = data, total, measures, fixed
        self._improve = data.repeated(_improve, fixed.flags(len(data.shape)))

    def begin(self, parts: Parts) -> Parts:
        """Return a mixture of the tensor's total, with a little of the rank-1 model in every component."""
        return self._mix(parts, START_MIX)

    def soften(self, parts: Parts) -> Parts:
        """Return a mixture of the tensor's total, with much of the rank-1 model in every component."""
        return self._mix(parts, SOFT_MIX)

    def _mix(self, parts: Parts, floor: float) -> Parts:
        core, factors = to_mixture(*parts)
        if self.measures is None:
            return core, factors
        core = share(self.total * core, get_namespace(core).sum(core))
        return mix(core, factors, floor, self.measures, self.total, self.fixed)

    def distance(self, parts: Parts) -> float:
        """Return the divergence from a mixture."""
        return self.slopes(*parts)[2]

    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield the given mixture and ever better ones: a step extends one of expectation-maximisation."""

        def improve(here: Parts) -> tuple[float, Callable[[], Parts]]:
            better, divergence = self.improve(*here)
            return divergence, lambda: better

        return accelerated(parts, improve, self._remember)

    def _remember(self) -> Further:
        """Return what extends steps, but for the fixed parts."""
        further = QuasiNewton(self.total)

        def extend(here: Parts, step: Parts) -> Parts:
            core, factors = further(here, step)
            pairs = enumerate(zip(factors, step[1]))
            kept = [fixed if mode in self.fixed.modes else found for mode, (found, fixed) in pairs]
            return step[0] if self.fixed.core else core, kept

        return extend

    def improve(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Parts, float]:
        """Take one step from a mixture; return the better one, and the divergence from the one that was given."""
        core, *better, with_total = self._improve(core, *factors)
        return (core, better), distance_of(float(with_total) - self.total)

    def slopes(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], float]:
        """Return the derivative of <R, Q> by the core and by each factor, and the divergence, in one pass."""
        of_core, of_factors, with_total = _slopes(self.data, core, factors)
        return of_core, of_factors, distance_of(float(with_total) - self.total)

    def published(self, parts: Parts) -> Iterator[Update]:
        """Yield the model after each round over the factors and the core: by Kim & Choi."""
        core, factors = parts[0], list(parts[1])
        xp = get_namespace(core)
        _, by_factor, _ = self.slopes(core, factors)
        while True:
            for mode in range(core.ndim):
                sums = {k: xp.sum(factor, axis=0)[:, None] for k, factor in enumerate(factors)}
                mass = unfold(multiply_all(core, without(sums, mode)), mode).T
                factors[mode] = factors[mode] * published_ratio(by_factor[mode], mass)
                by_core, by_factor, _ = self.slopes(core, factors)
            mass = weigh(xp.ones_like(core), {mode: xp.sum(factor, axis=0) for mode, factor in enumerate(factors)})
            core = core * published_ratio(by_core, mass)
            _, by_factor, divergence = self.slopes(core, factors)
            yield core, list(factors), divergence


class ObservedDivergence(Problem):
    """The divergence of what is known of a tensor from Tucker models.

    The measures are the weights of the rank-1 model, one vector per mode; its total is that of the tensor as expected.
    """

    def __init__(self, known: Known, measures: Sequence[Matrix], total: float) -> None:
        self.known, self.measures, self.total = known, measures, total

    def begin(self, parts: Parts) -> Parts:
        """Return a mixture with a little of the rank-1 model in every component."""
        return self._mix(parts, START_MIX)

    def soften(self, parts: Parts) -> Parts:
        """Return a mixture with much of the rank-1 model in every component."""
        return self._mix(parts, SOFT_MIX)

    def _mix(self, parts: Parts, floor: float) -> Parts:
        core, factors = to_mixture(*parts)
        total = float(core.sum()) or 1.0
        return mix(core, factors, floor, [total * weights for weights in self.measures], total)

    def distance(self, parts: Parts) -> float:
        """Return the divergence of a model."""
        return self.known.compare(*parts)[1]

    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield the given mixture and ever better ones.

        A step is one of expectation-maximisation for the tensor in which the model fills what is not known.
        """
        return accelerated(parts, self._improve, lambda: QuasiNewton(self.total, keeps_total=False))

    def _improve(self, parts: Parts) -> tuple[float, Callable[[], Parts]]:
        (by_core, by_factors), divergence = self.known.compare(*parts)

        def take() -> Parts:
            core, factors = parts
            whole_core, whole = slopes_of_all(core, factors)
            better = [f * at_least(w + s / self.known.most, 0.0) for f, w, s in zip(factors, whole, by_factors)]
            return core * at_least(whole_core + by_core / self.known.most, 0.0), list(map(_normalised, better))

        return divergence, take


def mix(
    core: Matrix,
    factors: Sequence[Matrix],
    floor: float,
    measures: Sequence[Matrix],
    total: float,
    fixed: Fixed = FREE,
) -> Parts:
    """Mix a share of the rank-1 model with these measures, and this total, into every component of a mixture."""
    if not fixed.core:
        core = (1 - floor) * core + floor * total / math.prod(core.shape)
    return core, [
        factor if mode in fixed.modes else (1 - floor) * factor + floor / total * masses[:, None]
        for mode, (factor, masses) in enumerate(zip(factors, measures))
    ]


class QuasiNewton:
    """Extends steps of expectation-maximisation by the curvature that the last steps showed (L-BFGS).

    The coordinates are the square roots of the masses of all entries. In these, a step of expectation-maximisation is a
    gradient step, with a length that fits components without overlap.
    """

    def __init__(self, total: float, *, keeps_total: bool = True) -> None:
        self.total, self.keeps_total = total, keeps_total
        self.pairs: list[tuple[Matrix, Matrix, Matrix]] = []  # changes of roots and slopes, and their inner product
        self.last: tuple[Matrix, Matrix] | None = None

    def __call__(self, here: Parts, better: Parts) -> Parts:
        """Return a mixture beyond `better`, the result of a plain step from `here`."""
        count = min(LBFGS_MEMORY, LBFGS_BYTES // (16 * sum(math.prod(part.shape) for part in (here[0], *here[1]))))
        if not count:  # the steps would take more memory than the tensor
            return better
        xp = get_namespace(here[0])
        weights = [xp.sum(unfold(here[0], mode), axis=1) / self.total for mode in range(here[0].ndim)]
        masses, then = (self._masses(parts, weights) for parts in (here, better))
        roots = xp.sqrt(masses)
        slopes = roots - share(then, roots)
        if self.last is not None:
            change, bend = roots - self.last[0], slopes - self.last[1]
            product = inner_product(change, bend)
            if float(product) > 0:
                self.pairs = [*self.pairs, (change, bend, product)][-count:]
        self.last = roots, slopes
        if not self.pairs:
            return better
        reached = xp.clip(roots - self._direction(slopes), SHRINK * roots, GROW * roots)
        found = xp.where(then < DYING * masses, then, xp.square(reached))
        return self._parts(found, here)

    def _direction(self, slopes: Matrix) -> Matrix:
        """Multiply the slopes by the approximate inverse Hessian: the two-loop recursion of L-BFGS."""
        shares, direction = [], slopes
        for change, bend, product in reversed(self.pairs):
            shares.append(inner_product(change, direction) / product)
            direction = direction - shares[-1] * bend
        _, bend, product = self.pairs[-1]
        direction = direction * (product / inner_product(bend, bend))
        for (change, bend, product), part in zip(self.pairs, reversed(shares)):
            direction = direction + (part - inner_product(bend, direction) / product) * change
        return direction

    def _masses(self, parts: Parts, weights: Sequence[Matrix]) -> Matrix:
        """Return the mass that each entry of a core and factors stands for, in one vector."""
        core, factors = parts
        entries = [core / self.total, *(factor * weight for factor, weight in zip(factors, weights))]
        return join([reshape(part, (-1,)) for part in entries])

    def _parts(self, masses: Matrix, like: Parts) -> Parts:
        """Return the mixture with these masses."""
        found, first = [], 0
        for part in (like[0], *like[1]):
            size = math.prod(part.shape)
            found.append(reshape(masses[first : first + size], part.shape))
            first += size
        core, *factors = found
        scale = self.total / get_namespace(core).sum(core) if self.keeps_total else self.total
        return core * scale, list(map(_normalised, factors))


def _improve(data: Data, *given: Any) -> tuple[Matrix, ...]:
    """Return a better mixture, and the divergence of the given one plus the total.

    `given` holds the flags of `Fixed.flags`, the core and the factors.
    """
    count = len(data.shape)
    (is_core_fixed, *are_fixed), (core, *factors) = given[: count + 1], given[count + 1 :]
    core_slopes, factor_slopes, with_total = _slopes(data, core, factors)
    better = [
        factor if is_fixed else _normalised(factor * slope)
        for factor, slope, is_fixed in zip(factors, factor_slopes, are_fixed)
    ]
    counts = core * core_slopes
    if is_core_fixed:
        counts = _scaled(core, counts, [mode for mode, is_fixed in enumerate(are_fixed) if not is_fixed])
    return counts, *better, with_total


def _scaled(core: Matrix, like: Matrix, modes: Sequence[int]) -> Matrix:
    """Scale the slices of a core along some modes to the sums of the slices of another, in turn."""
    for mode in modes:
        core = weigh(core, {mode: slice_scales(core, like, mode)})
    return core


def _slopes(data: Data, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], Matrix]:
    """Return the derivatives of <R, Q> with respect to the core and each factor, and the divergence plus the total."""
    by_core, by_factor, logs = data.slopes(core, factors, _ratios)
    xp = get_namespace(core)
    mass = multiply_all(core, {mode: xp.sum(factor, axis=0)[:, None] for mode, factor in enumerate(factors)})
    return by_core, by_factor, logs + xp.sum(mass)


def _ratios(data: Data, part: Matrix, model: Matrix) -> tuple[Matrix, Matrix]:
    return data.ratios(part, model)


def _normalised(factor: Matrix) -> Matrix:
    """Divide each column by its sum, if it has any."""
    return share(factor, get_namespace(factor).sum(factor, axis=0))
