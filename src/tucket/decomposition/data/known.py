r"""What is known of a tensor, as a decomposition reads it.

A pass compares the entries x with what a model Q expects for their exposure E. It gives the divergence

.. math:: \sum_i x_i \log \frac{x_i}{E_i Q_i} - x_i + E_i Q_i

and its derivatives by all parts of the model. Or it fills what is not known: with the largest exposure M, a model near
the complete tensor x / M + (1 - E / M) Q is nearer to what is known than Q. So a step for complete tensors is one for
tensors with gaps.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.run import Run
from tucket.decomposition.data.chunks import SourceData
from tucket.decomposition.data.data import Data
from tucket.decomposition.data.entries import EntriesData
from tucket.decomposition.data.pairs import Pair, PairArray
from tucket.kernels.algebra import Matrix, Parts, distance_of, multiply_all, weigh, without
from tucket.models.tucker import Tucker
from tucket.sources.observed import Observed
from tucket.sources.reductions import Scalars
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.sparse import align, distinct_entries
from tucket.sources.transformed import Change, Transformed

Slopes = tuple[Matrix, list[Matrix]]
"""Derivatives by the core, and by each factor."""


class Known(ABC):
    """A tensor with gaps, or with exposure.

    Attributes
    ----------
    most : float
        The largest exposure.
    scale : float
        The power of two that entries are multiplied by when they are read.
    data : Data
        Entries with their exposure, where these are read together.
    """

    most: float
    scale: float
    data: Data

    def compare(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Slopes, float]:
        """Return the derivatives of minus the divergence from a model, and the divergence."""
        by_core, by_factors, divergence = self.data.slopes(core, factors, _compare)
        return (by_core, by_factors), distance_of(divergence)

    @abstractmethod
    def fill(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Data, float]:
        """Return the tensor filled by a model, and the squared distance: the sum of (x - E Q)**2 / E."""


def known_data(observed: Observed, scale: float, run: Run) -> Known:
    """Return what is known as a decomposition reads it, wherever it is."""
    x, part = observed.x, observed.part
    most = 1.0 if observed.weights is None else float(observed.weights.max())
    if x.sparse and part.sparse:
        entries, cells = distinct_entries(x), distinct_entries(part)
        if observed.is_complement:
            return HiddenCells(entries, cells, scale, run.workers)
        return KnownCells(*align(entries, cells), most, scale, run.workers)
    if not x.in_memory:
        return KnownChunks(x, part, most, scale, run)
    exposure = part.to_numpy()
    exposure = exposure == 0 if observed.is_complement else exposure
    return KnownArray(PairArray(x.to_numpy(), scale, run.workers, exposure=exposure), most)


def _compare(_: Data, part: Any, model: Matrix) -> tuple[Matrix, float]:
    """Return x / Q - E for some entries and their exposure, and their divergence."""
    from tucket.kernels.cpu.updates import compare_known

    x, exposure = part.T.copy() if isinstance(part, np.ndarray) else part
    divergence, lost = compare_known(x.reshape(-1), exposure.reshape(-1), model.reshape(-1))
    return model, math.inf if lost > 0 else divergence


@dataclass(frozen=True)
class KnownArray(Known):
    """A NumPy array, with the exposure of every cell."""

    data: PairArray
    most: float = 1.0

    @property
    def scale(self) -> float:  # type: ignore[override]
        """The power of two that entries are multiplied by."""
        return self.data.scale

    def fill(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Data, float]:
        """Return the filled array, and the squared distance."""
        return self.data.fill(core, factors, self.most)


@dataclass(frozen=True)
class KnownCells(Known):
    """Known cells, zeros among them, with their exposure; nothing is known of all others."""

    entries: Entries
    exposure: NDArray[Any]
    most: float
    scale: float
    workers: int

    @cached_property
    def data(self) -> EntriesData:  # type: ignore[override]
        """The entries, with their exposure as a second column of values."""
        pairs = np.stack([self.entries.values * np.float64(self.scale), self.exposure], axis=1)
        return EntriesData(self.entries._replace(values=pairs), 1.0, self.workers)

    def fill(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Data, float]:
        """Return the model, with the known cells filled, and the squared distance."""
        from tucket.kernels.cpu.updates import fill_unknown

        x, exposure = self.data.entries.values.T.copy()
        model = self.data.model_values(core, factors)
        filled = model.copy()
        distance = fill_unknown(x, exposure, self.most, filled)
        changes = self.entries._replace(values=filled - model)
        return PlusModel(changes, 1.0, self.workers, template=self.data, model=(core, list(factors))), distance


@dataclass(frozen=True, slots=True)
class PlusModel(EntriesData):
    """The sum of some entries and a model of the whole tensor."""

    model: Parts = field(kw_only=True)

    def contract(self, matrices: Mapping[int, Matrix]) -> Matrix:
        """Sum along some modes, against the columns of a matrix for each."""
        return EntriesData.contract(self, matrices) + self._contract_model(matrices)

    def contract_to(self, mode: int, matrices: Mapping[int, Matrix]) -> Iterator[tuple[slice, Matrix]]:
        """Sum along all modes but one; yield the result for some indices of that mode at a time."""
        for rows, part in EntriesData.contract_to(self, mode, matrices):
            yield rows, part + self._contract_model(matrices, rows)

    def _contract_model(self, matrices: Mapping[int, Matrix], rows: slice = slice(None)) -> Matrix:
        core, factors = self.model
        found = {k: f.T @ matrices[k] if k in matrices else f[rows].T for k, f in enumerate(factors)}
        return multiply_all(core, found)


@dataclass(frozen=True)
class HiddenCells(Known):
    """Entries of a sparse tensor with some hidden cells."""

    entries: Entries
    hidden: Entries
    scale: float
    workers: int
    most: float = 1.0

    @cached_property
    def data(self) -> EntriesData:  # type: ignore[override]
        """The entries."""
        return EntriesData(self.entries, self.scale, self.workers)

    @cached_property
    def _holes(self) -> EntriesData:
        return EntriesData(self.hidden, 1.0, self.workers)

    @cached_property
    def _total(self) -> float:
        return float(self.entries.values.sum(dtype=np.float64)) * self.scale

    def compare(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Slopes, float]:
        """Return the derivatives of minus the divergence from a model, and the divergence."""
        seen_core, seen, logs = self.data.slopes(core, factors, lambda data, x, model: data.ratios(x, model))
        hidden_core, hidden = self._holes.product_slopes(core, factors)
        whole_core, whole = slopes_of_all(core, factors)
        by_factors = [s - w + h for s, w, h in zip(seen, whole, hidden)]
        expected = float(np.vdot(core, whole_core - hidden_core))
        return (seen_core - whole_core + hidden_core, by_factors), distance_of(logs - self._total + expected)

    @cached_property
    def _either(self) -> EntriesData:
        """The cells that are not known to be 0: first the entries, then those that are hidden."""
        coords = [np.concatenate(each) for each in zip(self.entries.coords, self.hidden.coords)]
        return EntriesData(Entries(coords, np.empty(len(coords[0])), self.entries.shape), 1.0, self.workers)

    def fill(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Data, float]:
        """Return the entries with the hidden cells filled, and the squared distance."""
        x, model = self.entries.values * np.float64(self.scale), self._either.model_values(core, factors)
        count, squares = len(x), Tucker._of(core, factors)._square_sum(1.0)
        filled = self._either.entries._replace(values=np.concatenate([x, model[count:]]))
        distance = float(np.square(x - model[:count]).sum()) + squares - float(model @ model)
        return EntriesData(filled, 1.0, self.workers, template=self._either), max(0.0, distance)


def slopes_of_all(core: Matrix, factors: Sequence[Matrix]) -> Slopes:
    """Return the derivatives of the sum of a whole model."""
    sums = {mode: factor.sum(axis=0) for mode, factor in enumerate(factors)}
    rows = {mode: vector[:, None] for mode, vector in sums.items()}
    by_factors = [
        np.broadcast_to(multiply_all(core, without(rows, mode)).reshape(1, -1), factor.shape)
        for mode, factor in enumerate(factors)
    ]
    return weigh(np.ones(core.shape), sums), by_factors


class KnownChunks(Known):
    """A tensor that is not in memory, with the exposure of every cell."""

    def __init__(self, x: Source, part: Source, most: float, scale: float, run: Run) -> None:
        assert isinstance(x, Transformed)
        assert isinstance(part, Transformed)
        self.pairs = Transformed(x.given, Both(x.change, part.change))
        self.data, self.most, self.scale, self.run = SourceData(self.pairs, scale, run), most, scale, run

    def fill(self, core: Matrix, factors: Sequence[Matrix]) -> tuple[Data, float]:
        """Return the filled tensor, which is read chunk by chunk, and the squared distance."""
        rule = Fill(Tucker._of(core, factors), self.most, self.scale)
        distance = float(self.pairs.reduce(Squares(rule), self.run)[0])
        return SourceData(Transformed(self.pairs, rule), 1.0, self.run), distance


@dataclass(frozen=True)
class Both:
    """Turns a chunk into pairs of entries and exposures."""

    x: Change
    exposure: Change

    def __call__(self, chunk: Chunk | Entries, workers: int) -> Chunk:
        """Return the changed chunk."""
        x, exposure = self.x(chunk, workers), self.exposure(chunk, workers)
        assert isinstance(x, Chunk)
        assert isinstance(exposure, Chunk)
        return Chunk(Pair(x.array, exposure.array), x.box)


@dataclass(frozen=True)
class Fill:
    """Fills what is not known of a chunk by a model."""

    model: Tucker
    most: float
    scale: float

    def __call__(self, chunk: Chunk | Entries, workers: int) -> Chunk:
        """Return the changed chunk."""
        return self.with_distance(chunk, workers)[0]

    def with_distance(self, chunk: Chunk | Entries, workers: int) -> tuple[Chunk, float]:
        """Return the changed chunk, and the squared distance."""
        assert isinstance(chunk, Chunk)
        factors = [factor[rows] for factor, rows in zip(self.model.factors, chunk.box)]
        pairs = PairArray(chunk.array.x, self.scale, workers, exposure=chunk.array.exposure)
        filled, distance = pairs.fill(self.model.core, factors, self.most)
        return Chunk(filled.tensor, chunk.box), distance


@dataclass(frozen=True)
class Squares(Scalars):
    """The squared distance of what is known from a model."""

    rule: Fill

    def of(self, chunk: Chunk | Entries, workers: int) -> NDArray[np.float64]:
        """Return that of one chunk."""
        return np.array([self.rule.with_distance(chunk, workers)[1]])
