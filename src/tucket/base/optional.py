"""Optional dependencies."""

from __future__ import annotations

from importlib import import_module
from typing import Any


def import_optional(module: str, extra: str, what: str) -> Any:
    """Import a module, or raise an error that says what needs it and how to install it."""
    try:
        return import_module(module)
    except ImportError as error:
        name = str(error.name or module).partition(".")[0]
        raise ImportError(f"{what} needs {name}; install it with: pip install 'tucket[{extra}]'") from None
