"""A source with every chunk changed before it is reduced, wherever that happens."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass

from tucket.base.run import Run
from tucket.sources.source import Chunk, Entries, Reduction, Result, Source

Change = Callable[[Chunk | Entries, int], Chunk | Entries]
"""From a chunk, and the number of threads to use, to another chunk at the same place; the given one is not changed."""


class Transformed(Source):
    """Another source with every chunk changed."""

    def __init__(self, source: Source, change: Change) -> None:
        self.given, self.change = source, change
        self.shape, self.axes, self.backend = source.shape, source.axes, source.backend
        self.in_memory, self.sparse, self.distributed = source.in_memory, source.sparse, source.distributed
        self.nbytes, self.n_chunks = source.nbytes, source.n_chunks

    def chunks(self, distinct: bool) -> Generator[Chunk | Entries]:
        """Yield the changed chunks."""
        with closing(self.given.chunks(distinct)) as chunks:
            yield from (self.change(chunk, 1) for chunk in chunks)

    def reduce(self, reduction: Reduction[Result], run: Run) -> Result:
        """Reduce the source as it reduces itself, with each chunk changed first."""
        return self.given.reduce(_OfChanged(reduction, self.change), run)

    def load_if_small(self) -> Source:
        """Return the same tensor in memory, if it is small."""
        loaded = self.given.load_if_small()
        return self if loaded is self.given else Transformed(loaded, self.change)

    def close(self) -> None:
        """Close the source."""
        self.given.close()


@dataclass(frozen=True)
class _OfChanged(Reduction[Result]):
    reduction: Reduction[Result]
    change: Change

    @property
    def distinct(self) -> bool:
        return self.reduction.distinct

    def of(self, chunk: Chunk | Entries, workers: int) -> Result:
        return self.reduction.of(self.change(chunk, workers), workers)

    def merge(self, results: Sequence[Result]) -> Result:
        return self.reduction.merge(results)

    def total(self, results: Iterable[Result]) -> Result:
        return self.reduction.total(results)
