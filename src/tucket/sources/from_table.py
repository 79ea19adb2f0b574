"""Sparse tensors from tables in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tucket.base.optional import import_optional
from tucket.sources.columns import Bins
from tucket.sources.sparse import Sparse
from tucket.sources.table import Table


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
        The columns that become modes. Their sorted distinct values label the indices; a categorical column keeps the
        order of its categories.
    value : str, optional
        The column to add up. By default, rows are counted.
    bins : mapping of str to str, int or sequence of float, optional
        Bins for some of the modes, each labelled by its beginning. Columns of times take the length of a bin: "15min",
        "1h", "1d", "1w", "1mo" or "1y". Columns of numbers take a number of bins of equal length, or their edges.

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


def _as_arrow(frame: Any) -> Any:
    """Return a table of any library as an Arrow table."""
    pa = import_optional("pyarrow", "tables", "a table")
    if not isinstance(frame, pa.Table):
        if not hasattr(frame, "__arrow_c_stream__") or not hasattr(frame, "columns"):
            raise TypeError(f"frame: got a {type(frame).__name__}; give a table of pandas, polars or pyarrow")
        is_pandas = hasattr(frame, "index") and type(frame).__module__.startswith("pandas")
        frame = pa.Table.from_pandas(frame, preserve_index=False) if is_pandas else pa.table(frame)
    return frame.unify_dictionaries()
