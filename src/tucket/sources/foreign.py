"""Arrays of other libraries, where their entries are not in the memory of the host."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

from tucket.backends.home import Home, check_array, explain_followed, home_of, is_traced, is_transformed, on_host
from tucket.base.boxes import slabs
from tucket.sources.dense import Array, bad_value, check_shape
from tucket.sources.source import Chunk, Source

__all__ = ["Foreign", "check_followed", "explain_foreign", "from_array"]

PIECE = 1 << 33
"""Entries that are read at a time, so that what is held beside them stays small: a number or so for each row."""


class Foreign(Source):
    """An array of another library: it is read where it is, in a few large pieces."""

    in_memory = True

    def __init__(self, array: Any, home: Home) -> None:
        self.array, self.home, self.shape = array, home, tuple(array.shape)

    @property
    def piece(self) -> int:
        """Entries that are read at a time."""
        from tucket.kernels.foreign import piece_of

        return piece_of(self.array, PIECE)

    @property
    def nbytes(self) -> int:
        """Bytes of the array; 8 an entry, if its library does not say."""
        return self.size * int(getattr(self.array, "itemsize", 8))

    @property
    def n_chunks(self) -> int:
        """Pieces."""
        return sum(1 for _ in self._boxes())

    def _boxes(self) -> Any:
        return slabs(self.shape, self.piece)

    def chunks(self, distinct: bool) -> Generator[Chunk]:  # noqa: ARG002
        """Yield the pieces."""
        for box in self._boxes():
            yield Chunk(self.array[box], box)


def explain_foreign(array: Any, origin: Sequence[int], name: str = "x") -> ValueError:
    """Make the error for an array with a negative or non-finite entry, which is all of it that is moved."""
    from tucket.kernels.foreign import SLAB
    from tucket.kernels.pure import as_float, first_index

    array = array.detach() if hasattr(array, "detach") else array
    home = home_of(array)
    assert home is not None
    for box in slabs(tuple(array.shape), SLAB):
        part = as_float(home, array[box])  # in which all can be compared
        bad = ~((part >= 0) & home.xp.isfinite(part))
        if bool(home.xp.any(bad)):
            place = first_index(home, bad)
            index = [at + rows.start + by for at, rows, by in zip(place, box, origin)]
            return bad_value(name, index, float(part[place]))
    return ValueError(f"the sum of {name} is too large for float64; scale {name} down")


def check_followed(x: Any, name: str) -> None:
    """Refuse an array that is followed if an entry is known to be negative or not finite."""
    from tucket.kernels.foreign import is_fine

    if not hasattr(x, "detach"):  # of JAX's arrays nothing is known yet
        return
    try:
        is_known_bad = not is_fine(x.detach())
    except RuntimeError:
        if not is_transformed(x):
            raise
        is_known_bad = False  # nor of torch's within torch.vmap
    if is_known_bad:
        raise explain_foreign(x, [0] * len(x.shape), name)


def from_array(x: Any, home: Home, name: str) -> Source:
    """Take an array of another library: as one of NumPy's where that needs no copy."""
    check_array(x, name)
    check_shape(tuple(x.shape), name)
    if is_traced(x):
        raise explain_followed(x, name)
    array = on_host(x)
    if array is None:
        return Foreign(x, home)
    source = Array(array)
    source.home = home
    return source
