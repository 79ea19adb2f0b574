"""Fill the tables of the README and of the documentation from the saved results: python -m benchmarks.pages."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
README, PERFORMANCE, GAPS = ROOT / "README.md", ROOT / "docs" / "performance.md", ROOT / "docs" / "gaps.md"
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


def hidden(result: Result) -> str:
    """Return the tables of two tensors with growing shares of hidden cells and fibres."""
    parts = [f"{_machine(result)}:"]
    for name, title in (
        ("hangzhou", "**Hangzhou metro**, (80, 25, 108): cells, or whole days of stations"),
        ("kinetic", "**Kinetic fluorescence**, (64, 12, 10, 60): cells, or whole spectra"),
    ):
        columns = {case.split("-", 1)[1]: rows for case, rows in result.items() if case.startswith(f"{name}-")}
        heads = " | ".join(f"{column.replace('-', ', ')} %" for column in columns)
        lines = [f"| method | rank | {heads} | seconds |", "|" + "---|" * (len(columns) + 3)]
        for rows in zip(*columns.values()):
            rank = _rank(rows[0]["rank"]) if len({str(row["rank"]) for row in rows}) == 1 else "chosen"
            found = " | ".join(f"{row['rmse']:.1f}, {100 * row['relative']:.1f} %" for row in rows)
            seconds = sum(row["seconds"] for row in rows) / len(rows)
            lines.append(f"| {rows[0]['method']} | {rank} | {found} | {seconds:.2f} |")
        parts += [title, "\n".join(lines)]
    return "\n\n".join(parts)


def _rank(rank: Any) -> str:
    return "" if rank is None else str(tuple(rank) if isinstance(rank, list) else rank)


def responses(result: Result) -> str:
    """Return the table of responses of cells, of which some were never measured."""
    lines = [f"{_machine(result)}:", "", "| method | rank | RMSE | relative error | seconds |", "|---|---|---|---|---|"]
    for row in result["responses"]:
        ranks = {str(rank): rank for rank in row["rank"]}
        rank = _rank(row["rank"][0]) if len(ranks) == 1 else "chosen"
        lines.append(
            f"| {row['method']} | {rank} | {row['rmse']:.4f} +- {row['spread']:.4f} | {100 * row['relative']:.0f} % "
            f"| {row['seconds']:.2f} |"
        )
    return "\n".join(lines)


def rated(result: Result) -> str:
    """Return the table of ratings of films."""
    lines = [f"{_machine(result)}:", "", "| method | rank | RMSE | MAE | seconds |", "|---|---|---|---|---|"]
    lines += [
        f"| {row['method']} | {_rank(row['rank'])} | {row['rmse']:.4f} | {row['mae']:.4f} | {row['seconds']:.2f} |"
        for row in result["ratings"]
    ]
    return "\n".join(lines)


def counted(result: Result) -> str:
    """Return the table of counts, of which a tenth of all cells is hidden."""
    lines = [f"{_machine(result)}:", "", "| method | iterations | held-out KL / sum | seconds |", "|---|---|---|---|"]
    for row in result["uber5"]:
        loss = f"{row['held_out']:.4f}" if "held_out" in row else ""
        lines.append(f"| {row['method']} | {row.get('its') or ''} | {loss} | {row['seconds']:.2f} |")
    return "\n".join(lines)


def overhead(result: Result) -> str:
    """Return the table of what gaps cost in time and memory."""
    lines = [
        f"{_machine(result)}:",
        "",
        "| tensor | seconds with gaps | over the time without | memory beside the tensor | without gaps |",
        "|---|---|---|---|---|",
    ]
    lines += [
        f"| {row['tensor']} {tuple(row['shape'])} | {row['seconds']:.4f} | {row['ratio']:.1f} "
        f"| {row['gaps_mb']:.1f} MB | {row['whole_mb']:.1f} MB |"
        for row in result["cost"]
    ]
    row = result["cross-validation"][0]
    last = (
        f"`cross_validate` of AttFace compares {row['ranks']} ranks by {row['folds']} folds in {row['seconds']:.1f} s."
    )
    return "\n".join([*lines, "", last])


def _machine(result: Result) -> str:
    return f"{result['machine']['cpu']}, {result['machine']['cores']} cores, {result['date']}"


PAGES: Mapping[Path, Mapping[str, Callable[[Result], str]]] = {
    README: {"cpu.json": faces, "ntd.json": decompositions, "estimator.json": features},
    PERFORMANCE: {"quality.json": ends, "entries.json": sparse, "passes.json": files, "gpu.json": device},
    GAPS: {
        "gaps.json hidden": hidden,
        "gaps.json responses": responses,
        "gaps.json ratings": rated,
        "gaps.json counts": counted,
        "gaps.json cost": overhead,
    },
}
"""Which results each page shows, and what makes the table: the name of a file, and of one of several tables from it."""


def filled(page: Path) -> str:
    """Return a page with each table between its marks made anew."""
    text = page.read_text()
    for name, make in PAGES[page].items():
        mark = f"<!-- from benchmarks/results/{name} -->"
        before, rest = text.split(mark)
        table = make(json.loads((RESULTS / name.split()[0]).read_text()))
        text = before + mark + "\n" + table + "\n" + END + rest.split(END, 1)[1]
    return text


def fill() -> None:
    """Fill all pages."""
    for page in PAGES:
        page.write_text(filled(page))
        print(f"tables written to {page.relative_to(ROOT)}")


if __name__ == "__main__":
    fill()
