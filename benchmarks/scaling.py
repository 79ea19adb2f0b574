"""What a tensor of any size costs on a cluster: a model whose constants are measured by `benchmarks.sources`."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tucket.interfaces.text import human_bytes

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- from benchmarks/results/sources.json -->", "<!-- end -->"

FAN_IN = 8
GRAPH_BYTES = 2_000
"""Memory of client and scheduler for a task: its key, its place and who waits for it, roughly."""


@dataclass(frozen=True)
class Constants:
    """What was measured: seconds a task costs the scheduler, and bytes that a worker reduces and reads in a second."""

    task: float
    reduce: float
    read: float

    @classmethod
    def of(cls, result: dict[str, Any]) -> Constants:
        """Take them from the kept results."""
        read = next(row for row in result["files"] if row["kind"] == "zarr" and row["cache"] == "cold")
        return cls(
            result["dask"]["task_seconds"],
            result["dask"]["kernel_bytes_per_second"],
            read["bytes"] / read["read_seconds"],
        )


@dataclass(frozen=True)
class Cost:
    """One pass over a tensor of so many bytes, in chunks, on so many workers of one thread."""

    size: float
    chunk: float
    workers: int
    side: int
    rank: int
    modes: int = 3

    @property
    def chunks(self) -> int:
        """Chunks, each a task; adding their sums takes a seventh as many more."""
        return math.ceil(self.size / self.chunk)

    @property
    def statistics(self) -> float:
        """Bytes of the statistics of all: the core and the marginals."""
        return 8.0 * float(self.rank**self.modes + self.modes * self.side)

    @property
    def part(self) -> float:
        """Bytes of the statistics of one chunk, which knows of its own blocks and indices only."""
        share = (self.chunk / self.size) ** (1 / self.modes)
        return 8.0 * float(math.ceil(self.rank * share + 1) ** self.modes + self.modes * self.side * share)

    @property
    def moved(self) -> float:
        """Bytes that travel: the sums of every chunk, and on each level of the tree those of fewer, larger boxes."""
        total, count, part = 0.0, float(self.chunks), self.part
        while count > 1:
            total += count * part
            count, part = count / FAN_IN, min(FAN_IN * part, self.statistics)
        return total + self.statistics

    @property
    def memory(self) -> float:
        """Bytes of a worker: two chunks, one that is read and one that is worked on, and what it adds up."""
        return 2 * self.chunk + (FAN_IN + 1) * self.statistics

    @property
    def scheduler(self) -> float:
        """Bytes that client and scheduler hold of the graph."""
        return self.chunks * FAN_IN / (FAN_IN - 1) * GRAPH_BYTES

    def seconds(self, known: Constants) -> tuple[float, float]:
        """Return the time that the workers need, and that the scheduler needs to tell them what to do."""
        return self.size / self.workers * (1 / known.reduce + 1 / known.read), self.chunks * known.task


CASES = (
    Cost(1e12, 128e6, 16, 10_000, 50),
    Cost(1e14, 512e6, 256, 46_416, 50),
    Cost(1e15, 2e9, 1024, 100_000, 50),
)


def fill_page(page: str, result: dict[str, Any]) -> str:
    """Put the table and the constants where the page has marks for them."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    known = Constants.of(result)
    lines = [
        BEGIN,
        f"Measured on {result['date']} ({result['machine']['cpu']}, {result['machine']['cores']} cores): a task costs "
        f"the scheduler {1000 * known.task:.2f} ms, a thread reduces {known.reduce / 1e9:.1f} GB a second in memory, "
        f"and the disk gives {known.read / 1e9:.1f} GB of zarr; weak scaling from one worker process to two "
        f"{result['dask']['weak_scaling']:.2f}.",
        "",
        "| | " + " | ".join(human_bytes(case.size) for case in CASES) + " |",
        "|---|" + "---|" * len(CASES),
        row("shape, one byte an entry", lambda case: f"{case.side:,}³"),
        row("chunk", lambda case: human_bytes(case.chunk)),
        row("workers of one thread", lambda case: f"{case.workers:,}"),
        row("chunks", lambda case: f"{case.chunks:,}"),
        row("bytes read, each pass", lambda case: human_bytes(case.size)),
        row("bytes moved", lambda case: human_bytes(case.moved)),
        row("bytes that reach the client", lambda case: human_bytes(case.statistics)),
        row("memory of a worker", lambda case: human_bytes(case.memory)),
        row("memory of the scheduler", lambda case: human_bytes(case.scheduler)),
        row("time of the workers", lambda case: clock(case.seconds(known)[0])),
        row("time of the scheduler", lambda case: clock(case.seconds(known)[1])),
        END,
    ]
    return before + "\n".join(lines) + after


def row(name: str, cell: Any) -> str:
    """Write one line of the table."""
    return f"| {name} | " + " | ".join(cell(case) for case in CASES) + " |"


def clock(seconds: float) -> str:
    """Write a time."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
