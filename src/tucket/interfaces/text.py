"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Align cells in columns: the first `words` columns to the left, the others, numbers, to the right.

    >>> print(table(("name", "size"), [("a", "10"), ("long", "9")]))
    name  size
    ----  ----
    a       10
    long     9
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    align = [str.ljust] * words + [str.rjust] * (len(widths) - words)
    lines = [headings, ["-" * width for width in widths], *rows]
    aligned = [[put(cell, width) for put, cell, width in zip(align, line, widths)] for line in lines]
    return "\n".join("  ".join(cells).rstrip() for cells in aligned)


def human_bytes(size: float) -> str:
    """Format a number of bytes.

    >>> human_bytes(640), human_bytes(2_500_000)
    ('640 B', '2.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"


def format_sizes(sizes: Sequence[int]) -> str:
    """Format a shape or a rank, as in 92 x 112 x 400."""
    return " x ".join(map(str, sizes))
