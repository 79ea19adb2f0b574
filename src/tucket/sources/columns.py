"""Columns of a table that are modes: how their values become indices."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.blocks import as_index

__all__ = ["Bins", "Column", "make_column"]

Bins = str | int | Sequence[float]


class Column(ABC):
    """How the values of a column become indices: look at all of them, make labels, then encode."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def look_at(self, values: Any, first: int) -> None:
        """Take note of some values, the first of which is in row `first`."""

    @abstractmethod
    def make_labels(self) -> Any:
        """Return the label of each index, when all values were looked at."""

    @abstractmethod
    def encode(self, values: Any, first: int) -> NDArray[Any]:
        """Return the index of each value; the first of these is in row `first`."""


class Categories(Column):
    """An index for each distinct value: sorted, or in the order of a categorical column."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.seen: Any = None
        self.is_sorted = True

    def look_at(self, values: Any, first: int) -> None:  # noqa: ARG002
        """Take note of values that were not seen before."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            self.is_sorted, new = False, values.dictionary
        else:
            new = pc.unique(values)
        if self.seen is not None:
            both = pa.chunked_array([pc.unique(each) for each in _common(self.seen, new)])
            new = pc.unique(both)
        self.seen = new

    def make_labels(self) -> Any:
        """Return the values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.is_sorted:
            self.seen = self.seen.take(pc.sort_indices(self.seen))
        if pa.types.is_temporal(self.seen.type) or pa.types.is_primitive(self.seen.type):
            return self.seen.to_numpy(zero_copy_only=False)
        return np.array(self.seen.to_pylist())

    def encode(self, values: Any, first: int) -> NDArray[Any]:  # noqa: ARG002
        """Look values up."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if pa.types.is_dictionary(values.type):
            places = pc.index_in(values.dictionary.cast(self.seen.type), value_set=self.seen).to_numpy()
            return np.asarray(places[values.indices.to_numpy()])
        return np.asarray(pc.index_in(values.cast(self.seen.type), value_set=self.seen).to_numpy())


class Times(Column):
    """An index for each stretch of time of the same length, from the first to the last that has a row."""

    MONDAY = 4  # 1970-01-05 was one, and weeks begin with it
    UNITS: Mapping[str, tuple[str, int]] = {
        "s": ("s", 1), "min": ("m", 1), "h": ("h", 1), "d": ("D", 1), "w": ("D", 7), "mo": ("M", 1), "y": ("Y", 1),
    }  # fmt: skip

    def __init__(self, name: str, length: str) -> None:
        super().__init__(name)
        match = re.fullmatch(r"\s*(\d*)\s*([a-z]+)\s*", length.lower())
        if not match or match[2] not in self.UNITS or match[1] == "0":
            raise ValueError(
                f"bins: column {name!r} cannot be cut by {length!r}; give a number and one of "
                f"{', '.join(self.UNITS)}, such as '15min' or '1h'"
            )
        self.unit, times = self.UNITS[match[2]]
        self.step = times * int(match[1] or 1)
        self.origin = self.MONDAY if match[2] == "w" else 0
        self.low, self.high = np.iinfo(np.int64).max, np.iinfo(np.int64).min

    def _number(self, values: Any) -> NDArray[np.int64]:
        import pyarrow as pa
        import pyarrow.compute as pc

        if not pa.types.is_timestamp(values.type) and not pa.types.is_date(values.type):
            raise TypeError(
                f"bins: column {self.name!r} is of {values.type}; only times can be cut by a length of time"
            )
        if getattr(values.type, "tz", None):
            values = pc.local_timestamp(values)  # a day begins at midnight where it was
        times = values.to_numpy(zero_copy_only=False).astype(f"datetime64[{self.unit}]").astype(np.int64)
        numbers: NDArray[np.int64] = (times - self.origin) // self.step
        return numbers

    def look_at(self, values: Any, first: int) -> None:  # noqa: ARG002
        """Take note of the first and the last time."""
        if len(values):
            numbers = self._number(values)
            self.low, self.high = min(self.low, int(numbers.min())), max(self.high, int(numbers.max()))

    def make_labels(self) -> Any:
        """Return when each stretch begins."""
        if self.high - self.low >= LONGEST:
            raise ValueError(
                f"bins: column {self.name!r} would be cut into {self.high - self.low + 1:,} stretches of time; "
                f"give a length that makes at most {LONGEST:,}"
            )
        begins = np.arange(self.low, self.high + 1) * self.step + self.origin
        return begins.astype(f"datetime64[{self.unit}]")

    def encode(self, values: Any, first: int) -> NDArray[Any]:  # noqa: ARG002
        """Return the stretch of each time."""
        return self._number(values) - self.low


class Numbers(Column):
    """An index for each interval between edges, which are given, or of equal length."""

    def __init__(self, name: str, bins: int | Sequence[float]) -> None:
        super().__init__(name)
        self.count = bins if isinstance(bins, int) else None
        self.edges = np.zeros(2) if isinstance(bins, int) else np.asarray(bins, np.float64)
        if isinstance(bins, int) and bins < 1:
            raise ValueError(f"bins: column {name!r} cannot be cut into {bins} bins; give at least 1")
        if self.edges.ndim != 1 or len(self.edges) < 2 or (self.count is None and not (np.diff(self.edges) > 0).all()):
            raise ValueError(f"bins: column {name!r} has edges {bins}; give at least two, increasing")
        self.low, self.high = np.inf, -np.inf

    def _number(self, values: Any) -> NDArray[np.float64]:
        numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"bins: column {self.name!r} is of {values.type}; only numbers can be cut by numbers")
        return numbers.astype(np.float64)

    def look_at(self, values: Any, first: int) -> None:
        """Take note of the smallest and the largest number."""
        if len(values):
            numbers = self._number(values)
            bad = ~np.isfinite(numbers)
            if bad.any():
                row = first + int(np.argmax(bad))
                raise ValueError(f"bins: row {row} of column {self.name!r} is {numbers[row - first]}; drop such rows")
            self.low, self.high = min(self.low, numbers.min()), max(self.high, numbers.max())

    def make_labels(self) -> Any:
        """Return where each interval begins."""
        if self.count is not None:
            high = self.high if self.high > self.low else self.low + 1
            self.edges = np.linspace(self.low, high, self.count + 1)
        return self.edges[:-1]

    def encode(self, values: Any, first: int) -> NDArray[Any]:
        """Return the interval of each number; the last one has its upper edge too."""
        numbers = self._number(values)
        outside = ~((numbers >= self.edges[0]) & (numbers <= self.edges[-1]))
        if outside.any():
            at = int(np.argmax(outside))
            raise ValueError(
                f"bins: row {first + at} of column {self.name!r} is {numbers[at]}, "
                f"outside the edges {self.edges[0]} to {self.edges[-1]}"
            )
        return np.minimum(np.searchsorted(self.edges, numbers, side="right") - 1, len(self.edges) - 2)


LONGEST = 100_000_000
"""Stretches of time at most."""


def make_column(name: str, bins: Bins | None) -> Column:
    """Choose how a column becomes indices."""
    if bins is None:
        return Categories(name)
    if isinstance(bins, str):
        return Times(name, bins)
    count = as_index(bins)
    return Numbers(name, count if count is not None else bins)


def _common(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two arrays in the one type that both fit."""
    import pyarrow as pa

    if first.type == second.type:
        return first, second
    fields = [pa.schema([pa.field("x", each.type)]) for each in (first, second)]
    wide = pa.unify_schemas(fields, promote_options="permissive").field("x").type
    return first.cast(wide), second.cast(wide)
