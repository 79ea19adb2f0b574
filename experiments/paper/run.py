"""Carry out the plan: every run in a separate process, which is killed if the run takes too long."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable, Sequence
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

from experiments.paper.plan import BRIEF_SECONDS, Run
from experiments.paper.rows import Row, Rows
from experiments.paper.worker import work

__all__ = ["ReportRun", "carry_out"]

ReportRun = Callable[[int, Run, Row | None], object]
"""Called with the number of a run, the run, and its row; before the run the row is None."""


def carry_out(runs: Sequence[Run], rows: Rows, cap: float, report: ReportRun = lambda *_: None) -> None:
    """Do every run that has no row yet, for at most `cap` seconds each."""
    with Process() as process:
        for number, run in enumerate(runs):
            if is_settled(rows.get(run), cap) or not is_due(run, rows):
                continue
            report(number, run, None)
            earlier = find_smaller_timeout(run, rows, cap)
            if earlier is None:
                result = process.carry_out(run, cap)
            else:
                result = {
                    "status": "left out",
                    "note": f"over {float(earlier['cap']):g} s at rank {earlier['rank']}, shape {earlier['shape']}",
                }
            report(number, run, rows.add(run, result, cap))


def is_settled(row: Row | None, cap: float) -> bool:
    """Return whether a run has a row that another try with this cap would not change."""
    if row is None or row["status"] == "failed":  # it may have lacked memory
        return False
    return row["status"] == "done" or float(row["cap"]) >= cap


def is_due(run: Run, rows: Rows) -> bool:
    """Return whether a repetition is needed: of a method that is not random, only if it is fast."""
    if run.repetition == 0:
        return True
    first = rows.get(Run(run.panel, run.point, run.method, 0, run.cores))
    if first is None or first["status"] != "done":
        return False
    return run.method.is_random or first["seconds"] < BRIEF_SECONDS


def find_smaller_timeout(run: Run, rows: Rows, cap: float) -> Row | None:
    """Return the row of a smaller point, on as many cores, at which the method took too long, or None."""
    for point in run.panel.points[: run.panel.points.index(run.point)]:  # points are sorted by size
        row = rows.get(Run(run.panel, point, run.method, 0, run.cores))
        if row is not None and row["status"] == "over" and float(row["cap"]) >= cap:
            return row
    return None


class Process:
    """A process that runs methods: started when it is first needed, and again after it was killed."""

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
        """Carry out one run, and return its results or the reason why there are none."""
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
        except (EOFError, ConnectionError):  # the process was killed, most likely for lack of memory
            code = self.end()
            return {"status": "failed", "note": f"the process ended with {code}"}

    def start(self, cores: str) -> Connection:
        """Return a connection to a process that uses only these cores."""
        if self.connection is None or self.cores != cores:
            self.end()
            context = multiprocessing.get_context("spawn")
            self.connection, other_end = context.Pipe()
            self.process = context.Process(target=work, args=(other_end, cores, os.getpid()), daemon=True)
            self.process.start()
            other_end.close()
            self.cores = cores
        return self.connection

    def end(self) -> int | None:
        """Kill the process, if there is one, and return its exit code."""
        if self.process is None:
            return None
        self.process.kill()
        self.process.join()
        code: int | None = self.process.exitcode
        self.process = self.connection = None
        return code
