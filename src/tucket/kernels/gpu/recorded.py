"""Work on a GPU that is done again and again: recorded once, and played back from then on."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock, local
from typing import Any

import torch

from tucket.kernels.gpu.passes import on_device_of

__all__ = ["Recorded", "recording_of"]

_recording = Lock()


class Recorded:
    """A function from arrays to arrays that looks at none of them: recorded at its second call, then played back.

    Hundreds of small kernels then start as one, and the host is no longer what they wait for. Where that fails it is
    tried again at the fourth call, the eighth, and so on.
    """

    def __init__(self, work: Callable[..., Sequence[torch.Tensor]]) -> None:
        self.work, self.calls = work, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.given: Sequence[torch.Tensor] = ()

    @property
    def size(self) -> int:
        """Entries of the arrays that it keeps to be played back with."""
        return sum(array.numel() for array in self.given)

    def __call__(self, *arrays: torch.Tensor) -> Sequence[torch.Tensor]:
        """Do the work."""
        self.calls += 1
        with on_device_of(arrays[0]):
            is_due = self.graph is None and self.calls > 1 and self.calls.bit_count() == 1
            if is_due and arrays[0].is_cuda:
                with suppress(RuntimeError), _recording:  # such as too little memory: then it goes on as it did
                    self.graph = self._record(arrays)
            if self.graph is None:
                return self.work(*arrays)
            for held, array in zip(self.given, arrays, strict=True):
                held.copy_(array)
            self.graph.replay()
            return [array.clone() for array in self.found]

    def _record(self, arrays: Sequence[torch.Tensor]) -> torch.cuda.CUDAGraph:
        here, aside, pool = torch.cuda.current_stream(), *_studio(arrays[0].device)
        with torch.inference_mode(False), torch.no_grad():  # it may be played back in another mode than this
            given, graph = [array.clone() for array in arrays], torch.cuda.CUDAGraph()
            aside.wait_stream(here)
            with torch.cuda.stream(aside), _capturing(graph, pool):
                found = self.work(*given)
            here.wait_stream(aside)
        self.given, self.found = given, found
        return graph


KEPT, ENTRIES = 16, 1 << 24
"""Recordings that a thread keeps, and entries of all arrays that they keep."""

_kept = local()


def recording_of(
    work: Callable[..., Sequence[torch.Tensor]], known: tuple[Hashable, ...], *arrays: torch.Tensor
) -> Sequence[torch.Tensor]:
    """Do some work on arrays, as this thread has recorded it, if it has done it on others of their kind before.

    Nothing may be under way on another stream that was played back here: whoever looks at results has waited for them.
    """
    recordings: dict[Any, Recorded] = _kept.__dict__.setdefault("recordings", {})
    key = work, known, *((array.shape, array.stride(), array.dtype, array.device) for array in arrays)
    found = recordings.pop(key, None) or Recorded(partial(work, *known))
    recordings[key] = found  # the last that was used comes last
    results = found(*arrays)
    while len(recordings) > KEPT or sum(each.size for each in recordings.values()) > ENTRIES:
        recordings.pop(next(iter(recordings)))
    return results


_studios = local()


def _studio(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Return a stream to record on, and the memory that all recordings of a thread share: each begins from its own.

    A recording of nothing keeps that memory; without it every recording would leave some behind.
    """
    known = _studios.__dict__.setdefault("known", {})
    if device not in known:
        aside, keeper = torch.cuda.Stream(priority=-1), torch.cuda.CUDAGraph()
        with torch.cuda.stream(aside), _capturing(keeper):
            torch.zeros(1, device=device)
        known[device] = aside, keeper
    aside, keeper = known[device]
    return aside, keeper.pool()


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, *pool: Any) -> Iterator[None]:
    """Record what is done meanwhile, when nothing of the device's may be freed."""
    is_enabled = gc.isenabled()
    gc.disable()
    try:
        graph.capture_begin(*pool, capture_error_mode="thread_local")
        try:
            yield
        finally:
            graph.capture_end()
    finally:
        if is_enabled:
            gc.enable()
