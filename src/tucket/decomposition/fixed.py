"""Fixed parts of a model, which keep their given values while the others are fitted."""

from __future__ import annotations

from collections.abc import Sequence

from tucket.backends import get_namespace
from tucket.decomposition.losses import Fixed
from tucket.kernels.algebra import Matrix, Parts, quotient, weigh

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
            others = tuple(k for k in range(core.ndim) if k != mode)
            more = quotient(xp.sum(scaled, axis=others), xp.sum(core, axis=others))
            core, found[mode] = weigh(core, {mode: more}), found[mode] * more
        if float(xp.max(xp.abs(core - scaled))) <= 1e-15 * float(xp.max(scaled)):
            break
    return found
