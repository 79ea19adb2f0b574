"""Sparse tensors from Parquet files."""

from __future__ import annotations

import glob
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tucket.base.optional import import_optional
from tucket.sources.chunked import MEMORY_BYTES
from tucket.sources.columns import Bins
from tucket.sources.errors import explain_read_errors
from tucket.sources.table import Table, read_batches


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
    paths = _find_files(path)

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


def _find_files(path: str | Path | Iterable[str | Path]) -> list[Path]:
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
