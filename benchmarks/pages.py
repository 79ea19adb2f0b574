"""Fill the tables of the README and of the documentation from the saved results: python -m benchmarks.pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "performance.md"
RESULTS = Path(__file__).parent / "results"
END = "<!-- end -->"

Result = dict[str, Any]


def faces(result: Result) -> str:
    """Return the table of the comparison on AttFace."""
    rows = [
        f"| {row['method']} | {row['seconds']:.4f} | {row['relative_error']:.3f} | {row['kl']:.4f} |"
        for row in result["attface"]
    ]
    heading = f"| AttFace (92, 112, 400), rank {result['attface'][0]['rank']} | seconds | rel. error | KL / sum |"
    return "\n".join([heading, "|---|---|---|---|", *rows])


def decompositions(result: Result) -> str:
    """Return the table of the time in which `ntd` reaches the error of TensorLy HALS, and of its final error."""
    lines = [
        "| tensor, rank | loss | TensorLy HALS, 30 iterations | ntd reaches that in | ntd ends at | in |",
        "|---|---|---|---|---|---|",
    ]
    for case in result["cases"]:
        hals = next(row for row in case["rows"] if row["method"] == "TensorLy, HALS" and row["detail"] == "30")
        for loss, label in (("ls", "rel. error"), ("kl", "KL / sum")):
            ours = [row for row in case["rows"] if row["method"] == "ntd, coarse to fine" and row["detail"] == loss]
            reached = [row["seconds"] for row in ours if hals[loss] is None or row[loss] <= hals[loss]]
            theirs = "infinite" if hals[loss] is None else f"{hals[loss]:.4f}"
            lines.append(
                f"| {case['tensor']} {tuple(case['shape'])}, {tuple(case['rank'])} | {label} "
                f"| {theirs} in {hals['seconds']:.2f} s | {f'{min(reached):.3f} s' if reached else 'never'} "
                f"| {ours[-1][loss]:.4f} | {ours[-1]['seconds']:.2f} s |"
            )
    return "\n".join(lines)


def features(result: Result) -> str:
    """Return the table of few features of digits."""
    lines = ["| features | method | fit and transform | accuracy |", "|---|---|---|---|"]
    lines += [
        f"| {row['features']} | {row['method']} | {1000 * row['seconds']:.1f} ms | {row['accuracy']:.3f} |"
        for row in result["rows"]
    ]
    return "\n".join(lines)


def ends(result: Result) -> str:
    """Return the table that compares the final losses of the default `ntd`, LTR, TensorLy and long runs."""
    lines = [
        f"{_machine(result)}:",
        "",
        "| tensor, rank | loss | `ntd` | best of ten long runs | ratio | `ltr` | TensorLy HALS |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, case in result["cases"].items():
        for loss, label in (("kl", "KL / sum"), ("ls", "rel. error")):
            row = case[loss]
            best, default = min(row["long"]["losses"]), row["default"]
            lines.append(
                f"| {name} {tuple(case['shape'])}, {tuple(case['rank'])} | {label} "
                f"| {_timed(default)} | {best:.4g} in {sum(row['long']['seconds']):.0f} s "
                f"| {default['loss'] / best:.3f} | {_timed(row['ltr'])} | {_timed(row['hals'])} |"
            )
    return "\n".join(lines)


def _timed(row: Result) -> str:
    loss = "infinite" if row["loss"] is None else f"{row['loss']:.4g}"
    return f"{loss} in {row['seconds']:.2f} s"


def sparse(result: Result) -> str:
    """Return the table of sparse tensors, decomposed by their entries."""
    names = {
        "uber5": "uber5, (10, 10, 5, 10, 10)",
        "movielens": "MovieLens, (10, 10, 5)",
        "movielens, 10": "MovieLens, (10, 10, 10)",
    }
    lines = [f"{_machine(result)}:", "", "| tensor, rank | method | KL / sum | seconds |", "|---|---|---|---|"]
    for case, name in names.items():
        for row in result[case]:
            if "kl" in row:
                budget = f", budget {row['budget']:g} s" if row.get("budget") else ""
                lines.append(f"| {name} | {row['method']}{budget} | {row['kl']:.4f} | {row['seconds']:.2f} |")
    return "\n".join(lines)


def files(result: Result) -> str:
    """Return the table of files of 8 GB."""
    lines = [
        f"{_machine(result)}:",
        "",
        "| file of 8 GB | method | KL / sum | seconds | passes | peak memory |",
        "|---|---|---|---|---|---|",
    ]
    for kind in ("npy", "zarr"):
        case = result[kind]
        for name, label in (("ltr", "`ltr`"), ("ntd", "`ntd`"), ("to single indices", "`ntd(multilevel=True)`")):
            row = case[name]
            lines.append(
                f"| {kind} | {label} | {row['kl']:.4f} | {row['seconds']:.1f} | {row.get('passes', '')} "
                f"| {case['peak_mb']:.0f} MB |"
            )
    return "\n".join(lines)


def device(result: Result) -> str:
    """Return the table of a GPU."""
    system = result["machine"]
    lines = [
        f"{system['gpu']}, torch {system['torch']}, Triton {system['triton']}, {result['date']}:",
        "",
        "| case | time | read or written | beside | ratio | wanted | largest error |",
        "|---|---|---|---|---|---|---|",
    ]
    for each in result["rows"]:
        wanted = "" if each["least"] is None else f"{each['least']:g}"
        error = "" if each["error"] is None else f"{each['error']:.1e}"
        speed = each["terabytes_per_second"]
        numbers = f"{each['milliseconds']:.3f} ms | {'' if speed is None else f'{speed:.2f} TB/s'}"
        lines.append(f"| {each['case']} | {numbers} | {each['ceiling']} | {each['ratio']:.2f} | {wanted} | {error} |")
    return "\n".join(lines)


def _machine(result: Result) -> str:
    return f"{result['machine']['cpu']}, {result['machine']['cores']} cores, {result['date']}"


PAGES: Mapping[Path, Mapping[str, Callable[[Result], str]]] = {
    README: {"cpu.json": faces, "ntd.json": decompositions, "estimator.json": features},
    PERFORMANCE: {"quality.json": ends, "entries.json": sparse, "passes.json": files, "gpu.json": device},
}
"""Which results each page shows, and what makes the table."""


def filled(page: Path) -> str:
    """Return a page with each table between its marks made anew."""
    text = page.read_text()
    for name, make in PAGES[page].items():
        mark = f"<!-- from benchmarks/results/{name} -->"
        before, rest = text.split(mark)
        text = (
            before + mark + "\n" + make(json.loads((RESULTS / name).read_text())) + "\n" + END + rest.split(END, 1)[1]
        )
    return text


def fill() -> None:
    """Fill all pages."""
    for page in PAGES:
        page.write_text(filled(page))
        print(f"tables written to {page.relative_to(ROOT)}")


if __name__ == "__main__":
    fill()
