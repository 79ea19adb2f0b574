"""The process that runs methods, one at a time: it can be ended when one takes too long, and holds to its cores."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from experiments.paper.plan import Panel, Point, Run, tensor
from tucket.base.boxes import halved

__all__ = ["work"]


def work(connection: Connection, cores: str, parent: int) -> None:
    """Carry out the runs that come: tell when one begins, when it has its result, and what that is."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # who presses Ctrl-C means the process that started this one
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    _hold_to(cores)  # before anything that starts threads is imported
    warnings.simplefilter("ignore")  # TensorLy's and scikit-learn's, about iterations that are part of the method
    held = Held()
    while True:
        run = connection.recv()
        try:
            answer = carry_out(run, held, 1 if cores == "one" else None, connection.send)
        except Exception as error:
            answer = {"status": "failed", "note": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
        connection.send(answer)


def _end_with(parent: int) -> None:
    """End this process when the one that started it is gone, however it went."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


BUILDS, PATIENCE = 3, 2.0
"""How often the dense output is built at most, as long as that took fewer seconds than these. The least time counts,
since memory that the system must first find takes longer, at random."""


def carry_out(run: Run, held: Held, workers: int | None, tell: Callable[[str], None]) -> dict[str, Any]:
    """Time one run, and measure what it made."""
    x = held.get(run.panel, run.point)
    seed = run.repetition if run.method.is_random else 0
    fit, expand = methods(x, run.point.rank, seed, workers)[run.method.name]
    held.warm_up(run, workers)
    tell("begins")
    began = time.perf_counter()
    model = fit()
    fitted = time.perf_counter() - began
    dense: Any = None
    builds: list[float] = []
    while len(builds) < BUILDS and sum(builds) < PATIENCE:
        del dense
        began = time.perf_counter()
        dense = expand(model)
        builds.append(time.perf_counter() - began)
    tell("ends")
    return {"status": "done", "seconds": fitted + min(builds), "fit_seconds": fitted, **errors(x, dense)}


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

    def warm_up(self, run: Run, workers: int | None) -> None:
        """Let a method load what it loads once, on a corner of the tensor."""
        if (key := (run.panel.name, run.method.name)) not in self.warm:
            self.warm.add(key)
            most = 1 << 12 if run.method.name.startswith(("tensorly", "lra")) else 1 << 20  # for the compiled loops
            corner = self.x[tuple(slice(0, size) for size in halved(self.x.shape, most))].copy()
            rank = tuple(min(size, 2) for size in corner.shape)
            fit, expand = methods(corner, rank, 0, workers)[run.method.name]
            expand(fit())


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

    def ltr_by(blocks: Any, variant: Any = "projection") -> Any:
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

    from tucket.models.metrics import kl, relative_error

    norm = float(np.linalg.norm(x.ravel()))
    relative = relative_error(x, dense)
    divergence = kl(x, np.maximum(dense, 0, out=dense))
    return {
        "ls": relative * norm,
        "relative_ls": relative,
        "kl": divergence,
        "kl_per_total": divergence / float(x.sum()),
    }
