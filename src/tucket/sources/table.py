"""Tables: each row is an entry; some columns name its place, and one may hold its value."""

from __future__ import annotations

import glob
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.optional import import_optional
from tucket.sources.chunked import MEMORY_BYTES
from tucket.sources.columns import Bins, Column, make_column
from tucket.sources.dense import SMALL_BYTES
from tucket.sources.errors import explain_read_errors
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse, coalesce


def from_table(
    frame: Any,
    modes: Sequence[str],
    value: str | None = None,
    *,
    bins: Mapping[str, Bins] | None = None,
) -> Sparse:
    """Return a sparse tensor from a table: each row adds to the entry that its mode columns name.

    Parameters
    ----------
    frame : pandas.DataFrame, polars.DataFrame, pyarrow.Table or other Arrow table
        The rows, in any order. Rows that name the same entry are added.
    modes : sequence of str
        The columns that become modes. The sorted distinct values of a column label the indices of its mode; a
        categorical column gives its categories in their own order.
    value : str, optional
        The column to add up. By default, rows are counted.
    bins : mapping of str to str, int or sequence of float, optional
        Bins for some of the modes. Columns of times take the length of a bin: "15min", "1h", "1d", "1w", "1mo" or "1y";
        all bins from the first to the last row become indices. Columns of numbers take a number of bins of equal
        length, or the edges of the bins. Each bin is labelled by its beginning.

    Returns
    -------
    Source
        The tensor, with the names of its modes and the labels of their indices.

    Raises
    ------
    ValueError
        If a column or a value is missing, if the table has no rows, or if a value is outside the bins.
    TypeError
        If `frame` is not a table, or a column has a type that cannot be used.

    See Also
    --------
    from_parquet : The same for Parquet files, read in batches.
    from_entries : A sparse tensor from indices and values.

    Examples
    --------
    Two commuters go to town in the morning and come back in the evening:

    >>> import pandas as pd
    >>> rides = pd.DataFrame({
    ...     "from": ["home", "home", "town", "town"],
    ...     "to": ["town", "town", "home", "home"],
    ...     "at": pd.to_datetime(["2024-05-01 08:10", "2024-05-01 08:50", "2024-05-01 17:05", "2024-05-01 17:40"]),
    ... })
    >>> source = from_table(rides, modes=["from", "to", "at"], bins={"at": "12h"})
    >>> source
    <Sparse of a tensor of shape {'from': 2, 'to': 2, 'at': 2} with 4 entries>
    >>> source.axes.labels[2]
    array(['2024-05-01T00', '2024-05-01T12'], dtype='datetime64[h]')
    """
    table = _as_arrow(frame)
    return Table(lambda: iter(table.to_batches()), table.schema.names, modes, value, bins, "the table").read()


