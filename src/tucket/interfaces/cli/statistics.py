"""Commands for tensors that arrive in parts: `collect` and `merge`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from tucket.interfaces.cli.options import Data, DataOptions, Output, Quiet, Rank, Workers, parse_rank
from tucket.interfaces.cli.output import check_output, progress_bar, say


def collect(
    *,
    data: Data,
    output: Output,
    rank: Rank = None,
    reading: DataOptions,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Save statistics of a tensor, which add up.

    They are its sums over uniform blocks and its marginals. All coarser models follow from them without the data.
    """
    import tucket as tk

    check_output(output, data)
    with reading.open(data) as source, progress_bar(quiet) as progress:
        cut = parse_rank(rank, source)
        statistics = tk.collect(source, cut, moments=True, workers=workers, progress=progress)
    statistics.save(output)
    say(f"{statistics}\nSaved as {output}", quiet)


def merge(
    files: Annotated[list[Path], Argument(metavar="FILE", help="Statistics saved by `collect`.")],
    output: Output,
    along: Annotated[
        str | None,
        Option(help="Mode, by number or name, along which the parts follow each other; default: add the parts."),
    ] = None,
    quiet: Quiet = False,
) -> None:
    """Merge the statistics of the parts of a tensor."""
    from tucket import Statistics

    check_output(output)
    mode = int(along) if along is not None and along.lstrip("-").isdecimal() else along
    merged = Statistics.load(files[0])
    for path in files[1:]:
        part = Statistics.load(path)
        try:
            merged = merged + part if mode is None else merged.append(part, mode)
        except (IndexError, ValueError) as error:
            raise ValueError(f"{path} does not fit the files before it: {error}") from error
    merged.save(output)
    say(f"{merged}\nSaved as {output}", quiet)
