"""The process that runs methods, one at a time: it can be ended when one takes too long, and holds to its cores."""

from __future__ import annotations

import math
import os
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

from tucket.paper.plan import Panel, Point, Run, tensor

__all__ = ["work"]


def work(connection: Connection, cores: str) -> None:
    """Carry out the runs that come, until None does: tell when one begins, when it has its result, and what that is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the process that started this one
    _hold_to(cores)  # before anything that starts threads is imported
    warnings.simplefilter("ignore")  # TensorLy's and scikit-learn's, about iterations that are part of the method
    held = Held()
    while (run := connection.recv()) is not None:
        try:
            x = held.get(run.panel, run.point)
            fit, expand = methods(x, run.point.rank, run.repetition, 1 if cores == "one" else None)[run.method.name]
            held.warm_up(run, cores)
            connection.send("begins")
            began = time.perf_counter()
            model = fit()
            fitted = time.perf_counter()
            dense = expand(model)
            ended = time.perf_counter()
            connection.send("ends")
            answer = {"status": "done", "seconds": ended - began, "fit_seconds": fitted - began, **errors(x, dense)}
            del model, dense
        except Exception as error:
            answer = {"status": "failed", "note": f"{type(error).__name__}: {error}"[:200]}
        connection.send(answer)


def _hold_to(cores: str) -> None:
    """Keep to one core, if that is what is asked for."""
    if cores == "one":
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Held:
    """The last tensor, which the next run mostly is about too, and which methods have run before."""

    def __init__(self) -> None:
        self.key: Any = None
        self.x: Any = None
        self.warm: set[tuple[str, str]] = set()

    def get(self, panel: Panel, point: Point) -> Any:
        """Return the tensor of a point."""
        if self.key != (panel.data, point.shape):
            self.x = None  # or both would be held for a while
            self.x, self.key = tensor(panel, point), (panel.data, point.shape)
        return self.x

    def warm_up(self, run: Run, cores: str) -> None:
        """Let a method load what it loads once, on a corner of the tensor."""
        if (key := (run.panel.name, run.method.name)) not in self.warm:
            self.warm.add(key)
            most = 1 << 12 if run.method.name.startswith(("tensorly", "lra")) else 1 << 20  # for the compiled loops
            corner = self.x[tuple(slice(0, size) for size in corner_of(self.x.shape, most))].copy()
            rank = tuple(min(size, 2) for size in corner.shape)
            fit, expand = methods(corner, rank, 0, 1 if cores == "one" else None)[run.method.name]
            expand(fit())


def corner_of(shape: tuple[int, ...], most: int) -> tuple[int, ...]:
    """Halve the largest sizes until there are few entries.

    Examples
    --------
    >>> corner_of((9, 9, 512, 512, 3), 1 << 20)
    (9, 9, 64, 64, 3)
    """
    sizes = list(shape)
    while math.prod(sizes) > most:
        largest = sizes.index(max(sizes))
        sizes[largest] = (sizes[largest] + 1) // 2
    return tuple(sizes)


def methods(
    x: Any, rank: tuple[int, ...], seed: int, workers: int | None
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return how each method is run, and how its dense output is built."""
    from functools import partial

    from tucket import lra_sntd, ltr, ntd

    def tensorly(name: str) -> Callable[[], Any]:
        def fit() -> Any:
            from tensorly import decomposition

            return getattr(decomposition, name)(x, list(rank), random_state=seed)

        return fit

    def expand_tensorly(model: Any) -> Any:
        from tensorly import tucker_to_tensor

        return tucker_to_tensor(model)

    def ours(fit: Callable[[], Any]) -> tuple[Callable[[], Any], Callable[[Any], Any]]:
        return fit, lambda model: model.to_tensor(workers=workers)

    def ltr_by(blocks: str, variant: str = "projection") -> Any:
        return ours(partial(ltr, x, rank, blocks=blocks, variant=variant, rng=seed, workers=workers))

    def ntd_by(loss: Any, preset: Any = None) -> Any:
        return ours(lambda: ntd(x, rank, loss=loss, preset=preset, workers=workers).model)

    return {
        "ltr-published": ltr_by("random", "published"),
        "ltr-random": ltr_by("random"),
        "ltr-uniform": ltr_by("uniform"),
        "ltr-segments": ltr_by("segments"),
        "ltr-clusters": ltr_by("clusters"),
        "lra-sntd": ours(partial(lra_sntd, x, rank, workers=workers)),
        "ntd-ls-paper": ntd_by("ls", "paper"),
        "ntd-kl-paper": ntd_by("kl", "paper"),
        "ntd-ls": ntd_by("ls"),
        "ntd-kl": ntd_by("kl"),
        "tensorly": (tensorly("non_negative_tucker"), expand_tensorly),
        "tensorly-hals": (tensorly("non_negative_tucker_hals"), expand_tensorly),
    }


def errors(x: Any, dense: Any) -> dict[str, float]:
    """Measure a dense output: the Frobenius norm of the difference, that over the tensor's, and the KL divergence."""
    import numpy as np

    from tucket.metrics import kl, relative_error

    norm = float(np.linalg.norm(x.ravel()))
    relative = relative_error(x, dense)
    divergence = kl(x, np.maximum(dense, 0, out=dense))
    return {
        "ls": relative * norm,
        "relative_ls": relative,
        "kl": divergence,
        "kl_per_total": divergence / float(x.sum()),
    }
