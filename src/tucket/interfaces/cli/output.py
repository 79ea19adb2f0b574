"""What commands write: files, progress, and results as text or JSON."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tucket.base.run import Progress, Step


def check_output(path: Path, data: str | Path | None = None) -> None:
    """Refuse, before any work is done, a path that cannot be written, or that is the input."""
    from tucket.base.archive import check_target

    target = check_target(path)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: no permission to write to the folder {target.parent}")
    if data is not None and target.exists() and Path(data).exists() and target.samefile(data):
        raise ValueError(f"cannot write {path}: it is the input, and would be lost; give another name")


def default_output(data: str) -> Path:
    """Return the name of DATA with its ending replaced by .model.npz."""
    from tucket.sources.formats import READERS

    name = Path(data).name
    if any(mark in name for mark in "*?["):
        raise typer.BadParameter("give one, because DATA has wildcards", param_hint="--output")
    suffix = max((each for each in READERS if name.lower().endswith(each)), key=len, default="")
    return Path(f"{name[: len(name) - len(suffix)] or 'tensor'}.model.npz")


def is_watched(quiet: bool) -> bool:
    """Say whether progress should be shown: only in a terminal, and only if the user wants output."""
    return not quiet and sys.stderr.isatty()


@contextmanager
def progress_bar(quiet: bool, name: str = "pass") -> Iterator[Callable[[Progress], object] | None]:
    """Show how much of the data each pass has read."""
    if not is_watched(quiet):
        yield None
        return
    from rich import progress as rich_progress
    from rich.console import Console

    columns = (
        rich_progress.TextColumn("{task.description}"),
        rich_progress.BarColumn(),
        rich_progress.DownloadColumn(),
        rich_progress.TransferSpeedColumn(),
        rich_progress.TimeRemainingColumn(),
    )
    with rich_progress.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        passes: list[rich_progress.TaskID] = []

        def show(step: Progress) -> None:
            if step.chunks == 1:
                for done in passes:
                    bars.update(done, visible=False)
                passes.append(bars.add_task(f"{name} {len(passes) + 1}", total=step.n_bytes))
            bars.update(passes[-1], completed=step.bytes)

        yield show


@contextmanager
def iteration_status(quiet: bool) -> Iterator[Callable[[Step], object] | None]:
    """Show how many iterations are done."""
    if not is_watched(quiet):
        yield None
        return
    from rich.console import Console

    with Console(stderr=True).status("starting") as status:
        yield lambda step: status.update(f"iteration {step.iteration}, {step.seconds:.1f} s")


@contextmanager
def search_status(quiet: bool) -> Iterator[Callable[[Step], object] | None]:
    """Show how many ranks a search has tried; then the iterations of the last fit, which count from 1 again."""
    if not is_watched(quiet):
        yield None
        return
    from rich.console import Console

    tried = 0
    with Console(stderr=True).status("hiding cells") as status:

        def show(step: Step) -> None:
            nonlocal tried
            tried = tried + 1 if step.iteration == tried + 1 else -1
            done = f"iteration {step.iteration}" if tried < 0 else f"ranks tried: {tried}, loss {step.loss:.4g}"
            status.update(f"{done}, {step.seconds:.1f} s")

        yield show


def facts_of_model(model: Any) -> dict[str, Any]:
    """Return what to print about a model."""
    return {
        "kind": type(model).__name__,
        "shape": list(model.shape),
        "rank": list(model.rank),
        "parameters": model.n_parameters,
        "compression": math.prod(model.shape) / model.n_parameters,
        "dtype": str(model.dtype),
        **({} if model.axes is None else {"modes": list(model.axes.names)}),
    }


def print_facts(facts: Mapping[str, Any], as_json: bool, quiet: bool = False) -> None:
    """Print facts as JSON, or as aligned lines."""
    if as_json:
        print(json.dumps(facts, indent=1))
        return
    lines = {name.replace("kl_over_sum", "KL / sum").replace("_", " "): cell(name, facts[name]) for name in facts}
    width = max(map(len, lines))
    say("\n".join(f"{name.ljust(width)}  {text}" for name, text in lines.items()), quiet)


FORMATS: dict[str, Callable[[Any], str]] = {
    "compression": "{:,.1f} x".format,
    "information_kept": "{:.1%}".format,
    "kl_over_sum": "{:.5f}".format,
    "relative_error": "{:.4f}".format,
    "seconds": "{:.3f}".format,
}


def cell(name: str, value: Any) -> str:
    """Write one value."""
    from tucket.interfaces.text import format_sizes, human_bytes

    if name in FORMATS:
        return FORMATS[name](value)
    if name == "bytes":
        return human_bytes(value)
    if isinstance(value, Sequence) and not isinstance(value, str):
        return format_sizes(value) if name in ("shape", "rank") else ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def say(text: str, quiet: bool) -> None:
    """Print, unless the user wants no output."""
    if not quiet:
        print(text)
