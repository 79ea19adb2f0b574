"""The process that runs methods, one at a time, on given cores. It can be killed if one takes too long."""

from __future__ import annotations

import os
import signal
import time
import warnings
from collections.abc import Callable
from multiprocessing.connection import Connection
from threading import Thread
from typing import Any

from experiments.paper.plan import Panel, Point, Run, load_tensor
from tucket.base.boxes import halved

__all__ = ["work"]


def work(connection: Connection, cores: str, parent: int) -> None:
    """Carry out runs from a connection; send "begins", then "ends" once the result is there, then the result."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C ends the parent, which ends this process
    Thread(target=_end_with, args=(parent,), daemon=True).start()
    _limit_to(cores)  # before importing anything that starts threads
    warnings.simplefilter("ignore")  # TensorLy and scikit-learn warn that they stop at the maximum of iterations
    cache = Cache()
    while True:
        run = connection.recv()
        try:
            answer = carry_out(run, cache, 1 if cores == "one" else None, connection.send)
        except Exception as error:
            answer = {"status": "failed", "note": " ".join(f"{type(error).__name__}: {error}".split())[:200]}
        connection.send(answer)


def _end_with(parent: int) -> None:
    """End this process as soon as its parent is gone."""
    while os.getppid() == parent:
        time.sleep(0.5)
    os._exit(1)


MAX_BUILDS, BUILD_SECONDS = 3, 2.0
"""How often the dense output is built at most, and the seconds after which it is not built again. The fastest build
counts: memory that the system allocates for the first time makes single times erratic."""


def carry_out(run: Run, cache: Cache, workers: int | None, send: Callable[[str], None]) -> dict[str, Any]:
    """Time one run, and measure the errors of its result."""
    x = cache.get(run.panel, run.point)
    seed = run.repetition if run.method.is_random else 0
    fit, expand = methods(x, run.point.rank, seed, workers)[run.method.name]
    cache.warm_up(run, workers)
    send("begins")
    start = time.perf_counter()
    model = fit()
    fitted = time.perf_counter() - start
    dense: Any = None
    builds: list[float] = []
    while len(builds) < MAX_BUILDS and sum(builds) < BUILD_SECONDS:
        del dense
        start = time.perf_counter()
        dense = expand(model)
        builds.append(time.perf_counter() - start)
    send("ends")
    return {"status": "done", "seconds": fitted + min(builds), "fit_seconds": fitted, **errors(x, dense)}


def _limit_to(cores: str) -> None:
    """Limit this process to one core if `cores` is "one"."""
    if cores == "one":
        os.environ.update(dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"), "1"))
        if hasattr(os, "sched_setaffinity"):
            os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})


class Cache:
    """The last tensor, which the next run mostly needs too, and the methods that have already run."""

    def __init__(self) -> None:
        self.key: Any = None
        self.x: Any = None
        self.warm: set[tuple[str, str]] = set()

    def get(self, panel: Panel, point: Point) -> Any:
        """Return the tensor of a point."""
        if self.key != (panel.data, point.shape):
            self.x = None  # free the old tensor before loading the new one
            self.x, self.key = load_tensor(panel, point), (panel.data, point.shape)
        return self.x

    def warm_up(self, run: Run, workers: int | None) -> None:
        """Run a method once on a corner of the tensor, so that it loads and compiles its code."""
        if (key := (run.panel.name, run.method.name)) not in self.warm:
            self.warm.add(key)
            entries = 1 << 12 if run.method.name.startswith(("tensorly", "lra")) else 1 << 20  # enough to be compiled
            corner = self.x[tuple(slice(0, size) for size in halved(self.x.shape, entries))].copy()
            rank = tuple(min(size, 2) for size in corner.shape)
            fit, expand = methods(corner, rank, 0, workers)[run.method.name]
            expand(fit())


def methods(
    x: Any, rank: tuple[int, ...], seed: int, workers: int | None
) -> dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]]:
    """Return for each method a function that fits the model, and one that builds the dense output."""
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
    """Return the errors of a dense output: LS error, absolute and relative, and KL error, absolute and per total."""
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
