"""Open files, and other objects that hold a tensor."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tucket.sources.as_source import as_source
from tucket.sources.errors import explain_read_errors
from tucket.sources.formats import READERS
from tucket.sources.images import open_folder
from tucket.sources.source import Source


def open(x: Any, *, memory: int | str | None = None, **options: Any) -> Source:  # noqa: A001
    r"""Open a file, or anything else that holds a tensor, and read only what is needed to know its shape.

    Parameters
    ----------
    x : str, path, or anything that `ltr` takes
        The ending of a path tells the format:

        - `.npy`, `.npz`: NumPy arrays, mapped into memory unless they are compressed. An archive holds an array
          `tensor`, or the `coords`, `values` and `shape` of a sparse tensor, and may hold `mode_names`, `labels_0`, ...
        - `.zarr`, `.h5`, `.hdf5`, `.nc`, `.mat`: arrays in chunks, and MATLAB files
        - `.tns`, `.tns.gz`: entries of a sparse tensor in the text format of FROSTT, with indices from 1 on
        - `.csv`, `.csv.gz`, `.parquet`: tables; a path of Parquet files may have wildcards
        - a folder of images of the same size, in the order of their names; one image; a `.tif` of many pages
    memory : int or str, optional
        Number of bytes that reading may take, such as `2**28` or "256 MB". By default 2**28.
    **options
        Options of some formats:

        - `key` (str): which array to read, for files that hold several
        - `shape` (tuple of int): the shape of a text file's tensor, by default the largest index of each mode; or the
          shape that the images of a folder are folded into, such as (9, 9), by default one mode
        - `modes`, `value`, `bins`: for tables, as in `from_table`; for text files, `modes` names the modes

    Returns
    -------
    Source
        The tensor. Use it in a `with` statement, or call `close`, to close its file.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If the file cannot be read, or if it holds several arrays and `key` is missing.
    TypeError
        If an option does not fit the format, or the values are not real numbers.
    ImportError
        If the package that reads the format is not installed.

    See Also
    --------
    from_table, from_parquet, from_entries : Sparse tensors from tables and from entries.

    Examples
    --------
    Two groups of users, each with items of its own:

    >>> import tempfile, tucket as tk
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "ratings.tns")
    ...     _ = path.write_text("1 1 4.0 \n 1 2 5.0 \n 2 1 5.0 \n 3 3 2.0 \n 3 4 3.0")
    ...     tk.open(path, modes=["user", "item"])
    <Sparse of a tensor of shape {'user': 3, 'item': 4} with 5 entries>
    """
    memory = check_memory(memory)
    if not isinstance(x, str | Path):
        if options:
            raise TypeError(f"{', '.join(options)}: only for files; x is a {type(x).__name__}")
        return as_source(x, memory=memory)
    path = Path(x)
    if not path.exists() and not any(mark in str(x) for mark in "*?["):
        raise FileNotFoundError(f"there is no file {path}")
    read = _reader(path)
    allowed = inspect.signature(read).parameters
    for option in options:
        if option not in allowed:
            known = ", ".join(name for name in allowed if name != "path")
            raise TypeError(f"{option}: not an option for {path.name}; its options are {known or 'none'}")
    if "memory" in allowed:
        options["memory"] = memory
    with explain_read_errors(path, TypeError):
        return read(path, **options)


def check_memory(memory: Any) -> int | None:
    """Return `memory` as a number of bytes.

    Examples
    --------
    >>> check_memory("256 MB"), check_memory("1GiB")
    (256000000, 1073741824)
    """
    if memory is None:
        return None
    if isinstance(memory, str):
        match = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?\s*", memory.lower())
        number = float(match[1]) * (1024 if match[3] else 1000) ** " kmgt".index(match[2] or " ") if match else 0
    else:
        number = memory if isinstance(memory, int | np.integer) and not isinstance(memory, bool) else 0
    if number < 1 << 16:
        raise ValueError(f"memory: got {memory!r}; give at least 65536 bytes, such as 2**28 or '256 MB'")
    return int(number)


def _reader(path: Path) -> Callable[..., Source]:
    """Choose the reader of a path by the ending of its name."""
    if path.is_dir() and path.suffix.lower() != ".zarr":
        return open_folder
    suffixes = [suffix.lower() for suffix in path.suffixes]
    name = "".join(suffixes[-2:]) if suffixes[-1:] == [".gz"] else "".join(suffixes[-1:])
    if name not in READERS:
        raise ValueError(
            f"{path}: unknown file format {name!r}; give one of {', '.join(READERS)}, or a folder of images"
        )
    return READERS[name]
