"""The figures of the paper, drawn from the rows: runtime and error against rank or size."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import mean, median, stdev
from typing import Any

from experiments.paper.plan import METHODS, Method, Panel, Point
from experiments.paper.rows import Row, Rows, format_sizes
from tucket.base.archive import replacing
from tucket.base.optional import import_optional

__all__ = ["STYLES", "Results", "draw", "results_of"]

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
"""Colours that are distinct for every kind of colour vision, and markers for those that are similar."""

AXES = {
    "r": "r, of the rank (r, ..., r)",
    "entries": "entries of the tensor",
    "core": "entries of the core",
    "seconds": "runtime, seconds",
    "ls": "LS error",
    "kl": "KL error",
}


class Results:
    """The results of one method at one point: the rows of its repetitions."""

    def __init__(self, point: Point, method: Method, rows: Sequence[Row]) -> None:
        self.point, self.method, self.rows = point, method, rows
        self.done = [row for row in rows if row["status"] == "done"]

    @property
    def seconds(self) -> float:
        """Median runtime."""
        return float(median(row["seconds"] for row in self.done))

    @property
    def fit_seconds(self) -> float:
        """Median time to the model, without the dense output."""
        return float(median(row["fit_seconds"] for row in self.done))

    def error(self, name: str) -> float:
        """Return the mean of an error."""
        return float(mean(row[name] for row in self.done))

    def spread(self, name: str) -> float:
        """Return the standard error of the mean; 0 for a method that is not random."""
        values = [row[name] for row in self.done]
        return stdev(values) / math.sqrt(len(values)) if len(values) > 1 and self.method.is_random else 0.0


def results_of(rows: Rows, panel: Panel, cores: str, method: Method) -> list[Results]:
    """Return the results of a method at the points of a panel, where there are any."""
    by_point: dict[tuple[str, str], list[Row]] = {}
    for row in rows.of(panel=panel.name, method=method.name, cores=cores):
        by_point.setdefault((row["shape"], row["rank"]), []).append(row)
    found = [
        Results(point, method, by_point.get((format_sizes(point.shape), format_sizes(point.rank)), []))
        for point in panel.points
    ]
    return [results for results in found if results.rows]


def draw(rows: Rows, panel: Panel, folder: Path, cores: str = "one") -> list[Path]:
    """Draw runtime, LS error and KL error of a panel, as PNG and SVG; on all cores only the runtime."""
    import_optional("matplotlib", "plot", "a figure")
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    shown = ("seconds", "ls", "kl") if cores == "one" else ("seconds",)
    figure = Figure(figsize=(5.4 * len(shown), 5.6), layout="constrained")
    for axes, name in zip(figure.subplots(1, len(shown), squeeze=False)[0], shown):
        for method in METHODS:
            draw_method(axes, name, panel, results_of(rows, panel, cores, method), method)
        heights = [height for line in axes.lines for height in line.get_ydata() if height > 0]
        is_wide = bool(heights) and max(heights) > 1.5 * min(heights)
        axes.set(
            xscale="linear" if panel.along == "r" else "log",
            yscale="log" if is_wide else "linear",
            xlabel=AXES[panel.along],
            ylabel=AXES[name],
        )
        axes.grid(alpha=0.3, which="both", linewidth=0.5)
    figure.suptitle(f"({panel.name[0]}) {panel.title}; {'one core' if cores == 'one' else 'all cores'}", fontsize=11)
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=4 if len(shown) > 1 else 2, fontsize=9)
    stem = f"{panel.name}{'' if cores == 'one' else '-all-cores'}"
    paths = [folder / f"{stem}.{kind}" for kind in ("png", "svg")]
    with rc_context(
        {"svg.fonttype": "none", "svg.hashsalt": "tucket"}
    ):  # text stays text, and equal rows give equal files
        for path in paths:
            with replacing(path) as temporary:
                metadata: dict[str, Any] = {"Date": None} if path.suffix == ".svg" else {"Software": None}
                figure.savefig(temporary, format=path.suffix[1:], dpi=110, metadata=metadata)
    return paths


def draw_method(axes: Any, name: str, panel: Panel, found: Sequence[Results], method: Method) -> None:
    """Draw a line with its standard errors, and a hollow marker where the method took too long."""
    colour, marker, line = STYLES[method.name]
    style = {"color": colour, "linestyle": line, "marker": marker, "markersize": 5, "linewidth": 1.2}
    known = [each for each in found if each.done and (name == "seconds" or math.isfinite(each.error(name)))]
    positions = [panel.position(each.point) for each in known]
    heights = [each.seconds if name == "seconds" else each.error(name) for each in known]
    spread = None if name == "seconds" else [each.spread(name) for each in known]
    axes.errorbar(positions, heights, spread, label=method.label, capsize=2, elinewidth=0.8, **style)
    if name == "seconds":
        late = [(panel.position(each.point), float(each.rows[0]["cap"])) for each in found if not each.done]
        axes.plot(*zip(*late), color=colour, marker=marker, markersize=5, fillstyle="none", linestyle="")
