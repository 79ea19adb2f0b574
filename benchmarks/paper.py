"""Fill docs/paper.md and the README from the rows of the paper's experiments: python -m benchmarks.paper."""

from __future__ import annotations

from pathlib import Path

from experiments.paper.findings import TABLES
from experiments.paper.rows import Rows

ROOT = Path(__file__).parents[1]
ROWS = ROOT / "docs" / "paper" / "rows.csv"
PAGES = (ROOT / "docs" / "paper.md", ROOT / "README.md")
END = "<!-- end -->"


def fill(page: str, rows: Rows) -> str:
    """Return a page with each table filled in between its markers."""
    for name, (_, make) in TABLES.items():
        mark = f"<!-- paper: {name} -->"
        if mark in page:
            before, rest = page.split(mark)
            page = before + mark + "\n" + make(rows) + "\n" + END + rest.split(END, 1)[1]
    return page


if __name__ == "__main__":
    held = Rows(ROWS)
    for path in PAGES:
        path.write_text(fill(path.read_text(), held))
        print(path)
