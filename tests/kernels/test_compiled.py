"""The Triton kernels as a GPU would run them: compiled, on any machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")

from tucket.kernels.gpu import loops as kernels


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, int]]:
    """Return the instructions that read memory, of kernels compiled in a process that does not interpret them."""
    plain = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    room = {"TRITON_CACHE_DIR": str(tmp_path_factory.mktemp("triton"))}
    command = [sys.executable, "-W", "ignore", str(Path(__file__).with_name("compiled.py"))]
    done = subprocess.run(command, env=plain | room, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found: dict[str, dict[str, int]] = json.loads(done.stdout)
    return found


def test_every_kernel_is_compiled_for_a_gpu(loads: dict[str, dict[str, int]]) -> None:
    source = Path(__file__).with_name("compiled.py").read_text()
    assert all(f'("{name}", {{' in source for name in kernels.__all__)
    assert all(counts for counts in loads.values())


@pytest.mark.parametrize(
    "case",
    [
        "float32",
        "float32, units of 8",
        "float32, gaps",
        "float32, in batches",
        "float16",
        "bfloat16",
        "float64",
        "uint8",
        "compare",
    ],
)
def test_sixteen_bytes_are_read_at_a_time(case: str, loads: dict[str, dict[str, int]]) -> None:
    wide = sum(count for kind, count in loads[case].items() if kind.endswith((".v4.b32", ".v2.b64")))
    assert wide > 0
    assert not any(".v" in kind for kind in loads["float32, odd"])
