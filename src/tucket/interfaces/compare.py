"""LTR, decompositions and peers on one tensor: error against time."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.decomposition.ntd import ntd
from tucket.models.metrics import kl, relative_error
from tucket.models.model import Model
from tucket.models.tucker import Tucker
from tucket.projection.ltr import ltr
from tucket.sources.dense import as_tensor, check_values

__all__ = ["Entry", "compare"]


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: its time, what its model holds, and how far that is from the tensor."""

    method: str
    seconds: float
    n_parameters: int
    relative_error: float
    kl: float


def compare(x: NDArray[Any], rank: Sequence[int], *, workers: int | None = None, rng: int = 0) -> Iterator[Entry]:
    """Reduce a tensor in every way that is installed, and yield how each did, the fastest kinds first.

    The divergence is told for each unit of the total.
    """
    x = check_values(as_tensor(x))
    total = float(x.sum(dtype=np.float64)) or 1.0
    ltr(x[(slice(0, 2),) * x.ndim], 1)  # so that the first does not pay for what is set up once
    for method, fit in methods(x, rank, workers, rng):
        began = time.perf_counter()
        try:
            model = fit()
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            if not method.startswith("TensorLy"):
                raise
            continue  # its own trouble, such as a singular matrix
        seconds = time.perf_counter() - began
        if isinstance(model, Model):
            error, divergence = model.relative_error(x), model.kl(x)
        else:
            core, factors = model
            dense = np.maximum(Tucker(*_positive(core, factors)).to_tensor(), 0)
            error, divergence = relative_error(x, dense), kl(x, dense)
        count = model.n_parameters if isinstance(model, Model) else core.size + sum(map(np.size, factors))
        yield Entry(method, seconds, int(count), error, divergence / total)


def _positive(core: Any, factors: Any) -> tuple[Any, list[Any]]:
    return np.maximum(core, 0), [np.maximum(factor, 0) for factor in factors]


def methods(
    x: NDArray[Any], rank: Sequence[int], workers: int | None, rng: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the names of all methods, and how to run them."""
    for blocks in ("random", "uniform", "segments", "clusters"):
        yield f"LTR, {blocks}", partial(ltr, x, rank, blocks=blocks, rng=rng, workers=workers)
    yield "ntd, KL", lambda: ntd(x, rank, loss="kl", workers=workers).model
    yield "ntd, LS", lambda: ntd(x, rank, loss="ls", workers=workers).model
    try:
        from tensorly.decomposition import non_negative_tucker, non_negative_tucker_hals
    except ImportError:
        return
    dense = x.astype(np.float64)
    yield "TensorLy", lambda: non_negative_tucker(dense, list(rank), n_iter_max=10, random_state=rng)
    yield "TensorLy, HALS", lambda: non_negative_tucker_hals(dense, list(rank), n_iter_max=10, random_state=rng)
