"""The command line."""

from __future__ import annotations

import json as json_format
import math
import sys
import time
from contextlib import AbstractContextManager, nullcontext
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from tucket.interfaces.terminal import (
    bar,
    check_output,
    default_output,
    facts_of_model,
    open_data,
    parse_rank,
    say,
    tell,
)

__all__ = ["app", "main"]

app = typer.Typer(
    name="tucket",
    help="Small non-negative Tucker models of non-negative tensors, in one pass.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


INTERRUPTED = 130
"""What a program exits with, by custom, when somebody has pressed Ctrl-C."""


def main() -> None:
    """Run the program: what goes wrong is told in one line, and makes it exit with 1."""
    try:
        app()
    except (
        ArithmeticError,
        ImportError,
        LookupError,
        MemoryError,
        OSError,
        RuntimeError,
        TypeError,
        ValueError,
    ) as error:
        if "--debug" in sys.argv:
            raise
        print(f"tucket: {' '.join(str(error).split())}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        code = getattr(stop, "code", INTERRUPTED)
        if code == INTERRUPTED:
            print("tucket: interrupted; no file is left half written", file=sys.stderr)
        raise SystemExit(code) from None


class Variant(StrEnum):
    """The variants of LTR."""

    projection = "projection"
    published = "published"


Data = Annotated[str, typer.Argument(metavar="DATA", help="The tensor: a file, a folder of images, or tables.")]
Model = Annotated[Path, typer.Argument(metavar="MODEL", help="A model that `reduce` has saved.")]
Output = Annotated[Path, typer.Option("--output", "-o", help="Where to write the result.")]
Rank = Annotated[
    str | None,
    typer.Option(help="Blocks of each mode: 10, or 10,-,20 with '-' where a mode stays whole, or user=10,hour=24."),
]
Blocks = Annotated[
    str | None,
    typer.Option(help="clusters, segments, uniform or random, or one a mode, as in segments,segments,clusters."),
]
Key = Annotated[str | None, typer.Option(help="The array that is meant of a file of several.")]
Modes = Annotated[str | None, typer.Option(help="Of a table: the columns that are modes, as in user,item,time.")]
Value = Annotated[str | None, typer.Option(help="Of a table: the column of values; without it, rows are counted.")]
Bins = Annotated[list[str] | None, typer.Option(help="Of a table: how to cut a column, as in time=1h or price=20.")]
Shape = Annotated[str | None, typer.Option(help="Of images: sizes to fold them into, as in 9,9.")]
Memory = Annotated[str | None, typer.Option(help="Bytes that reading may take, as in 256MB.")]
Seed = Annotated[int | None, typer.Option(help="For random blocks and the starts of searches.")]
Workers = Annotated[int | None, typer.Option(help="Threads; by default as many as there are processors.")]
Json = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]
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
    rank: Rank = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The model; by default DATA's name with .model.npz.")
    ] = None,
    blocks: Blocks = None,
    variant: Annotated[Variant, typer.Option(help="The theory, or Algorithm 1 as printed.")] = Variant.projection,
    retain: Annotated[float | None, typer.Option(help="Instead of a rank: the share of information to keep.")] = None,
    max_parameters: Annotated[int | None, typer.Option(help="Instead of a rank: numbers the model may hold.")] = None,
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    memory: Memory = None,
    seed: Seed = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reduce a tensor to a small model, and save that."""
    from tucket import kernels, ltr

    target = default_output(data) if output is None else output
    check_output(target, data)
    began = time.perf_counter()
    with (
        open_data(data, key, modes, value, bins, shape, memory, True) as source,
        bar(quiet or json) as progress,
    ):
        chosen = retain is not None or max_parameters is not None
        options: dict[str, Any] = {
            "retain": retain,
            "max_parameters": max_parameters,
            "blocks": tuple(blocks.split(",")) if blocks and "," in blocks else blocks,
            "variant": variant.value,
        }
        wanted: Any = None if chosen and rank is None else parse_rank(rank, source)
        if blocks in ("uniform", "random"):
            kernels.read_once()
        model = ltr(source, wanted, rng=seed, workers=workers, progress=progress, **options)
    model.save(target)
    facts = {**facts_of_model(model), "seconds": time.perf_counter() - began, "saved": str(target)}
    tell(facts, json, quiet)


@app.command()
def info(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="A model or statistics that were saved.")],
    json: Json = False,
) -> None:
    """Say what a saved model or saved statistics are."""
    from tucket import Statistics, load
    from tucket.base.archive import read

    kind, _ = read(file)
    if kind == "Statistics":
        held = Statistics.load(file)
        facts: dict[str, Any] = {
            "kind": "Statistics",
            "shape": list(held.shape),
            "rank": list(held.rank),
            "total": held.total,
            "moments": held.moments is not None,
            **({} if held.axes is None else {"modes": list(held.axes.names)}),
        }
    else:
        facts = facts_of_model(load(file))
    tell({**facts, "bytes": file.stat().st_size}, json)


@app.command()
def expand(
    model: Model,
    output: Output,
    dtype: Annotated[str | None, typer.Option(help="float32 or float64; by default that of the model.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Write the whole tensor that a model stands for, as .npy."""
    import numpy as np

    from tucket import load
    from tucket.base.archive import replacing

    check_output(output, model)
    held = load(model)
    if dtype is not None:
        held = held.astype(dtype)
    with replacing(output) as temporary, bar(quiet) as progress:
        out = np.lib.format.open_memmap(temporary, "w+", held.dtype, held.shape)
        held.to_tensor(out=out, workers=workers, progress=progress)
    tell({"shape": list(held.shape), "dtype": str(held.dtype), "saved": str(output)}, False, quiet)


