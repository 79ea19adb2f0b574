"""The installed program, run as users run it."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tucket as tk


def run(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    program = Path(sys.executable).with_name("tucket")
    return subprocess.run([program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_version(tmp_path: Path) -> None:
    assert run("--version", cwd=tmp_path).stdout == f"tucket {tk.__version__}\n"


@pytest.mark.parametrize("arguments", [(), ("dance",), ("demo", "--rank", "3")])
def test_wrong_usage_exits_with_2(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert "Usage: tucket" in done.stdout + done.stderr
    assert "Traceback" not in done.stderr


def test_demo(tmp_path: Path) -> None:
    done = run("demo", "-o", "new/picture.png", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    picture = tmp_path / "new" / "picture.png"
    assert done.stdout.endswith(f"{picture.resolve()}\n")
    assert picture.read_bytes().startswith(b"\x89PNG")
    rows = re.findall(
        r"^(2 x [\d x]+?) +(published|projection) +(random|uniform|segments) .* (0\.\d{4}) ", done.stdout, re.M
    )
    assert len(rows) == 16
    rank, *way, error = rows[-1]
    from sklearn.datasets import load_sample_images

    photographs = np.stack(load_sample_images().images)
    model = tk.ltr(photographs, [int(r) for r in rank.split(" x ")], blocks="segments")
    assert way == ["projection", "segments"]
    assert error == f"{model.relative_error(photographs):.4f}"


def test_demo_says_in_one_line_what_failed(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = run("demo", "-o", "file/picture.png", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("tucket: ")
    assert done.stderr.count("\n") == 1
