"""The command `ranks`: how much of the information each rank keeps, or how well it predicts held-out cells."""

from __future__ import annotations

import json as json_format
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import typer
from typer import Argument, Option

from tucket.interfaces.cli.fit import Blocks, LossChoice, Method
from tucket.interfaces.cli.options import (
    Data,
    DataOptions,
    GapOptions,
    Json,
    Quiet,
    Workers,
    given_options,
    parse_blocks,
    parse_rank,
)
from tucket.interfaces.cli.output import progress_bar, search_status


@dataclass(frozen=True)
class HeldOutOptions:
    """What `cross_validate` compares, and by which cells; each None where the user leaves it out."""

    held_out: Annotated[
        bool, Option("--held-out", help="Hide cells at random, and show how well each rank predicts them.")
    ] = False
    method: Annotated[Method | None, Option(help="--held-out: what to fit, ltr (default) or ntd.")] = None
    rank: Annotated[
        list[str] | None,
        Option(help="--held-out: a rank to try, as in 10 or 10,-,20; repeat for more; default: a search."),
    ] = None
    folds: Annotated[int | None, Option(help="--held-out: how often cells are hidden; default: 5.")] = None
    share: Annotated[float | None, Option(help="--held-out: share of the known cells to hide; default: 0.1.")] = None
    blocks: Blocks = None
    loss: LossChoice = None

    def compare(self, source: Any, workers: int | None, quiet: bool, known: Any) -> Any:
        """Return the losses of the ranks on held-out cells."""
        from tucket import cross_validate

        options = given_options(self)
        del options["held_out"]
        wanted = options.pop("rank", None)
        if self.blocks is not None:
            options["blocks"] = parse_blocks(self.blocks)
        ranks = wanted and [parse_rank(rank, source) for rank in wanted]
        with search_status(quiet) as callback:
            return cross_validate(source, ranks, workers=workers, callback=callback, **options, **known)


def ranks(
    *,
    data: Data,
    shares: Annotated[list[float] | None, Argument(help="More shares.", hidden=True)] = None,
    retain: Annotated[
        list[float] | None, Option(help="Shares of the information to keep, as in --retain 0.9 0.95 0.99.")
    ] = None,
    held: HeldOutOptions,
    reading: DataOptions,
    gaps: GapOptions,
    workers: Workers = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Show which rank keeps which share of the information, or predicts held-out cells best."""
    wanted = sorted([*(retain or []), *(shares or [])])
    check_options(held, gaps, wanted)
    if held.held_out:
        with reading.open(data) as source, gaps.open(source.shape) as known:
            print_held_out(held.compare(source, workers, quiet or json, known), json)
    else:
        with reading.open(data, allow_statistics=True) as source:
            print_information(source, wanted or [0.5, 0.8, 0.9, 0.95, 0.99], workers, json, quiet)


def check_options(held: HeldOutOptions, gaps: GapOptions, shares: Sequence[float]) -> None:
    """Refuse options that contradict each other."""
    for share in shares:
        if not 0 < share <= 1:
            raise typer.BadParameter(f"{share} is not a share; give numbers above 0, up to 1", param_hint="--retain")
    if held.held_out and shares:
        raise typer.BadParameter("it is not for --held-out; leave one of the two out", param_hint="--retain")
    method = held.method or Method.ltr
    for name, owner in (("blocks", Method.ltr), ("loss", Method.ntd)):
        if getattr(held, name) is not None and method != owner:
            raise typer.BadParameter(f"only --method {owner} has it; leave it out", param_hint=f"--{name}")
    given = [f"--{name}" for name in given_options(held) if name != "held_out"]
    if not held.held_out and (unused := given + gaps.given):
        raise typer.BadParameter("only --held-out has it; add --held-out", param_hint=", ".join(unused))


def print_held_out(found: Any, json: bool) -> None:
    """Print the loss of each rank on held-out cells, best first."""
    from tucket.interfaces.text import format_sizes, table

    scores, best, least = sorted(found.scores, key=lambda score: score.loss), found.best(), found.least
    if json:
        rows = [
            {
                "rank": score.rank,
                "n_parameters": score.n_parameters,
                "held_out": score.loss,
                "standard_error": score.error_beside(least),
                "fitted": score.fitted,
                "mix": score.mix,
                "best": score.rank == best,
            }
            for score in scores
        ]
        print(json_format.dumps(rows, indent=1))
        return
    cells = [
        (
            format_sizes(score.rank),
            f"{score.n_parameters:,}",
            f"{score.loss:.5f}",
            f"{score.error_beside(least):.5f}",
            f"{score.fitted:.5f}",
        )
        for score in scores
    ]
    print(table(("rank", "parameters", "held out", "+-", "fitted"), cells))
    print(f"{found.loss} of cells that are held out, its standard error beside the best, and that of the fit.")
    print(f"Take --rank {','.join(map(str, best))}, the smallest that is as good as the best but for the error.")


def print_information(source: Any, shares: Sequence[float], workers: int | None, json: bool, quiet: bool) -> None:
    """Print the rank that keeps each share of the information."""
    from tucket import information_curve
    from tucket.interfaces.text import format_sizes, table

    with progress_bar(quiet or json) as progress:
        curve = information_curve(source, workers=workers, progress=progress)
    finest = curve.joint[0]
    points = [(share, curve.retain(share)) for share in shares if finest.kept >= share]
    if json:
        names = ("kept", "rank", "n_parameters", "kl")
        found = [{"retain": share, **{name: getattr(point, name) for name in names}} for share, point in points]
        print(json_format.dumps(found, indent=1))
        return
    size, total = math.prod(finest.partition.shape), curve.total or 1
    rows = []
    for share, point in points:
        sizes = f"{point.n_parameters:,}", f"{size / point.n_parameters:,.1f} x", f"{point.kl / total:.5f}"
        rows.append((f"{share:.0%}", f"{point.kept:.1%}", format_sizes(point.rank), *sizes))
    print(table(("at least", "kept", "rank", "parameters", "compression", "KL / sum"), rows))
    if len(points) < len(shares):
        print(f"The finest model considered has rank {format_sizes(finest.rank)} and keeps {finest.kept:.1%}.")
