"""Images: one, a folder of them, or the pages of a TIFF, as one tensor."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.base.optional import need
from tucket.base.partition import check_sizes
from tucket.sources.chunked import Chunked
from tucket.sources.dense import Array, Mapped, as_tensor, check_shape
from tucket.sources.opening import ToldError, closed_if_wrong
from tucket.sources.source import Source

__all__ = ["IMAGES", "open_folder", "open_image", "open_tiff"]

IMAGES = (".png", ".pgm", ".ppm", ".bmp", ".jpg", ".jpeg", ".tif", ".tiff")


def open_folder(path: Path, shape: Sequence[int] | None = None, memory: int | None = None) -> Source:
    """Take the images of a folder, in the order of their names, for one tensor."""
    files = sorted((each for each in path.iterdir() if each.suffix.lower() in IMAGES), key=_by_number)
    if not files:
        raise ToldError(f"{path} is a folder without images; known are {', '.join(IMAGES)}")
    stack = Images(files, check_sizes(shape) if shape else (len(files),))
    labels = None if shape else [[each.name for each in files], *[None] * (len(stack.shape) - 1)]
    names = ("image", "row", "column", "channel")[: len(stack.shape)]
    axes = None if shape else Axes.of(names, labels, stack.shape)
    return Chunked(stack, stack.chunks, axes, str(path), memory)


def _by_number(path: Path) -> list[Any]:
    """Sort 2 before 10."""
    return [(int(part), "") if part.isdigit() else (-1, part) for part in re.split(r"(\d+)", path.name)]


class Images:
    """The images of a folder as one array; only those that are asked for are read."""

    def __init__(self, files: Sequence[Path], folded: tuple[int, ...]) -> None:
        if int(np.prod(folded)) != len(files):
            raise ToldError(
                f"shape: {len(files)} images cannot be folded into {folded}; give sizes whose product they are"
            )
        self.files, self.folded = np.array(files, object).reshape(folded), folded
        first = read_image(files[0])
        self.image, self.dtype = first.shape, first.dtype
        self.shape = (*folded, *first.shape)
        self.chunks = (*[1] * len(folded), *first.shape)

    def __getitem__(self, box: Box) -> NDArray[Any]:
        files = self.files[box[: len(self.folded)]]
        images = [read_image(each) for each in files.ravel()]
        for each, image in zip(files.ravel(), images):
            if image.shape != self.image or image.dtype != self.dtype:
                raise ValueError(
                    f"{each} is an image of {image.dtype} of shape {image.shape}, but {self.files.flat[0].name} is of "
                    f"{self.dtype} of shape {self.image}; give images of the same size"
                )
        whole: NDArray[Any] = np.stack(images).reshape(*files.shape, *self.image)
        return whole[(slice(None),) * len(self.folded) + box[len(self.folded) :]]


def read_image(path: Path) -> NDArray[Any]:
    """Read one image: rows, columns and, if it has colours, channels."""
    is_tiff, image = path.suffix.lower() in (".tif", ".tiff"), need("PIL.Image", "files", "this file")
    try:
        if is_tiff:
            return np.asarray(need("tifffile", "files", "this file").imread(path))
        with image.open(path) as opened:
            # the entries of a palette's image are no brightness
            return np.asarray(opened.convert() if opened.mode in ("P", "PA") else opened)
    except Exception as error:
        raise ValueError(f"{path} cannot be read as an image: {error}") from error


def open_image(path: Path) -> Source:
    """Take one image."""
    return Array(as_tensor(read_image(path), str(path)))


def open_tiff(path: Path, memory: int | None = None) -> Source:
    """Take the pages of a TIFF."""
    tifffile = need("tifffile", "files", "this file")
    with closed_if_wrong(tifffile.TiffFile(path)) as file:
        with _errors_of("tifffile"):
            series = list(file.series)
        pages = [page for each in series for page in each.pages]
        shape = series[0].shape if len(series) == 1 else (len(pages), *pages[0].shape)
        check_shape(shape, str(path))
        for number, page in enumerate(pages):
            if page.shape != pages[0].shape or page.dtype != pages[0].dtype:
                raise ToldError(
                    f"{path}: page {number} is of {page.dtype} of shape {page.shape}, but page 0 is of "
                    f"{pages[0].dtype} of shape {pages[0].shape}; give pages of the same size"
                )
        lead = shape[: len(shape) - len(pages[0].shape)]
        if len(series) == 1 and series[0].dataoffset is not None:
            file.close()
            return Mapped(as_tensor(tifffile.memmap(path, mode="r"), str(path)), memory=memory)
        if math.prod(lead) != len(pages):  # an order of its own: no page is a part of the whole
            array = as_tensor(series[0].asarray(), str(path))
            file.close()
            return Array(array)
        chunks = (*(1,) * len(lead), *pages[0].shape)
        return Chunked(Pages(pages, lead), chunks, None, str(path), memory, file)


@contextmanager
def _errors_of(package: str) -> Iterator[None]:
    """Raise what a package only writes to its log."""
    log, seen = logging.getLogger(package), _Seen(logging.ERROR)
    log.addHandler(seen)
    try:
        yield
    finally:
        log.removeHandler(seen)
    if seen.messages:
        raise ValueError(seen.messages[0])


class _Seen(logging.Handler):
    """Takes note of messages."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        """Take note."""
        self.messages.append(record.getMessage())


class Pages:
    """The pages of a TIFF as one array; only those that are asked for are decoded, by one thread at a time."""

    def __init__(self, pages: Sequence[Any], lead: tuple[int, ...]) -> None:
        self.pages, self.lead = pages, lead
        self.shape, self.dtype = (*lead, *pages[0].shape), pages[0].dtype
        self.lock = Lock()

    def __getitem__(self, box: Box) -> NDArray[Any]:
        numbers = np.arange(len(self.pages)).reshape(self.lead)[box[: len(self.lead)]]
        with self.lock:  # they share a file, and where in it is read next
            pages = [self.pages[number].asarray() for number in numbers.ravel().tolist()]
        whole: NDArray[Any] = np.stack(pages).reshape(*numbers.shape, *pages[0].shape)
        return whole[(slice(None),) * len(self.lead) + box[len(self.lead) :]]
