r"""Least squares: coordinate descent on the factors, accelerated projected gradient on the core.

With the tensor X, the factors A and the core G, what is lowered is

.. math:: \lVert X - G \times_k A_k \rVert^2
          = \lVert X \rVert^2 - 2 \langle X \times_k A_k^T, G \rangle + \langle G, G \times_k A_k^T A_k \rangle

Beside the contraction of X with the factors, all of it is as small as the model.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from tucket.kernels.threads import in_order
from tucket.updates.data import Data, Matrix, multiply, multiply_all, runs, unfold, without

__all__ = ["LeastSquares", "nearest_core"]

ROW_SWEEPS, ROW_TOLERANCE = 30, 1e-6
"""Sweeps over a row of a factor at most, and the change of its squares that ends them."""

SHARE = 1 << 16
"""Products of a sweep over the rows of a factor from which another thread pays for starting it."""

CORE_STEPS = 5
"""Steps of the core after each factor."""

PACE, FASTER, SLOWER = 0.5, 1.05, 1.5
"""Share of the last change that is added to it in advance, how it grows, and how it falls when that was too much."""


class LeastSquares:
    """The squared distance of Tucker models from a tensor, in a metric: a weight for every index of every mode.

    A difference counts times the weights at its indices. Models come and go with their factors in the metric: each
    row is multiplied by its weight.
    """

    def __init__(self, data: Data, metric: Sequence[Matrix]) -> None:
        self.data, self.metric = data, metric
        self.norm = data.square_sum(metric)

    def descend(self, core: Matrix, factors: Sequence[Matrix]) -> Iterator[tuple[Matrix, list[Matrix], float]]:
        """Yield ever better models, and their squared distance, which never rises.

        Each sweep starts a little further along the way of the last one; where that was too far, the next starts
        where the last one ended.
        """
        best = start = self.sweep(core, factors)
        yield best
        pace = PACE
        while True:
            found = self.sweep(start[0], start[1])
            if found[2] <= best[2]:
                start = (*_further(found, best, pace), found[2])
                best, pace = found, min(1.0, pace * FASTER)
                yield best
            elif start is not best:
                start, pace = best, pace / SLOWER
            else:  # nothing is left to gain but rounding errors
                yield best

    def sweep(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Matrix, list[Matrix], float]:
        """Improve every factor once, and the core with each; return them, and the squared distance."""
        grams = [factor.T @ factor for factor in factors]
        state = _State(core, [factor.copy() for factor in factors], grams, self.data.workers)
        for some, others in halves(range(core.ndim), state.shrink):
            state.improve(self.contract({mode: state.factors[mode] for mode in others}), some)
        return state.core, state.factors, max(0.0, self.norm + 2 * state.objective)

    def distance(self, core: Matrix, factors: Sequence[Matrix]) -> float:
        """Return the squared distance of a model."""
        target = self.contract(dict(enumerate(factors)))
        product = multiply_all(core, {mode: factor.T @ factor for mode, factor in enumerate(factors)})
        return max(0.0, self.norm + 2 * _objective(core, product, target))

    def contract(self, factors: dict[int, Matrix]) -> Matrix:
        """Contract the tensor, in the metric, with some factors."""
        result = self.data.contract({mode: factor * self.metric[mode][:, None] for mode, factor in factors.items()})
        for mode, weights in enumerate(self.metric):
            if mode not in factors:
                result *= weights.reshape(-1, *(1,) * (result.ndim - mode - 1))
        return result


@dataclass(slots=True)
class _State:
    """A model on its way, the Gram matrices of its factors, and half of its squared distance less the tensor's norm."""

    core: Matrix
    factors: list[Matrix]
    grams: list[Matrix]
    workers: int
    objective: float = 0.0

    @property
    def shrink(self) -> list[float]:
        """How many indices of each mode there are for a component."""
        return [len(factor) / factor.shape[1] for factor in self.factors]

    def improve(self, part: Matrix, modes: Sequence[int]) -> None:
        """Improve the factors of some modes, given the tensor contracted with all the others."""
        if len(modes) == 1:
            self.improve_factor(part, modes[0])
            return
        for some, others in halves(modes, self.shrink):
            self.improve(multiply_all(part, {mode: self.factors[mode] for mode in others}), some)

    def improve_factor(self, part: Matrix, mode: int) -> None:
        """Improve one factor, and then the core."""
        from tucket.kernels.updates import descend_rows

        core, factor = unfold(self.core, mode), self.factors[mode]
        gram = core @ unfold(multiply_all(self.core, without(dict(enumerate(self.grams)), mode)), mode).T
        targets = np.ascontiguousarray(unfold(part, mode) @ core.T)
        workers = min(self.workers, 1 + factor.size * len(gram) // SHARE)

        def work(rows: slice) -> None:
            descend_rows(targets[rows], gram, factor[rows], ROW_SWEEPS, ROW_TOLERANCE)

        for _ in in_order(work, runs(len(factor), -(-len(factor) // workers)), workers):
            pass
        # columns of norm 1: the gradient of the core is then as well conditioned as scaling can make it
        norms = np.sqrt(np.square(factor).sum(axis=0))
        norms[norms == 0] = 1.0
        factor /= norms
        self.core = self.core * norms.reshape(-1, *(1,) * (self.core.ndim - mode - 1))
        self.grams[mode] = factor.T @ factor
        target = multiply(part, factor, mode)
        self.core, self.objective = nearest_core(target, self.grams, self.core, CORE_STEPS)


def nearest_core(target: Matrix, grams: Sequence[Matrix], core: Matrix, steps: int) -> tuple[Matrix, float]:
    """Take accelerated steps down the gradient, none of which may raise the objective; return the core and that.

    The target is the tensor contracted with all factors, and the objective half of the squared distance less that
    of the tensor from 0.
    """
    matrices = dict(enumerate(grams))
    bound = math.prod(float(np.linalg.eigvalsh(gram)[-1]) for gram in grams)
    product = multiply_all(core, matrices)
    objective = _objective(core, product, target)
    ahead, ahead_product, pace = core, product, 1.0
    for _ in range(steps if bound > 0 else 0):
        step = np.maximum(ahead - (ahead_product - target) / bound, 0.0)
        step_product = multiply_all(step, matrices)
        reached = _objective(step, step_product, target)
        if reached > objective:
            if pace == 1.0:  # not even a plain step is an improvement: there is none
                break
            ahead, ahead_product, pace = core, product, 1.0
            continue
        faster = (1 + math.sqrt(1 + 4 * pace * pace)) / 2
        carry = (pace - 1) / faster
        ahead, ahead_product = step + carry * (step - core), step_product + carry * (step_product - product)
        core, product, objective, pace = step, step_product, reached, faster
    return core, objective


def halves(modes: Sequence[int], shrink: Sequence[float]) -> Iterator[tuple[list[int], list[int]]]:
    """Cut the modes in two, both of which shrink a tensor by about as much; yield either with the other."""
    groups: tuple[list[int], list[int]] = ([], [])
    for mode in sorted(modes, key=lambda mode: -shrink[mode]):
        min(groups, key=lambda group: (math.prod(shrink[k] for k in group), len(group))).append(mode)
    for some, others in (groups, groups[::-1]):
        if some:
            yield some, others


def _further(
    found: tuple[Matrix, list[Matrix], float], before: tuple[Matrix, list[Matrix], float], pace: float
) -> tuple[Matrix, list[Matrix]]:
    def move(now: Matrix, then: Matrix) -> Matrix:
        return np.maximum(now + pace * (now - then), 0.0)

    return move(found[0], before[0]), list(map(move, found[1], before[1]))


def _objective(core: Matrix, product: Matrix, target: Matrix) -> float:
    return float(np.vdot(core, product) / 2 - np.vdot(core, target))
