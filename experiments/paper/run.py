"""Carrying the plan out: run after run in a process of its own, which is ended when one takes too long."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from experiments.paper.plan import BRIEF, Run
from experiments.paper.rows import Row, Rows
from experiments.paper.worker import work

__all__ = ["carry_out"]


def carry_out(
    runs: Sequence[Run], rows: Rows, cap: float, tell: Callable[[int, Run, Row | None], object] = lambda *_: None
) -> None:
    """Make every row that is missing.

    `tell` is called with the number of each run, the run, and its row; once before the run, without its row.
    """
    with Process() as process:
        for number, run in enumerate(runs):
            if is_settled(rows.get(run), cap) or not is_due(run, rows):
                continue
            tell(number, run, None)
            earlier = over_before(run, rows, cap)
            if earlier is None:
                result = process.carry_out(run, cap)
            else:
                result = {
                    "status": "left out",
                    "note": f"over {float(earlier['cap']):g} s at rank {earlier['rank']}, shape {earlier['shape']}",
                }
            tell(number, run, rows.add(run, result, cap))


def is_settled(row: Row | None, cap: float) -> bool:
    """Say whether a run has a row that a run of this cap would not change."""
    if row is None or row["status"] == "failed":  # which may have been for want of memory
        return False
    return row["status"] == "done" or float(row["cap"]) >= cap


def is_due(run: Run, rows: Rows) -> bool:
    """Say whether a repetition is worth its time: those of a method that is not random only where it is brief."""
    if run.repetition == 0:
        return True
    first = rows.get(Run(run.panel, run.point, run.method, 0, run.cores))
    if first is None or first["status"] != "done":
        return False
    return run.method.is_random or first["seconds"] < BRIEF


def over_before(run: Run, rows: Rows, cap: float) -> Row | None:
    """Return the row of a smaller point, on as many cores, at which the method took too long."""
    for point in run.panel.points[: run.panel.points.index(run.point)]:  # they are in the order of their size
        row = rows.get(Run(run.panel, point, run.method, 0, run.cores))
        if row is not None and row["status"] == "over" and float(row["cap"]) >= cap:
            return row
    return None


class Process:
    """A process that runs methods; it is started when first needed, and anew when it had to be ended."""

    def __init__(self) -> None:
        self.process: Any = None
        self.connection: Connection | None = None
        self.cores = ""

    def __enter__(self) -> Process:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def carry_out(self, run: Run, cap: float) -> dict[str, Any]:
        """Carry out one run, and say how it ended."""
        connection = self.start(run.cores)
        try:
            connection.send(run)
            answer = connection.recv()
            if answer == "begins":
                if not connection.poll(cap):
                    self.end()
                    return {"status": "over", "note": f"ended after {cap:g} s"}
                answer = connection.recv()
            return dict(connection.recv() if answer == "ends" else answer)
        except (EOFError, ConnectionError):  # killed, most likely for want of memory
            code = self.end()
            return {"status": "failed", "note": f"its process ended with {code}"}

    def start(self, cores: str) -> Connection:
        """Return a connection to a process that holds to these cores."""
        if self.connection is None or self.cores != cores:
            self.end()
            context = multiprocessing.get_context("spawn")
            self.connection, theirs = context.Pipe()
            self.process = context.Process(target=work, args=(theirs, cores, os.getpid()), daemon=True)
            self.process.start()
            theirs.close()
            self.cores = cores
        return self.connection

    def end(self) -> int | None:
        """End the process, if there is one, and return its exit code."""
        if self.process is None:
            return None
        self.process.kill()
        self.process.join()
        code: int | None = self.process.exitcode
        self.process = self.connection = None
        return code
