"""Tables in Markdown from the rows: speed, error, and growth of time with size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median, stdev

from experiments.paper.figures import Results, results_of
from experiments.paper.plan import METHODS, PANELS, Method, Panel, Point
from experiments.paper.rows import Rows, format_sizes

__all__ = ["TABLES", "findings"]

PEERS = ("lra-sntd", "ntd-ls-paper", "ntd-kl-paper", "tensorly")
"""The methods that the paper compares with, at its settings. The paper ran NTD with TensorLy."""

PORT = {
    ("ltr-published", 10): 78287, ("ltr-published", 40): 76359, ("ltr-published", 80): 69741,
    ("ltr-random", 10): 74278, ("ltr-random", 40): 63465, ("ltr-random", 80): 55037,
}  # fmt: skip
"""LS errors on AttFace of an independent port of the authors' code: means over `PORT_SEEDS` seeds, by method and r."""

PORT_SEEDS = 5

EQUAL_SHARE = 1e-6
"""Errors that differ by at most this share count as equal."""

LARGE_ENTRIES = 10**6
"""From this size on, the cost of a call itself hardly counts."""

NOTHING = "Nothing to show."

ByMethod = dict[str, Results]
Points = Sequence[tuple[Point, ByMethod]]


def findings(rows: Rows) -> str:
    """Return the page with all tables."""
    parts = (f"## {title}\n\n{make(rows)}\n" for title, make in TABLES.values())
    return "\n".join(["# All numbers of the paper's experiments\n", *parts])


def measured(rows: Rows, cores: str = "one") -> list[tuple[Panel, list[tuple[Point, ByMethod]]]]:
    """Return, for each panel that was run, the results at each of its points, by method."""
    found = []
    for panel in PANELS:
        by_point: dict[Point, ByMethod] = {}
        for method in METHODS:
            for results in results_of(rows, panel, cores, method):
                by_point.setdefault(results.point, {})[method.name] = results
        if by_point:
            found.append((panel, list(by_point.items())))
    return found


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Format a table.

    Examples
    --------
    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = list(lines)
    if not lines:
        return NOTHING
    separator = "|" + "---|" * len(headings)
    return "\n".join([f"| {' | '.join(headings)} |", separator, *(f"| {' | '.join(line)} |" for line in lines)])


def ltr_methods() -> list[Method]:
    """Return the methods that are forms of LTR."""
    return [method for method in METHODS if method.is_ltr]


def speed(what: str) -> Callable[[Rows], str]:
    """Return a function for the table of speed: LTR relative to the fastest other method."""

    def make(rows: Rows) -> str:
        lines = []
        for panel, points in measured(rows):
            for method in ltr_methods():
                factors = speed_ratios(points, method.name, what)
                if factors:
                    values = [factor for factor, _ in factors]
                    least, where = min(factors, key=first)
                    numbers = f"{median(values):.3g}", f"{least:.3g}"
                    lines.append((panel.name, method.label, count(values), *numbers, at(panel, where)))
        return markdown(
            (
                "panel",
                "method",
                "points at which it is faster than all others",
                "speed relative to the fastest other: median",
                "smallest",
                "at",
            ),
            lines,
        )

    return make


def done(points: Iterable[tuple[Point, ByMethod]]) -> Iterator[tuple[Point, ByMethod]]:
    """Keep the methods that finished."""
    for point, by_method in points:
        yield point, {name: results for name, results in by_method.items() if results.done}


def first(pair: tuple[float, Point]) -> float:
    """Return the number of a pair."""
    return pair[0]


def short(rows: Rows) -> str:
    """Summarise the results in three lines."""
    names = ("ltr-published", "ltr-random", "ltr-clusters")
    panels = [points for _, points in measured(rows)]
    times = [[factor for points in panels for factor, _ in speed_ratios(points, name)] for name in names]
    errors = [[ratio for points in panels for ratio, _ in error_ratios(points, name, "ls")] for name in names]
    if not (all(times) and all(errors)):
        return NOTHING
    faster = [f"{count(each)} points" for each in times]
    speeds = [f"median ratio {median(each):.3g}, smallest {min(each):.2g}" for each in times]
    equal = [f"{count(each, 1 + EQUAL_SHARE)} points (largest ratio {max(each):.2f})" for each in errors]
    lines = [
        f"- **Speed on one core, relative to the fastest other method.** LTR as printed is faster at {faster[0]} "
        f"({speeds[0]}), and the projection with random blocks at {faster[1]} ({speeds[1]}). With clusters, which "
        f"take a search for blocks, the projection is faster at {faster[2]} ({speeds[2]}).",
        f"- **LS error, relative to the best of the paper's peers that finished.** LTR as printed is as good or better "
        f"at {equal[0]}, the projection with random blocks at {equal[1]}, and with clusters at {equal[2]}.",
    ]
    field = [by_method for panel, points in measured(rows) if panel.name == "c" for _, by_method in done(points)]
    if field and all(
        name in by_method for by_method in field for name in ("ltr-published", "ltr-random", "ltr-segments")
    ):
        printed = [by_method["ltr-published"].error("relative_ls") for by_method in field]
        random, segments = (field[-1][name].error("relative_ls") for name in ("ltr-random", "ltr-segments"))
        span = dict.fromkeys((f"{min(printed):.4f}", f"{max(printed):.4f}"))
        lines.append(
            f"- **The light field.** The relative error of LTR as printed is {' to '.join(span)} at all ranks. The "
            f"error of the projection falls to {random:.3f} with random blocks and to {segments:.3f} with segments."
        )
    return "\n".join(lines)


