"""The command line."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from tucket import __version__

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command `tucket`; return its exit code."""
    parser = argparse.ArgumentParser(
        prog="tucket",
        description="Small non-negative Tucker models of non-negative tensors, in one pass.",
    )
    parser.add_argument("--version", action="version", version=f"tucket {__version__}")
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    demo = commands.add_parser(
        "demo",
        help="reduce two photographs, print a table, draw a picture",
        description="Reduce the two photographs that ship with scikit-learn, as one tensor "
        "(photograph, row, column, colour), to several ranks; print a table and draw a picture.",
    )
    demo.add_argument(
        "-o", "--output", type=Path, default=Path("build/demo.png"), help="the picture (default: %(default)s)"
    )
    options = parser.parse_args(arguments)
    try:
        from tucket.demo import run

        run(options.output)
    except (ImportError, OSError, ValueError) as error:
        print(f"tucket {options.command}: {error}", file=sys.stderr)
        return 1
    return 0
