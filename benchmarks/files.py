"""How many files of the package a call goes through, and how long the package is: python -m benchmarks.files."""

from __future__ import annotations

import ast
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np

import tucket as tk

PACKAGE = Path(tk.__file__).parent


def files_of(call: Callable[[], object]) -> list[str]:
    """Return the files with code that the second call runs; by then, everything is imported."""
    call()
    seen: set[Path] = set()
    sys.setprofile(lambda frame, event, _: seen.add(Path(frame.f_code.co_filename)) if event == "call" else None)
    call()
    sys.setprofile(None)
    return sorted(str(path.relative_to(PACKAGE)) for path in seen if path.is_relative_to(PACKAGE))


def lengths(path: Path) -> tuple[int, int]:
    """Count all lines of a file, and those of code: not blank, nor of a docstring, an import or a comment."""
    lines, others = path.read_text().splitlines(), set[int]()
    for node in ast.walk(ast.parse(path.read_bytes())):
        is_string = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
        if isinstance(node, ast.stmt) and (is_string or isinstance(node, ast.Import | ast.ImportFrom)):
            others.update(range(node.lineno, (node.end_lineno or 0) + 1))
    return len(lines), sum(line.strip()[:1] not in ("", "#") and at not in others for at, line in enumerate(lines, 1))


def main() -> None:
    """Print the files of each call, and the lines of each folder."""
    for x in map(np.random.default_rng(0).random, ((30, 30, 30), (100, 110, 120))):
        for call in (partial(tk.ltr, x, 10, blocks="uniform"), partial(tk.ntd, x, 10)):
            print(call.func.__name__, x.shape, f"{len(found := files_of(call))} files:", *found)
    for folder in sorted(path for path in (PACKAGE, *PACKAGE.iterdir()) if (path / "__init__.py").exists()):
        total, code = map(sum, zip(*map(lengths, folder.rglob("*.py"))))
        print(f"{folder.name:14} {total:6} lines, {code:6} of code")


if __name__ == "__main__":
    main()
