"""The interface of a loss: `Loss`, its `Problem` on one level, and the parts of a model that stay `Fixed`."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from tucket.backends import get_namespace
from tucket.decomposition.data import Known
from tucket.kernels.algebra import Matrix, Parts, at_least, quotient, weigh

if TYPE_CHECKING:
    from tucket.decomposition.levels import Level, Pyramid

Update = tuple[Matrix, list[Matrix], float]
"""A core, factors, and their distance from the tensor."""


@dataclass(frozen=True)
class Fixed:
    """Parts of a model that stay fixed: the factors of some modes, and the core up to the scale of other factors."""

    modes: frozenset[int] = frozenset()
    core: bool = False

    def flags(self, count: int) -> tuple[int, ...]:
        """Return 1 for what is fixed, and 0 for the rest: the core, then each factor."""
        return (int(self.core), *(int(mode in self.modes) for mode in range(count)))


FREE = Fixed()
"""Nothing is fixed."""

SCALING_ROUNDS = 1000
"""Maximum number of rounds over the modes to find the scales of a core."""


def restore(parts: Parts, given: Parts, fixed: Fixed) -> Parts:
    """Return the same model with its fixed parts as given; the other parts take up the scale factors."""
    (core, factors), (first_core, first_factors) = parts, given
    xp = get_namespace(core)
    sums = {mode: xp.sum(first_factors[mode], axis=0) for mode in fixed.modes}
    factors = [first_factors[mode] if mode in sums else factor for mode, factor in enumerate(factors)]
    if not fixed.core:
        return weigh(core, {mode: quotient(xp.ones_like(s), s) for mode, s in sums.items()}), factors
    free = [mode for mode in range(core.ndim) if mode not in sums]
    scales = _scales_between(weigh(first_core, sums), core, free)
    return first_core, [factor * scales[mode] if mode in scales else factor for mode, factor in enumerate(factors)]


def _scales_between(core: Matrix, scaled: Matrix, modes: Sequence[int]) -> dict[int, Matrix]:
    """Return vectors along some modes that scale a core to another, which is known to be possible."""
    xp = get_namespace(core)
    found = {
        mode: xp.ones_like(core[tuple(slice(None) if k == mode else 0 for k in range(core.ndim))]) for mode in modes
    }
    for _ in range(SCALING_ROUNDS):
        for mode in modes:
            more = slice_scales(core, scaled, mode)
            core, found[mode] = weigh(core, {mode: more}), found[mode] * more
        if float(xp.max(xp.abs(core - scaled))) <= 1e-15 * float(xp.max(scaled)):
            break
    return found


def slice_scales(core: Matrix, like: Matrix, mode: int) -> Matrix:
    """Return the vector that scales the slices of a core along one mode to the sums of the slices of another."""
    others, sum_ = tuple(k for k in range(core.ndim) if k != mode), get_namespace(core).sum
    return quotient(sum_(like, axis=others), sum_(core, axis=others))


class Problem(ABC):
    """A loss on one level: the distance of models from its block sums, and how to lower it."""

    def begin(self, parts: Parts) -> Parts:
        """Return a model as `descend` takes it."""
        return parts

    def soften(self, parts: Parts) -> Parts:
        """Return a model with small entries raised, which has more directions of descent, or the same model."""
        return parts

    def end(self, parts: Parts) -> Parts:
        """Convert a model that `descend` yielded to the form that other levels use."""
        return parts

    @abstractmethod
    def distance(self, parts: Parts) -> float:
        """Return the distance of a model."""

    @abstractmethod
    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield ever better models, without end; the distance never rises."""

    def published(self, parts: Parts) -> Iterator[Update]:  # noqa: ARG002
        """Yield models by the published updates, from a model that was not passed through `begin`."""
        raise ValueError(f"preset: there are no published updates for {type(self).__name__}; leave preset out")


Improve = Callable[[Parts], tuple[float, Callable[[], Parts]]]
"""Maps a model to its distance, and to a function that takes one step from it, which never raises the distance."""

Further = Callable[[Parts, Parts], Parts]
"""Maps the two ends of a step to a model further on; it remembers the steps before."""


def accelerated(parts: Parts, improve: Improve, remember: Callable[[], Further]) -> Iterator[Update]:
    """Yield a model and ever better ones, with their distance, which never rises.

    Each step goes further than `improve` would. If that raises the distance, the plain step is taken instead.
    """
    here, step, least, further = parts, parts, math.inf, remember()
    del parts  # it may be large
    while True:
        distance, take = improve(here)
        if distance > least and here is not step:
            here, further = step, remember()
            continue
        least = min(least, distance)  # a step alone may raise it, but only by a rounding error
        yield (*here, least)
        step = take()
        here = further(here, step)


class Loss(ABC):
    """A loss that a decomposition minimises.

    Attributes
    ----------
    name : str
        What users call it.
    by_mass : bool
        Whether the sum of a block is spread over its indices in proportion to their mass, or evenly.
    has_levels : bool
        Whether the loss of the whole tensor is known from the distance on a coarser level.
    is_prepared : bool
        Whether least squares, in the metric of the measure, may come first, if they help.
    """

    name: ClassVar[str]
    by_mass: ClassVar[bool] = False
    has_levels: ClassVar[bool] = False
    is_prepared: ClassVar[bool] = True

    @abstractmethod
    def problem(self, level: Level, pyramid: Pyramid) -> Problem:
        """Return the problem on one level."""

    def offset(self, level: Level, pyramid: Pyramid) -> float:  # noqa: ARG002
        """Return the distance of the whole tensor from the blocks of a level, spread over their indices."""
        return 0.0

    @abstractmethod
    def value(self, distance: float, level: Level, pyramid: Pyramid) -> float:
        """Return the loss of the whole tensor, given the distance on a level."""

    def unit(self, pyramid: Pyramid) -> float:  # noqa: ARG002
        """Return the scale of the loss, by which absolute tolerances are multiplied."""
        return 1.0

    def observed(self, known: Known, measures: Sequence[Matrix], total: float) -> Problem:  # noqa: ARG002
        """Return the problem for what is known of a tensor, given measures that sum to 1, and its expected total."""
        raise ValueError(f"observed: loss={self.name!r} is for tensors without gaps; give 'kl' or 'ls'")

    def observed_value(self, distance: float, norm: float, scale: float) -> float:  # noqa: ARG002
        """Return the loss of what is known, given its distance, and that of a model of zeros."""
        return distance


LEAST = 1e-11
"""Numerators and denominators of the published updates are at least this, as in TensorLy."""


def published_ratio(numerator: Matrix, denominator: Matrix) -> Matrix:
    """Return the factor of a published multiplicative update.

    See Kim & Choi, "Nonnegative Tucker decomposition", CVPR 2007. A part that is zero stays zero; a divisor that would
    be zero is a small number instead.
    """
    return at_least(numerator, LEAST) / at_least(denominator, LEAST)