def from_parquet(
    path: str | Path | Iterable[str | Path],
    modes: Sequence[str],
    value: str | None = None,
    *,
    bins: Mapping[str, Bins] | None = None,
    memory: int | None = None,
) -> Table:
    """Return a sparse tensor from Parquet files, which are read in batches.

    The files are read once for the labels of the modes, and once for each pass over the tensor.

    Parameters
    ----------
    path : str, path or iterable of them
        One or several files with the same columns. A path may have wildcards.
    modes : sequence of str
        The columns that become modes; see `from_table`.
    value : str, optional
        The column to add up. By default, rows are counted.
    bins : mapping of str to str, int or sequence of float, optional
        Bins for some of the modes; see `from_table`.
    memory : int, optional
        Approximate number of bytes that reading may take, by default 2**28.

    Returns
    -------
    Source
        The tensor, with the names of its modes and the labels of their indices.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If a file cannot be read, if a column or a value is missing, or if a value is outside the bins. During a pass,
        if a value was not there when the files were opened.

    See Also
    --------
    from_table : The same for a table in memory.
    open : A tensor from a file of any kind.

    Examples
    --------
    >>> import tempfile
    >>> import pyarrow as pa
    >>> import pyarrow.parquet as pq
    >>> days = {"user": ["ann", "ann", "bob", "bob"], "day": ["Mon", "Tue", "Sat", "Sun"], "hours": [8, 8, 2, 2]}
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     pq.write_table(pa.table(days), f"{folder}/days.parquet")
    ...     from_parquet(f"{folder}/*.parquet", modes=["user", "day"], value="hours")
    <Table of a tensor of shape {'user': 2, 'day': 4} from 4 rows>
    """
    parquet = import_optional("pyarrow.parquet", "tables", "a table")
    paths = find_files(path)

    def open_file(each: Path) -> Any:
        with explain_read_errors(each, kind=" as Parquet"):
            return parquet.ParquetFile(each)

    with open_file(paths[0]) as file:
        names = file.schema_arrow.names
    wanted = [name for name in dict.fromkeys([*modes, *([value] if value else [])]) if name in names]
    rows = max(1 << 10, min(1 << 20, (memory or MEMORY_BYTES) // (64 * max(1, len(wanted)))))

    def batches() -> Iterator[Any]:
        for each in paths:
            with open_file(each) as file:
                missing = [name for name in wanted if name not in file.schema_arrow.names]
                if missing:
                    raise ValueError(f"column {missing[0]!r} is missing in {each}; {paths[0]} has it")
                yield from read_batches(each, file.iter_batches(rows, columns=wanted), kind=" as Parquet")

    return Table(batches, names, modes, value, bins, str(path))


def read_batches(path: Path, batches: Iterator[Any], kind: str = "") -> Iterator[Any]:
    """Yield the record batches of a file, which is named in any error."""
    while True:
        with explain_read_errors(path, kind=kind):
            batch = next(batches, None)
        if batch is None:
            return
        yield batch


def find_files(path: Any) -> list[Path]:
    """List the files of one path or several, each with or without wildcards."""
    given = [path] if isinstance(path, str | Path) else list(path)
    found: list[Path] = []
    for each in given:
        # brackets may be part of a name
        matches = [str(each)] if Path(each).exists() else sorted(glob.glob(str(each)))  # noqa: PTH207
        if not matches:
            raise FileNotFoundError(f"there is no file {each}")
        found += map(Path, matches)
    if not found:
        raise FileNotFoundError("path: got no file; give at least one")
    return found


class Table(Source):
    """Rows that are read in batches, again for every pass.

    Parameters
    ----------
    batches : callable
        Returns an iterator over the Arrow record batches, from the first one on.
    names : sequence of str
        The columns.
    modes, value, bins
        See `from_table`.
    owner : str
        What error messages call the table.
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
        bins = dict(bins or {})
        _check_columns(names, modes, value, bins, owner)
        self.columns = [make_column(mode, owner, bins.get(mode)) for mode in modes]
        self.n_rows, self.n_batches = 0, 0
        for first, batch in self._numbered():
            self.n_rows, self.n_batches = first + batch.num_rows, self.n_batches + 1
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

    def _numbered(self) -> Iterator[tuple[int, Any]]:
        """Yield the number of the first row of each batch, and the batch."""
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
        """Number of batches."""
        return self.n_batches

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


def _as_arrow(frame: Any) -> Any:
    """Return a table of any library as an Arrow table."""
    pa = import_optional("pyarrow", "tables", "a table")
    if not isinstance(frame, pa.Table):
        if not hasattr(frame, "__arrow_c_stream__") or not hasattr(frame, "columns"):
            raise TypeError(f"frame: got a {type(frame).__name__}; give a table of pandas, polars or pyarrow")
        is_pandas = hasattr(frame, "index") and type(frame).__module__.startswith("pandas")
        frame = pa.Table.from_pandas(frame, preserve_index=False) if is_pandas else pa.table(frame)
    return frame.unify_dictionaries()
