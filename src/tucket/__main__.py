"""Run the command line as `python -m tucket`."""

from tucket.interfaces.cli import main

if __name__ == "__main__":
    main()
