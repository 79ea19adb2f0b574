"""The command line."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from tucket.sources.source import Progress, Report, Source

__all__ = ["app", "main"]

app = typer.Typer(
    name="tucket",
    help="Small non-negative Tucker models of non-negative tensors, in one pass.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the program: what goes wrong is told in one line, and makes it exit with 1."""
    debug = "--debug" in sys.argv
    try:
        app()
    except (ImportError, IndexError, MemoryError, OSError, TypeError, ValueError) as error:
        if debug:
            raise
        print(f"tucket: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(1) from None


Data = Annotated[str, typer.Argument(metavar="DATA", help="The tensor: a file, a folder of images, or tables.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write the result.")]
Rank = Annotated[
    str | None,
    typer.Option(help="Blocks of each mode: 10, or 10,-,20 with '-' where a mode stays whole, or user=10,hour=24."),
]
Key = Annotated[str | None, typer.Option(help="The array that is meant of a file of several.")]
Modes = Annotated[str | None, typer.Option(help="Of a table: the columns that are modes, as in user,item,time.")]
Value = Annotated[str | None, typer.Option(help="Of a table: the column of values; without it, rows are counted.")]
Bins = Annotated[list[str] | None, typer.Option(help="Of a table: how to cut a column, as in time=1h or price=20.")]
Shape = Annotated[str | None, typer.Option(help="Of images: sizes to fold them into, as in 9,9.")]
Memory = Annotated[str | None, typer.Option(help="Bytes that reading may take, as in 256MB.")]
Workers = Annotated[int | None, typer.Option(help="Threads; by default as many as there are processors.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but what goes wrong.")]


def _version(asked: bool) -> None:
    if asked:
        from tucket import __version__

        print(f"tucket {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Say which version this is.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show where in the program an error comes from.")] = False,
) -> None:
    """Small non-negative Tucker models of non-negative tensors, in one pass."""


@app.command()
def reduce(
    data: Data,
    output: Output,
    rank: Rank = None,
    blocks: Annotated[str, typer.Option(help="clusters, segments, uniform or random.")] = "clusters",
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    memory: Memory = None,
    seed: Annotated[int | None, typer.Option(help="For random blocks.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Reduce a tensor to a small model, and save that."""
    from tucket import ltr

    _check_output(output)
    with _open(data, key, modes, value, bins, shape, memory) as source, _progress(quiet) as progress:
        wanted: Any = _parse_rank(rank, source)
        model = ltr(source, wanted, blocks=blocks, rng=seed, workers=workers, progress=progress)
    model.save(output)
    _say(f"{model}\nSaved as {output}", quiet)


@app.command()
def collect(
    data: Data,
    output: Output,
    rank: Rank = None,
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    memory: Memory = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Save the statistics of a tensor under uniform blocks, of which all coarser models can be made, and which add."""
    import tucket as tk

    _check_output(output)
    with _open(data, key, modes, value, bins, shape, memory) as source, _progress(quiet) as progress:
        wanted: Any = _parse_rank(rank, source)
        statistics = tk.collect(source, wanted, moments=True, workers=workers, progress=progress)
    statistics.save(output)
    _say(f"{statistics}\nSaved as {output}", quiet)


@app.command()
def merge(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...", help="Statistics that `collect` has saved.")],
    output: Output,
    along: Annotated[
        str | None,
        typer.Option(help="The mode, by number or name, along which they follow one another; without it, they add."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Make one of several statistics, of parts of a tensor: add them, or put one after the other."""
    from tucket import Statistics

    _check_output(output)
    total: Statistics | None = None
    for path in files:
        part = Statistics.load(path)
        try:
            if total is None:
                total = part
            elif along is None:
                total = total + part
            else:
                total = total.append(part, int(along) if along.lstrip("-").isdigit() else along)
        except (IndexError, ValueError) as error:
            raise ValueError(f"{path} does not fit those before it: {error}") from error
    assert total is not None
    total.save(output)
    _say(f"{total}\nSaved as {output}", quiet)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture.")] = Path("build/demo.png"),
) -> None:
    """Reduce two photographs, print a table, draw a picture.

    The photographs ship with scikit-learn. They are one tensor (photograph, row, column, colour), which is reduced to
    several ranks.
    """
    from tucket.demo import run

    run(output)


def _open(
    data: str,
    key: str | None,
    modes: str | None,
    value: str | None,
    bins: list[str] | None,
    shape: str | None,
    memory: str | None,
) -> Source:
    from tucket import open as open_source

    given = {
        "key": key,
        "modes": modes and modes.split(","),
        "value": value,
        "bins": bins and dict(map(_parse_bins, bins)),
        "shape": shape and tuple(map(_parse_size, shape.split(","))),
    }
    return open_source(data, memory=memory, **{name: each for name, each in given.items() if each})


def _parse_bins(text: str) -> tuple[str, Any]:
    column, sign, length = text.rpartition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: give a column and its bins, as in time=1h", param_hint="--bins")
    if length.isdigit():
        return column, int(length)
    return column, [float(edge) for edge in length.split(",")] if "," in length else length


def _parse_size(text: str, option: str = "--shape") -> int:
    if not text.strip().isdigit():
        raise typer.BadParameter(f"{text!r} is no number", param_hint=option)
    return int(text)


def _parse_rank(text: str | None, source: Source) -> object:
    """Read 10, or 10,-,20, or user=10,hour=24."""
    if text is None:
        raise typer.BadParameter(f"is missing; the tensor is of shape {source.shape}", param_hint="--rank")

    def number(part: str) -> int | None:
        return None if part.strip() in ("-", "") else _parse_size(part, "--rank")

    if "=" in text:
        pairs = (part.rpartition("=") for part in text.split(","))
        return {name.strip(): number(size) for name, _, size in pairs}
    return tuple(map(number, text.split(","))) if "," in text else number(text)


def _check_output(path: Path) -> None:
    """Refuse, before any work is done, what could not be written to."""
    if not path.absolute().parent.is_dir():
        raise FileNotFoundError(f"cannot write {path}: there is no folder {path.absolute().parent}")
    if path.is_dir():
        raise IsADirectoryError(f"cannot write {path}: it is a folder; give a file name in it")


@contextmanager
def _progress(quiet: bool) -> Iterator[Report | None]:
    """Show how far a pass over the data has come, where somebody watches."""
    if quiet or not sys.stderr.isatty():
        yield None
        return
    from rich import progress as bar
    from rich.console import Console

    columns = (
        bar.TextColumn("{task.description}"), bar.BarColumn(), bar.DownloadColumn(), bar.TransferSpeedColumn(),
        bar.TimeRemainingColumn(),
    )  # fmt: skip
    with bar.Progress(*columns, console=Console(stderr=True), transient=True) as bars:
        passes: list[bar.TaskID] = []

        def report(step: Progress) -> None:
            if step.chunks == 1:
                for done in passes:
                    bars.update(done, visible=False)
                passes.append(bars.add_task(f"pass {len(passes) + 1}", total=step.n_bytes))
            bars.update(passes[-1], completed=step.bytes)

        yield report


def _say(text: str, quiet: bool) -> None:
    if not quiet:
        print(text)
