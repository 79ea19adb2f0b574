"""Passes over tensors on a GPU, compared with `torch.sum` and a copy: python -m benchmarks.gpu.

Each result is compared with float64, on new random numbers. Times are medians of device events after a warm-up. They
are measured in two ways: the work of the device alone, while the host runs ahead of it, and whole calls, with all that
the host does (for `ltr`, only these). Each case is compared with a baseline measured in the same way.
"""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

import tucket as tk
from benchmarks.blocks import load
from benchmarks.pages import fill
from tucket.decomposition.data import array as array_data
from tucket.kernels.gpu.layout import layout_of
from tucket.kernels.gpu.passes import divergence
from tucket.kernels.gpu.sums import DeviceSums, sum_type_of

RESULTS = Path(__file__).parent / "results" / "gpu.json"
CUBE, RANK = (1000, 1000, 2000), 20
VIEWS = (9, 9, 512, 512, 3)
SHAPES = (
    ((700, 700, 1000), 1),
    ((700, 700, 999), 20),
    ((22_000, 22_000), 20),
    ((200, 2_400_000), 20),
    ((800_000, 600), 20),
    ((800_000, 3, 200), 3),
    ((20_000, 8_000, 3), 3),
    ((64, 64, 64, 64, 32), 4),
)
"""Shapes and ranks: row lengths that are odd or no multiple of 16, few long rows, many short rows."""


HOST = "  with all that the host does"

AHEAD_CYCLES = 4_000_000
"""Clock cycles for which the device is kept busy, about 2 ms."""


SLAB_ENTRIES = 1 << 26
"""Entries that are converted to float64 at a time."""


@dataclass(frozen=True)
class Row:
    """One case: its time, its speed, the ratio to a baseline (the ceiling), and its error against float64."""

    case: str
    milliseconds: float
    terabytes_per_second: float | None
    ceiling: str
    ratio: float
    least: float | None
    error: float | None


def timed(call: Callable[[], object], rounds: int = 15, *, ahead: bool = False) -> float:
    """Return the median of seconds between device events around a call.

    With `ahead`, the device is kept busy first, so that it does not wait for the work of the host.
    """
    for _ in range(3):
        call()
    torch.cuda.synchronize()
    times = []
    for _ in range(rounds):
        first, last = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        if ahead:
            torch.cuda._sleep(AHEAD_CYCLES)
        first.record()
        call()
        last.record()
        torch.cuda.synchronize()
        times.append(first.elapsed_time(last) / 1000)
    return float(np.median(times))


def one_pass(x: torch.Tensor, partition: tk.Partition) -> float:
    """Return the seconds that the device takes for one pass over a tensor, with all sums."""
    return timed(lambda: DeviceSums(x, layout_of(x, partition), sum_type_of(x.dtype)), ahead=True)


def draw(shape: tuple[int, ...], dtype: torch.dtype) -> torch.Tensor:
    """Return numbers drawn anew: from 0 to 1, or bytes."""
    if dtype == torch.uint8:
        return torch.randint(0, 256, shape, dtype=dtype, device="cuda")
    x = torch.empty(shape, dtype=dtype, device="cuda")
    for slab in x:
        slab.copy_(torch.rand(shape[1:], device="cuda"))
    return x


