"""Every example of the gallery runs, without a warning, and draws something."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[1] / "docs" / "gallery"


@pytest.mark.parametrize("script", sorted(GALLERY.glob("plot_*.py")), ids=lambda script: script.stem)
def test_example(script: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib", reason="the gallery draws with matplotlib")
    code = f"""
import runpy
import matplotlib.pyplot as plt
plt.show = lambda: None
runpy.run_path({str(script)!r}, run_name="__main__")
for number in plt.get_fignums():
    plt.figure(number).savefig(f"{{number}}.png")
"""
    environment = {**os.environ, "MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", code],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.glob("*.png"))) >= 1
