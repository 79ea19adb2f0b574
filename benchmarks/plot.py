"""Draw the README's plot from the kept results: python -m benchmarks.plot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLOT = Path(__file__).parents[1] / "docs" / "benchmark.svg"
RESULTS = Path(__file__).parent / "results" / "cpu.json"


def draw(result: dict[str, Any]) -> Path:
    """Draw each case's time over its baseline's, with its spread and its limit."""
    from matplotlib import rcParams
    from matplotlib.figure import Figure

    # text as text, and the same drawing for the same results
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
        axes.text(row["highest"] + 0.05, place, f"{row['ratio']:.2f} x {row['baseline']}", va="center", fontsize=8)
    axes.axvline(1, color="grey", linewidth=0.8, linestyle=":")
    axes.set_yticks(places, [row["case"] for row in rows], fontsize=8)
    axes.set_xlim(0, 6.2)
    axes.set_xlabel("time over that of the baseline (bar: median; line: quartiles; mark: limit)")
    system = result["machine"]
    axes.set_title(f"{result['date']}, {system['cpu']}, NumPy {system['numpy']}, numba {system['numba']}", fontsize=9)
    PLOT.parent.mkdir(exist_ok=True)
    figure.savefig(PLOT, metadata={"Date": None})
    return PLOT


if __name__ == "__main__":
    print(draw(json.loads(RESULTS.read_text())))
