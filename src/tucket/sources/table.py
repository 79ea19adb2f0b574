"""Tables as sparse tensors: each row is an entry; some columns name its place, and one may hold its value."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.sources.columns import Bins, Column, make_column
from tucket.sources.dense import SMALL_BYTES
from tucket.sources.errors import explain_read_errors
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse, coalesce


def read_batches(path: Path, batches: Iterator[Any], kind: str = "") -> Iterator[Any]:
    """Yield the record batches of a file, which is named in any error."""
    while True:
        with explain_read_errors(path, kind=kind):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


class Table(Source):
    """Rows that are read in batches, again for every pass; `batches` returns the Arrow record batches.

    Error messages call the table `owner`.
    """

    sparse = True
    nbytes: int
    n_chunks: int

    def __init__(
        self,
        batches: Callable[[], Iterator[Any]],
        names: Sequence[str],
        modes: Sequence[str],
        value: str | None,
        bins: Mapping[str, Bins] | None,
        owner: str,
    ) -> None:
        self.batches, self.value, self.owner = batches, value, owner
        modes = [modes] if isinstance(modes, str) else list(modes)
        bins = dict(bins or {})
        _check_columns(names, modes, value, bins, owner)
        self.columns = [make_column(mode, owner, bins.get(mode)) for mode in modes]
        self.n_rows = self.n_chunks = 0
        for first, batch in self._numbered():
            self.n_rows, self.n_chunks = first + batch.num_rows, self.n_chunks + 1
            for column in self.columns:
                with _explain_arrow_errors(column.name, owner):
                    column.look_at(_complete(batch, column.name, first, owner), first)
        if not self.n_rows:
            raise ValueError(f"{owner} has no rows; give at least one")
        labels = []
        for column in self.columns:
            with _explain_arrow_errors(column.name, owner):
                labels.append(column.make_labels())
        self.axes = Axes(modes, labels)
        self.shape = tuple(map(len, labels))
        self.nbytes = 8 * self.n_rows * (1 + len(modes))

    def _numbered(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row of each batch, and the batch."""
        first = 0
        for batch in self.batches():
            yield first, batch
            first += batch.num_rows

    def load_if_small(self) -> Source:
        """Return the entries in memory, if they are few."""
        return self.read() if self.nbytes <= SMALL_BYTES else self

    def read(self) -> Sparse:
        """Return the entries in memory."""
        entries = list(self.chunks(False))
        coords = [np.concatenate([part.coords[mode] for part in entries]) for mode in range(len(self.shape))]
        return Sparse(coords, np.concatenate([part.values for part in entries]), self.shape, self.axes)

    def chunks(self, distinct: bool) -> Generator[Entries]:
        """Yield the rows of each batch as entries; distinct entries come all at once and are held in memory."""
        if distinct:
            yield coalesce(self.chunks(False))
            return
        for first, batch in self._numbered():
            coords = [self._encode(column, batch, first) for column in self.columns]
            yield Entries(coords, self._values(batch, first), self.shape)

    def _encode(self, column: Column, batch: Any, first: int) -> NDArray[np.int64]:
        import pyarrow as pa

        try:
            return column.encode(_complete(batch, column.name, first, self.owner), first)
        except pa.ArrowException as error:  # its values could be read when they were looked at
            raise ValueError(
                f"column {column.name!r} of {self.owner} has changed since it was opened: {error}; open it again"
            ) from error

    def _values(self, batch: Any, first: int) -> NDArray[np.float64]:
        if not self.value:
            return np.ones(batch.num_rows)
        values: NDArray[Any] = _complete(batch, self.value, first, self.owner).to_numpy(zero_copy_only=False)
        if values.dtype.kind not in "biuf":
            raise TypeError(f"column {self.value!r} of {self.owner} is of {values.dtype}; give real numbers")
        return values.astype(np.float64)

    def _note(self) -> str:
        return f" from {self.n_rows:,} rows"


def _check_columns(
    names: Sequence[str], modes: Sequence[str], value: str | None, bins: Mapping[str, Bins], owner: str
) -> None:
    """Refuse columns that the table does not have, and bins of columns that are not modes."""
    there = ", ".join(map(repr, names))
    if not modes:
        raise ValueError(f"modes: got none; {owner} has the columns {there}; say which of them are modes")
    for name in [*modes, *([value] if value else [])]:
        if name not in names:
            raise ValueError(f"column {name!r} is missing in {owner}; it has {there}")
    for name in bins:
        if name not in modes:
            raise ValueError(f"bins: {name!r} is not a mode; the modes are {', '.join(map(repr, modes))}")


def _complete(batch: Any, name: str, first: int, owner: str) -> Any:
    """Return a column of a batch, or refuse it if a value is missing."""
    column = batch.column(name)
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(
            f"row {row} of column {name!r} of {owner} is missing; drop such rows, which then add nothing, or fill them"
        )
    return _with_large_strings(column)


def _with_large_strings(column: Any) -> Any:
    """Return a column with its strings in the one type that all functions of Arrow support."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _with_large_strings(column.dictionary))
    is_text = pa.types.is_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.large_string()) if is_text else column


@contextmanager
def _explain_arrow_errors(column: str, owner: str) -> Iterator[None]:
    """Name the column in errors of Arrow."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise TypeError(
            f"column {column!r} of {owner} cannot be a mode: {error}; give numbers, strings, times or categories"
        ) from error
