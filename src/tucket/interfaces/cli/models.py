"""Commands that read saved models: `info`, `expand` and `report`."""

from __future__ import annotations

from contextlib import nullcontext
from pathlib import Path
from typing import Annotated, Any

from typer import Argument, Option

from tucket.interfaces.cli.options import DataOptions, Json, Model, Output, Quiet, Workers
from tucket.interfaces.cli.output import check_output, facts_of_model, print_facts, progress_bar, say


def info(
    file: Annotated[Path, Argument(metavar="FILE", help="A saved model, or saved statistics.")],
    json: Json = False,
) -> None:
    """Describe a saved model or saved statistics."""
    from tucket import Statistics, load
    from tucket.base.archive import read

    kind, _ = read(file)
    facts = facts_of_statistics(Statistics.load(file)) if kind == "Statistics" else facts_of_model(load(file))
    print_facts({**facts, "bytes": file.stat().st_size}, json)


def facts_of_statistics(statistics: Any) -> dict[str, Any]:
    """Return what to print about statistics."""
    return {
        "kind": "Statistics",
        "shape": list(statistics.shape),
        "rank": list(statistics.rank),
        "total": statistics.total,
        "moments": statistics.moments is not None,
        **({} if statistics.axes is None else {"modes": list(statistics.axes.names)}),
    }


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
