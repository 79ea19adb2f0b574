"""Errors that all readers of files share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tucket.base.boxes import Box


class FileFormatError(ValueError):
    """A file that cannot be read, and why: the message names the file or the option and needs no further context."""


UNCHANGED = (FileFormatError, FileNotFoundError, PermissionError, IsADirectoryError, ImportError, MemoryError)
"""Errors that say what is wrong without the name of a format."""


@contextmanager
def explain_read_errors(path: object, *kept: type[Exception], kind: str = "") -> Iterator[None]:
    """Name the file in any error of its reader, except in errors of the kept types."""
    unchanged: tuple[type[Exception], ...] = (*UNCHANGED, *kept)
    try:
        yield
    except unchanged:
        raise
    except Exception as error:  # every reader has errors of its own
        if isinstance(error, ValueError) and str(path) in str(error):
            raise
        raise FileFormatError(f"{path} cannot be read{kind}: {error}") from error


@contextmanager
def close_on_error(file: Any) -> Iterator[Any]:
    """Close a file if the work on it fails."""
    try:
        yield file
    except BaseException:
        file.close()
        raise


def name_box(name: str, box: Box) -> str:
    """Name a part of an array, as in x[0:2, 4:9]."""
    return f"{name}[{', '.join(f'{rows.start}:{rows.stop}' for rows in box)}]"
