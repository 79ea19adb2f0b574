"""Run the paper's experiments and draw its figures: python -m experiments.paper all --output docs/paper."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from experiments.paper.study import study

app = typer.Typer(rich_markup_mode=None, pretty_exceptions_enable=False)


class Letter(StrEnum):
    """The panels of the paper's figure."""

    a = "a"
    b = "b"
    c = "c"
    d = "d"
    all = "all"


@app.command()
def main(
    which: Annotated[Letter, typer.Argument(metavar="a|b|c|d|all", help="The part of the paper's figure.")],
    output: Annotated[Path, typer.Option("--output", "-o", help="The folder for results, figures and tables.")] = Path(
        "paper"
    ),
    quick: Annotated[bool, typer.Option("--quick", help="Three points per panel, on one core only.")] = False,
    cap: Annotated[
        float | None, typer.Option(help="Maximum seconds per run; by default 60, or 10 with --quick.")
    ] = None,
    repetitions: Annotated[
        int | None, typer.Option(help="Runs per random method; by default 20, or 3 with --quick.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(help="The folder with attface.npz and lf_dino_png; by default TUCKET_DATA.")
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="Print nothing but errors.")] = False,
) -> None:
    """Run the paper's experiments and draw its figures.

    (a) varies the rank on noise, (b) the size of the noise, (c) is a light field, (d) are faces. If you interrupt the
    command and start it again, it continues where it stopped: rows.csv has one row per finished run.
    """
    study(which.value, output, quick=quick, cap=cap, repetitions=repetitions, data=data, quiet=quiet)


if __name__ == "__main__":
    app()
