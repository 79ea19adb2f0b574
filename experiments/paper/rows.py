"""The file of results: one row per run, written as soon as the run ends, so that a study can be resumed."""

from __future__ import annotations

import csv
import io
import os
import platform
import time
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from experiments.paper.plan import Run

__all__ = ["Row", "Rows", "format_sizes", "processor"]

KEY = ("panel", "shape", "rank", "method", "repetition", "cores")
RESULT = ("status", "seconds", "fit_seconds", "ls", "relative_ls", "kl", "kl_per_total", "note")
CONTEXT = ("cap", "date", "machine", "python", "tucket", "numpy", "numba", "scikit-learn", "tensorly")
NUMBERS = ("seconds", "fit_seconds", "ls", "relative_ls", "kl", "kl_per_total")

Row = dict[str, Any]


class Rows:
    """All rows of a file, by run."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.held: dict[tuple[str, ...], Row] = {}
        self.context = measured_context()
        text = path.read_text() if path.exists() else ""
        self.whole = text[: text.rfind("\n") + 1]  # without a last line that a kill cut short
        reader = csv.DictReader(io.StringIO(self.whole))
        if self.whole and tuple(reader.fieldnames or ()) != (*KEY, *RESULT, *CONTEXT):
            raise ValueError(f"{path} is no file of the paper's experiments: its columns differ; give another folder")
        for number, row in enumerate(reader, 2):
            try:
                self.held[tuple(row[name] for name in KEY)] = parse_numbers(row)
            except (TypeError, ValueError) as error:
                raise ValueError(f"{path}, line {number}: cannot be read ({error}); remove this line") from error
        self.cut = len(self.whole) < len(text)

    def contexts(self) -> list[str]:
        """Describe the machines and packages of the rows, with the number of rows for each."""
        names = [name for name in CONTEXT if name not in ("cap", "date")]
        counts: dict[str, int] = {}
        for row in self.held.values():
            text = ", ".join(f"{name} {row[name]}" if name != "machine" else row[name] for name in names if row[name])
            counts[text] = counts.get(text, 0) + 1
        return [f"{count:,} rows: {text}" for text, count in counts.items()]

    def get(self, run: Run) -> Row | None:
        """Return the row of a run, or None."""
        return self.held.get(tuple(key_of(run).values()))

    def add(self, run: Run, result: Mapping[str, Any], cap: float) -> Row:
        """Add the row of a run to the file, as one write."""
        date = time.strftime("%Y-%m-%dT%H:%M:%S")
        row = dict.fromkeys(RESULT, "") | key_of(run) | dict(result) | self.context
        row |= {"cap": repr(float(cap)), "date": date}
        if self.cut:
            os.truncate(self.path, len(self.whole.encode()))
            self.cut = False
        text = io.StringIO()
        writer = csv.DictWriter(text, (*KEY, *RESULT, *CONTEXT), lineterminator="\n")
        if not self.path.exists() or self.path.stat().st_size == 0:
            writer.writeheader()
        writer.writerow(row)
        with self.path.open("a") as file:
            file.write(text.getvalue())
            file.flush()
            os.fsync(file.fileno())
        self.held[tuple(key_of(run).values())] = parse_numbers(row)
        return row

    def of(self, **wanted: str) -> list[Row]:
        """Return the rows with these values in their columns."""
        return [row for row in self.held.values() if all(row[name] == value for name, value in wanted.items())]


def key_of(run: Run) -> dict[str, str]:
    """Return the columns that identify a run."""
    return {
        "panel": run.panel.name,
        "shape": format_sizes(run.point.shape),
        "rank": format_sizes(run.point.rank),
        "method": run.method.name,
        "repetition": str(run.repetition),
        "cores": run.cores,
    }


def format_sizes(sizes: Iterable[int]) -> str:
    """Format a shape or a rank.

    Examples
    --------
    >>> format_sizes((92, 112, 400))
    '92x112x400'
    """
    return "x".join(map(str, sizes))


def parse_numbers(row: Mapping[str, Any]) -> Row:
    """Convert the columns with numbers; empty ones become None."""
    return {**row, **{name: None if row[name] in ("", None) else float(row[name]) for name in NUMBERS}}


def processor() -> str:
    """Return the name of the processor."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()


def measured_context() -> dict[str, str]:
    """Return the machine and the versions of the packages that are measured."""

    def release(package: str) -> str:
        try:
            return version(package)
        except PackageNotFoundError:
            return ""

    packages = ("tucket", "numpy", "numba", "scikit-learn", "tensorly")
    return {
        "machine": f"{os.cpu_count()} x {processor()}",
        "python": platform.python_version(),
        **{name: release(name) for name in packages},
    }
