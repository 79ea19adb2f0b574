"""Arguments and options that several commands share, and how to read their text."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

Data = Annotated[str, Argument(metavar="DATA", help="The tensor: a file, a folder of images, or tables.")]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model saved by `fit` or `reduce`.")]
Output = Annotated[Path, Option("--output", "-o", help="File to write.")]
Rank = Annotated[
    str | None,
    Option(help="Rank of each mode: 10, or 10,-,20 where '-' keeps a mode at its size, or user=10,hour=24."),
]
Workers = Annotated[int | None, Option(help="Maximum number of threads; default: one per processor.")]
Json = Annotated[bool, Option("--json", help="Print the result as JSON.")]
Quiet = Annotated[bool, Option("--quiet", "-q", help="Print nothing but errors.")]


@dataclass(frozen=True)
class DataOptions:
    """How to read DATA."""

    key: Annotated[str | None, Option(help="Array to read from a file that holds several.")] = None
    modes: Annotated[str | None, Option(help="Tables: columns to use as modes, as in user,item,time.")] = None
    value: Annotated[str | None, Option(help="Tables: column of values; default: count the rows.")] = None
    bins: Annotated[
        list[str] | None, Option(help="Tables: bins of a column, as in time=1h or price=20; repeat for more.")
    ] = None
    shape: Annotated[
        str | None, Option(help="Images: grid to fold them into, as in 9,9. Sparse text: shape of the tensor.")
    ] = None
    memory: Annotated[str | None, Option(help="Memory that reading may use, as in 256MB.")] = None

    def open(self, data: str, *, allow_statistics: bool = False) -> AbstractContextManager[Any]:
        """Open a tensor, or load saved statistics where these are enough."""
        from tucket import Statistics
        from tucket import open as open_source
        from tucket.base.archive import kind_of

        if allow_statistics and kind_of(data) == "Statistics":
            return nullcontext(Statistics.load(data))
        options = {
            "key": self.key,
            "modes": self.modes and self.modes.split(","),
            "value": self.value,
            "bins": self.bins and dict(map(parse_bins, self.bins)),
            "shape": self.shape and tuple(parse_int(size, "--shape") for size in self.shape.split(",")),
        }
        return open_source(data, memory=self.memory, **{name: value for name, value in options.items() if value})


def spread_options(command: Callable[..., None]) -> Callable[..., None]:
    """Replace each dataclass among the parameters by its fields, so that Typer makes an option of each field."""
    declared = inspect.signature(command, eval_str=True).parameters.values()
    groups: dict[str, Any] = {each.name: each.annotation for each in declared if is_dataclass(each.annotation)}
    options: list[inspect.Parameter] = []
    for each in declared:
        group = groups.get(each.name)
        options += inspect.signature(group, eval_str=True).parameters.values() if group else [each]

    @wraps(command)
    def run(**values: Any) -> None:
        for name, group in groups.items():
            values[name] = group(**{field.name: values.pop(field.name) for field in fields(group)})
        command(**values)

    keyword = inspect.Parameter.KEYWORD_ONLY  # in any order, with a default or without
    run.__signature__ = inspect.Signature([each.replace(kind=keyword) for each in options])  # type: ignore[attr-defined]
    run.__annotations__ = {each.name: each.annotation for each in options}
    return run


def parse_bins(text: str) -> tuple[str, Any]:
    """Read time=1h, price=20 or price=0,10,50."""
    column, sign, bins = text.rpartition("=")
    if not sign:
        raise typer.BadParameter(f"{text!r}: give a column and its bins, as in time=1h", param_hint="--bins")
    if bins.isdecimal():
        return column, int(bins)
    try:
        return column, [float(edge) for edge in bins.split(",")] if "," in bins else bins
    except ValueError as error:
        raise typer.BadParameter(f"{text!r}: {error}", param_hint="--bins") from None


def parse_int(text: str, option: str) -> int:
    """Read a whole number."""
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"{text!r} is not a whole number", param_hint=option)
    return int(text)


def parse_rank(text: str | None, source: Any) -> Any:
    """Read 10, or 10,-,20, or user=10,hour=24."""
    if text is None:
        raise typer.BadParameter(f"give one; the tensor has shape {tuple(source.shape)}", param_hint="--rank")

    def parse_one(part: str) -> int | None:
        return None if part.strip() in ("-", "") else parse_int(part, "--rank")

    if "=" in text:
        pairs = (part.rpartition("=") for part in text.split(","))
        return {name.strip(): parse_one(size) for name, _, size in pairs}
    return tuple(map(parse_one, text.split(","))) if "," in text else parse_one(text)


def parse_ranks(text: str | None, source: Any) -> tuple[int, ...]:
    """Read a rank and return one int per mode."""
    from tucket.base.axes import by_mode
    from tucket.base.checks import check_rank

    rank = by_mode(parse_rank(text, source), source.axes, len(source.shape), None, "rank")
    return check_rank(rank, source.shape)