def speed_ratios(points: Points, name: str, what: str = "seconds") -> list[tuple[float, Point]]:
    """Return, for each point, the speed of a method relative to the fastest one that is not LTR."""
    found = []
    for point, by_method in done(points):
        others = [getattr(results, what) for results in by_method.values() if not results.method.is_ltr]
        if others and name in by_method:
            found.append((min(others) / getattr(by_method[name], what), point))
    return found


def error_ratios(points: Points, name: str, error: str) -> list[tuple[float, Point]]:
    """Return, for each point, the error of a method relative to the best of the paper's peers."""
    found = []
    for point, by_method in done(points):
        others = [by_method[peer].error(error) for peer in PEERS if peer in by_method]
        if others and name in by_method:
            found.append((by_method[name].error(error) / min(others), point))
    return found


def count(values: Sequence[float], most: float | None = None) -> str:
    """Count the values above 1, or those that are at most `most`."""
    fit = sum(value > 1 if most is None else value <= most for value in values)
    return f"{fit} of {len(values)}"


def at(panel: Panel, point: Point) -> str:
    """Name a point by the quantity that varies within its panel."""
    return f"n = {point.shape[0]}" if panel.along == "entries" else f"rank {format_sizes(point.rank)}"


def accuracy(error: str) -> Callable[[Rows], str]:
    """Return a function for the table of errors: LTR relative to the best of the paper's peers."""

    def make(rows: Rows) -> str:
        lines = []
        for panel, points in measured(rows):
            for method in ltr_methods():
                ratios = error_ratios(points, method.name, error)
                if not ratios:
                    continue
                values = [ratio for ratio, _ in ratios]
                counts = count(values, 1 + EQUAL_SHARE), count(values, 1.1)
                ends = [
                    f"{ratio:.2f} ({at(panel, where)})"
                    for ratio, where in (min(ratios, key=first), max(ratios, key=first))
                ]
                middle = f"{median(values):.2f}"
                lines.append((panel.name, method.label, *counts, middle, *ends))
        return markdown(
            (
                "panel",
                "method",
                "points as good or better",
                "points at most 10 % worse",
                "error relative to the best peer: median",
                "smallest",
                "largest",
            ),
            lines,
        )

    return make


def flat(rows: Rows) -> str:
    """Return the errors on the light field, of the published variant and of the projection."""
    return named_errors(rows, "c", ("ltr-published", "ltr-random", "ltr-uniform", "ltr-segments", "ltr-clusters"))


def named_errors(rows: Rows, name: str, methods: Sequence[str]) -> str:
    """Return the relative LS errors of some methods at every point of a panel."""
    labels = {method.name: method.label for method in METHODS}
    lines = [
        [format_sizes(point.rank), *(format_cell(by_method.get(each), "relative_ls", ".4f") for each in methods)]
        for panel, points in measured(rows) if panel.name == name
        for point, by_method in points
    ]  # fmt: skip
    return markdown(("rank", *(labels[each] for each in methods)), lines)


def format_cell(results: Results | None, what: str, form: str) -> str:
    """Format a time, or an error with its standard error, or the reason why there is none."""
    if results is None:
        return ""
    if not results.done:
        return {"over": "over the cap", "left out": "left out", "failed": "failed"}[results.rows[0]["status"]]
    if what in ("seconds", "fit_seconds"):
        return f"{getattr(results, what):{form}}"
    spread = results.spread(what)
    return f"{results.error(what):{form}}{f' ± {spread:{form}}' if spread else ''}"


def port(rows: Rows) -> str:
    """Compare tucket with the independent port of the authors' code."""
    lines = []
    for panel, points in measured(rows):
        for point, by_method in points if panel.name == "d" else ():
            for method in METHODS[:2]:
                theirs = PORT.get((method.name, point.rank[0]))
                if theirs is None or method.name not in by_method or len(by_method[method.name].done) < 2:
                    continue
                results = by_method[method.name]
                deviation = stdev(row["ls"] for row in results.done)
                apart = (results.error("ls") - theirs) / (deviation * math.sqrt(1 / PORT_SEEDS + 1 / len(results.done)))
                lines.append((
                    str(point.rank[0]), method.label, f"{theirs}", f"{results.error('ls'):.0f}", f"{deviation:.0f}",
                    f"{apart:+.1f}", "yes" if abs(apart) <= 2 else "no",
                ))  # fmt: skip
    return markdown(
        (
            "r", "method", "port, mean of 5 seeds", "tucket, mean", "standard deviation of one run",
            "difference in standard errors", "within two",
        ),
        lines,
    )  # fmt: skip


