"""Run the command line as `python -m tucket`."""

from tucket.cli import main

main()
