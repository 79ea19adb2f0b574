"""The cases: what is measured, against what, and how long it may take."""

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
    """Two calls to compare; `share` is the part of the baseline's bytes that the work touches."""

    work: Call
    baseline: Call
    share: float = 1.0


@dataclass(frozen=True)
class Case:
    """A row of the table: the work's time over the baseline's, and what it may be at most.

    `build(small)` makes the pair, at full size or at one that a test can afford.
    """

    name: str
    baseline: str
    limit: float | None
    build: Callable[[bool], Pair]


def cut(shape: tuple[int, ...], rank: tuple[int, ...], small: bool) -> tuple[tuple[int, ...], tk.Partition]:
    """Return the shape, or one of a few thousand entries like it, and its uniform partition."""
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


def summing(shape: tuple[int, ...], rank: tuple[int, ...], dtype: str, workers: int = 1) -> Callable[[bool], Pair]:
    """Compare `collect` with `numpy.sum`."""

    def build(small: bool) -> Pair:
        extent, partition = cut(shape, rank, small)
        x = random_tensor(extent, dtype)
        return Pair(
            lambda: tk.collect(x, partition, workers=workers),
            lambda: np.sum(x, dtype=np.float64),
        )

    return build


def lying(view: Callable[[Array], Array], share: float = 1.0) -> Callable[[bool], Pair]:
    """Compare `collect` of a tensor that lies otherwise in memory with `collect` in C order."""

    def build(small: bool) -> Pair:
        shape, partition = cut(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, "f8")
        other = view(x)
        other_partition = tk.Partition.uniform(other.shape, partition.rank)
        return Pair(
            lambda: tk.collect(other, other_partition, workers=1),
            lambda: tk.collect(x, partition, workers=1),
            share,
        )

    return build


def viewing(view: Callable[[Array], Array]) -> Callable[[bool], Pair]:
    """Compare `collect` of a view with `numpy.sum` of the same view, which has as little to read."""

    def build(small: bool) -> Pair:
        shape, partition = cut(CUBE, (20, 20, 20), small)
        x = view(random_tensor(shape, "f8"))
        partition = tk.Partition.uniform(x.shape, partition.rank)
        return Pair(lambda: tk.collect(x, partition, workers=1), lambda: np.sum(x))

    return build


def reducing(small: bool) -> Pair:
    """Compare `ltr`, end to end, with `numpy.sum`."""
    shape, partition = cut(CUBE, (20, 20, 20), small)
    x = random_tensor(shape, "f8")
    return Pair(
        lambda: tk.ltr(x, partition.rank, blocks="random", rng=0, workers=1),
        lambda: np.sum(x),
    )


def writing(small: bool) -> Pair:
    """Compare `to_tensor` with `numpy.copyto`."""
    shape, partition = cut(CUBE, (20, 20, 20), small)
    x = random_tensor(shape, "f8")
    model = tk.ltr(x, blocks=partition)
    out = np.zeros_like(x)
    return Pair(lambda: model.to_tensor(out=out, workers=1), lambda: np.copyto(out, x))


def judging(measure: str, dtype: str) -> Callable[[bool], Pair]:
    """Compare `kl` or `relative_error` of a model with `numpy.sum`."""

    def build(small: bool) -> Pair:
        shape, partition = cut(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, dtype)
        model = tk.ltr(x, blocks=partition)
        return Pair(lambda: getattr(model, measure)(x, workers=1), lambda: np.sum(x, dtype=np.float64))

    return build


def reading(workers: int) -> Callable[[bool], Pair]:
    """Compare a plain vectorised read, the ceiling of any pass, with `numpy.sum`."""

    def build(small: bool) -> Pair:
        from benchmarks.read import read

        shape, _ = cut(CUBE, (20, 20, 20), small)
        x = random_tensor(shape, "f8")
        return Pair(lambda: read(x, workers), lambda: np.sum(x))

    return build


def small_call(small: bool) -> Pair:  # noqa: ARG001
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
    yield Case("collect 400x500x600 float64", total, 1.25, summing(CUBE, cube, "f8"))
    yield Case("the same, 2 workers", total, 0.85, summing(CUBE, cube, "f8", workers=2))
    yield Case("plain read, 1 worker", total, None, reading(1))
    yield Case("plain read, 2 workers", total, None, reading(2))
    yield Case("collect 400x500x600 float32", total, 1.0, summing(CUBE, cube, "f4"))
    yield Case("collect 400x500x600 uint8", total, 0.5, summing(CUBE, cube, "u1"))
    yield Case("collect 9x9x512x512x3 uint8", total, 1.0, summing(LIGHTFIELD, (3, 3, 60, 60, 1), "u1"))
    for name, limit, view, share in (
        ("Fortran order", 1.3, np.asfortranarray, 1.0),
        ("transposed (1, 2, 0)", 1.3, lambda x: x.transpose(1, 2, 0), 1.0),
        ("every 2nd slice of mode 0", 2.0, lambda x: x[::2], 0.5),
        ("every 2nd slice of mode 1", 2.0, lambda x: x[:, ::2], 0.5),
        ("every 2nd slice of mode 2", 2.0, lambda x: x[:, :, ::2], 1.0),
    ):
        yield Case(f"collect, {name}", "C order, per byte", limit, lying(view, share))
    for mode, view in enumerate((lambda x: x[::2], lambda x: x[:, ::2], lambda x: x[:, :, ::2])):
        yield Case(f"the same view of mode {mode}", "numpy.sum of it", None, viewing(view))
    yield Case("collect 30^5 float64", total, 2.0, summing((30,) * 5, (5,) * 5, "f8"))
    yield Case("collect 1000000x20x5 float64", total, 2.0, summing((1_000_000, 20, 5), (20, 5, 2), "f8"))
    yield Case("collect 5x20x1000000 float64", total, 2.0, summing((5, 20, 1_000_000), (2, 5, 20), "f8"))
    yield Case("collect 2^24 float64", total, 2.0, summing((2,) * 24, (1, 2) * 12, "f8"))
    yield Case("ltr, random blocks, 400x500x600 float64", total, 1.4, reducing)
    yield Case("to_tensor(out=), 400x500x600 float64", "numpy.copyto", 1.5, writing)
    yield Case("kl, 400x500x600 float64", total, 6.0, judging("kl", "f8"))
    yield Case("kl, 400x500x600 uint8", total, 3.0, judging("kl", "u1"))
    yield Case("relative_error, 400x500x600 float64", total, None, judging("relative_error", "f8"))
    yield Case("ltr, random blocks, 30x30x30", "TensorLy", 1 / 50, small_call)