def growth(rows: Rows) -> str:
    """Fit exponents of runtime against the number of entries."""
    lines = []
    for panel, points in measured(rows):
        if panel.name != "b":
            continue
        for method in METHODS:
            known = [by_method[method.name] for _, by_method in done(points) if method.name in by_method]
            large = [results for results in known if size(results) >= LARGE_ENTRIES]
            if len(large) < 2:
                continue
            slopes = (
                exponent([(size(results), results.seconds) for results in known]),
                exponent([(size(results), results.seconds) for results in large]),
                exponent([(size(results), results.fit_seconds) for results in large]),
            )
            lines.append((method.label, str(known[-1].point.shape[0]), *(f"{slope:.2f}" for slope in slopes)))
    return markdown(("method", "largest n within the cap", "all n", "n from 100", "n from 100, model alone"), lines)


def size(results: Results) -> int:
    """Return the number of entries of the tensor."""
    return math.prod(results.point.shape)


def exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the least-squares line through the logarithms of pairs.

    Examples
    --------
    >>> round(exponent([(10, 1), (100, 10), (1000, 100)]), 12)
    1.0
    """
    x, y = zip(*((math.log(a), math.log(b)) for a, b in pairs))
    middle = sum(x) / len(x)
    return float(sum((a - middle) * b for a, b in zip(x, y)) / sum((a - middle) ** 2 for a in x))


def cores(rows: Rows) -> str:
    """Compare the runtime on one core with that on all cores."""
    alone = {(panel.name, point): by_method for panel, points in measured(rows) for point, by_method in done(points)}
    lines = []
    for panel, points in measured(rows, "all"):
        for method in METHODS:
            ratios = [
                alone[panel.name, point][method.name].seconds / by_method[method.name].seconds
                for point, by_method in done(points)
                if method.name in by_method and method.name in alone.get((panel.name, point), {})
            ]
            if ratios:
                lines.append((panel.name, method.label, str(len(ratios)), f"{median(ratios):.2f}"))
    return markdown(("panel", "method", "points", "speed on all cores relative to one: median"), lines)


def left_out(rows: Rows) -> str:
    """List the methods that took too long or failed."""
    lines = []
    for which in ("one", "all"):
        for panel, points in measured(rows, which):
            for method in METHODS:
                missing = [
                    (point, by_method[method.name].rows[0]["note"])
                    for point, by_method in points
                    if method.name in by_method and not by_method[method.name].done
                ]
                if missing:
                    point, why = missing[0]
                    lines.append((panel.name, which, method.label, at(panel, point), str(len(missing)), why))
    return markdown(("panel", "cores", "method", "first at", "points", "reason"), lines)


def all_points(what: str, form: str) -> Callable[[Rows], str]:
    """Return a function for the tables of a time or an error, of all methods at all points."""

    def make(rows: Rows) -> str:
        parts = []
        for panel, points in measured(rows):
            lines = [
                [at(panel, point), *(format_cell(by_method.get(each.name), what, form) for each in METHODS)]
                for point, by_method in points
            ]
            parts.append(
                f"**({panel.name}) {panel.title}**\n\n{markdown(('', *(each.label for each in METHODS)), lines)}"
            )
        return "\n\n".join(parts)

    return make


TABLES: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "short": ("In short", short),
    "context": ("Machine and packages", lambda rows: "\n".join(f"- {line}" for line in rows.contexts()) or NOTHING),
    "speed": ("Speed on one core", speed("seconds")),
    "fit-speed": ("Speed on one core, to the model alone without the dense output", speed("fit_seconds")),
    "ls": ("LS error, relative to the best of the methods that the paper compares with", accuracy("ls")),
    "kl": ("KL error, relative to the best of the methods that the paper compares with", accuracy("kl")),
    "flat": ("Relative LS error on the light field", flat),
    "port": ("LS error on AttFace, beside a port of the authors' code", port),
    "growth": ("Exponents of runtime against the number of entries", growth),
    "cores": ("Speed on all cores", cores),
    "left-out": ("What took too long", left_out),
    "all-seconds": ("Runtime in seconds", all_points("seconds", ".3g")),
    "all-fit": ("Runtime to the model alone, in seconds", all_points("fit_seconds", ".3g")),
    "all-ls": ("Relative LS error", all_points("relative_ls", ".4f")),
    "all-kl": ("KL error per total", all_points("kl_per_total", ".5f")),
}
"""The title of each table, and the function that makes it."""
