"""Reduction of data outside memory, compared with a plain read: python -m benchmarks.sources.

The folder of `--folder` gets files of up to 8 GB, one at a time, which are removed at the end. Peak memory is that of a
separate process.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import tucket as tk
from benchmarks.measure import machine, peak, seconds
from tucket.sources.dense import PIECE_BYTES

RESULTS = Path(__file__).parent / "results" / "sources.json"
SHAPE = (1000, 1000, 1000)


def main() -> None:
    """Measure everything, save the results, and fill the page on scaling."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.sources", description=__doc__)
    parser.add_argument(
        "--folder", type=Path, default=Path("build/large"), help="for large files (default: %(default)s)"
    )
    parser.add_argument("--read", nargs=2, metavar=("FILE", "CACHE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.read:
        print(json.dumps(read_file(Path(options.read[0]), options.read[1])))
        return
    result: dict[str, Any] = {"date": date.today().isoformat(), "machine": machine()}
    result["sparse"] = sparse()
    result["tables"] = tables()
    result["files"] = list(files(options.folder, SHAPE))
    result["dask"] = cluster()
    RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    print(f"\nresults saved in {RESULTS}")
    from benchmarks.scaling import PAGE, fill_page

    PAGE.write_text(fill_page(PAGE.read_text(), result))
    print(f"table written to {PAGE}")


def sparse(entries: int = 10_000_000, shape: tuple[int, ...] = (1_000_000, 1_000_000, 1000)) -> dict[str, Any]:
    """Reduce a sparse tensor in a separate process, beside `numpy.bincount` of the same weights for each mode."""
    code = f"import json; from benchmarks import sources; print(json.dumps(sources.measure_sparse({entries}, {shape})))"
    found: dict[str, Any] = json.loads(_run_python("-c", code))
    print(
        f"sparse, {entries:.0e} entries in {shape}: {found['seconds']:.3f} s, "
        f"{found['seconds'] / found['bincount_seconds']:.2f} x bincount of each mode (limit 4), "
        f"peak memory {found['peak_mb']:.0f} MB (limit 1500), including {found['input_mb']:.0f} MB of entries"
    )
    return found


def measure_sparse(entries: int, shape: tuple[int, ...]) -> dict[str, Any]:
    """Reduce a sparse tensor in this process."""
    rng = np.random.default_rng(0)
    coords, values = [rng.integers(0, size, entries) for size in shape], rng.random(entries)
    partition = tk.Partition.uniform(shape, [min(rank, size) for rank, size in zip((100, 100, 20), shape)])
    rounds = [
        (
            seconds(lambda: [np.bincount(each, values, size) for each, size in zip(coords, shape)]),
            seconds(lambda: tk.collect(tk.from_entries(coords, values, shape), partition)),
        )
        for _ in range(6)
    ][1:]
    base, took = np.median(rounds, axis=0)
    return {
        "seconds": took,
        "bincount_seconds": base,
        "peak_mb": peak(),
        "input_mb": (values.nbytes + sum(each.nbytes for each in coords)) / 1e6,
    }


def tables(rows: int = 2_000_000) -> dict[str, float]:
    """Count the rows of a table by three columns, beside the `groupby` of pandas."""
    import pandas as pd

    rng = np.random.default_rng(0)
    names = np.array([f"user {number}" for number in range(5000)])
    begin = pd.Timestamp("2024-01-01")
    frame = pd.DataFrame(
        {
            "user": names[rng.zipf(1.5, rows) % 5000],
            "item": rng.integers(0, 1000, rows),
            "time": begin + pd.to_timedelta(rng.integers(0, 30 * 86400, rows), unit="s"),
        }
    )

    def ours() -> object:
        return tk.collect(tk.from_table(frame, ["user", "item", "time"], bins={"time": "1h"}), 20)

    def theirs() -> object:
        return frame.groupby(["user", "item", frame["time"].dt.floor("1h")]).size()

    rounds = [(seconds(theirs), seconds(ours)) for _ in range(4)][1:]
    base, took = np.median(rounds, axis=0)
    print(f"table of {rows:.0e} rows to statistics: {took:.2f} s, {took / base:.2f} x the groupby of pandas")
    return {"seconds": float(took), "groupby_seconds": float(base)}


def files(folder: Path, shape: tuple[int, ...]) -> Iterator[dict[str, Any]]:
    """Reduce files larger than the memory limit, beside a plain read."""
    folder.mkdir(parents=True, exist_ok=True)
    makers: dict[str, Callable[[Path, tuple[int, ...]], None]] = {
        "npy": make_npy,
        "zarr": partial(make_zarr, compressed=False),
        "zarr, zstd": partial(make_zarr, compressed=True),
        "hdf5": make_hdf5,
    }
    print(f"\n{'file':12} {'cache':6} {'GB':>5} {'read':>9} {'reduced':>9} {'ratio':>6} (1.3)  {'peak':>7} (700 MB)")
    for kind, make in makers.items():
        path = folder / f"x.{kind.split(',')[0].replace('hdf5', 'h5')}"
        make(path, shape)
        try:
            for cache in ("warm", "cold"):
                found = json.loads(_run_python("-m", "benchmarks.sources", "--read", str(path), cache))
                print(
                    f"{kind:12} {cache:6} {found['bytes'] / 1e9:5.2f} {found['read_seconds']:7.2f} s "
                    f"{found['seconds']:7.2f} s {found['seconds'] / found['read_seconds']:6.2f}        "
                    f"{found['peak_mb']:4.0f} MB",
                    flush=True,
                )
                yield {"kind": kind, "cache": cache, **found}
        finally:
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def _run_python(*arguments: str) -> str:
    done = subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stderr)
    return done.stdout


def _slabs(shape: tuple[int, ...]) -> Iterator[tuple[slice, Any]]:
    rng = np.random.default_rng(0)
    step = max(1, shape[0] // 50)
    for first in range(0, shape[0], step):
        rows = slice(first, min(first + step, shape[0]))
        yield rows, rng.gamma(2.0, size=(rows.stop - first, 1, shape[2])) + rng.random((1, shape[1], 1))


def make_npy(path: Path, shape: tuple[int, ...]) -> None:
    """Write float64 as .npy."""
    array = np.lib.format.open_memmap(path, "w+", np.float64, shape)
    for rows, slab in _slabs(shape):
        array[rows] = slab
    array.flush()


def make_zarr(path: Path, shape: tuple[int, ...], compressed: bool) -> None:
    """Write float64 without compression, or small integers with it, in chunks of 8 MB."""
    import zarr

    chunks = tuple(min(size, 100) for size in shape)
    how: dict[str, Any] = {"dtype": "u8"} if compressed else {"dtype": "f8", "compressors": None}
    array = zarr.create_array(path, shape=shape, chunks=chunks, **how)
    rows = max(1, chunks[0])
    rng = np.random.default_rng(0)
    for first in range(0, shape[0], rows):
        part = rng.random((min(rows, shape[0] - first), 1, shape[2])) + rng.random((1, shape[1], 1))
        array[first : first + rows] = (100 * part).astype("u8") if compressed else part


def make_hdf5(path: Path, shape: tuple[int, ...]) -> None:
    """Write float64 in chunks of 8 MB."""
    import h5py

    with h5py.File(path, "w") as file:
        array = file.create_dataset("x", shape, "f8", chunks=tuple(min(size, 100) for size in shape))
        for rows, slab in _slabs((shape[0], shape[1], shape[2])):
            array[rows] = slab


def read_file(path: Path, cache: str) -> dict[str, Any]:
    """Time the reduction of a file and a plain read of it, with a warm or a cold page cache."""
    small = np.ones((70, 70, 70))
    tk.collect(small, 20)  # load the compiled loops
    source = tk.open(path)
    partition = tk.Partition.uniform(source.shape, [min(20, size) for size in source.shape])

    def timed(call: Callable[[], object]) -> float:
        if cache == "cold":
            forget(path)
        return seconds(call)

    def just_read() -> None:
        if path.suffix == ".npy":  # memory-mapped chunks are not read until they are used, so read the bytes
            buffer = bytearray(PIECE_BYTES)
            with path.open("rb", buffering=0) as file:
                while file.readinto(buffer):
                    pass
        else:
            for _ in source.chunks(False):
                pass

    if cache == "warm":
        just_read()
    rounds = [(timed(lambda: tk.collect(source, partition)), timed(just_read)) for _ in range(3)]
    took, read = np.median(rounds, axis=0)
    return {"seconds": took, "read_seconds": read, "bytes": source.nbytes, "peak_mb": peak()}


def forget(path: Path) -> None:
    """Ask the system to drop a file from its page cache."""
    for each in path.rglob("*") if path.is_dir() else [path]:
        if each.is_file():
            descriptor = os.open(each, os.O_RDONLY)
            os.fsync(descriptor)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)


def cluster(chunk: tuple[int, ...] = (200, 400, 400), per_worker: int = 24, tiny: int = 1500) -> dict[str, Any]:
    """Reduce dask arrays on one and two worker processes, with equal work per process; measure the cost of a task."""
    import dask.array as da
    from distributed import Client, LocalCluster

    found: dict[str, Any] = {"chunk_bytes": 8 * int(np.prod(chunk))}
    for workers in (1, 2):
        with (
            LocalCluster(
                n_workers=workers, threads_per_worker=1, processes=True, host="127.0.0.1",
                dashboard_address="127.0.0.1:0", memory_limit=0,
            ) as local,
            Client(local),
        ):  # fmt: skip
            count = workers * per_worker
            array = da.ones((count * chunk[0], *chunk[1:]), chunks=chunk) * 2.0
            partition = tk.Partition.uniform(array.shape, [min(20, size) for size in array.shape])
            tk.collect(array, partition)
            pairs = [(seconds(array.sum().compute), seconds(lambda: tk.collect(array, partition))) for _ in range(3)]  # noqa: B023
            base, took = np.median(pairs, axis=0)
            found[f"workers_{workers}"] = {"seconds": float(took), "sum_seconds": float(base), "chunks": count}
            if workers == 2:
                times = {}
                for chunks in (tiny // 10, tiny):
                    small = da.ones((4 * chunks, 8, 8), chunks=(4, 8, 8))
                    cut = tk.Partition.uniform(small.shape, (8, 8, 8))
                    own = float(np.median([seconds(lambda: tk.collect(small, cut)) for _ in range(3)]))  # noqa: B023
                    total = float(np.median([seconds(small.sum().compute) for _ in range(3)]))
                    times[chunks] = own, total
                (few, (a, b)), (many, (c, d)) = times.items()
                found["task_seconds"], found["sum_task_seconds"] = (c - a) / (many - few), (d - b) / (many - few)
    one, two = found["workers_1"], found["workers_2"]
    found["weak_scaling"] = one["seconds"] / two["seconds"]
    found["kernel_bytes_per_second"] = kernel_rate(chunk)
    print(
        f"\ndask, {per_worker} chunks of {found['chunk_bytes'] / 1e6:.0f} MB per worker: "
        f"{one['seconds']:.2f} s on one, {two['seconds']:.2f} s on two (weak scaling {found['weak_scaling']:.2f}); "
        f"array.sum() {one['sum_seconds']:.2f} and {two['sum_seconds']:.2f} s\n"
        f"each further chunk costs {1000 * found['task_seconds']:.2f} ms, and for array.sum() "
        f"{1000 * found['sum_task_seconds']:.2f} ms; "
        f"one thread reduces {found['kernel_bytes_per_second'] / 1e9:.1f} GB per second"
    )
    return found


def kernel_rate(chunk: tuple[int, ...]) -> float:
    """Return the bytes per second that one thread reduces in memory."""
    x = np.ones(chunk)
    partition = tk.Partition.uniform(x.shape, [min(20, size) for size in x.shape])
    tk.collect(x, partition, workers=1)
    return x.nbytes / float(np.median([seconds(lambda: tk.collect(x, partition, workers=1)) for _ in range(5)]))


if __name__ == "__main__":
    main()
