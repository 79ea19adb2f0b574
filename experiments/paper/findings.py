"""What the rows say, as tables in Markdown: who is faster, who is nearer, and how time grows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from statistics import median, stdev

from experiments.paper.figures import Spot, spots
from experiments.paper.plan import METHODS, PANELS, Method, Panel, Point
from experiments.paper.rows import Rows, written

__all__ = ["TABLES", "findings"]

PEERS = ("lra-sntd", "ntd-ls-paper", "ntd-kl-paper", "tensorly")
"""The methods that the paper compares with, at its settings; its own runs of NTD were TensorLy's."""

PORT = {
    ("ltr-published", 10): 78287, ("ltr-published", 40): 76359, ("ltr-published", 80): 69741,
    ("ltr-random", 10): 74278, ("ltr-random", 40): 63465, ("ltr-random", 80): 55037,
}  # fmt: skip
"""LS errors on AttFace of an independent port of the authors' code, means over five seeds, by method and r."""

PORT_SEEDS = 5

SAME = 1e-6
"""Errors that differ by a smaller share are the same."""

Place = dict[str, Spot]
Points = Sequence[tuple[Point, Place]]


def findings(rows: Rows) -> str:
    """Write all tables."""
    parts = (f"## {title}\n\n{make(rows)}\n" for title, make in TABLES.values())
    return "\n".join(["# All numbers of the paper's experiments\n", *parts])


def measured(rows: Rows, cores: str = "one") -> list[tuple[Panel, list[tuple[Point, Place]]]]:
    """Return, for each panel that was run, what is known at each of its points, by method."""
    found = []
    for panel in PANELS:
        by_point: dict[Point, Place] = {}
        for method in METHODS:
            for spot in spots(rows, panel, cores, method):
                by_point.setdefault(spot.point, {})[method.name] = spot
        if by_point:
            found.append((panel, list(by_point.items())))
    return found


def markdown(headings: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Lay out a table.

    Examples
    --------
    >>> print(markdown(("a", "b"), [("1", "2")]))
    | a | b |
    |---|---|
    | 1 | 2 |
    """
    lines = list(lines)
    if not lines:
        return "Nothing to show."
    rule = "|" + "---|" * len(headings)
    return "\n".join([f"| {' | '.join(headings)} |", rule, *(f"| {' | '.join(line)} |" for line in lines)])


def ltr_methods() -> list[Method]:
    """Return the methods of LTR's family."""
    return [method for method in METHODS if method.is_ltr]


def speed(what: str) -> Callable[[Rows], str]:
    """Say where LTR is faster than every other method, and by what factor: in all, or to the model alone."""

    def make(rows: Rows) -> str:
        lines = []
        for panel, points in measured(rows):
            for method in ltr_methods():
                factors = ahead(points, method.name, what)
                if factors:
                    values = [factor for factor, _ in factors]
                    least, where = min(factors, key=first)
                    numbers = f"{median(values):.3g}", f"{least:.3g}"
                    lines.append((panel.name, method.label, count(values), *numbers, at(panel, where)))
        return markdown(
            (
                "panel",
                "method",
                "faster than all others at",
                "times as fast as the fastest other: median",
                "least",
                "at",
            ),
            lines,
        )

    return make


def done(points: Iterable[tuple[Point, Place]]) -> Iterator[tuple[Point, Place]]:
    """Keep the methods that came to an end."""
    for point, place in points:
        yield point, {name: spot for name, spot in place.items() if spot.done}


def first(pair: tuple[float, Point]) -> float:
    """Return the number of a pair."""
    return pair[0]


def short(rows: Rows) -> str:
    """Say in three lines what was found."""
    names = ("ltr-published", "ltr-random", "ltr-clusters")
    panels = [points for _, points in measured(rows)]
    times = [[factor for points in panels for factor, _ in ahead(points, name)] for name in names]
    errors = [[ratio for points in panels for ratio, _ in beside(points, name, "ls")] for name in names]
    if not (all(times) and all(errors)):
        return "Nothing to show."
    factors = [
        f"{count(each)} points ({median(each):.3g} times in the median, {min(each):.2g} at least)" for each in times
    ]
    ratios = [f"{count(each, 1 + SAME)} (largest ratio {max(each):.2f})" for each in errors]
    lines = [
        f"- **Speed, on one core.** LTR was faster than the fastest other method at {factors[0]} as printed, at "
        f"{factors[1]} as the projection with random blocks, and at {factors[2]} with blocks that it searches for.",
        f"- **LS error.** It was as good as the best of the paper's peers that came to an end, or better, at "
        f"{ratios[0]} points as printed, {ratios[1]} as the projection with random blocks, {ratios[2]} with clusters.",
    ]
    field = [place for panel, points in measured(rows) if panel.name == "c" for _, place in done(points)]
    if field and all(name in place for place in field for name in ("ltr-published", "ltr-random", "ltr-segments")):
        printed = [place["ltr-published"].error("relative_ls") for place in field]
        random, segments = (field[-1][name].error("relative_ls") for name in ("ltr-random", "ltr-segments"))
        span = dict.fromkeys((f"{min(printed):.4f}", f"{max(printed):.4f}"))
        lines.append(
            f"- **The light field.** As printed, LTR's relative error is {' to '.join(span)} "
            f"at all ranks; the projection's falls to {random:.3f} with random blocks, to {segments:.3f} with segments."
        )
    return "\n".join(lines)


def ahead(points: Points, name: str, what: str = "seconds") -> list[tuple[float, Point]]:
    """Return, for each point, how many times as fast a method is as the fastest one that is not LTR."""
    found = []
    for point, place in done(points):
        others = [getattr(spot, what) for spot in place.values() if not spot.method.is_ltr]
        if others and name in place:
            found.append((min(others) / getattr(place[name], what), point))
    return found


def beside(points: Points, name: str, error: str) -> list[tuple[float, Point]]:
    """Return, for each point, a method's error over that of the best of the paper's peers."""
    found = []
    for point, place in done(points):
        others = [place[peer].error(error) for peer in PEERS if peer in place]
        if others and name in place:
            found.append((place[name].error(error) / min(others), point))
    return found


def count(values: Sequence[float], most: float | None = None) -> str:
    """Write how many are above 1, or at most so large."""
    fit = sum(value > 1 if most is None else value <= most for value in values)
    return f"{fit} of {len(values)}"


def at(panel: Panel, point: Point) -> str:
    """Name a point by what differs within its panel."""
    return f"n = {point.shape[0]}" if panel.along == "entries" else f"rank {written(point.rank)}"


def accuracy(error: str) -> Callable[[Rows], str]:
    """Say where LTR's error is better than, or competitive with, the best of the paper's peers."""

    def make(rows: Rows) -> str:
        lines = []
        for panel, points in measured(rows):
            for method in ltr_methods():
                ratios = beside(points, method.name, error)
                if not ratios:
                    continue
                values = [ratio for ratio, _ in ratios]
                counts = count(values, 1 + SAME), count(values, 1.1)
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
                "as good or better at",
                "at most 10 % worse at",
                "over the best peer's: median",
                "least",
                "most",
            ),
            lines,
        )

    return make


