"""Measure every case, print a table, save the results as JSON, and update the README from them.

python -m benchmarks [--rounds 9] [--output benchmarks/results/cpu.json]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tucket as tk
from benchmarks import blocks, geometry
from benchmarks.cases import cases, random_tensor
from benchmarks.measure import compare, machine, seconds
from benchmarks.pages import fill
from benchmarks.plot import draw

RESULTS = Path(__file__).parent / "results" / "cpu.json"


def main() -> None:
    """Run all benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=9, help="timed rounds per case (default: 9)")
    parser.add_argument("--output", type=Path, default=RESULTS, help="file for the results (default: %(default)s)")
    options = parser.parse_args()
    result: dict[str, Any] = {"date": date.today().isoformat(), "machine": machine()}
    print("  ".join(f"{name} {value}" for name, value in result["machine"].items()), "\n")
    result["ratios"] = list(ratios(options.rounds))
    result["growth"] = list(growth())
    result["memory"] = memory()
    result["attface"] = list(attface())
    result["blocks"] = list(blocks.measure())
    result["digits"] = blocks.digits()
    result["curve"] = blocks.curve()
    result["long_mode"] = list(blocks.long_mode())
    result["geometry"] = list(geometry.measure())
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text(json.dumps(result, indent=1, allow_nan=False) + "\n")
    print(f"\nresults saved in {options.output}")
    if options.output == RESULTS:
        fill()
        print(f"plot drawn in {draw(result)}")


def ratios(rounds: int) -> Iterator[dict[str, Any]]:
    """Compare each case with its baseline."""
    print(f"{'case':44} {'ms':>8} {'ratio':>7}  {'quartiles':13} {'limit':>7}  baseline")
    for case in cases():
        found = compare(case.build(False), rounds)
        verdict = "" if case.limit is None else f"{case.limit:7.2f}"
        verdict += " !" if case.limit is not None and found.ratio > case.limit else ""
        print(
            f"{case.name:44} {1000 * found.seconds:8.2f} {found.ratio:7.3f}  "
            f"{found.lowest:5.3f} - {found.highest:5.3f} {verdict:9} {case.baseline}",
            flush=True,
        )
        yield {"case": case.name, "baseline": case.baseline, "limit": case.limit, **asdict(found)}


def growth() -> Iterator[dict[str, Any]]:
    """Time `ltr` on tensors of growing size."""
    print(f"\n{'ltr, rank 10, uniform, 1 worker':44} {'ms':>8} {'ns per entry':>13}")
    for dtype, sizes in (("f8", (100, 215, 464)), ("u1", (100, 215, 464, 1000))):
        for size in sizes:
            x = random_tensor((size,) * 3, dtype)
            reduce = partial(tk.ltr, x, 10, blocks="uniform", workers=1)
            reduce()
            took = float(np.median([seconds(reduce) for _ in range(9)]))
            print(f"{f'{size}^3 {x.dtype}':44} {1000 * took:8.2f} {1e9 * took / x.size:13.3f}", flush=True)
            yield {"dtype": str(x.dtype), "elements": x.size, "seconds": took}


def memory() -> dict[str, float]:
    """Measure the peak memory of `ltr` beside an input of 1 GB, in a separate process."""
    code = """
import resource, numpy as np, tucket as tk
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
tk.ltr(np.ones((100, 100, 100)), 20)  # load the compiled loops
x = np.ones((400, 500, 625))
before = peak()
model = tk.ltr(x, 20, blocks="random", rng=0)
print(peak() - before, model.n_parameters * 8 / 2**20)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    extra, model = map(float, done.stdout.split())
    print(f"\nltr on 1 GB: peak memory {extra:.1f} MB beside the input (limit 64); the model has {model:.2f} MB")
    return {"extra_mb": extra, "model_mb": model}


def attface() -> Iterator[dict[str, Any]]:
    """Compare `ltr` with TensorLy's two non-negative Tucker decompositions on AttFace."""
    from benchmarks.attface import compare_methods

    print()
    yield from compare_methods()


if __name__ == "__main__":
    main()
