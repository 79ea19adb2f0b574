"""From a letter of the paper's figure to a folder of rows, figures and findings."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from experiments.paper.figures import draw
from experiments.paper.findings import findings
from experiments.paper.plan import Panel, Run, chosen, plan, quickly, tensor
from experiments.paper.rows import Row, Rows, written
from experiments.paper.run import carry_out
from tucket.base.archive import replacing
from tucket.base.optional import need

__all__ = ["study"]

CAP, QUICK_CAP = 60.0, 10.0
REPETITIONS, QUICK_REPETITIONS = 20, 3


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
    """Run what is not yet in the folder's rows, and draw and write what they say."""
    for package, extra in (("matplotlib", "plot"), ("sklearn", "sklearn"), ("tensorly", "paper")):
        need(package, extra, "the paper's experiments")
    limit = (QUICK_CAP if quick else CAP) if cap is None else cap
    count = (QUICK_REPETITIONS if quick else REPETITIONS) if repetitions is None else repetitions
    if not 0 < limit <= DAY:
        raise ValueError(f"--cap: got {limit:g}; give seconds above 0, and at most those of a day")
    if count < 1:
        raise ValueError(f"--repetitions: got {count}; give 1 or more")
    if folder.exists() and not folder.is_dir():
        raise NotADirectoryError(f"--output: {folder} is no folder; give the name of one")
    if data is not None:
        if not data.is_dir():
            raise NotADirectoryError(f"--data: there is no folder {data}")
        os.environ["TUCKET_DATA"] = str(data.absolute())  # where the process that runs methods looks, too
    panels = [panel for panel in chosen(letter) if is_there(panel, letter == "all")]
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        rows = Rows(folder / "rows.csv")
        cores = ("one",) if quick else ("one", "all")
        runs = list(plan([quickly(panel) for panel in panels] if quick else panels, count, cores))
        with telling(runs, quiet) as tell:
            carry_out(runs, rows, limit, tell)
        summarise(panels, rows, folder)
    if not quiet:
        print(f"{len(rows.held)} rows, figures and findings.md are in {folder}")
    missing = [panel.name for panel in chosen(letter) if panel not in panels]
    if missing:
        print(f"Without ({', '.join(missing)}), whose data were not found.", file=sys.stderr)


DAY = 86_400.0


@contextmanager
def alone(folder: Path) -> Iterator[None]:
    """Hold a folder against a second run, which would take the same rows, and the same core."""
    try:
        import fcntl
    except ImportError:  # on Windows nobody is held back
        yield
        return
    with (folder / ".lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RuntimeError(f"another run is at work in {folder}; wait for it, or give another folder") from None
        yield


def is_there(panel: Panel, passing: bool) -> bool:
    """Say whether a panel's data can be loaded; when all are run, others go on without it."""
    if panel.data == "uniform":
        return True
    try:
        tensor(panel, panel.points[0])
    except FileNotFoundError as error:
        if not passing:
            raise
        print(f"({panel.name}) is passed over. {error}", file=sys.stderr)
        return False
    return True


def summarise(panels: Sequence[Panel], rows: Rows, folder: Path) -> None:
    """Draw the figures of some panels, and write the findings of all rows."""
    for panel in panels:
        for cores in ("one", "all"):
            if rows.of(panel=panel.name, cores=cores):
                draw(rows, panel, folder, cores)
    with replacing(folder / "findings.md") as temporary:
        temporary.write_text(findings(rows))


@contextmanager
def telling(runs: Sequence[Run], quiet: bool) -> Iterator[Callable[[int, Run, Row | None], None]]:
    """Show how far the runs have come: a bar where somebody watches, else a line a run."""
    if quiet:
        yield lambda *_: None
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (TextColumn("{task.description:60}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    watched = sys.stderr.isatty()
    with Progress(*columns, console=Console(stderr=True), disable=not watched, transient=True) as bar:
        task = bar.add_task("", total=len(runs))

        def tell(number: int, run: Run, row: Row | None) -> None:
            name = f"({run.panel.name}) {written(run.point.rank)} {run.method.label}, {run.cores}"
            bar.update(task, description=name, completed=number + (row is not None))
            if row is not None and not watched:
                ended = f"{float(row['seconds']):.3f} s" if row["status"] == "done" else row["status"]
                print(f"{number + 1}/{len(runs)} {name} {run.repetition}: {ended}", file=sys.stderr, flush=True)

        yield tell
        bar.update(task, completed=len(runs))