def flat(rows: Rows) -> str:
    """Show the published variant's errors on the light field beside the projection's."""
    return named_errors(rows, "c", ("ltr-published", "ltr-random", "ltr-uniform", "ltr-segments", "ltr-clusters"))


def named_errors(rows: Rows, name: str, methods: Sequence[str]) -> str:
    """Show the relative LS errors of some methods at every point of a panel."""
    labels = {method.name: method.label for method in METHODS}
    lines = [
        [written(point.rank), *(shown(place.get(each), "relative_ls", ".4f") for each in methods)]
        for panel, points in measured(rows) if panel.name == name
        for point, place in points
    ]  # fmt: skip
    return markdown(("rank", *(labels[each] for each in methods)), lines)


def shown(spot: Spot | None, what: str, form: str) -> str:
    """Write what a method reached at a point: a time, or an error with its standard error, or why there is none."""
    if spot is None:
        return ""
    if not spot.done:
        return {"over": "over the cap", "left out": "left out", "failed": "failed"}[spot.rows[0]["status"]]
    if what in ("seconds", "fit_seconds"):
        return f"{getattr(spot, what):{form}}"
    spread = spot.spread(what)
    return f"{spot.error(what):{form}}{f' ± {spread:{form}}' if spread else ''}"


def port(rows: Rows) -> str:
    """Compare with the independent port of the authors' code."""
    lines = []
    for panel, points in measured(rows):
        for point, place in points if panel.name == "d" else ():
            for method in METHODS[:2]:
                theirs = PORT.get((method.name, point.rank[0]))
                if theirs is None or method.name not in place or len(place[method.name].done) < 2:
                    continue
                spot = place[method.name]
                deviation = stdev(row["ls"] for row in spot.done)
                apart = (spot.error("ls") - theirs) / (deviation * math.sqrt(1 / PORT_SEEDS + 1 / len(spot.done)))
                lines.append((
                    str(point.rank[0]), method.label, f"{theirs}", f"{spot.error('ls'):.0f}", f"{deviation:.0f}",
                    f"{apart:+.1f}", "yes" if abs(apart) <= 2 else "no",
                ))  # fmt: skip
    return markdown(
        (
            "r", "method", "port, mean of 5 seeds", "tucket, mean", "standard deviation of one",
            "apart, in standard errors of the difference", "within two",
        ),
        lines,
    )  # fmt: skip


