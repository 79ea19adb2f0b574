"""`ntd` of files larger than memory, compared with `ltr` and a plain read: python -m benchmarks.passes.

The folder `--folder` gets files of 8 GB, one at a time, which are removed at the end. Each file is read in its own
process, which measures its peak memory.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk
from benchmarks.measure import machine, peak, seconds
from benchmarks.pages import fill

RESULTS = Path(__file__).parent / "results" / "passes.json"

SHAPE, COMPONENTS, RANK, ROWS = (1000, 1000, 1000), (12, 10, 8), (12, 10, 8), 20
"""Shape of the tensor, its number of components, the rank of the models, and rows written at a time."""

MOST_READS, MOST_MB = 12, 1000


def slabs() -> Iterator[tuple[slice, NDArray[np.float64]]]:
    """Yield rows of a Tucker model with uneven, unordered factors, multiplied by random noise."""
    rng = np.random.default_rng(0)
    core = rng.gamma(0.4, size=COMPONENTS)
    first, *others = (rng.gamma(0.3, size=extent) for extent in zip(SHAPE, COMPONENTS))
    inner = np.einsum("abc,jb,kc->ajk", core, *others, optimize=True).reshape(len(core), -1)
    for start in range(0, SHAPE[0], ROWS):
        rows = slice(start, start + ROWS)
        part = first[rows] @ inner
        part *= rng.random(part.shape, np.float32) + np.float32(0.5)
        yield rows, part.reshape(-1, *SHAPE[1:])


def write_npy(path: Path) -> None:
    """Write an uncompressed .npy file."""
    array = np.lib.format.open_memmap(path, "w+", np.float64, SHAPE)
    for rows, part in slabs():
        array[rows] = part
    array.flush()


def write_zarr(path: Path) -> None:
    """Write chunks of 8 MB, not compressed."""
    import zarr

    array = zarr.create_array(path, shape=SHAPE, chunks=(ROWS, 250, 200), dtype="f8", compressors=None)
    for rows, part in slabs():
        array[rows] = part


MAKERS: dict[str, Callable[[Path], None]] = {"npy": write_npy, "zarr": write_zarr}


def measure(path: Path) -> dict[str, Any]:
    """Fit a file in this process."""
    source = tk.open(path)
    read = seconds(lambda: tk.collect(source, 1))
    began = time.perf_counter()
    block = tk.ltr(source, RANK)
    middle = time.perf_counter()
    fit = tk.ntd(source, RANK)
    took, passes = time.perf_counter() - middle, fit.n_passes
    unit = tk.collect(source, 1).total
    down = tk.ntd(source, RANK, multilevel=True, budget=5 * took)
    return {
        "read_seconds": read,
        "ltr": {"kl": block.kl(source) / unit, "seconds": middle - began},
        "ntd": {"kl": fit.loss / unit, "seconds": took, "passes": passes, "cells": fit.levels[-1]},
        "to single indices": {
            "kl": down.loss / unit, "seconds": down.seconds, "passes": down.n_passes, "stopped": down.stopped,
        },
        "peak_mb": peak(),
    }  # fmt: skip


def main() -> None:
    """Measure all files, and save the results."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.passes", description=__doc__)
    parser.add_argument("--folder", type=Path, default=Path("build/large"), help="for large files (%(default)s)")
    parser.add_argument("--here", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.here:
        print(json.dumps(measure(options.here)))
        return
    options.folder.mkdir(parents=True, exist_ok=True)
    result: dict[str, Any] = {"date": date.today().isoformat(), "machine": machine(), "shape": SHAPE, "rank": RANK}
    for kind, make in MAKERS.items():
        path = options.folder / f"x.{kind}"
        make(path)
        try:
            command = [sys.executable, "-m", "benchmarks.passes", "--here", path]
            result[kind] = json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
        finally:
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        row = result[kind]
        for name in ("ltr", "ntd", "to single indices"):
            print(f"{kind:5} {name:18}", *(f"{key} {value}" for key, value in row[name].items()))
        print(f"{kind:5} peak {row['peak_mb']:.0f} MB (limit {MOST_MB}), limit {MOST_READS} passes", flush=True)
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"results saved in {RESULTS}")
    fill()


if __name__ == "__main__":
    main()
