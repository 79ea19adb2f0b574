"""Images as tensors: a single one, a folder of them, or the pages of a TIFF."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from logging.handlers import BufferingHandler
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.base.checks import check_shape, check_sizes
from tucket.base.optional import import_optional
from tucket.sources.chunked import Chunked
from tucket.sources.dense import Array, Mapped, as_tensor
from tucket.sources.errors import FileFormatError, close_on_error, explain_read_errors
from tucket.sources.source import Source

IMAGES = (".png", ".pgm", ".ppm", ".bmp", ".jpg", ".jpeg", ".tif", ".tiff")


def open_folder(path: Path, shape: Sequence[int] | None = None, memory: int | None = None) -> Source:
    """Stack the images of a folder, in the order of their names."""
    files = sorted((each for each in path.iterdir() if each.suffix.lower() in IMAGES), key=_by_number)
    if not files:
        raise FileFormatError(f"{path} is a folder without images; give one with {', '.join(IMAGES)} files")
    lead = check_sizes(shape) if shape else (len(files),)
    if math.prod(lead) != len(files):
        raise FileFormatError(f"shape: {len(files)} images cannot be folded into {lead}; give sizes with this product")
    first = read_image(files[0])

    def read(number: int) -> NDArray[Any]:
        image = read_image(files[number])
        if image.shape != first.shape or image.dtype != first.dtype:
            raise ValueError(
                f"{files[number]} is an image of {image.dtype} of shape {image.shape}, but {files[0].name} "
                f"is of {first.dtype} of shape {first.shape}; give images of the same size"
            )
        return image

    stack = Stack(read, lead, first)
    labels = None if shape else [[each.name for each in files], *[None] * (len(stack.shape) - 1)]
    names = ("image", "row", "column", "channel")[: len(stack.shape)]
    axes = None if shape else Axes._of(names, labels, stack.shape)
    return Chunked(stack, stack.chunks, axes, str(path), memory)


def _by_number(path: Path) -> list[Any]:
    """Sort 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


class Stack:
    """Images of the same size as one array with leading modes: a box reads only the images that it overlaps."""

    def __init__(self, read: Callable[[int], NDArray[Any]], lead: tuple[int, ...], like: Any) -> None:
        self.read, self.numbers = read, np.arange(math.prod(lead)).reshape(lead)
        self.shape, self.dtype = (*lead, *like.shape), like.dtype
        self.chunks = (*(1,) * len(lead), *like.shape)

    def __getitem__(self, box: Box) -> NDArray[Any]:
        lead = self.numbers.ndim
        numbers = self.numbers[box[:lead]]
        images = np.stack([self.read(number) for number in numbers.ravel().tolist()])
        stack: NDArray[Any] = images.reshape(*numbers.shape, *images.shape[1:])
        return stack[(slice(None),) * lead + box[lead:]]


def read_image(path: Path) -> NDArray[Any]:
    """Read one image: rows, columns and, if it has colours, channels."""
    image = import_optional("PIL.Image", "files", "this file")
    with explain_read_errors(path, kind=" as an image"):
        if path.suffix.lower() in (".tif", ".tiff"):
            return np.asarray(import_optional("tifffile", "files", "this file").imread(path))
        with image.open(path) as opened:
            # the pixels of a palette image are numbers of colours
            return np.asarray(opened.convert() if opened.mode in ("P", "PA") else opened)


def open_image(path: Path) -> Source:
    """Open one image."""
    return Array(as_tensor(read_image(path), str(path)))


def open_tiff(path: Path, memory: int | None = None) -> Source:
    """Stack the pages of a TIFF."""
    tifffile = import_optional("tifffile", "files", "this file")
    with close_on_error(tifffile.TiffFile(path)) as file:
        with _raise_logged_errors("tifffile"):
            series = list(file.series)
        pages = [page for each in series for page in each.pages]
        shape = series[0].shape if len(series) == 1 else (len(pages), *pages[0].shape)
        check_shape(shape, str(path))
        for number, page in enumerate(pages):
            if page.shape != pages[0].shape or page.dtype != pages[0].dtype:
                raise FileFormatError(
                    f"{path}: page {number} is of {page.dtype} of shape {page.shape}, but page 0 is of "
                    f"{pages[0].dtype} of shape {pages[0].shape}; give pages of the same size"
                )
        lead = shape[: len(shape) - len(pages[0].shape)]
        if len(series) == 1 and series[0].dataoffset is not None:
            file.close()
            return Mapped(as_tensor(tifffile.memmap(path, mode="r"), str(path)), memory=memory)
        if math.prod(lead) != len(pages):  # the pages are interleaved in some other way
            array = as_tensor(series[0].asarray(), str(path))
            file.close()
            return Array(array)
        lock = Lock()  # the pages share a file and its position

        def read(number: int) -> NDArray[Any]:
            with lock:
                page: NDArray[Any] = pages[number].asarray()
            return page

        stack = Stack(read, lead, pages[0])
        return Chunked(stack, stack.chunks, None, str(path), memory, file)


@contextmanager
def _raise_logged_errors(package: str) -> Iterator[None]:
    """Raise errors that a package only logs."""
    log, handler = logging.getLogger(package), BufferingHandler(capacity=1 << 30)
    handler.setLevel(logging.ERROR)
    log.addHandler(handler)
    try:
        yield
        records = list(handler.buffer)
    finally:
        log.removeHandler(handler)
    if records:
        raise ValueError(records[0].getMessage())
