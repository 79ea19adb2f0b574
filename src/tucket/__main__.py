"""Run the command line as `python -m tucket`."""

import sys

from tucket.cli import main

sys.exit(main())
