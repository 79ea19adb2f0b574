"""How well models of several ranks predict cells that are held out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from tucket.base.axes import Axes, mode_names
from tucket.base.checks import choose
from tucket.base.optional import import_optional

Ranks = tuple[int, ...]


@dataclass(frozen=True)
class Score:
    """How well models of one rank predict what they have not seen.

    Parameters
    ----------
    rank : tuple of int
        Number of blocks or components of each mode.
    n_parameters : int
        Numbers that the model holds.
    losses : tuple of float
        Loss on the held-out cells of each repetition: the divergence over their mean sum, or the relative error.
    fitted : float
        The same loss on the cells of the fit, on average.
    mix : float
        Share of the rank-1 model that was mixed in, on average: see `cross_validate`.
    """

    rank: Ranks
    n_parameters: int
    losses: tuple[float, ...]
    fitted: float
    mix: float

    @property
    def loss(self) -> float:
        """Mean loss on held-out cells."""
        return float(np.mean(self.losses))

    def is_close_to(self, best: Score) -> bool:
        """Say whether the loss is larger than another one by at most one standard error of the difference."""
        return self.loss - best.loss <= self.error_beside(best)

    def error_beside(self, best: Score) -> float:
        """Return the standard error of the difference from the loss of another rank on the same cells."""
        differences = np.subtract(self.losses, best.losses)
        return float(np.std(differences, ddof=1) / math.sqrt(len(differences))) if len(differences) > 1 else 0.0


@dataclass(frozen=True)
class CrossValidation:
    """The loss of several ranks on cells that are held out; made by `cross_validate`.

    Parameters
    ----------
    scores : tuple of Score
        One per rank, in the order in which they were tried.
    loss : str
        What is measured: "KL / sum" or "relative error".
    axes : Axes, optional
        Names of the modes.

    See Also
    --------
    cross_validate : Makes it.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.random.default_rng(0).poisson(np.kron([[9, 1], [2, 7]], np.ones((10, 8))))
    >>> table = tk.cross_validate(x, [1, 2, 4])
    >>> table.best()
    (2, 2)
    """

    scores: tuple[Score, ...]
    loss: str
    axes: Axes | None = None

    @property
    def least(self) -> Score:
        """The score of least loss."""
        return min(self.scores, key=lambda score: score.loss)

    def best(self, rule: Literal["one-se", "least"] = "one-se") -> Ranks:
        """Return the rank to take.

        Parameters
        ----------
        rule : {"one-se", "least"}, default "one-se"
            "one-se" takes the smallest model with a loss that is larger than the least by at most one standard error of
            the difference. "least" takes the rank of least loss.

        Returns
        -------
        tuple of int
        """
        choose(rule, {"one-se": 0, "least": 0}, "rule")
        best = self.least
        if rule == "least":
            return best.rank
        close = [score for score in self.scores if score.is_close_to(best)]
        return min(close, key=lambda score: (score.n_parameters, score.loss)).rank

    def to_pandas(self) -> Any:
        """Return a table with one row per rank, best first.

        Returns
        -------
        pandas.DataFrame
        """
        pd = import_optional("pandas", "pandas", "to_pandas")
        best = self.least
        names = mode_names(self.axes, len(best.rank))
        rows = [
            {
                **dict(zip(names, score.rank)),
                "n_parameters": score.n_parameters,
                "held_out": score.loss,
                "difference": score.loss - best.loss,
                "standard_error": score.error_beside(best),
                "fitted": score.fitted,
                "mix": score.mix,
            }
            for score in sorted(self.scores, key=lambda score: score.loss)
        ]
        return pd.DataFrame(rows)

    def plot(self) -> Any:
        """Draw the loss of each rank as `tucket.plot.cross_validation` does.

        Returns
        -------
        matplotlib.axes.Axes
        """
        import tucket  # by its public name: drawing stands above this room

        return tucket.plot.cross_validation(self)

    def __repr__(self) -> str:
        chosen, best = self.best(), self.least
        lines = [f"CrossValidation, ranks by {self.loss} of held-out cells:"]
        lines += ["  held out       +-    fitted  parameters  rank"]
        for score in sorted(self.scores, key=lambda score: score.loss):
            mark = "  <- best" if score.rank == chosen else ""
            numbers = f"{score.loss:10.5f} {score.error_beside(best):8.5f} {score.fitted:9.5f}"
            lines.append(f"{numbers} {score.n_parameters:>11,}  {score.rank}{mark}")
        return "\n".join(lines)
