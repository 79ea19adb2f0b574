"""The paper's figures from the rows: runtime and error along rank or size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from experiments.paper.plan import METHODS, Method, Panel, Point
from experiments.paper.rows import Row, Rows, written
from tucket.base.archive import replacing
from tucket.base.optional import need

__all__ = ["STYLES", "Spot", "draw", "spots"]

STYLES = {
    "ltr-published": ("#d55e00", "s", "-"),
    "ltr-random": ("#0072b2", "o", "-"),
    "ltr-uniform": ("#56b4e9", "v", "-"),
    "ltr-segments": ("#009e73", "D", "-"),
    "ltr-clusters": ("#000000", "*", "-"),
    "lra-sntd": ("#cc79a7", "p", "--"),
    "ntd-ls-paper": ("#e69f00", "<", "--"),
    "ntd-kl-paper": ("#b59b00", ">", "--"),
    "ntd-ls": ("#999999", "h", ":"),
    "ntd-kl": ("#444444", "d", ":"),
    "tensorly": ("#8c564b", "P", "--"),
    "tensorly-hals": ("#8c564b", "X", "--"),
}
"""Colours that people with any kind of colour vision can tell apart, and marks for those of one tone."""

AXES = {
    "r": "r, of the rank (r, ..., r)",
    "entries": "entries of the tensor",
    "core": "entries of the core",
    "seconds": "runtime, seconds",
    "ls": "LS error",
    "kl": "KL error",
}


class Spot:
    """All that is known of a method at a point: the rows of its repetitions."""

    def __init__(self, point: Point, method: Method, rows: Sequence[Row]) -> None:
        self.point, self.method, self.rows = point, method, rows
        self.done = [row for row in rows if row["status"] == "done"]

    @property
    def seconds(self) -> float:
        """Return the median of the runtimes."""
        return float(median(row["seconds"] for row in self.done))

    @property
    def fit_seconds(self) -> float:
        """Return the median of the times until the model was there."""
        return float(median(row["fit_seconds"] for row in self.done))

    def error(self, name: str) -> float:
        """Return the mean of an error."""
        return float(mean(row[name] for row in self.done))  # all the same, where the method is not random

    def spread(self, name: str) -> float:
        """Return the standard error of that mean."""
        values = [row[name] for row in self.done]
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 and self.method.is_random else 0.0


def spots(rows: Rows, panel: Panel, cores: str, method: Method) -> list[Spot]:
    """Return what is known of a method at the points of a panel."""
    about = rows.of(panel=panel.name, method=method.name, cores=cores)
    found = [
        Spot(point, method, [row for row in about if (row["shape"], row["rank"]) == place(point)])
        for point in panel.points
    ]
    return [spot for spot in found if spot.rows]


def place(point: Point) -> tuple[str, str]:
    """Write a point as rows do."""
    return written(point.shape), written(point.rank)


def draw(rows: Rows, panel: Panel, folder: Path, cores: str = "one") -> list[Path]:
    """Draw runtime, LS error and KL error along the panel's axis, as PNG and SVG."""
    need("matplotlib", "plot", "a figure")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = ("seconds", "ls", "kl") if cores == "one" else ("seconds",)
    figure = Figure(figsize=(5.4 * len(shown), 5.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
        for method in METHODS:
            draw_method(axes, name, panel, spots(rows, panel, cores, method), method)
        heights = [height for line in axes.lines for height in line.get_ydata() if height > 0]
        wide = bool(heights) and max(heights) > 1.5 * min(heights)
        axes.set(
            xscale="linear" if panel.along == "r" else "log",
            yscale="log" if wide else "linear",
            xlabel=AXES[panel.along],
            ylabel=AXES[name],
        )
        axes.grid(alpha=0.3, which="both", linewidth=0.5)
    figure.suptitle(f"({panel.name[0]}) {panel.title}; {'one core' if cores == 'one' else 'all cores'}", fontsize=11)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4 if len(shown) > 1 else 2, fontsize=9)
    stem = f"{panel.name}{'' if cores == 'one' else '-all-cores'}"
    paths = [folder / f"{stem}.{kind}" for kind in ("png", "svg")]
    with rc_context({"svg.fonttype": "none", "svg.hashsalt": "tucket"}):  # text as text, the same for the same rows
        for path in paths:
            with replacing(path) as temporary:
                metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                figure.savefig(temporary, format=path.suffix[1:], dpi=110, metadata=metadata)
    return paths


def draw_method(axes: Any, name: str, panel: Panel, found: Sequence[Spot], method: Method) -> None:
    """Draw a line with its standard errors; a cross above the axis where the method took too long."""
    colour, mark, line = STYLES[method.name]
    style = {"color": colour, "linestyle": line, "marker": mark, "markersize": 5, "linewidth": 1.2}
    known = [spot for spot in found if spot.done and (name == "seconds" or math.isfinite(spot.error(name)))]
    places = [panel.place(spot.point) for spot in known]
    heights = [spot.seconds if name == "seconds" else spot.error(name) for spot in known]
    spread = None if name == "seconds" else [spot.spread(name) for spot in known]
    axes.errorbar(places, heights, spread, label=method.label, capsize=2, elinewidth=0.8, **style)
    if name == "seconds":
        late = [(panel.place(spot.point), float(spot.rows[0]["cap"])) for spot in found if not spot.done]
        axes.plot(*zip(*late), color=colour, marker=mark, markersize=5, fillstyle="none", linestyle="")
