"""Arguments and options that several commands share, and how to read their text."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, fields, is_dataclass
from enum import StrEnum
from functools import wraps
from pathlib import Path
from typing import Annotated, Any

import typer
from typer import Argument, Option

Data = Annotated[str, Argument(metavar="DATA", help="The tensor: a file, a folder of images, or tables.")]
Model = Annotated[Path, Argument(metavar="MODEL", help="A model saved by `fit` or `reduce`.")]
Output = Annotated[Path, Option("--output", "-o", help="File to write.")]
RANK_HELP = "Rank of each mode: 10, or 10,-,20 where '-' keeps a mode at its size, or user=10,hour=24"
Rank = Annotated[str | None, Option(help=f"{RANK_HELP}.")]
Workers = Annotated[int | None, Option(help="Maximum number of threads; default: one per processor.")]
Observed = Annotated[
    str | None,
    Option(metavar="FILE", help="Which cells of DATA are known: a Boolean tensor, or the entries of a sparse one."),
]
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


Missing = StrEnum("Missing", ["refuse", "nan", "unstored"])

OBSERVED: Mapping[str, str] = {"refuse": "all", "nan": "finite", "unstored": "stored"}
"""What the library calls the values of --missing."""

TEXT_TENSORS = (".tns", ".tns.gz")
TABLES = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class GapOptions:
    """Which cells of DATA are known, and for what exposure."""

    missing: Annotated[
        Missing,
        Option(
            help="What is not known. refuse: all is known, and NaN is an error; nan: cells with NaN; unstored: cells "
            "without an entry in a sparse tensor."
        ),
    ] = Missing.refuse
    observed: Observed = None
    exposure: Annotated[
        str | None,
        Option(
            metavar="FILE",
            help="For what each cell of DATA counts, such as a population: a tensor that broadcasts to its shape.",
        ),
    ] = None

    @property
    def given(self) -> list[str]:
        """The options that the user gave."""
        wanted = {"missing": self.missing != Missing.refuse, "observed": self.observed, "exposure": self.exposure}
        return [f"--{name}" for name, value in wanted.items() if value]

    @contextmanager
    def open(self, shape: tuple[int, ...]) -> Iterator[dict[str, Any]]:
        """Yield the arguments `observed` and `exposure` for a tensor; none where all cells are known."""
        if not self.given:
            yield {}
            return
        exposure = None
        if self.exposure is not None:
            with open_beside(self.exposure, shape, "--exposure") as source:
                exposure = source.to_numpy()
        with open_observed(self.missing, self.observed, shape) as observed:
            yield {"observed": observed, "exposure": exposure}


def open_observed(missing: str, observed: str | None, shape: tuple[int, ...]) -> AbstractContextManager[Any]:
    """Open the tensor that says which cells are known, or return what the library calls `missing`."""
    if observed is None:
        return nullcontext(OBSERVED[missing])
    if missing != Missing.refuse:
        raise typer.BadParameter("both say which cells are known; give one of them", param_hint="--missing, --observed")
    return open_beside(observed, shape, "--observed")


def open_beside(file: str, shape: tuple[int, ...], option: str) -> AbstractContextManager[Any]:
    """Open a tensor that belongs to another one, of a known shape."""
    from tucket import open as open_source

    if file.lower().endswith(TABLES):
        raise typer.BadParameter(f"{file} is a table, in its own order; give an array or .tns", param_hint=option)
    options: dict[str, Any] = {"shape": shape} if file.lower().endswith(TEXT_TENSORS) else {}
    return open_source(file, **options)


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


def parse_blocks(text: str) -> str | tuple[str, ...]:
    """Read uniform, or uniform,random."""
    return tuple(text.split(",")) if "," in text else text


def given_options(options: Any) -> dict[str, Any]:
    """Return the options of a group that the user gave."""
    return {name: value for name, value in vars(options).items() if value is not None}


def parse_int(text: str, option: str) -> int:
    """Read a whole number."""
    if not text.strip().isdecimal():
        raise typer.BadParameter(f"{text!r} is not a whole number", param_hint=option)
    return int(text)


def parse_rank(text: str | None, source: Any, words: Collection[str] = ()) -> Any:
    """Read 10, or 10,-,20, or user=10,hour=24, or one of some words."""
    if text is None:
        raise typer.BadParameter(f"give one; the tensor has shape {tuple(source.shape)}", param_hint="--rank")
    if text in words:
        return text

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
