"""Tables: a row is an entry, some columns say where it is, and one may say how much it is."""

from __future__ import annotations

import glob
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from tucket.base.axes import Axes
from tucket.base.optional import need
from tucket.sources.chunked import MEMORY
from tucket.sources.columns import Bins, make_column
from tucket.sources.dense import SMALL
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse, coalesce

__all__ = ["Table", "from_parquet", "from_table"]


def from_table(
    frame: Any,
    modes: Sequence[str],
    value: str | None = None,
    *,
    bins: Mapping[str, Bins] | None = None,
) -> Sparse:
    """Take a sparse tensor from a table: each row adds to the entry that its mode columns name.

    Parameters
    ----------
    frame : table of pandas, polars or pyarrow, or anything else that speaks Arrow
        The rows, in any order; rows that name the same entry add.
    modes : names of columns
        A mode for each. The distinct values of a column, sorted, are the labels of its indices; a categorical column
        brings its categories in their order.
    value : name of a column
        What each row adds; without it, rows are counted.
    bins : mapping from columns to bins
        For times, the length of a bin: "15min", "1h", "1d", "1w", "1mo", "1y"; all bins from the first to the last are
        indices. For numbers, how many bins of equal length, or their edges. A bin is labelled by its beginning.

    Examples
    --------
    >>> import pandas as pd
    >>> rides = pd.DataFrame({"from": ["a", "b", "a"], "at": pd.to_datetime(["2024-05-01 08:10", "2024-05-01 08:50",
    ...                                                                      "2024-05-01 10:05"])})
    >>> source = from_table(rides, modes=["from", "at"], bins={"at": "1h"})
    >>> source
    <Sparse of a tensor of shape {'from': 2, 'at': 3} with 3 entries>
    >>> source.axes.labels[0]
    array(['a', 'b'], dtype='<U1')
    """
    table = _as_arrow(frame)
    rows = Table(lambda: iter(table.to_batches()), table.schema.names, modes, value, bins, "the table")
    return rows.read()


