r"""Decomposition of tensors with gaps, or with exposure, by the divergence of what is observed.

.. math:: D = \sum_i x_i \log \frac{x_i}{E_i Q_i} - x_i + E_i Q_i

A pass gives the derivatives of :math:`\langle x / Q, Q \rangle` and of :math:`\langle E, Q \rangle` by all parts of the
model. With these, a step of expectation-maximisation fills what is not exposed by what the model expects there, and
never raises D. Quasi-Newton steps go further, as for a tensor without gaps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tucket.base.partition import Partition
from tucket.base.run import Run
from tucket.decomposition.data import Data, data_of
from tucket.decomposition.descent import FIRST_PATIENCE, Descent
from tucket.decomposition.losses.kl import SOFT_MIX, START_MIX, QuasiNewton, mix
from tucket.decomposition.losses.loss import Problem, Update
from tucket.decomposition.starts import SMALL_CORE_ENTRIES
from tucket.kernels.algebra import Matrix, Parts, distance_of, multiply_all, quotient, to_mixture, weigh, without
from tucket.models.expected import x_log_exposure
from tucket.models.tucker import Tucker
from tucket.projection.observed_search import search_observed
from tucket.projection.plan import make_plan
from tucket.projection.proportional import project_observed
from tucket.sources.dense import Array
from tucket.sources.observed import Observed
from tucket.sources.source import Source

Slopes = tuple[Matrix, list[Matrix]]
"""Derivatives by the core, and by each factor."""

RANDOM_STARTS = 2
"""Random models that are tried beside the blocks of LTR, if the core is small."""


class ObservedDivergence(Problem):
    """The divergence of what is observed from Tucker models.

    Attributes
    ----------
    total : float
        The sum of what is observed.
    most : float
        The largest exposure.
    """

    def __init__(self, observed: Observed, run: Run) -> None:
        rank1 = project_observed(observed, Partition.uniform(observed.shape, 1), run)
        self.weights, self.mass = rank1.weights, float(rank1.core.item())
        self.x, self.part = (_data(source, run) for source in (observed.x, observed.part))
        self.is_complement = observed.is_complement
        self.most = 1.0 if observed.weights is None else float(observed.weights.max())
        self.logs = x_log_exposure(observed, run)
        self.total = float(self.x.contract({k: np.ones((n, 1)) for k, n in enumerate(observed.shape)}).item())

    def begin(self, parts: Parts) -> Parts:
        """Return a mixture with a little of the rank-1 model in every component."""
        return self._mix(parts, START_MIX)

    def soften(self, parts: Parts) -> Parts:
        """Return a mixture with much of the rank-1 model in every component."""
        return self._mix(parts, SOFT_MIX)

    def _mix(self, parts: Parts, floor: float) -> Parts:
        core, factors = to_mixture(*parts)
        total = float(core.sum()) or 1.0
        return mix(core, factors, floor, [total * weights for weights in self.weights], total)

    def distance(self, parts: Parts) -> float:
        """Return the divergence of a model."""
        return self._look(parts)[2]

    def descend(self, parts: Parts) -> Iterator[Update]:
        """Yield the given mixture and ever better ones, with their divergence, which never rises."""
        here, step, least, further = parts, parts, math.inf, QuasiNewton(self.total, keeps_total=False)
        while True:
            seen, exposed, divergence = self._look(here)
            if divergence > least and here is not step:
                here, further = step, QuasiNewton(self.total, keeps_total=False)
                continue
            least = min(least, divergence)
            yield (*here, least)
            step = self._filled_step(here, seen, exposed)
            here = further(here, step)

    def _look(self, parts: Parts) -> tuple[Slopes, Slopes, float]:
        """Return the slopes of what is observed, and of what is exposed, and the divergence."""
        core, factors = parts
        by_core, by_factors, logs = self.x.slopes(core, factors, lambda data, x, model: data.ratios(x, model))
        part_core, part_factors, exposed = self.part.slopes(core, factors, _weigh)
        if self.is_complement:
            whole_core, whole_factors = _slopes_of_all(core, factors)
            part_core = np.maximum(whole_core - part_core, 0)
            part_factors = [np.maximum(whole - some, 0) for whole, some in zip(whole_factors, part_factors)]
            exposed = float(np.vdot(core, whole_core)) - exposed
        return (by_core, by_factors), (part_core, part_factors), distance_of(logs - self.logs - self.total + exposed)

    def _filled_step(self, parts: Parts, seen: Slopes, exposed: Slopes) -> Parts:
        """Take the step of expectation-maximisation, with what is not exposed filled by the model."""
        core, factors = parts
        whole_core, whole_factors = _slopes_of_all(core, factors)
        counts = core * (seen[0] / self.most + whole_core - exposed[0] / self.most)
        better = [
            factor * (s / self.most + whole - e / self.most)
            for factor, s, whole, e in zip(factors, seen[1], whole_factors, exposed[1])
        ]
        return np.maximum(counts, 0), [quotient(np.maximum(f, 0), np.maximum(f, 0).sum(axis=0)) for f in better]


def _data(source: Source, run: Run) -> Data:
    """Return a source as a decomposition reads it."""
    loaded = Array(source.to_numpy()) if source.in_memory and not source.sparse else source
    return data_of(loaded, 1.0, run)


def _weigh(data: Data, part: Matrix, model: Matrix) -> tuple[Matrix, Any]:  # noqa: ARG001
    weights = np.array(part, np.float64)
    return weights, float(np.vdot(weights, model))


def _slopes_of_all(core: Matrix, factors: Sequence[Matrix]) -> Slopes:
    """Return the slopes of the sum of the whole model."""
    sums = {mode: factor.sum(axis=0) for mode, factor in enumerate(factors)}
    rows = {mode: vector[:, None] for mode, vector in sums.items()}
    by_core = weigh(np.ones(core.shape), sums)
    by_factors = [
        np.broadcast_to(multiply_all(core, without(rows, mode)).reshape(1, -1), factor.shape)
        for mode, factor in enumerate(factors)
    ]
    return by_core, by_factors


def decompose_observed(descent: Descent, observed: Observed, init: str | Tucker, rank: tuple[int, ...]) -> Parts:
    """Return the best model of what is observed, from one of several starts."""
    run = replace(descent.run, callback=None, progress=None, rng=descent.run.generator())
    problem = ObservedDivergence(observed, run)
    best: Parts | None = None
    least, starts = math.inf, list(_starts(observed, problem, init, rank, run))
    patience = FIRST_PATIENCE if len(starts) > 1 else descent.patience
    for start in starts:
        if best is not None and descent.is_late:
            break
        parts, reached = descent.follow(problem, start(), 0, float, patience, rival=least)
        if reached < least:
            best, least = parts, reached
        descent.least = least
    assert best is not None
    if len(starts) > 1 and not descent.is_late:
        best, _ = descent.follow(problem, best, 0, float, descent.patience)
    return best


def _starts(
    observed: Observed, problem: ObservedDivergence, init: str | Tucker, rank: tuple[int, ...], run: Run
) -> Iterator[Callable[[], Parts]]:
    if isinstance(init, Tucker):
        yield lambda: (np.asarray(init.core, np.float64), [np.asarray(f, np.float64) for f in init.factors])
        return
    if init in ("auto", "ltr"):
        plan = make_plan("clusters", rank, 0, Partition.uniform(observed.shape, observed.shape))

        def blocks() -> Parts:
            model = project_observed(observed, search_observed(observed, plan, run, 50), run)
            return problem.soften((model.core, model.dense_factors()))

        yield blocks
    if init == "random" or (init == "auto" and math.prod(rank) <= SMALL_CORE_ENTRIES):
        for _ in range(1 if init == "random" else RANDOM_STARTS):
            yield lambda: _random(problem, rank, run)


def _random(problem: ObservedDivergence, rank: tuple[int, ...], run: Run) -> Parts:
    rng = run.generator()
    core, factors = to_mixture(rng.random(rank), [rng.random((len(w), r)) for w, r in zip(problem.weights, rank)])
    return core * (problem.mass / core.sum()), factors
