"""The whole study: run the experiments of a letter and write results, figures and tables to a folder."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.paper.figures import draw
from experiments.paper.findings import findings
from experiments.paper.plan import Panel, Run, load_tensor, panels_of, plan, thin_out
from experiments.paper.rows import Row, Rows, format_sizes
from experiments.paper.run import ReportRun, carry_out
from tucket.base.archive import replacing
from tucket.base.optional import import_optional

__all__ = ["study"]

CAP_SECONDS, QUICK_CAP_SECONDS = 60.0, 10.0
REPETITIONS, QUICK_REPETITIONS = 20, 3
DAY_SECONDS = 86_400.0


def study(
    letter: str,
    folder: Path,
    *,
    quick: bool = False,
    cap: float | None = None,
    repetitions: int | None = None,
    data: Path | None = None,
    quiet: bool = False,
) -> None:
    """Do the runs that the folder has no rows of yet; then write figures and tables of all rows."""
    for package, extra in (("matplotlib", "plot"), ("sklearn", "sklearn"), ("tensorly", "paper")):
        import_optional(package, extra, "the paper's experiments")
    limit = (QUICK_CAP_SECONDS if quick else CAP_SECONDS) if cap is None else cap
    count = (QUICK_REPETITIONS if quick else REPETITIONS) if repetitions is None else repetitions
    if not 0 < limit <= DAY_SECONDS:
        raise ValueError(f"--cap: got {limit:g}; give seconds above 0, at most {DAY_SECONDS:g}")
    if count < 1:
        raise ValueError(f"--repetitions: got {count}; give 1 or more")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--output: {folder} is no folder; give the name of a folder")
    if data is not None:
        if not data.is_dir():
            raise NotADirectoryError(f"--data: there is no folder {data}; give the folder with the tensors")
        os.environ["TUCKET_DATA"] = str(data.absolute())  # the process that runs the methods reads it, too
    panels = [panel for panel in panels_of(letter) if is_available(panel, letter == "all")]
    folder.mkdir(parents=True, exist_ok=True)
    with locked(folder):
        rows = Rows(folder / "rows.csv")
        cores = ("one",) if quick else ("one", "all")
        runs = list(plan([thin_out(panel) for panel in panels] if quick else panels, count, cores))
        with progress_shown(runs, quiet) as report:
            carry_out(runs, rows, limit, report)
        summarise(panels, rows, folder)
    if not quiet:
        print(f"{len(rows.held)} rows, figures and findings.md are in {folder}")
    missing = [panel.name for panel in panels_of(letter) if panel not in panels]
    if missing:
        print(f"Left out, since their data were not found: ({', '.join(missing)})", file=sys.stderr)


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Lock a folder against a second process, which would do the same runs on the same core."""
    try:
        import fcntl
    except ImportError:  # Windows has no fcntl: there is no lock
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError(f"another process is at work in {folder}; wait for it, or give another folder") from None
        yield


def is_available(panel: Panel, skip_missing: bool) -> bool:
    """Return whether the data of a panel can be loaded; if they may not be skipped, raise the error of the loader."""
    if panel.data == "uniform":
        return True
    try:
        load_tensor(panel, panel.points[0])
    except FileNotFoundError as error:
        if not skip_missing:
            raise
        print(f"({panel.name}) is skipped: {error}", file=sys.stderr)
        return False
    return True


def summarise(panels: Sequence[Panel], rows: Rows, folder: Path) -> None:
    """Draw the figures of some panels, and write the tables of all rows."""
    for panel in panels:
        for cores in ("one", "all"):
            if rows.of(panel=panel.name, cores=cores):
                draw(rows, panel, folder, cores)
    with replacing(folder / "findings.md") as temporary:
        temporary.write_text(findings(rows))


@contextmanager
def progress_shown(runs: Sequence[Run], quiet: bool) -> Iterator[ReportRun]:
    """Show progress: a bar on a terminal, otherwise one line per run."""
    if quiet:
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    is_terminal = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=not is_terminal, transient=True) as bar:
        task = bar.add_task("", total=len(runs))

        def report(number: int, run: Run, row: Row | None) -> None:
            name = f"({run.panel.name}) {format_sizes(run.point.rank)} {run.method.label}, {run.cores}"
            bar.update(task, description=name, completed=number + (row is not None))
            if row is not None and not is_terminal:
                ended = f"{float(row['seconds']):.3f} s" if row["status"] == "done" else row["status"]
                print(f"{number + 1}/{len(runs)} {name} {run.repetition}: {ended}", file=sys.stderr, flush=True)

        yield report
        bar.update(task, completed=len(runs))
