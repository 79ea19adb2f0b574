"""Timing: work and baseline alternate in one process, so that other load on the machine affects both alike."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import subprocess
import sys
import time
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.cases import Call, Pair
from experiments.paper.rows import processor


def seconds(call: Call) -> float:
    """Time one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def peak() -> float:
    """Return the peak memory of this program, in MB.

    `getrusage` would include the program that started this one.
    """
    status = Path("/proc/self/status").read_text().splitlines()
    line = next(line for line in status if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024 / 1e6


def forget_peak() -> float:
    """Give freed memory back, reset the peak memory of this process to what it holds now, and return it in MB."""
    ctypes.CDLL("libc.so.6").malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    return peak()


def rows_of(module: str, case: str) -> Any:
    """Return the rows of a case, which runs in its own process; its progress is printed."""
    command, line = [sys.executable, "-m", module, "--here", case], "null"
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("  "):
                print(line, end="", flush=True)
    if process.returncode:
        raise SystemExit(f"{case} failed")
    return json.loads(line)


@dataclass(frozen=True)
class Ratio:
    """Median times of work and baseline, their ratio, and its quartiles over the rounds."""

    seconds: float
    baseline_seconds: float
    ratio: float
    lowest: float
    highest: float


def compare(pair: Pair, rounds: int = 9) -> Ratio:
    """Time work and baseline alternately; the first round warms both up and does not count."""
    times = np.array([(seconds(pair.baseline), seconds(pair.work)) for _ in range(rounds + 1)])[1:]
    baseline, work = np.median(times, axis=0)
    ratios = times[:, 1] / times[:, 0] / pair.share
    low, high = np.quantile(ratios, [0.25, 0.75])
    return Ratio(work, baseline, work / baseline / pair.share, float(low), float(high))


def machine() -> dict[str, Any]:
    """Return the processor, the cores and the versions of the packages."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("tucket", "numpy", "numba", "tensorly")},
    }
