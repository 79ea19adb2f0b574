"""What all commands of the terminal share: options as text, files in and out, bars, and results in words."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

if TYPE_CHECKING:
    from tucket.sources.source import Progress, Report

__all__ = ["bar", "check_output", "default_output", "facts_of_model", "open_data", "parse_rank", "say", "tell"]


def open_data(
    data: str,
    key: str | None,
    modes: str | None,
    value: str | None,
    bins: list[str] | None,
    shape: str | None,
    memory: str | None,
    statistics: bool = False,
) -> AbstractContextManager[Any]:
    """Open a tensor, or, where these will do, statistics of one."""
    from tucket import Statistics
    from tucket import open as open_source
    from tucket.base.archive import kind_of

    if statistics and kind_of(data) == "Statistics":
        return nullcontext(Statistics.load(data))
    given = {
        "key": key,
        "modes": modes and modes.split(","),
        "value": value,
        "bins": bins and dict(map(parse_bins, bins)),
        "shape": shape and tuple(map(parse_size, shape.split(","))),
    }
    return open_source(data, memory=memory, **{name: each for name, each in given.items() if each})


def parse_bins(text: str) -> tuple[str, Any]:
    column, sign, length = text.rpartition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: give a column and its bins, as in time=1h", param_hint="--bins")
    if length.isdecimal():
        return column, int(length)
    try:
        return column, [float(edge) for edge in length.split(",")] if "," in length else length
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint="--bins") from None


def parse_size(text: str, option: str = "--shape") -> int:
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"{text!r} is no number", param_hint=option)
    return int(text)


def parse_rank(text: str | None, source: Any) -> object:
    """Read 10, or 10,-,20, or user=10,hour=24."""
    if text is None:
        raise typer.BadParameter(f"is missing; the tensor is of shape {source.shape}", param_hint="--rank")

    def number(part: str) -> int | None:
        return None if part.strip() in ("-", "") else parse_size(part, "--rank")

    if "=" in text:
        pairs = (part.rpartition("=") for part in text.split(","))
        return {name.strip(): number(size) for name, _, size in pairs}
    return tuple(map(number, text.split(","))) if "," in text else number(text)


def check_output(path: Path, data: str | Path | None = None) -> None:
    """Refuse, before any work is done, what could not be written to, and what is read."""
    import os

    from tucket.base.archive import check_target

    target = check_target(path)
    if not os.access(target.parent, os.W_OK):
        raise PermissionError(f"cannot write {path}: the folder {target.parent} may not be written to")
    if data is not None and target.exists() and Path(data).exists() and target.samefile(data):
        raise ValueError(f"cannot write {path}: it is what is read, and would be lost; give another name")


def default_output(data: str) -> Path:
    """Return the name of a model of some data: theirs, without what says what kind of file they are."""
    from tucket.sources.files import READERS

    name = Path(data).name
    if any(mark in name for mark in "*?["):
        raise typer.BadParameter("is missing; it is needed for several files", param_hint="--output")
    suffix = max((each for each in READERS if name.lower().endswith(each)), key=len, default="")
    return Path(f"{name[: len(name) - len(suffix)] or 'tensor'}.model.npz")


@contextmanager
def bar(quiet: bool) -> Iterator[Report | None]:
    """Show how far a pass over the data has come, where somebody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as rich_bar
    from rich.console import Console

    columns = (
        rich_bar.TextColumn("{task.description}"),
        rich_bar.BarColumn(),
        rich_bar.DownloadColumn(),
        rich_bar.TransferSpeedColumn(),
        rich_bar.TimeRemainingColumn(),
    )
    with rich_bar.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        passes: list[rich_bar.TaskID] = []

        def report(step: Progress) -> None:
            if step.chunks == 1:
                for done in passes:
                    bars.update(done, visible=False)
                passes.append(bars.add_task(f"pass {len(passes) + 1}", total=step.n_bytes))
            bars.update(passes[-1], completed=step.bytes)

        yield report


def facts_of_model(model: Any) -> dict[str, Any]:
    """Return what is to be said of a model."""
    return {
        "kind": type(model).__name__,
        "shape": list(model.shape),
        "rank": list(model.rank),
        "parameters": model.n_parameters,
        "compression": math.prod(model.shape) / model.n_parameters,
        "dtype": str(model.dtype),
        **({} if model.axes is None else {"modes": list(model.axes.names)}),
    }


def tell(facts: dict[str, Any], json: bool, quiet: bool = False) -> None:
    """Print facts, for people or for programs."""
    if json:
        print(json_format.dumps(facts, indent=1))
        return
    width = max(map(len, facts))
    lines = (f"{name.ljust(width)}  {cell(name, value)}" for name, value in facts.items())
    say("\n".join(lines), quiet)


def cell(name: str, value: Any) -> str:
    from tucket.interfaces.text import human_bytes, times

    if name == "bytes":
        return human_bytes(value)
    if name == "seconds":
        return f"{value:.3f}"
    if name == "compression":
        return f"{value:,.1f} x"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return times(value) if name in ("shape", "rank") else ", ".join(map(str, value))
    return f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)


def say(text: str, quiet: bool) -> None:
    """Print, unless nothing is wanted."""
    if not quiet:
        print(text)
