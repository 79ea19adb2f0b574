"""Columns of a table that become modes: how their values turn into indices."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.checks import as_index

Bins = str | int | Sequence[float]
"""How the values of a column are binned: by a length of time, a number of bins, or the edges of bins."""

MAX_TIME_BINS = 100_000_000
"""Maximum bins of a column of times; more are probably a mistake in the length of a bin."""


class Column(ABC):
    """A column that becomes a mode: it looks at all values, makes the labels, then encodes the values."""

    size = 0
    """Number of labels."""

    def __init__(self, name: str, owner: str) -> None:
        self.name, self.owner = name, owner

    @abstractmethod
    def look_at(self, values: Any, first: int) -> None:
        """Record some values, from row `first` on."""

    @abstractmethod
    def make_labels(self) -> NDArray[Any]:
        """Return the label of each index."""

    def encode(self, values: Any, first: int) -> NDArray[np.int64]:
        """Return the index of each value, from row `first` on.

        The file may have changed since it was opened. New values are refused: kernels would write out of bounds.
        """
        indices = self._index(values).astype(np.int64, copy=False)
        if len(indices) and not (indices.min() >= 0 and indices.max() < self.size):
            at = int(np.argmax((indices < 0) | (indices >= self.size)))
            value = values.slice(at, 1).cast("string")[0]
            raise ValueError(
                f"row {first + at} of column {self.name!r} of {self.owner} is {value}, "
                f"outside what was there when it was opened ({self._extent()}); open it again"
            )
        return indices

    @abstractmethod
    def _index(self, values: Any) -> NDArray[Any]:
        """Return the index of each value, or an invalid index for values that `look_at` did not see."""

    @abstractmethod
    def _extent(self) -> str:
        """Describe the values that `look_at` saw, for error messages."""


class Categories(Column):
    """One index per distinct value: sorted, or in the order of a categorical column."""

    def __init__(self, name: str, owner: str) -> None:
        super().__init__(name, owner)
        self.seen: Any = None
        self.is_sorted = True

    def look_at(self, values: Any, first: int) -> None:  # noqa: ARG002
        """Add values that are new."""
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

    def make_labels(self) -> NDArray[Any]:
        """Return the values."""
        import pyarrow as pa
        import pyarrow.compute as pc

        if self.is_sorted:
            self.seen = self.seen.take(pc.sort_indices(self.seen))
        self.size = len(self.seen)
        if pa.types.is_temporal(self.seen.type) or pa.types.is_primitive(self.seen.type):
            return np.asarray(self.seen.to_numpy(zero_copy_only=False))
        return np.array(self.seen.to_pylist())

    def _index(self, values: Any) -> NDArray[Any]:
        import pyarrow as pa
        import pyarrow.compute as pc

        is_dictionary = pa.types.is_dictionary(values.type)
        given, seen = _common(values.dictionary if is_dictionary else values, self.seen)
        indices = np.asarray(pc.fill_null(pc.index_in(given, value_set=seen), -1))
        return indices[values.indices.to_numpy()] if is_dictionary else indices

    def _extent(self) -> str:
        return f"{self.size:,} values"


class Times(Column):
    """One index per stretch of time of the same length, from the first to the last that has a row."""

    MONDAY = 4
    """Days from 1970-01-01 to the first Monday, on which weeks begin."""

    UNITS: Mapping[str, tuple[str, int]] = {
        "s": ("s", 1), "min": ("m", 1), "h": ("h", 1), "d": ("D", 1), "w": ("D", 7), "mo": ("M", 1), "y": ("Y", 1),
    }  # fmt: skip

    def __init__(self, name: str, owner: str, length: str) -> None:
        super().__init__(name, owner)
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
            values = pc.local_timestamp(values)  # days begin at local midnight
        times = values.to_numpy(zero_copy_only=False).astype(f"datetime64[{self.unit}]").astype(np.int64)
        numbers: NDArray[np.int64] = (times - self.origin) // self.step
        return numbers

    def look_at(self, values: Any, first: int) -> None:  # noqa: ARG002
        """Record the first and the last time."""
        if len(values):
            numbers = self._number(values)
            self.low, self.high = min(self.low, int(numbers.min())), max(self.high, int(numbers.max()))

    def make_labels(self) -> NDArray[Any]:
        """Return the beginning of each stretch."""
        self.size = self.high - self.low + 1
        if self.size > MAX_TIME_BINS:
            raise ValueError(
                f"bins: column {self.name!r} would be cut into {self.size:,} stretches of time; "
                f"give a length that makes at most {MAX_TIME_BINS:,}"
            )
        return self._begin(np.arange(self.low, self.high + 1))

    def _begin(self, numbers: NDArray[np.int64]) -> NDArray[Any]:
        return (numbers * self.step + self.origin).astype(f"datetime64[{self.unit}]")

    def _index(self, values: Any) -> NDArray[Any]:
        return self._number(values) - self.low

    def _extent(self) -> str:
        return " to ".join(map(str, self._begin(np.array([self.low, self.high]))))


class Numbers(Column):
    """One index per interval: between given edges, or of equal length."""

    def __init__(self, name: str, owner: str, bins: int | Sequence[float]) -> None:
        super().__init__(name, owner)
        self.count = bins if isinstance(bins, int) else None
        self.edges = np.array([np.inf, -np.inf]) if isinstance(bins, int) else np.asarray(bins, np.float64)
        if isinstance(bins, int) and bins < 1:
            raise ValueError(f"bins: column {name!r} cannot be cut into {bins} bins; give at least 1")
        if self.edges.ndim != 1 or len(self.edges) < 2 or (self.count is None and not (np.diff(self.edges) > 0).all()):
            raise ValueError(f"bins: column {name!r} has edges {bins}; give at least two, increasing")

    def _number(self, values: Any) -> NDArray[np.float64]:
        numbers: NDArray[Any] = values.to_numpy(zero_copy_only=False)
        if numbers.dtype.kind not in "biuf":
            raise TypeError(f"bins: column {self.name!r} is of {values.type}; only numbers can be cut by numbers")
        return numbers.astype(np.float64)

    def look_at(self, values: Any, first: int) -> None:
        """Check the values against given edges, or record the smallest and the largest."""
        numbers = self._number(values)
        self._refuse(~np.isfinite(numbers), numbers, first, "; drop such rows")
        low, high = self.edges[0], self.edges[-1]
        if self.count is None:
            tail = f", outside the edges {low} to {high}; give edges that include it, or drop such rows"
            self._refuse((numbers < low) | (numbers > high), numbers, first, tail)
        elif len(numbers):
            self.edges = np.array([min(low, numbers.min()), max(high, numbers.max())])

    def _refuse(self, bad: NDArray[Any], numbers: NDArray[Any], first: int, tail: str) -> None:
        if bad.any():
            at = int(np.argmax(bad))
            raise ValueError(f"bins: row {first + at} of column {self.name!r} is {numbers[at]}{tail}")

    def make_labels(self) -> NDArray[Any]:
        """Return the beginning of each interval."""
        if self.count is not None:
            low, high = self.edges
            self.edges = np.linspace(low, high if high > low else low + 1, self.count + 1)
        self.size = len(self.edges) - 1
        return self.edges[:-1]

    def _index(self, values: Any) -> NDArray[Any]:
        numbers = self._number(values)
        # the last interval includes its upper edge; NaN is sorted behind it
        return np.asarray(np.searchsorted(self.edges, numbers, side="right") - 1 - (numbers == self.edges[-1]))

    def _extent(self) -> str:
        return f"{self.edges[0]} to {self.edges[-1]}"


def make_column(name: str, owner: str, bins: Bins | None) -> Column:
    """Choose how a column becomes indices."""
    if bins is None:
        return Categories(name, owner)
    if isinstance(bins, str):
        return Times(name, owner, bins)
    count = as_index(bins)
    return Numbers(name, owner, count if count is not None else bins)


def _common(first: Any, second: Any) -> tuple[Any, Any]:
    """Return two arrays in one type that fits both."""
    import pyarrow as pa

    if first.type == second.type:
        return first, second
    fields = [pa.schema([pa.field("x", each.type)]) for each in (first, second)]
    wide = pa.unify_schemas(fields, promote_options="permissive").field("x").type
    return first.cast(wide), second.cast(wide)
