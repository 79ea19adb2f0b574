"""Saved models and statistics: npz files of plain arrays, written atomically and never unpickled."""

from __future__ import annotations

import os
import secrets
import shutil
import zipfile
import zlib
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

Arrays = dict[str, NDArray[Any]]
Built = TypeVar("Built")

FORMAT = "tucket"
VERSION = 1

NPZ_ERRORS = (
    AttributeError, EOFError, KeyError, NotImplementedError, OSError, RuntimeError, TypeError, ValueError,
    zipfile.BadZipFile, zlib.error,
)  # fmt: skip
"""What `numpy.load` raises on files that are damaged or of another kind."""


def check_target(path: str | os.PathLike[str]) -> Path:
    """Return the resolved path, or refuse one that cannot be written."""
    target = Path(path).resolve()  # keeps links: what they point to is replaced
    if not target.parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {target.parent}")
    if target.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give a file name in it")
    if target.exists() and not target.is_file():
        raise ValueError(f"cannot write {path}: it is not a regular file; give another name")
    return target


@contextmanager
def replacing(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Yield a temporary path in the same folder, and rename it at the end, so that readers never see half a file."""
    target = check_target(path)
    temporary = target.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        yield temporary
        if target.exists():
            shutil.copymode(target, temporary)
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write(path: str | os.PathLike[str], kind: str, arrays: Mapping[str, NDArray[Any]]) -> None:
    """Write arrays atomically."""
    header = {"format": np.array(FORMAT), "version": np.array(VERSION), "kind": np.array(kind)}
    with replacing(path) as temporary, temporary.open("xb") as file:
        np.savez(file, allow_pickle=False, **header, **arrays)
        file.flush()
        os.fsync(file.fileno())


def kind_of(path: str | os.PathLike[str]) -> str | None:
    """Return the kind of object in an archive, or None for other files."""
    try:
        with Path(path).open("rb") as file, np.load(file, allow_pickle=False) as archive:
            return str(archive["kind"].item()) if archive["format"].item() == FORMAT else None
    except NPZ_ERRORS:
        return None


def read(path: str | os.PathLike[str]) -> tuple[str, Arrays]:
    """Return the kind and the arrays of an archive."""
    with Path(path).open("rb") as file:
        if not zipfile.is_zipfile(file):
            raise ValueError(f"{path} is not a tucket file, or is truncated; give one written by save")
        file.seek(0)
        try:
            with np.load(file, allow_pickle=False) as archive:
                arrays = {name: archive[name] for name in archive.files}
        except NPZ_ERRORS as error:
            raise ValueError(f"{path} is damaged, or holds Python objects, which are never read ({error})") from error
    try:
        form, version, kind = (arrays.pop(name).item() for name in ("format", "version", "kind"))
    except (KeyError, ValueError):
        form, version, kind = None, None, None
    if form != FORMAT or type(version) is not int or version < 1 or not isinstance(kind, str):
        raise ValueError(f"{path} is not a tucket file: its header is missing; give one written by save")
    if version > VERSION:
        raise ValueError(
            f"{path} has format version {version}, and this tucket reads versions up to {VERSION}; upgrade tucket"
        )
    return kind, arrays


def build(path: str | os.PathLike[str], what: str, make: Callable[[Arrays], Built], arrays: Arrays) -> Built:
    """Build an object from saved arrays; errors name the file."""
    try:
        return make(arrays)
    except KeyError as error:
        raise ValueError(f"{path} is not a complete {what}: {error} is missing") from None
    except (TypeError, ValueError) as error:
        raise ValueError(f"{path} is not a valid {what}: {error}") from error
