"""The installed program, run as users run it: with its output caught, or in a terminal."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tucket")
    return subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def watch(*arguments: str, cwd: Path) -> bytes:
    """Run the program in a terminal, and return what it shows there beside its results."""
    import pty

    main, terminal = pty.openpty()
    program = str(Path(sys.executable).with_name("tucket"))
    with subprocess.Popen([program, *arguments], cwd=cwd, stdout=subprocess.DEVNULL, stderr=terminal) as running:
        os.close(terminal)
        output = b""
        try:
            while part := os.read(main, 1 << 16):
                output += part
        except OSError:  # the other end is closed
            pass
    os.close(main)
    assert running.returncode == 0
    return output
