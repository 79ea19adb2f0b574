"""torch: tensors on any of its devices. All that tucket asks of torch's private API is in this file."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.array_api import ArrayApi, is_real
from tucket.backends.cuda import has_triton


class Torch(ArrayApi):
    """torch tensors on one device."""

    __slots__ = ("kernels",)

    def __init__(self, device: Any) -> None:
        super().__init__(import_module("array_api_compat.torch"), device)
        self.kernels = "cuda" if device.type == "cuda" and has_triton() else "array_api"  # type: ignore[misc]

    @property
    def has_float64(self) -> bool:
        """Whether there are floats of 64 bits: not on Apple's GPUs."""
        return str(self.device) != "mps"

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a small tensor as a NumPy array."""
        return np.array(_plain(array))

    def from_numpy_all(self, arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Bring several small NumPy arrays of one dtype to the device, in one transfer."""
        if str(self.device) == "cpu":
            return super().from_numpy_all(arrays)
        whole = self.from_numpy(np.concatenate([array.reshape(-1) for array in arrays]))
        return [part.reshape(array.shape) for part, array in zip(whole.split([array.size for array in arrays]), arrays)]

    def to_numpy_all(self, arrays: Sequence[Any]) -> list[NDArray[Any]]:
        """Return several small tensors of one dtype as NumPy arrays, in one transfer."""
        if str(self.device) == "cpu":
            return super().to_numpy_all(arrays)
        whole = _plain(import_module("torch").cat([array.reshape(-1) for array in arrays]))
        ends = np.cumsum([array.numel() for array in arrays])
        return [whole[end - array.numel() : end].reshape(array.shape) for end, array in zip(ends, arrays)]

    def check(self, array: Any, name: str) -> None:
        """Refuse a tensor that is sparse, nested or without entries, or does not hold real numbers."""
        if _is_plain(array.dtype, array.layout, array.device.type) and not array.is_nested:
            return
        if array.is_nested:
            raise TypeError(f"{name} is a nested torch tensor; give a dense one, such as {name}.to_padded_tensor(0.0)")
        if str(array.layout) != "torch.strided":
            raise TypeError(
                f"{name} is a sparse torch tensor ({array.layout}); give its entries, as with {name} = "
                f"{name}.to_sparse_coo().coalesce().cpu(), tucket.from_entries({name}.indices(), {name}.values(), "
                f"tuple({name}.shape)), or {name}.to_dense()"
            )
        if array.device.type == "meta":
            raise TypeError(f"{name} is on torch's device meta, and has no entries; give a tensor that has")
        super().check(array, name)

    def host_view(self, array: Any) -> NDArray[Any] | None:
        """Return a tensor in the memory of the host as a NumPy array; None for any other."""
        return _plain(array) if array.device.type == "cpu" else None

    def is_traced(self, array: Any) -> bool:
        """Say whether a tensor requires a gradient, or is inside of a function that torch transforms."""
        torch = sys.modules["torch"]
        return bool(array.requires_grad and torch.is_grad_enabled()) or is_transformed(array)

    def has_values(self, array: Any) -> bool:
        """Say whether the entries of a tensor can be looked at: not within `torch.vmap`."""
        try:
            bool((array.detach().reshape(-1)[:1] == 0).any())
        except RuntimeError:
            if not is_transformed(array):
                raise
            return False
        return True

    def detach(self, array: Any) -> Any:
        """Return the tensor as a constant, through which no gradient flows."""
        return array.detach()

    def explain_traced(self, array: Any, name: str, can_detach: bool = True) -> TypeError:
        """Make the error for a tensor that requires a gradient where its values are needed."""
        if not can_detach or is_transformed(array):
            return super().explain_traced(array, name)
        return TypeError(f"{name} requires a gradient, and this has none; give {name}.detach()")


def is_transformed(array: Any) -> bool:
    """Say whether a tensor is inside of a function that `torch.func` transforms, or carries a tangent."""
    torch = sys.modules["torch"]
    if torch._C._functorch.is_functorch_wrapped_tensor(array):
        return True
    forward = torch.autograd.forward_ad
    return bool(forward._current_level >= 0 and forward.unpack_dual(array).tangent is not None)


def _plain(array: Any) -> NDArray[Any]:
    """Return a tensor as a NumPy array, within torch.func too; copied only if it has to be."""
    torch = sys.modules["torch"]
    with torch._C._DisableFuncTorch():
        plain = array.detach().cpu().resolve_neg()
        view: NDArray[Any] = (plain.float() if array.dtype == torch.bfloat16 else plain).numpy()
        return view


@cache
def torch_backend(device: Any) -> Torch:
    """Return the backend of a device."""
    return Torch(device)


@cache
def _is_plain(dtype: Any, layout: Any, device: str) -> bool:
    xp = import_module("array_api_compat.torch")
    return str(layout) == "torch.strided" and device != "meta" and is_real(xp, dtype)
