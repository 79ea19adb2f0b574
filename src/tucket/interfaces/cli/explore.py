"""Commands that look before they fit: `ranks`, `compare` and `demo`."""

from __future__ import annotations

import json as json_format
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from tucket.interfaces.cli.options import Data, DataOptions, Json, Quiet, Rank, Workers, parse_ranks
from tucket.interfaces.cli.output import progress_bar

if TYPE_CHECKING:
    from tucket.interfaces.compare import Entry
    from tucket.projection.information_curve import InformationCurve, Point


def ranks(
    *,
    data: Data,
    shares: Annotated[list[float] | None, Argument(help="More shares.", hidden=True)] = None,
    retain: Annotated[
        list[float] | None, Option(help="Shares of the information to keep, as in --retain 0.9 0.95 0.99.")
    ] = None,
    reading: DataOptions,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which rank keeps which share of the information."""
    from tucket import information_curve

    wanted = sorted([*(retain or []), *(shares or [])]) or [0.5, 0.8, 0.9, 0.95, 0.99]
    for share in wanted:
        if not 0 < share <= 1:
            raise typer.BadParameter(f"{share} is not a share; give numbers above 0, up to 1", param_hint="--retain")
    with reading.open(data, allow_statistics=True) as source, progress_bar(quiet or json) as progress:
        curve = information_curve(source, workers=workers, progress=progress)
    points = [(share, curve.retain(share)) for share in wanted if curve.joint[0].kept >= share]
    if json:
        names = ("kept", "rank", "n_parameters", "kl")
        rows = [{"retain": share, **{name: getattr(point, name) for name in names}} for share, point in points]
        print(json_format.dumps(rows, indent=1))
    else:
        print_ranks(curve, points, len(wanted))


def print_ranks(curve: InformationCurve, points: Sequence[tuple[float, Point]], n_wanted: int) -> None:
    """Print a table with one row per share."""
    from tucket.interfaces.text import format_sizes, table

    finest = curve.joint[0]
    rows = [
        (
            f"{share:.0%}",
            f"{point.kept:.1%}",
            format_sizes(point.rank),
            f"{point.n_parameters:,}",
            f"{math.prod(finest.partition.shape) / point.n_parameters:,.1f} x",
            f"{point.kl / (curve.total or 1):.5f}",
        )
        for share, point in points
    ]
    print(table(("at least", "kept", "rank", "parameters", "compression", "KL / sum"), rows))
    if len(points) < n_wanted:
        print(f"The finest model considered has rank {format_sizes(finest.rank)} and keeps {finest.kept:.1%}.")


def compare(
    *,
    data: Data,
    rank: Rank = None,
    reading: DataOptions,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Compare all methods, and TensorLy if it is installed."""
    from tucket.interfaces.compare import compare as compare_methods
    from tucket.sources.as_source import as_dense

    with reading.open(data) as source:
        wanted = parse_ranks(rank, source)
        x = as_dense(source.load_if_small()).array
    entries = []
    for entry in compare_methods(x, wanted, workers=workers):
        entries.append(entry)
        if not (quiet or json) and sys.stderr.isatty():
            print(f"{entry.method}: {entry.seconds:.2f} s", file=sys.stderr)
    if json:
        print(json_format.dumps([asdict(entry) for entry in entries], indent=1))
    else:
        print_comparison(entries)


def print_comparison(entries: Sequence[Entry]) -> None:
    """Print a table with one row per method."""
    from tucket.interfaces.text import table

    rows = [
        (e.method, f"{e.seconds:.3f} s", f"{e.n_parameters:,}", f"{e.relative_error:.4f}", f"{e.kl:.5f}")
        for e in entries
    ]
    print(table(("method", "time", "parameters", "rel. error", "KL / sum"), rows))


def demo(
    output: Annotated[Path, Option("--output", "-o", help="File of the picture.")] = Path("build/demo.png"),
) -> None:
    """Reduce two photographs; write a picture and a page.

    The photographs come with scikit-learn. They form one tensor (photograph, row, column, colour), which is reduced
    to several ranks.
    """
    from tucket.interfaces.demo import run

    run(output)
