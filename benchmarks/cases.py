"""The cases: each with a call to measure, a baseline, and a limit of their ratio."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import tucket as tk

Array = NDArray[Any]
Call = Callable[[], object]

CUBE, LIGHTFIELD = (400, 500, 600), (9, 9, 512, 512, 3)


@dataclass(frozen=True)
class Pair:
    """Two calls to compare; `share` is the bytes that the work reads, relative to those of the baseline."""

    work: Call
    baseline: Call
    share: float = 1.0


@dataclass(frozen=True)
class Case:
    """One row of the table, with the limit of the ratio of times.

    `build(small)` makes the pair of calls, at full size or at a size for tests.
    """

    name: str
    baseline: str
    limit: float | None
    build: Callable[[bool], Pair]


def shape_and_partition(
    shape: tuple[int, ...], rank: tuple[int, ...], small: bool
) -> tuple[tuple[int, ...], tk.Partition]:
    """Return the shape, or a similar one with a few thousand entries, and its uniform partition."""
    if small:
        shape = tuple(min(size, 2 + math.isqrt(size)) for size in shape) if len(shape) < 9 else (2,) * 12
        rank = tuple(min(r, (1 + size) // 2) for r, size in zip(rank, shape))
    return shape, tk.Partition.uniform(shape, rank)


def random_tensor(shape: tuple[int, ...], dtype: str) -> Array:
    """Return random entries: bytes, or floats from 0 to 1."""
    rng = np.random.default_rng(0)
    if np.dtype(dtype).kind == "f":
        return rng.random(shape, np.dtype(dtype).type)
    return rng.integers(0, 256, shape, dtype)


def compare_with_sum(
    shape: tuple[int, ...], rank: tuple[int, ...], dtype: str, workers: int = 1
) -> Callable[[bool], Pair]:
    """Compare `collect` with `numpy.sum`."""

    def build(small: bool) -> Pair:
        extent, partition = shape_and_partition(shape, rank, small)
        x = random_tensor(extent, dtype)
        return Pair(
            lambda: tk.collect(x, partition, workers=workers),
            lambda: np.sum(x, dtype=np.float64),
        )

    return build


def compare_layouts(view: Callable[[Array], Array], share: float = 1.0) -> Callable[[bool], Pair]:
    """Compare `collect` of a tensor in another memory layout with `collect` in C order."""

    def build(small: bool) -> Pair:
        shape, partition = shape_and_partition(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, "f8")
        other = view(x)
        other_partition = tk.Partition.uniform(other.shape, partition.rank)
        return Pair(
            lambda: tk.collect(other, other_partition, workers=1),
            lambda: tk.collect(x, partition, workers=1),
            share,
        )

    return build


def compare_view_with_sum(view: Callable[[Array], Array]) -> Callable[[bool], Pair]:
    """Compare `collect` of a view with `numpy.sum` of the same view."""

    def build(small: bool) -> Pair:
        shape, partition = shape_and_partition(CUBE, (20, 20, 20), small)
        x = view(random_tensor(shape, "f8"))
        partition = tk.Partition.uniform(x.shape, partition.rank)
        return Pair(lambda: tk.collect(x, partition, workers=1), lambda: np.sum(x))

    return build


def compare_ltr_with_sum(small: bool) -> Pair:
    """Compare `ltr`, end to end, with `numpy.sum`."""
    shape, partition = shape_and_partition(CUBE, (20, 20, 20), small)
    x = random_tensor(shape, "f8")
    return Pair(
        lambda: tk.ltr(x, partition.rank, blocks="random", rng=0, workers=1),
        lambda: np.sum(x),
    )


def compare_to_tensor_with_copy(small: bool) -> Pair:
    """Compare `to_tensor` with `numpy.copyto`."""
    shape, partition = shape_and_partition(CUBE, (20, 20, 20), small)
    x = random_tensor(shape, "f8")
    model = tk.ltr(x, blocks=partition)
    out = np.zeros_like(x)
    return Pair(lambda: model.to_tensor(out=out, workers=1), lambda: np.copyto(out, x))


def compare_measure_with_sum(measure: str, dtype: str) -> Callable[[bool], Pair]:
    """Compare `kl` or `relative_error` of a model with `numpy.sum`."""

    def build(small: bool) -> Pair:
        shape, partition = shape_and_partition(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, dtype)
        model = tk.ltr(x, blocks=partition)
        return Pair(lambda: getattr(model, measure)(x, workers=1), lambda: np.sum(x, dtype=np.float64))

    return build


def compare_read_with_sum(workers: int) -> Callable[[bool], Pair]:
    """Compare a plain vectorised read, the lower bound of any pass, with `numpy.sum`."""

    def build(small: bool) -> Pair:
        from benchmarks.read import read

        shape, _ = shape_and_partition(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, "f8")
        return Pair(lambda: read(x, workers), lambda: np.sum(x))

    return build


def compare_small_call(small: bool) -> Pair:  # noqa: ARG001
    """Compare a small `ltr` with TensorLy's default call."""
    from tensorly.decomposition import non_negative_tucker

    x = random_tensor((30, 30, 30), "f8")
    rng = np.random.default_rng(0)
    return Pair(
        lambda: tk.ltr(x, 10, blocks="random", rng=rng),
        lambda: non_negative_tucker(x, rank=[10, 10, 10]),
    )


