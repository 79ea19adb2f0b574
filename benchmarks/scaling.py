"""An estimate of the cost of a tensor of any size on a cluster, from constants that `benchmarks.sources` measures."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tucket.interfaces.text import human_bytes

PAGE = Path(__file__).parents[1] / "docs" / "scaling.md"
BEGIN, END = "<!-- from benchmarks/results/sources.json -->", "<!-- end -->"

FAN_IN = 8
"""How many partial sums one task adds."""

TASK_BYTES = 2_000
"""Approximate memory of client and scheduler per task: key, state and dependencies."""


@dataclass(frozen=True)
class Constants:
    """Measured constants: scheduler seconds per task, and bytes per second that a worker reduces and reads."""

    task: float
    reduce: float
    read: float

    @classmethod
    def of(cls, result: dict[str, Any]) -> Constants:
        """Return the constants of kept results."""
        read = next(row for row in result["files"] if row["kind"] == "zarr" and row["cache"] == "cold")
        return cls(
            result["dask"]["task_seconds"],
            result["dask"]["kernel_bytes_per_second"],
            read["bytes"] / read["read_seconds"],
        )


@dataclass(frozen=True)
class Cost:
    """One pass over a tensor of `size` bytes in chunks of `chunk` bytes, on `workers` workers of one thread."""

    size: float
    chunk: float
    workers: int
    side: int
    rank: int
    modes: int = 3

    @property
    def chunks(self) -> int:
        """Number of chunks. Each is a task; adding their sums takes a seventh as many tasks more."""
        return math.ceil(self.size / self.chunk)

    @property
    def statistics(self) -> float:
        """Bytes of the statistics of the whole tensor: the core and the marginals."""
        return 8.0 * float(self.rank**self.modes + self.modes * self.side)

    @property
    def part(self) -> float:
        """Bytes of the statistics of one chunk, which has only its own blocks and indices."""
        share = (self.chunk / self.size) ** (1 / self.modes)
        return 8.0 * float(math.ceil(self.rank * share + 1) ** self.modes + self.modes * self.side * share)

    @property
    def moved(self) -> float:
        """Bytes that travel: the sums of every chunk, and on each level of the tree the sums of fewer, larger boxes."""
        total, count, part = 0.0, float(self.chunks), self.part
        while count > 1:
            total += count * part
            count, part = count / FAN_IN, min(FAN_IN * part, self.statistics)
        return total + self.statistics

    @property
    def memory(self) -> float:
        """Bytes of a worker: two chunks, one being read and one being reduced, and the sums being added."""
        return 2 * self.chunk + (FAN_IN + 1) * self.statistics

    @property
    def scheduler(self) -> float:
        """Bytes of the task graph, in client and scheduler."""
        return self.chunks * FAN_IN / (FAN_IN - 1) * TASK_BYTES

    def seconds(self, known: Constants) -> tuple[float, float]:
        """Return the time of the workers and the time of the scheduler."""
        return self.size / self.workers * (1 / known.reduce + 1 / known.read), self.chunks * known.task


CASES = (
    Cost(1e12, 128e6, 16, 10_000, 50),
    Cost(1e14, 512e6, 256, 46_416, 50),
    Cost(1e15, 2e9, 1024, 100_000, 50),
)


def fill_page(page: str, result: dict[str, Any]) -> str:
    """Return the page with the constants and the table filled in between its markers."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    known = Constants.of(result)
    lines = [
        BEGIN,
        f"Measured on {result['date']} ({result['machine']['cpu']}, {result['machine']['cores']} cores): a task costs "
        f"the scheduler {1000 * known.task:.2f} ms, a thread reduces {known.reduce / 1e9:.1f} GB per second in memory, "
        f"the disk reads {known.read / 1e9:.1f} GB of zarr per second, and weak scaling from one worker process to two "
        f"is {result['dask']['weak_scaling']:.2f}.",
        "",
        "| | " + " | ".join(human_bytes(case.size) for case in CASES) + " |",
        "|---|" + "---|" * len(CASES),
        row("shape, one byte per entry", lambda case: f"{case.side:,}³"),
        row("chunk", lambda case: human_bytes(case.chunk)),
        row("workers with one thread", lambda case: f"{case.workers:,}"),
        row("chunks", lambda case: f"{case.chunks:,}"),
        row("bytes read per pass", lambda case: human_bytes(case.size)),
        row("bytes moved", lambda case: human_bytes(case.moved)),
        row("bytes that reach the client", lambda case: human_bytes(case.statistics)),
        row("memory per worker", lambda case: human_bytes(case.memory)),
        row("memory of the scheduler", lambda case: human_bytes(case.scheduler)),
        row("time of the workers", lambda case: format_time(case.seconds(known)[0])),
        row("time of the scheduler", lambda case: format_time(case.seconds(known)[1])),
        END,
    ]
    return before + "\n".join(lines) + after


def row(name: str, cell: Any) -> str:
    """Return one line of the table."""
    return f"| {name} | " + " | ".join(cell(case) for case in CASES) + " |"


def format_time(seconds: float) -> str:
    """Format a time."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"
