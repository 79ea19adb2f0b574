"""Draw the plots of the README from the kept results: python -m benchmarks.plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLOT = Path(__file__).parents[1] / "docs" / "benchmark.svg"
RESULTS = Path(__file__).parent / "results"


def draw(result: dict[str, Any]) -> Path:
    """Draw the time of each case relative to its baseline, with quartiles and limit."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    # text stays text, and equal results give equal files
    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tucket"})
    rows = [row for row in result["ratios"] if row["baseline"] != "TensorLy"]
    figure = Figure(figsize=(9, 7), layout="constrained")
    axes = figure.subplots()
    places = range(len(rows))[::-1]
    axes.barh(places, [row["ratio"] for row in rows], color="#56b4e9", height=0.65)
    for place, row in zip(places, rows):
        axes.plot([row["lowest"], row["highest"]], [place, place], color="black", linewidth=1)
        if row["limit"] is not None:
            axes.plot([row["limit"]] * 2, [place - 0.4, place + 0.4], color="#d55e00", linewidth=2)
        axes.text(
            max(row["highest"], row["limit"] or 0) + 0.07,
            place,
            f"{row['ratio']:.2f} x {row['baseline']}",
            va="center",
            fontsize=8,
        )
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(places, [row["case"] for row in rows], fontsize=8)
    axes.set_xlim(0, 7.6)
    axes.set_xlabel("time over that of the baseline (bar: median; line: quartiles; mark: limit)")
    system = result["machine"]
    axes.set_title(f"{result['date']}, {system['cpu']}, NumPy {system['numpy']}, numba {system['numba']}", fontsize=9)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})
    return PLOT


STYLES = {
    "LTR": ("#000000", "D", ""),
    "ntd, coarse to fine": ("#0072b2", "o", "-"),
    "ntd, one level, from LTR": ("#56b4e9", "v", "-"),
    "ntd, one level, from chance": ("#009e73", "^", "-"),
    "lraSNTD": ("#cc79a7", "s", ""),
    "TensorLy, multiplicative": ("#e69f00", "P", ":"),
    "TensorLy, HALS": ("#d55e00", "X", ":"),
    "nn_fac, HALS": ("#999999", "<", ""),
    "nn_fac, KL": ("#999999", ">", ""),
}


def draw_ntd(result: dict[str, Any]) -> Path:
    """Draw error against time, with two panels per tensor: relative error, and divergence."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tucket"})
    cases = result["cases"]
    figure = Figure(figsize=(10, 3.1 * len(cases) + 0.9), layout="constrained")
    for (left, right), case in zip(figure.subplots(len(cases), 2, squeeze=False), cases):
        for axes, loss, label in ((left, "ls", "relative error"), (right, "kl", "KL / sum")):
            for method, (colour, marker, line) in STYLES.items():
                rows = [row for row in case["rows"] if row["method"] == method and row[loss] is not None]
                if method.startswith("ntd"):  # only the curve that lowers this loss
                    rows = [row for row in rows if row["detail"] == loss]
                axes.plot(
                    [row["seconds"] for row in rows], [row[loss] for row in rows],
                    color=colour, marker=marker, linestyle=line, markersize=4, linewidth=1, label=method,
                )  # fmt: skip
            axes.set_xscale("log")
            axes.set_ylabel(label)
            axes.set_title(f"{case['tensor']} {tuple(case['shape'])}, rank {tuple(case['rank'])}", fontsize=9)
            axes.grid(alpha=0.3)
    for axes in figure.axes[-2:]:
        axes.set_xlabel("seconds, from the tensor to the model")
    handles, labels = figure.axes[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside upper center", ncols=5, fontsize=8)
    path = PLOT.with_name("ntd.svg")
    path.parent.mkdir(exist_ok=True)
    figure.savefig(path, metadata={"Date": None})
    return path


def draw_idea() -> Path:
    """Draw the first picture of the README, with the script of the gallery."""
    import runpy

    from matplotlib import pyplot as plt
    from matplotlib import rcParams

    rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "tucket"})
    plt.switch_backend("agg")
    plt.close("all")
    runpy.run_path(str(PLOT.with_name("gallery") / "plot_idea.py"))
    plt.figure(1).savefig(PLOT.with_name("idea.svg"), metadata={"Date": None})
    return PLOT.with_name("idea.svg")


if __name__ == "__main__":
    print(draw_idea())
    for name, make in (("cpu.json", draw), ("ntd.json", draw_ntd)):
        print(make(json.loads((RESULTS / name).read_text())))