def cases() -> Iterator[Case]:
    """List all cases."""
    total, cube = "numpy.sum", (20, 20, 20)
    yield Case("collect 400x500x600 float64", total, 1.25, compare_with_sum(CUBE, cube, "f8"))
    yield Case("the same, 2 workers", total, 0.85, compare_with_sum(CUBE, cube, "f8", workers=2))
    yield Case("plain read, 1 worker", total, None, compare_read_with_sum(1))
    yield Case("plain read, 2 workers", total, None, compare_read_with_sum(2))
    yield Case("collect 400x500x600 float32", total, 1.0, compare_with_sum(CUBE, cube, "f4"))
    yield Case("collect 400x500x600 uint8", total, 0.5, compare_with_sum(CUBE, cube, "u1"))
    yield Case("collect 9x9x512x512x3 uint8", total, 1.0, compare_with_sum(LIGHTFIELD, (3, 3, 60, 60, 1), "u1"))
    for name, limit, view, share in (
        ("Fortran order", 1.3, np.asfortranarray, 1.0),
        ("transposed (1, 2, 0)", 1.3, lambda x: x.transpose(1, 2, 0), 1.0),
        ("every 2nd slice of mode 0", 2.0, lambda x: x[::2], 0.5),
        ("every 2nd slice of mode 1", 2.0, lambda x: x[:, ::2], 0.5),
        ("every 2nd slice of mode 2", 2.0, lambda x: x[:, :, ::2], 1.0),
    ):
        yield Case(f"collect, {name}", "C order, per byte", limit, compare_layouts(view, share))
    for mode, view in enumerate((lambda x: x[::2], lambda x: x[:, ::2], lambda x: x[:, :, ::2])):
        yield Case(f"the same view of mode {mode}", "numpy.sum of it", None, compare_view_with_sum(view))
    yield Case("collect 30^5 float64", total, 2.0, compare_with_sum((30,) * 5, (5,) * 5, "f8"))
    yield Case("collect 1000000x20x5 float64", total, 2.0, compare_with_sum((1_000_000, 20, 5), (20, 5, 2), "f8"))
    yield Case("collect 5x20x1000000 float64", total, 2.0, compare_with_sum((5, 20, 1_000_000), (2, 5, 20), "f8"))
    yield Case("collect 2^24 float64", total, 2.0, compare_with_sum((2,) * 24, (1, 2) * 12, "f8"))
    yield Case("ltr, random blocks, 400x500x600 float64", total, 1.4, compare_ltr_with_sum)
    yield Case("to_tensor(out=), 400x500x600 float64", "numpy.copyto", 1.5, compare_to_tensor_with_copy)
    yield Case("kl, 400x500x600 float64", total, 6.0, compare_measure_with_sum("kl", "f8"))
    yield Case("kl, 400x500x600 uint8", total, 3.0, compare_measure_with_sum("kl", "u1"))
    yield Case("relative_error, 400x500x600 float64", total, None, compare_measure_with_sum("relative_error", "f8"))
    yield Case("ltr, random blocks, 30x30x30", "TensorLy", 1 / 50, compare_small_call)
