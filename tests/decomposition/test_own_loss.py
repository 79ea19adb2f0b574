"""A loss takes one file: here the beta-divergence, between Kullback-Leibler and squared error."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from tucket.decomposition.data import Data
from tucket.decomposition.levels import Level, Pyramid
from tucket.decomposition.losses import Loss, Problem, Update
from tucket.kernels.algebra import Matrix, Parts, share

BETA = 1.5


class BetaDivergence(Loss):
    """The sum of x**b / (b (b - 1)) + q**b / b - x q**(b - 1) / (b - 1)."""

    name: ClassVar[str] = "beta"

    def problem(self, level: Level, pyramid: Pyramid) -> Problem:  # noqa: ARG002
        return BetaProblem(level.data)

    def value(self, distance: float, level: Level, pyramid: Pyramid) -> float:  # noqa: ARG002
        return float(distance / pyramid.scale**BETA)


class BetaProblem(Problem):
    """Multiplicative updates of one part after another, which never raise it for 1 <= b <= 2."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def distance(self, parts: Parts) -> float:
        return float(self.data.slopes(*parts, _numerators)[2])

    def descend(self, parts: Parts) -> Iterator[Update]:
        core, factors = parts[0], list(parts[1])
        while True:
            for place in range(len(factors) + 1):
                above, below = (self.data.slopes(core, factors, terms) for terms in (_numerators, _denominators))
                if place == len(factors):
                    core = core * share(above[0], below[0])
                else:
                    factors[place] = factors[place] * share(above[1][place], below[1][place])
            yield core, list(factors), self.distance((core, factors))


def _numerators(data: Data, part: Matrix, model: Matrix) -> tuple[Matrix, Any]:  # noqa: ARG001
    losses = part**BETA / (BETA * (BETA - 1)) + model**BETA / BETA - part * model ** (BETA - 1) / (BETA - 1)
    return part * np.maximum(model, 1e-300) ** (BETA - 2), losses.sum()


def _denominators(data: Data, part: Matrix, model: Matrix) -> tuple[Matrix, Any]:  # noqa: ARG001
    return model ** (BETA - 1), 0.0


def beta_divergence(x: NDArray[Any], q: NDArray[Any]) -> float:
    return float((x**BETA / (BETA * (BETA - 1)) + q**BETA / BETA - x * q ** (BETA - 1) / (BETA - 1)).sum())


@pytest.mark.parametrize("scale", [1.0, 1e12])
def test_ntd_lowers_a_loss_of_your_own(scale: float) -> None:
    rng = np.random.default_rng(0)
    exact = tk.Tucker(rng.random((2, 2, 2)), [rng.random((size, 2)) for size in (8, 9, 7)]).to_tensor()
    x = rng.gamma(5.0, exact / 5) * scale
    steps: list[tk.Step] = []
    fit = tk.ntd(x, 2, loss=BetaDivergence(), callback=steps.append)
    assert fit.loss == pytest.approx(beta_divergence(x, fit.to_tensor()), rel=1e-6)
    losses = [step.loss for step in fit.trace]
    assert losses[1:] == sorted(losses[1:], reverse=True)
    others = [tk.ntd(x, 2, loss="kl"), tk.ntd(x, 2, loss="ls")]
    assert all(fit.loss <= beta_divergence(x, other.to_tensor()) for other in others)
    with pytest.raises(ValueError, match="there are no published updates for BetaProblem"):
        tk.ntd(x, 2, loss=BetaDivergence(), preset="paper")