def from_parquet(
    path: str | Path | Iterable[str | Path],
    modes: Sequence[str],
    value: str | None = None,
    *,
    bins: Mapping[str, Bins] | None = None,
    memory: int | None = None,
) -> Table:
    """Take a sparse tensor from Parquet files, which are streamed: see `from_table`.

    They are read once for the labels of the modes, and once for each pass.

    Parameters
    ----------
    path : a path, with or without wildcards, or several
        The files, all of the same columns.
    modes, value, bins
        As for `from_table`.
    memory : int
        Bytes that reading may take, about.
    """
    parquet = need("pyarrow.parquet", "tables", "a table")
    paths = find_files(path)
    names = _read(paths[0], partial(parquet.ParquetFile, paths[0])).schema_arrow.names
    wanted = [name for name in dict.fromkeys([*modes, *([value] if value else [])]) if name in names]
    rows = max(1 << 10, min(1 << 20, (memory or MEMORY) // (64 * max(1, len(wanted)))))

    def batches() -> Iterator[Any]:
        for each in paths:
            with _read(each, partial(parquet.ParquetFile, each)) as file:
                missing = [name for name in wanted if name not in file.schema_arrow.names]
                if missing:
                    raise ValueError(f"column {missing[0]!r} is missing in {each}; {paths[0]} has it")
                stream = file.iter_batches(rows, columns=wanted)
                while (batch := _read(each, partial(next, stream, None))) is not None:
                    yield batch

    return Table(batches, names, modes, value, bins, str(path))


def find_files(path: Any) -> list[Path]:
    """List the files that are meant by a path, which may have wildcards, or by several."""
    given = [path] if isinstance(path, str | Path) else list(path)
    found: list[Path] = []
    for each in given:
        # a name with brackets may be meant as it is
        matches = [str(each)] if Path(each).exists() else sorted(glob.glob(str(each)))  # noqa: PTH207
        if not matches:
            raise FileNotFoundError(f"there is no file {each}")
        found += map(Path, matches)
    if not found:
        raise FileNotFoundError("path: got no file; give at least one")
    return found


class Table(Source):
    """Rows that are read batch by batch, again for every pass.

    Parameters
    ----------
    batches
        Gives the record batches of Arrow's, from the first, each time it is called.
    names
        The columns.
    modes, value, bins
        As for `from_table`.
    owner
        What to call the table in errors.
    """

    sparse = True

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
        if not modes:
            raise ValueError("modes: got none; give the columns that say where an entry is")
        for name in [*modes, *([value] if value else [])]:
            if name not in names:
                raise ValueError(f"column {name!r} is missing in {owner}; it has {', '.join(map(repr, names))}")
        bins = dict(bins or {})
        for name in bins:
            if name not in modes:
                raise ValueError(f"bins: {name!r} is no mode; the modes are {', '.join(map(repr, modes))}")
        self.columns = [make_column(mode, bins.get(mode)) for mode in modes]
        self.n_rows, self.n_batches = 0, 0
        for first, batch in self._numbered():
            self.n_rows, self.n_batches = first + batch.num_rows, self.n_batches + 1
            for column in self.columns:
                with _naming(column.name, owner):
                    column.look_at(_bare(batch, column.name, first, owner), first)
        if not self.n_rows:
            raise ValueError(f"{owner} has no rows; give at least one")
        labels = []
        for column in self.columns:
            with _naming(column.name, owner):
                labels.append(column.make_labels())
        self.axes = Axes(modes, labels)
        self.shape = tuple(map(len, labels))

    def _numbered(self) -> Iterator[tuple[int, Any]]:
        """Yield the batches with the number of their first row."""
        first = 0
        for batch in self.batches():
            yield first, batch
            first += batch.num_rows

    @property
    def nbytes(self) -> int:
        """Bytes of values and indices of all rows."""
        return 8 * self.n_rows * (1 + len(self.columns))

    @property
    def n_chunks(self) -> int:
        """Batches of rows."""
        return self.n_batches

    def held(self) -> Source:
        """Return the entries in memory, if they are few."""
        return self.read() if self.nbytes <= SMALL else self

    def read(self) -> Sparse:
        """Return the entries in memory."""
        entries = list(self.chunks(False))
        coords = [np.concatenate([part.coords[mode] for part in entries]) for mode in range(len(self.shape))]
        return Sparse(coords, np.concatenate([part.values for part in entries]), self.shape, self.axes)

    def chunks(self, distinct: bool) -> Generator[Entries]:
        """Yield the rows as entries; if they must be distinct, all at once, for which they are held in memory."""
        if distinct:
            yield coalesce(self.chunks(False))
            return
        for first, batch in self._numbered():
            coords = []
            for column in self.columns:
                with _naming(column.name, self.owner):
                    coords.append(column.encode(_bare(batch, column.name, first, self.owner), first).astype(np.int64))
            values = np.ones(batch.num_rows)
            if self.value:
                values = _bare(batch, self.value, first, self.owner).to_numpy(zero_copy_only=False)
                if values.dtype.kind not in "biuf":
                    raise TypeError(f"column {self.value!r} of {self.owner} is of {values.dtype}; give real numbers")
            yield Entries(coords, values.astype(np.float64), self.shape)

    def _note(self) -> str:
        return f" from {self.n_rows:,} rows"


def _bare(batch: Any, name: str, first: int, owner: str) -> Any:
    """Return a column of a batch, in which nothing may be missing."""
    column = batch.column(name)
    if column.null_count:
        row = first + int(np.argmax(column.is_null().to_numpy(zero_copy_only=False)))
        raise ValueError(f"row {row} of column {name!r} of {owner} is missing; drop such rows, or fill them")
    return _plain(column)


def _plain(column: Any) -> Any:
    """Return a column with its strings in the one form that all of Arrow's functions know."""
    import pyarrow as pa

    if pa.types.is_dictionary(column.type):
        return pa.DictionaryArray.from_arrays(column.indices, _plain(column.dictionary))
    is_text = pa.types.is_string(column.type) or pa.types.is_string_view(column.type)
    return column.cast(pa.large_string()) if is_text else column


@contextmanager
def _naming(column: str, owner: str) -> Iterator[None]:
    """Name the column in what Arrow complains of."""
    import pyarrow as pa

    try:
        yield
    except pa.ArrowException as error:
        raise TypeError(
            f"column {column!r} of {owner} cannot be a mode: {error}; give numbers, strings, times or categories"
        ) from error


def _as_arrow(frame: Any) -> Any:
    pa = need("pyarrow", "tables", "a table")
    if isinstance(frame, pa.Table):
        return frame.unify_dictionaries()
    if not hasattr(frame, "__arrow_c_stream__") or not hasattr(frame, "columns"):
        raise TypeError(f"frame: got a {type(frame).__name__}; give a table of pandas, polars or pyarrow")
    if hasattr(frame, "index") and hasattr(pa.Table, "from_pandas") and type(frame).__module__.startswith("pandas"):
        return pa.Table.from_pandas(frame, preserve_index=False).unify_dictionaries()
    return pa.table(frame).unify_dictionaries()


def _read(path: Path, read: Callable[[], Any]) -> Any:
    """Read, naming the file in whatever is wrong with it."""
    try:
        return read()
    except FileNotFoundError:
        raise
    except (OSError, ValueError) as error:
        raise ValueError(f"{path} cannot be read as Parquet: {error}") from error