def exact(x: torch.Tensor, partition: tk.Partition) -> tuple[Any, list[Any]]:
    """Return block sums and marginals in float64, some slices at a time."""
    core = torch.zeros(partition.rank, dtype=torch.float64, device=x.device)
    marginals = [torch.zeros(size, dtype=torch.float64, device=x.device) for size in x.shape]
    one_hot = [
        torch.nn.functional.one_hot(torch.from_numpy(np.array(blocks.labels)).to(x.device), blocks.rank).double()
        for blocks in partition.modes
    ]
    length = max(1, SLAB_ENTRIES * len(x) // x.numel())
    for start in range(0, len(x), length):
        part, rows = x[start : start + length].double(), slice(start, start + length)
        for mode, marginal in enumerate(marginals):
            sums = part.sum([other for other in range(x.ndim) if other != mode])
            marginal[rows if mode == 0 else slice(None)] += sums
        for mode, matrix in enumerate(one_hot):  # the mode goes, its blocks come last
            part = torch.tensordot(part, matrix[rows] if mode == 0 else matrix, dims=([0], [0]))
        core += part
    return core, marginals


def error_of(stats: tk.Statistics, x: torch.Tensor) -> float:
    """Return the largest error of any sum, relative to it."""
    core, marginals = exact(x, stats.partition)
    pairs = [(stats.core, core), *zip(stats.marginals, marginals)]
    return max(float(np.max(np.abs(ours - other.cpu().numpy()) / other.cpu().numpy())) for ours, other in pairs)


def cases() -> Iterator[Row]:
    """Measure case after case."""
    for dtype, shape, least in (
        (torch.float32, CUBE, 0.93),
        (torch.float16, CUBE, 0.9),
        (torch.bfloat16, CUBE, 0.9),
        (torch.float64, (1000, 1000, 1000), 0.9),
    ):
        yield from of_type(dtype, shape, least)
    yield from of_shapes()
    yield from of_bytes()
    yield from of_much()
    torch.cuda.empty_cache()
    yield from of_faces()  # last, since it leaves threads of other libraries behind


class Ceiling:
    """A baseline: its time on the device while the host runs ahead, and with all that the host does."""

    def __init__(self, name: str, call: Callable[[], object], size: int) -> None:
        self.name, self.size = name, size
        self.device, self.whole = timed(call, ahead=True), timed(call)

    def rows(self, kind: str = "") -> Iterator[Row]:
        yield row(self.name + kind, self.device, self.size)
        yield row(HOST, self.whole, self.size)

    def under(self, case: str, seconds: float, least: float | None = None, error: float | None = None) -> Row:
        """Make a row of a time while the host is ahead."""
        return row(case, seconds, self.size, self.name, self.device / seconds, least, error)

    def whole_under(self, case: str, seconds: float, least: float | None = None, error: float | None = None) -> Row:
        """Make a row of a time with all that the host does."""
        return row(case, seconds, self.size, self.name, self.whole / seconds, least, error)


def of_type(dtype: torch.dtype, shape: tuple[int, ...], least: float) -> Iterator[Row]:
    """Compare the pass over 8 GB, or 4, of one type with `torch.sum`."""
    name = str(dtype).removeprefix("torch.")
    x = draw(shape, dtype)
    ceiling = Ceiling("torch.sum", lambda: torch.sum(x), x.nbytes)
    yield from ceiling.rows(f", {name}")
    cut = tk.Partition.uniform(shape, RANK)
    device = one_pass(x, cut)
    yield ceiling.under(f"collect, {name} {shape}", device, least, error_of(tk.collect(x, cut), x))
    yield ceiling.whole_under(HOST, timed(lambda: tk.collect(x, cut)))
    if dtype == torch.float32:
        yield from of_cube(x, cut, ceiling, device)


def of_shapes() -> Iterator[Row]:
    """Measure the pass over tensors of other shapes, some 2 GB of float32 each, beside `torch.sum` of the same."""
    for shape, rank in SHAPES:
        x = torch.rand(shape, device="cuda")
        cut = tk.Partition.uniform(shape, rank)
        ceiling = Ceiling("torch.sum", partial(torch.sum, x), x.nbytes)
        error = error_of(tk.collect(x, cut), x)
        yield ceiling.under(f"collect, float32 {shape}, rank {rank}", one_pass(x, cut), None, error)
        del x, ceiling


def row(
    case: str,
    seconds: float,
    size: int | None,
    ceiling: str = "",
    ratio: float = 1.0,
    least: float | None = None,
    error: float | None = None,
) -> Row:
    """Make a row, and print it."""
    speed = None if size is None else size / seconds / 1e12
    made = Row(case, 1000 * seconds, speed, ceiling, ratio, least, error)
    print(
        f"{case:60} {made.milliseconds:9.3f} ms {speed or math.nan:6.2f} TB/s {ratio:6.2f} x {ceiling:12} "
        f"{'' if least is None else f'(at least {least:g})':16} {'' if error is None else f'error {error:.1e}'}",
        flush=True,
    )
    return made


def of_cube(x: torch.Tensor, partition: tk.Partition, ceiling: Ceiling, contiguous: float) -> Iterator[Row]:
    """Measure every function on 8 GB of float32."""
    rng, y = np.random.default_rng(), torch.empty_like(x)
    yield row("copy, read and written", timed(lambda: y.copy_(x), ahead=True), 2 * x.nbytes)
    fill = Ceiling("fill", lambda: y.fill_(1.0), x.nbytes)
    yield from fill.rows()
    free = tk.Partition.from_labels([rng.permutation(blocks.labels) for blocks in partition.modes])
    seconds = one_pass(x, free)
    error = error_of(tk.collect(x, free), x)
    yield row("collect, free labels", seconds, x.nbytes, "contiguous", contiguous / seconds, 0.7, error)
    turned = x.permute(2, 0, 1)
    cut = tk.Partition.uniform(tuple(turned.shape), RANK)
    yield ceiling.under("collect, modes in another order", one_pass(turned, cut))
    seconds = timed(lambda: tk.ltr(x, RANK, blocks="random", rng=0))
    yield ceiling.whole_under("ltr, random blocks, end to end", seconds, 0.85)
    yield ceiling.whole_under("  with blocks drawn anew", timed(lambda: tk.ltr(x, RANK, blocks="random", rng=rng)))
    model: Any = tk.ltr(x, RANK, blocks="uniform", dtype=np.float32)
    dense, host = model.to_tensor(), model.to_numpy().astype(np.float64)
    some = rng.integers(0, CUBE[0], 3).tolist()
    error = max(float(np.max(np.abs(dense[i].cpu().numpy() / host[i] - 1))) for i in some)
    yield fill.under("to_tensor", timed(model.to_tensor, ahead=True), 0.85, error)
    yield fill.whole_under(HOST, timed(model.to_tensor))
    kl, residual, norm = np.sum([compared(p, q) for p, q in zip(x, dense)], axis=0)
    del dense
    seconds = timed(lambda: divergence(x, partition, model.core, model.weights, sum_type_of(x.dtype)), ahead=True)
    yield ceiling.under("kl", seconds, 0.6, abs(model.kl(x) / kl - 1))
    yield ceiling.whole_under(HOST, timed(lambda: model.kl(x)))
    error = abs(model.relative_error(x) / math.sqrt(residual / norm) - 1)
    yield ceiling.whole_under("relative_error, end to end", timed(lambda: model.relative_error(x)), None, error)
    for whole in ((None, RANK, RANK), (RANK, RANK, None), (None, None, RANK)):
        yield ceiling.under(f"collect, rank {whole}", one_pass(x, tk.Partition.uniform(CUBE, whole)))
    for blocks in ("segments", "clusters"):
        seconds = timed(partial(tk.ltr, x, RANK, blocks=blocks, max_sweeps=2), 3)
        yield ceiling.whole_under(f"ltr, {blocks}, two sweeps", seconds)


def compared(p: torch.Tensor, q: torch.Tensor) -> list[float]:
    """Return divergence, squares of the difference and squares, in float64."""
    p, q = p.double(), q.double()
    divergence = torch.special.xlogy(p, p / q) - p + q
    return [float(each.sum()) for each in (divergence, (p - q) ** 2, p**2)]


def of_bytes() -> Iterator[Row]:
    """Measure a light field of bytes."""
    shape = (16, *VIEWS)
    x = draw(shape, torch.uint8)
    cut = tk.Partition.uniform(shape, (4, 3, 3, 16, 16, 1))
    seconds = one_pass(x, cut)
    error = error_of(tk.collect(x, cut), x)
    yield row(f"collect, uint8 {shape}", seconds, x.numel(), "1.5 TB/s", x.numel() / seconds / 1.5e12, 1.0, error)


def of_much() -> Iterator[Row]:
    """Measure 100 GB of float16, and the additional memory."""
    x = draw((5000, 5000, 2000), torch.float16)
    cut = tk.Partition.uniform(tuple(x.shape), RANK)
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    stats = tk.collect(x, cut)
    held = torch.cuda.max_memory_allocated() - before
    seconds, ceiling = timed(lambda: tk.collect(x, cut), 3), timed(lambda: torch.sum(x), 3)
    name = f"collect, float16, 100 GB, end to end, {held / 1e6:.0f} MB beside it"
    yield row(name, seconds, x.nbytes, "torch.sum", ceiling / seconds, None, error_of(stats, x))


def of_faces() -> Iterator[Row]:
    """Measure how soon a divergence on AttFace is reached: by `ntd` on GPU and host, and by TensorLy."""
    from tensorly import backend_context
    from tensorly.decomposition import non_negative_tucker_hals

    x = load("AttFace")
    if x is None:
        print("ntd is left out: the faces are missing")
        return
    there, total = torch.from_numpy(x.copy()).cuda(), float(x.sum(dtype=np.float64))
    rank, goal = 40, 0.0265 * total
    ours, error = soonest(there, rank, goal)  # before the host is busy with threads
    with patch.object(array_data, "RECORDED_ENTRIES", 0):
        anew, _ = soonest(there, rank, goal)
    whole, _ = clocked(lambda: tk.ntd(there, rank))
    host, _ = soonest(x, rank, goal)
    yield row("ntd, AttFace at rank 40, to KL/S .0265", ours, None, "ntd on the CPU", host / ours, 10, error)
    yield row("  with nothing recorded before the call", anew, None, "ntd on the CPU", host / anew)
    host, _ = clocked(lambda: tk.ntd(x, rank), 1)
    yield row("ntd, AttFace at rank 40, to the end", whole, None, "ntd on the CPU", host / whole)
    with backend_context("pytorch"):
        run = partial(non_negative_tucker_hals, there.double(), [rank] * 3, tol=0, random_state=0)
        run(n_iter_max=1)
        peer, [(core, factors)] = clocked(lambda: run(n_iter_max=30), 1)
    reached = tk.Tucker(core.clamp(min=0).cpu().numpy(), [f.clamp(min=0).cpu().numpy() for f in factors]).kl(x)
    name = f"ntd, AttFace at rank 40, to KL/S {reached / total:.4f}"
    ours, error = soonest(there, rank, reached)
    yield row(name, ours, None, "TensorLy's HALS", peer / ours, 20, error)


def soonest(x: Any, rank: int, goal: float) -> tuple[float, float]:
    """Return the time of calls with the least budget that mostly reach a divergence, and the error of their loss."""
    budget = 1e-3
    while True:
        seconds, fits = clocked(partial(tk.ntd, x, rank, budget=budget))
        if np.median([fit.loss for fit in fits]) <= goal:
            break
        budget *= 1.1
    on_host = x if isinstance(x, np.ndarray) else x.cpu().numpy()
    return seconds, max(abs(fit.loss / fit.model.to_numpy().kl(on_host) - 1) for fit in fits)


def clocked(call: Callable[[], Any], rounds: int = 7) -> tuple[float, list[Any]]:
    """Return the median of seconds of calls, with all that the host does, and what they return."""
    times, results = [], []
    for _ in range(rounds):
        torch.cuda.synchronize()
        began = time.perf_counter()
        results.append(call())
        torch.cuda.synchronize()
        times.append(time.perf_counter() - began)
    return float(np.median(times)), results


def main() -> None:
    """Measure, print, and save the results."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("-o", "--output", type=Path, default=RESULTS)
    output = parser.parse_args().output
    rows = [asdict(made) for made in cases()]
    import triton

    system = {
        "gpu": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "triton": triton.__version__,
        "tucket": tk.__version__,
    }
    result = {"date": time.strftime("%Y-%m-%d"), "machine": system, "rows": rows}
    output.write_text(json.dumps(result, indent=1) + "\n")
    if output == RESULTS:
        fill()


if __name__ == "__main__":
    main()
