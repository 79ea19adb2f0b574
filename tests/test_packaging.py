"""What users install is the package, whole and alone."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import tucket as tk

ROOT = Path(__file__).parents[1]


def test_the_wheel_holds_the_package_and_nothing_else(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (path,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(path) as wheel:
        packed = {name for name in wheel.namelist() if not name.startswith(f"tucket-{tk.__version__}.dist-info/")}
    source = ROOT / "src"
    files = {file.relative_to(source) for file in source.rglob("*") if file.is_file()}
    assert packed == {file.as_posix() for file in files if "__pycache__" not in file.parts}
    assert {"tucket/__init__.pyi", "tucket/py.typed", "tucket/interfaces/report.html"} <= packed
