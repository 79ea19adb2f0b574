"""Repeated work on a GPU, recorded once as a CUDA graph and then replayed."""

from __future__ import annotations

import gc
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from threading import Lock, local
from typing import Any

import torch

from tucket.kernels.gpu.passes import on_device_of

_recording = Lock()


class Recorded:
    """A function of arrays that reads no value on the host: recorded at the second call, and then replayed.

    A replay starts hundreds of small kernels at once, so that the device does not wait for the host. If recording
    fails, it is tried again at the fourth call, the eighth, and so on.
    """

    def __init__(self, work: Callable[..., Sequence[torch.Tensor]]) -> None:
        self.work, self.calls = work, 0
        self.graph: torch.cuda.CUDAGraph | None = None
        self.inputs: Sequence[torch.Tensor] = ()

    @property
    def size(self) -> int:
        """Number of entries of the recorded inputs."""
        return sum(array.numel() for array in self.inputs)

    def __call__(self, *arrays: torch.Tensor) -> Sequence[torch.Tensor]:
        """Do the work, by a replay if possible."""
        self.calls += 1
        with on_device_of(arrays[0]):
            is_due = self.graph is None and self.calls > 1 and self.calls.bit_count() == 1
            if is_due and arrays[0].is_cuda:
                with suppress(RuntimeError), _recording:  # with too little memory, for instance, go on without it
                    self.graph = self._record(arrays)
            if self.graph is None:
                return self.work(*arrays)
            for held, array in zip(self.inputs, arrays, strict=True):
                held.copy_(array)
            self.graph.replay()
            return [array.clone() for array in self.outputs]

    def _record(self, arrays: Sequence[torch.Tensor]) -> torch.cuda.CUDAGraph:
        current, stream, pool = torch.cuda.current_stream(), *_recording_stream(arrays[0].device)
        # a replay may happen in another mode than the recording
        with torch.inference_mode(False), torch.no_grad():
            inputs, graph = [array.clone() for array in arrays], torch.cuda.CUDAGraph()
            stream.wait_stream(current)
            with torch.cuda.stream(stream), _capturing(graph, pool):
                outputs = self.work(*inputs)
            current.wait_stream(stream)
        self.inputs, self.outputs = inputs, outputs
        return graph


KEPT_RECORDINGS, KEPT_ENTRIES = 16, 1 << 24
"""Recordings that a thread keeps for reuse, and entries of all arrays that they read from."""

_kept = local()


def recording_of(
    work: Callable[..., Sequence[torch.Tensor]], fixed: tuple[Hashable, ...], *arrays: torch.Tensor
) -> Sequence[torch.Tensor]:
    """Return work(*fixed, *arrays), by a replay if this thread did the same work on arrays of the same kind before.

    No earlier replay of this thread may still run on another stream; it does not if its results have been read.
    """
    recordings: dict[Any, Recorded] = _kept.__dict__.setdefault("recordings", {})
    key = work, fixed, *((array.shape, array.stride(), array.dtype, array.device) for array in arrays)
    recorded = recordings.pop(key, None) or Recorded(partial(work, *fixed))
    recordings[key] = recorded  # the most recently used comes last
    results = recorded(*arrays)
    while len(recordings) > KEPT_RECORDINGS or sum(each.size for each in recordings.values()) > KEPT_ENTRIES:
        recordings.pop(next(iter(recordings)))
    return results


_streams = local()


def _recording_stream(device: torch.device) -> tuple[torch.cuda.Stream, Any]:
    """Return a stream to record on, and a memory pool that all recordings of a thread share.

    Sharing is safe because each replay has its own inputs, and its outputs are copied. An empty recording keeps the
    pool alive; without it, every recording would leak memory.
    """
    streams = _streams.__dict__.setdefault("streams", {})
    if device not in streams:
        stream, keeper = torch.cuda.Stream(priority=-1), torch.cuda.CUDAGraph()
        with torch.cuda.stream(stream), _capturing(keeper):
            torch.zeros(1, device=device)
        streams[device] = stream, keeper
    stream, keeper = streams[device]
    return stream, keeper.pool()


@contextmanager
def _capturing(graph: torch.cuda.CUDAGraph, *pool: Any) -> Iterator[None]:
    """Record the work of a block, without garbage collection, since no device memory may be freed meanwhile."""
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
