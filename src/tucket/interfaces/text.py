"""Numbers and tables for people to read."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["human_bytes", "table", "times"]


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], words: int = 1) -> str:
    """Lay cells out in columns: the first ones, words, to the left, and numbers to the right.

    Examples
    --------
    >>> print(table(("name", "size"), [("a", "10"), ("long", "9")]))
    name  size
    ----  ----
    a       10
    long     9
    """
    widths = [max(map(len, column)) for column in zip(headings, *rows)]
    lines = [
        "  ".join(
            cell.ljust(width) if place < words else cell.rjust(width)
            for place, (cell, width) in enumerate(zip(row, widths))
        )
        for row in (headings, ["-" * width for width in widths], *rows)
    ]
    return "\n".join(line.rstrip() for line in lines)


def human_bytes(size: float) -> str:
    """Write a number of bytes.

    Examples
    --------
    >>> human_bytes(640), human_bytes(2_500_000)
    ('640 B', '2.5 MB')
    """
    for unit in ("B", "kB", "MB", "GB", "TB", "PB"):
        if size < 999.5:
            return f"{size:.3g} {unit}"
        size /= 1000
    return f"{size:.3g} EB"


def times(sizes: Sequence[int]) -> str:
    """Write a shape or a rank.

    Examples
    --------
    >>> times((92, 112, 400))
    '92 x 112 x 400'
    """
    return " x ".join(map(str, sizes))