@app.command()
def ranks(
    data: Data,
    shares: Annotated[list[float] | None, typer.Argument(help="More shares.", hidden=True)] = None,
    retain: Annotated[
        list[float] | None, typer.Option(help="Shares of the information to keep, as in --retain 0.9 0.95 0.99.")
    ] = None,
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    memory: Memory = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Say which rank keeps which share of the information that the modes hold about each other."""
    from tucket import information_curve
    from tucket.interfaces.text import table, times

    wanted = sorted([*(retain or []), *(shares or [])]) or [0.5, 0.8, 0.9, 0.95, 0.99]
    for share in wanted:
        if not 0 < share <= 1:
            raise typer.BadParameter(f"{share} is no share; give numbers above 0, up to 1", param_hint="--retain")
    with (
        open_data(data, key, modes, value, bins, shape, memory, True) as source,
        bar(quiet or json) as progress,
    ):
        curve = information_curve(source, workers=workers, progress=progress)
        size = math.prod(source.shape)
    finest = curve.joint[0]
    points = [(share, curve.retain(share)) for share in wanted if finest.kept >= share]
    if json:
        rows = [
            {"retain": share, "kept": p.kept, "rank": list(p.rank), "n_parameters": p.n_parameters, "kl": p.kl}
            for share, p in points
        ]
        print(json_format.dumps(rows, indent=1))
        return
    print(
        table(
            ("at least", "kept", "rank", "parameters", "compression", "KL / sum"),
            [
                (
                    f"{share:.0%}", f"{p.kept:.1%}", times(p.rank), f"{p.n_parameters:,}",
                    f"{size / p.n_parameters:,.1f} x", f"{p.kl / (curve.total or 1):.5f}",
                )
                for share, p in points
            ],
        )
    )  # fmt: skip
    if len(points) < len(wanted):
        print(f"The finest model that was looked at, of rank {times(finest.rank)}, keeps {finest.kept:.1%}.")


@app.command()
def report(
    model: Model,
    data: Annotated[
        str | None, typer.Argument(metavar="DATA", help="The tensor, for its errors and its images.")
    ] = None,
    output: Output = Path("report.html"),
    title: Annotated[str | None, typer.Option(help="What to call it; by default the name of the model.")] = None,
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    memory: Memory = None,
    quiet: Quiet = False,
) -> None:
    """Write a page about a model, which any browser opens without a network."""
    from tucket import load
    from tucket.interfaces.report import write_report

    check_output(output)
    held: Any = load(model)
    opened: AbstractContextManager[Any] = nullcontext()
    if data is not None:
        opened = open_data(data, key, modes, value, bins, shape, memory)
    with opened as source:
        write_report(output, held, source, title=title or model.name)
    say(f"Open {output.absolute().as_uri()}", quiet)


@app.command()
def compare(
    data: Data,
    rank: Rank = None,
    key: Key = None,
    modes: Modes = None,
    value: Value = None,
    bins: Bins = None,
    shape: Shape = None,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Reduce a tensor in every way that is installed, TensorLy's too, and show error against time."""
    from dataclasses import asdict

    from tucket.base.partition import check_rank
    from tucket.interfaces.compare import compare as run
    from tucket.interfaces.text import table
    from tucket.sources.as_source import as_dense

    with open_data(data, key, modes, value, bins, shape, None) as source:
        wanted = check_rank(parse_rank(rank, source), source.shape)
        x = as_dense(source.held()).array
    rows = []
    for entry in run(x, wanted, workers=workers):
        rows.append(entry)
        if not (quiet or json) and sys.stderr.isatty():
            print(f"{entry.method}: {entry.seconds:.2f} s", file=sys.stderr)
    if json:
        print(json_format.dumps([asdict(row) for row in rows], indent=1))
        return
    print(
        table(
            ("method", "time", "parameters", "rel. error", "KL / sum"),
            [
                (r.method, f"{r.seconds:.3f} s", f"{r.n_parameters:,}", f"{r.relative_error:.4f}", f"{r.kl:.5f}")
                for r in rows
            ],
        )
    )


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
    from tucket import kernels

    check_output(output, data)
    with open_data(data, key, modes, value, bins, shape, memory) as source, bar(quiet) as progress:
        wanted: Any = parse_rank(rank, source)
        kernels.read_once()
        statistics = tk.collect(source, wanted, moments=True, workers=workers, progress=progress)
    statistics.save(output)
    say(f"{statistics}\nSaved as {output}", quiet)


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

    check_output(output)
    total: Statistics | None = None
    for path in files:
        part = Statistics.load(path)
        try:
            if total is None:
                total = part
            elif along is None:
                total = total + part
            else:
                total = total.append(part, int(along) if along.lstrip("-").isdecimal() else along)
        except (IndexError, ValueError) as error:
            raise ValueError(f"{path} does not fit those before it: {error}") from error
    assert total is not None
    total.save(output)
    say(f"{total}\nSaved as {output}", quiet)


@app.command()
def demo(
    output: Annotated[Path, typer.Option("--output", "-o", help="The picture.")] = Path("build/demo.png"),
) -> None:
    """Reduce two photographs, print a table, draw a picture.

    The photographs ship with scikit-learn. They are one tensor (photograph, row, column, colour), which is reduced to
    several ranks.
    """
    from tucket.interfaces.demo import run

    run(output)
