"""What a model expects of a tensor with gaps: sums over what is exposed, and the divergence of what is observed."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from tucket.base.run import Run
from tucket.kernels.measures import error_ratio, power_of_two
from tucket.sources.observed import Observed
from tucket.sources.reductions import Scalars
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.transformed import Transformed

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from tucket.models.model import Model


@dataclass(frozen=True)
class TimesModel:
    """Multiplies the entries of a chunk by those of a model."""

    model: Model

    def __call__(self, chunk: Chunk | Entries, workers: int) -> Chunk | Entries:
        """Return the changed chunk."""
        if isinstance(chunk, Entries):
            expected = self.model._at(chunk.coords, workers)
            return chunk._replace(values=np.multiply(expected, chunk.values, out=expected))
        return Chunk(chunk.array * self.model[chunk.box], chunk.box)


class Total(Scalars):
    """The sum of all entries."""

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return that of one chunk."""
        values = chunk.array if isinstance(chunk, Chunk) else chunk.values
        return np.array([values.sum(dtype=np.float64)])


def total_of(source: Source, run: Run) -> float:
    """Return the sum of all entries."""
    return float(source.reduce(Total(), run)[0])


@dataclass(frozen=True)
class LogExposure(Scalars):
    """The sum of the entries times the logarithms of their exposures."""

    exposure: NDArray[np.float64]

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return that of one chunk."""
        values = chunk.array if isinstance(chunk, Chunk) else chunk.values
        exposure, seen = self.exposure[chunk.box if isinstance(chunk, Chunk) else tuple(chunk.coords)], values > 0
        return np.array([values[seen] @ np.log(exposure[seen])])


@dataclass(frozen=True)
class Squares(Scalars):
    """The sum of the squares of entries, each over its exposure.

    Attributes
    ----------
    unit : float
        What the entries are divided by.
    """

    unit: float
    exposure: NDArray[np.float64] | None

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:  # noqa: ARG002
        """Return that of one chunk."""
        values = chunk.array if isinstance(chunk, Chunk) else chunk.values
        squares = np.square(values / np.float64(self.unit))
        if self.exposure is not None:
            exposure = self.exposure[chunk.box if isinstance(chunk, Chunk) else tuple(chunk.coords)]
            squares = np.divide(squares, exposure, where=exposure > 0, out=np.zeros(squares.shape))
        return np.array([squares.sum()])


def divergence_of_observed(model: Model, observed: Observed, run: Run) -> float:
    r"""Return the divergence of what is observed: :math:`\sum x \log (x / E Q) - x + E Q`."""
    total = model._total() + x_log_exposure(observed, run)
    exposed = total_of(Transformed(observed.part, TimesModel(model)), run)
    return max(0.0, model._kl(observed.x, run) - (exposed if observed.is_complement else total - exposed))


def error_of_observed(model: Model, observed: Observed, run: Run) -> float:
    r"""Return the relative error of what is observed: :math:`\sqrt{\sum (x - E Q)^2 / E \big/ \sum x^2 / E}`.

    The squares are a difference of sums.
    """
    unit = power_of_two(total_of(observed.x, run) / math.prod(observed.shape))
    core, *others = model.astype(np.float64).parts
    times_model = TimesModel(model._with([core / unit, *others]))
    norm = float(observed.x.reduce(Squares(unit, observed.weights), run)[0])
    products = total_of(Transformed(observed.x, times_model), run) / unit
    hidden_or_seen = total_of(Transformed(Transformed(observed.part, times_model), times_model), run)
    squares = model._square_sum(unit) - hidden_or_seen if observed.is_complement else hidden_or_seen
    return error_ratio(max(0.0, norm - 2 * products + squares), norm)


def x_log_exposure(observed: Observed, run: Run) -> float:
    """Return the sum of the tensor times the logarithms of its exposure."""
    if observed.weights is None:
        return 0.0
    return float(observed.x.reduce(LogExposure(observed.weights), run)[0])
