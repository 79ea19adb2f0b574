"""All commands but `fit`, `reduce` and `ranks`."""

from __future__ import annotations

import json as json_format
import sys
from contextlib import nullcontext
from dataclasses import asdict
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tucket.interfaces.cli.options import (
    Data,
    DataOptions,
    Json,
    Missing,
    Model,
    Observed,
    Output,
    Quiet,
    Rank,
    Workers,
    open_observed,
    parse_rank,
    parse_ranks,
)
from tucket.interfaces.cli.output import check_output, facts_of_model, print_facts, progress_bar, say


def info(
    file: Annotated[Path, Argument(metavar="FILE", help="A saved model, or saved statistics.")],
    json: Json = False,
) -> None:
    """Describe a saved model or saved statistics."""
    from tucket import Statistics, load
    from tucket.base.archive import read

    kind, _ = read(file)
    if kind == "Statistics":
        statistics = Statistics.load(file)
        facts = {
            "kind": kind,
            "shape": list(statistics.shape),
            "rank": list(statistics.rank),
            "total": statistics.total,
            "moments": statistics.moments is not None,
            **({} if statistics.axes is None else {"modes": list(statistics.axes.names)}),
        }
    else:
        facts = facts_of_model(load(file))
    print_facts({**facts, "bytes": file.stat().st_size}, json)


def expand(
    model: Model,
    output: Output,
    dtype: Annotated[str | None, Option(help="float32 or float64; default: that of the model.")] = None,
    workers: Workers = None,
    quiet: Quiet = False,
) -> None:
    """Write the whole tensor that a model stands for, as .npy."""
    import numpy as np

    from tucket import load
    from tucket.base.archive import replacing

    check_output(output, model)
    loaded = load(model)
    if dtype is not None:
        loaded = loaded.astype(dtype)
    with replacing(output) as temporary, progress_bar(quiet) as progress:
        out = np.lib.format.open_memmap(temporary, "w+", loaded.dtype, loaded.shape)
        # with a callback it is written part by part, so that Ctrl-C stops it soon
        loaded.to_tensor(out=out, workers=workers, progress=progress or (lambda _: None))
    print_facts({"shape": list(loaded.shape), "dtype": str(loaded.dtype), "saved": str(output)}, False, quiet)


Gaps = StrEnum("Gaps", ["nan", "unstored"])


def fill(
    *,
    model: Model,
    data: Data,
    output: Output,
    missing: Annotated[
        Gaps | None, Option(help="What to fill: nan (default), or the cells without an entry in a sparse tensor.")
    ] = None,
    observed: Observed = None,
    reading: DataOptions,
    quiet: Quiet = False,
) -> None:
    """Write a tensor with what a model says in its gaps, as .npy."""
    import numpy as np

    from tucket import load
    from tucket.base.archive import replacing

    for path in (model, data):
        check_output(output, path)
    loaded: Any = load(model)
    default = Missing.nan if observed is None else Missing.refuse
    with reading.open(data) as source, open_observed(missing or default, observed, loaded.shape) as known:
        filled = loaded.fill(source, observed=known)
    with replacing(output) as temporary, temporary.open("wb") as file:
        np.save(file, filled)
    print_facts({"shape": list(filled.shape), "dtype": str(filled.dtype), "saved": str(output)}, False, quiet)


def report(
    *,
    model: Model,
    data: Annotated[str | None, Argument(metavar="DATA", help="The tensor, to show errors and images.")] = None,
    output: Output = Path("report.html"),
    title: Annotated[str | None, Option(help="Title of the page; default: the name of the model's file.")] = None,
    reading: DataOptions,
    quiet: Quiet = False,
) -> None:
    """Write a page about a model; browsers open it offline."""
    from tucket import load
    from tucket.interfaces.report import write_report

    check_output(output)
    loaded: Any = load(model)
    with nullcontext() if data is None else reading.open(data) as source:
        write_report(output, loaded, source, title=title or model.name)
    say(f"Open {output.absolute().as_uri()}", quiet)


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
    from tucket.interfaces.text import table
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
        return
    rows = [
        (e.method, f"{e.seconds:.3f} s", f"{e.n_parameters:,}", f"{e.relative_error:.4f}", f"{e.kl:.5f}")
        for e in entries
    ]
    print(table(("method", "time", "parameters", "rel. error", "KL / sum"), rows))


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


def demo(
    output: Annotated[Path, Option("--output", "-o", help="File of the picture.")] = Path("build/demo.png"),
) -> None:
    """Reduce two photographs; write a picture and a page.

    The photographs come with scikit-learn. They form one tensor (photograph, row, column, colour), which is reduced
    to several ranks.
    """
    from tucket.interfaces.demo import run

    run(output)