def growth(rows: Rows) -> str:
    """Fit the exponents of runtime against the number of entries."""
    lines = []
    for panel, points in measured(rows):
        if panel.name != "b":
            continue
        for method in METHODS:
            known = [place[method.name] for _, place in done(points) if method.name in place]
            large = [spot for spot in known if size(spot) >= LARGE]
            if len(large) < 2:
                continue
            slopes = (
                exponent([(size(spot), spot.seconds) for spot in known]),
                exponent([(size(spot), spot.seconds) for spot in large]),
                exponent([(size(spot), spot.fit_seconds) for spot in large]),
            )
            lines.append((method.label, str(known[-1].point.shape[0]), *(f"{slope:.2f}" for slope in slopes)))
    return markdown(("method", "largest n within the cap", "all n", "n from 100", "n from 100, the fit alone"), lines)


LARGE = 10**6
"""Entries from which a run is long beside what a call costs."""


def size(spot: Spot) -> int:
    """Return the number of entries."""
    return math.prod(spot.point.shape)


def exponent(pairs: Sequence[tuple[float, float]]) -> float:
    """Return the slope of a straight line through logarithms.

    Examples
    --------
    >>> round(exponent([(10, 1), (100, 10), (1000, 100)]), 12)
    1.0
    """
    x, y = zip(*((math.log(a), math.log(b)) for a, b in pairs))
    middle = sum(x) / len(x)
    return float(sum((a - middle) * b for a, b in zip(x, y)) / sum((a - middle) ** 2 for a in x))


def cores(rows: Rows) -> str:
    """Say how much faster each method is on all cores."""
    alone = {(panel.name, point): place for panel, points in measured(rows) for point, place in done(points)}
    lines = []
    for panel, points in measured(rows, "all"):
        for method in METHODS:
            ratios = [
                alone[panel.name, point][method.name].seconds / place[method.name].seconds
                for point, place in done(points)
                if method.name in place and method.name in alone.get((panel.name, point), {})
            ]
            if ratios:
                lines.append((panel.name, method.label, str(len(ratios)), f"{median(ratios):.2f}"))
    return markdown(("panel", "method", "points", "times as fast on all cores, median"), lines)


def left_out(rows: Rows) -> str:
    """List what took too long, or failed."""
    lines = []
    for which in ("one", "all"):
        for panel, points in measured(rows, which):
            for method in METHODS:
                missing = [
                    (point, place[method.name].rows[0]["note"])
                    for point, place in points
                    if method.name in place and not place[method.name].done
                ]
                if missing:
                    point, why = missing[0]
                    lines.append((panel.name, which, method.label, at(panel, point), str(len(missing)), why))
    return markdown(("panel", "cores", "method", "first at", "points", "why"), lines)


def whole(what: str, form: str) -> Callable[[Rows], str]:
    """Show a time or an error of all methods at all points."""

    def make(rows: Rows) -> str:
        parts = []
        for panel, points in measured(rows):
            lines = [
                [at(panel, point), *(shown(place.get(each.name), what, form) for each in METHODS)]
                for point, place in points
            ]
            parts.append(
                f"**({panel.name}) {panel.title}**\n\n{markdown(('', *(each.label for each in METHODS)), lines)}"
            )
        return "\n\n".join(parts)

    return make


TABLES: dict[str, tuple[str, Callable[[Rows], str]]] = {
    "short": ("In short", short),
    "context": ("What measured", lambda rows: "\n".join(f"- {line}" for line in rows.contexts()) or "Nothing to show."),
    "speed": ("Who is faster, on one core", speed("seconds")),
    "fit-speed": ("Who is faster to the model alone, without the dense output", speed("fit_seconds")),
    "ls": ("LS error, beside the best of the methods that the paper compares with", accuracy("ls")),
    "kl": ("KL error, likewise", accuracy("kl")),
    "flat": ("The light field, relative LS error", flat),
    "port": ("AttFace, LS error beside a port of the authors' code", port),
    "growth": ("Exponents of runtime against entries", growth),
    "cores": ("All cores", cores),
    "left-out": ("What took too long", left_out),
    "all-seconds": ("Runtimes, seconds", whole("seconds", ".3g")),
    "all-fit": ("Runtimes to the model alone, seconds", whole("fit_seconds", ".3g")),
    "all-ls": ("LS errors, relative", whole("relative_ls", ".4f")),
    "all-kl": ("KL errors, over the sum", whole("kl_per_total", ".5f")),
}
"""Each table: its title, and how it is made."""
