"""How to measure: work and baseline in turns, in one run, so that a shared machine disturbs both alike."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from importlib.metadata import version
from typing import Any

import numpy as np

from benchmarks.cases import Call, Pair
from experiments.paper.rows import processor


def seconds(call: Call) -> float:
    """Time one call."""
    began = time.perf_counter()
    call()
    return time.perf_counter() - began


@dataclass(frozen=True)
class Ratio:
    """Medians of the work's and the baseline's times, and how their quotient spreads from round to round."""

    seconds: float
    baseline_seconds: float
    ratio: float
    lowest: float
    highest: float


def compare(pair: Pair, rounds: int = 9) -> Ratio:
    """Time work and baseline in turns; the first round, which warms both up, does not count."""
    times = np.array([(seconds(pair.baseline), seconds(pair.work)) for _ in range(rounds + 1)])[1:]
    baseline, work = np.median(times, axis=0)
    quotients = times[:, 1] / times[:, 0] / pair.share
    low, high = np.quantile(quotients, [0.25, 0.75])
    return Ratio(work, baseline, work / baseline / pair.share, float(low), float(high))


def machine() -> dict[str, Any]:
    """Say what measured."""
    return {
        "cpu": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        **{name: version(name) for name in ("tucket", "numpy", "numba", "tensorly")},
    }
