"""The command line: how the program starts and ends; its commands are in `fit`, `ranks` and `commands`."""

from __future__ import annotations

import inspect
import sys
from typing import Annotated

import typer

from tucket.interfaces.cli.commands import collect, compare, demo, expand, fill, info, merge, report
from tucket.interfaces.cli.errors import as_typed
from tucket.interfaces.cli.fit import fit, reduce
from tucket.interfaces.cli.options import spread_options
from tucket.interfaces.cli.ranks import ranks

app = typer.Typer(
    name="tucket",
    help="Turn non-negative tensors into small non-negative Tucker models.",
    no_args_is_help=True,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)

INTERRUPTED = 130
"""Exit status of a program that Ctrl-C stopped, by convention."""

USER_ERRORS = (ArithmeticError, ImportError, LookupError, MemoryError, OSError, RuntimeError, TypeError, ValueError)
"""What the package raises with a message that helps: the user sees one line instead of a traceback."""


def main() -> None:
    """Run the program; on an error, print one line and exit with status 1."""
    try:
        app()
    except USER_ERRORS as error:
        if "--debug" in sys.argv:
            raise
        print(f"tucket: {as_typed(' '.join(str(error).split()), OPTIONS)}", file=sys.stderr)
        raise SystemExit(1) from None
    except (KeyboardInterrupt, SystemExit) as stop:
        code = getattr(stop, "code", INTERRUPTED)
        if code == INTERRUPTED:
            print("tucket: interrupted; no incomplete file is left", file=sys.stderr)
        raise SystemExit(code) from None


def show_version(wanted: bool) -> None:
    """Print the version and exit, if the user asked for it."""
    if wanted:
        from tucket import __version__

        print(f"tucket {__version__}")
        raise typer.Exit


@app.callback()
def root(
    _: Annotated[
        bool, typer.Option("--version", callback=show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Turn non-negative tensors into small non-negative Tucker models."""


COMMANDS = [
    spread_options(command)
    for command in (fit, reduce, info, expand, fill, report, ranks, compare, collect, merge, demo)
]

OPTIONS = {name for command in COMMANDS for name in inspect.signature(command).parameters}
"""The options of all commands, by the names of the arguments of the library that they stand for."""

for each in COMMANDS:
    app.command()(each)
