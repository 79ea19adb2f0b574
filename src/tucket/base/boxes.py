"""Arithmetic of slices and boxes, which are parts of a tensor."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Sequence
from functools import lru_cache

Box = tuple[slice, ...]
"""One slice per mode, each with a start and a stop."""

SLAB_ENTRIES = 1 << 20
"""Entries of a slab: large enough to make Python's overhead negligible, small enough for temporary copies."""


@lru_cache(maxsize=64)
def whole(shape: tuple[int, ...]) -> Box:
    """Return the box of a whole tensor."""
    return tuple(slice(0, size) for size in shape)


def shape_of(box: Box) -> tuple[int, ...]:
    """Return the size of a box in every mode."""
    return tuple(rows.stop - rows.start for rows in box)


def into_frame(box: Box, frame: Box) -> Box:
    """Return a box of the whole tensor as a box of the part that the frame cuts out."""
    return tuple(slice(rows.start - outer.start, rows.stop - outer.start) for rows, outer in zip(box, frame))


def from_frame(box: Box, frame: Box) -> Box:
    """Return a box of the frame as a box of the whole tensor: the inverse of `into_frame`."""
    return tuple(slice(rows.start + outer.start, rows.stop + outer.start) for rows, outer in zip(box, frame))


def hull(boxes: Sequence[Box]) -> Box:
    """Return the smallest box that contains all the given ones."""
    return tuple(slice(min(r.start for r in rows), max(r.stop for r in rows)) for rows in zip(*boxes))


def slabs(shape: tuple[int, ...], most: int = SLAB_ENTRIES) -> Iterator[Box]:
    """Cut a shape into boxes of at most `most` entries, in C order.

    Examples
    --------
    >>> list(slabs((3, 4), most=8))
    [(slice(0, 2, None), slice(0, 4, None)), (slice(2, 3, None), slice(0, 4, None))]
    """
    size, *inner = shape
    rows = most // math.prod(inner)
    if rows:
        for some in runs(size, rows):
            yield some, *(slice(0, s) for s in inner)
    else:
        for row in range(size):
            for box in slabs(tuple(inner), most):
                yield slice(row, row + 1), *box


def grid(shape: Sequence[int], step: Sequence[int]) -> Iterator[Box]:
    """Cut a shape into boxes of the same size; those at the end of a mode may be smaller."""
    return itertools.product(*(runs(size, n) for size, n in zip(shape, step)))


def runs(size: int, most: int) -> Iterator[slice]:
    """Cut `size` indices into runs of at most max(1, most) indices."""
    step = max(1, most)
    return (slice(first, min(first + step, size)) for first in range(0, size, step))


def halved(shape: Sequence[int], most: int) -> list[int]:
    """Halve the longest mode repeatedly until there are at most `most` cells.

    Examples
    --------
    >>> halved((9, 9, 512), 10_000)
    [9, 9, 64]
    """
    sizes = list(shape)
    while math.prod(sizes) > most:
        longest = sizes.index(max(sizes))
        sizes[longest] = -(-sizes[longest] // 2)
    return sizes
