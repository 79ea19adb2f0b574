"""What all readers of files share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

__all__ = ["ToldError", "closed_if_wrong"]


class ToldError(ValueError):
    """An error that says all there is to say."""


@contextmanager
def closed_if_wrong(file: Any) -> Iterator[Any]:
    """Close a file again if anything goes wrong with it."""
    try:
        yield file
    except BaseException:
        file.close()
        raise
