"""NVIDIA GPUs: arrays of any library there, as the torch tensors that the Triton kernels read."""

from __future__ import annotations

import sys
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from typing import Any

CUDA = 2
"""What DLPack calls an NVIDIA GPU."""


def cuda_view(array: Any) -> Any:
    """Return an array in the memory of an NVIDIA GPU as a torch tensor, not copied; None for any other array."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type != "cuda" or not has_triton():
            return None
        return array.detach().resolve_neg() if array.requires_grad or array.is_neg() else array
    try:
        # torch has no negative strides
        if array.__dlpack_device__()[0] != CUDA or not has_triton() or min(getattr(array, "strides", None) or [0]) < 0:
            return None
        return import_module("torch").from_dlpack(array)
    except (AttributeError, BufferError, RuntimeError):
        return None


@cache
def has_triton() -> bool:
    """Say whether torch with Triton is installed, and a GPU is there."""
    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    return bool(import_module("torch").cuda.is_available())
