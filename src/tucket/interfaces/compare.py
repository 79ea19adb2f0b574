"""Error against time: `ltr`, `ntd` and the decompositions of TensorLy on one tensor."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.decomposition.ntd import ntd
from tucket.models.model import Model
from tucket.models.tucker import Tucker
from tucket.projection.ltr import ltr
from tucket.sources.dense import as_tensor, check_values


@dataclass(frozen=True, slots=True)
class Entry:
    """One method: its time, the size of its model, and the error; `kl` is divided by the sum of the tensor."""

    method: str
    seconds: float
    n_parameters: int
    relative_error: float
    kl: float


def compare(x: NDArray[Any], rank: Sequence[int], *, workers: int | None = None, rng: int = 0) -> Iterator[Entry]:
    """Run every method that is installed, the fastest kinds first, and yield its result as it comes."""
    x = check_values(as_tensor(x))
    total = float(x.sum(dtype=np.float64)) or 1.0
    ltr(x[(slice(0, 2),) * x.ndim], 1)  # so that the first method does not pay for imports
    for method, fit in _methods(x, rank, workers, rng):
        began = time.perf_counter()
        try:
            found = fit()
        except (ArithmeticError, ValueError, np.linalg.LinAlgError):
            if not method.startswith("TensorLy"):
                raise
            continue  # TensorLy fails on some tensors, for instance at a singular matrix
        seconds = time.perf_counter() - began
        if not isinstance(found, Model):
            core, factors = found
            found = Tucker(np.maximum(core, 0), [np.maximum(factor, 0) for factor in factors])  # clips rounding errors
        yield Entry(method, seconds, found.n_parameters, found.relative_error(x), found.kl(x) / total)


def _methods(
    x: NDArray[Any], rank: Sequence[int], workers: int | None, rng: int
) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the name of each method, and a function that runs it."""
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
