"""The command line: `program` runs it, the other files hold the commands and what they share."""

from tucket.interfaces.cli.explore import compare, demo, ranks
from tucket.interfaces.cli.fit import fit, reduce
from tucket.interfaces.cli.models import expand, info, report
from tucket.interfaces.cli.options import spread_options
from tucket.interfaces.cli.program import app, main
from tucket.interfaces.cli.statistics import collect, merge

__all__ = ["app", "main"]

for command in (fit, reduce, info, expand, report, ranks, compare, collect, merge, demo):
    app.command()(spread_options(command))
