"""Any library that follows the array API standard, by its functions alone."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.backend import Backend
from tucket.backends.cuda import cuda_view

CPU = 1
"""What DLPack calls a device that shares the memory of the host."""


class ArrayApi(Backend):
    """Arrays of a library that follows the array API standard."""

    __slots__ = ()

    def from_numpy(self, array: NDArray[Any]) -> Any:
        """Return a NumPy array as an array of this library; memory may be shared."""
        fresh = array if array.flags.writeable and array.flags.c_contiguous else array.copy()
        if fresh.dtype == np.float64 and not self.has_float64:
            fresh = fresh.astype(np.float32)
        return self.xp.asarray(fresh) if self.device is None else self.xp.asarray(fresh, device=self.device)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a small array as a NumPy array."""
        return np.array(np.from_dlpack(array))

    @property
    def has_float64(self) -> bool:
        """Whether there are floats of 64 bits."""
        info = getattr(self.xp, "__array_namespace_info__", None)
        return info is None or "float64" in info().dtypes(device=self.device, kind="real floating")

    def check(self, array: Any, name: str) -> None:
        """Refuse an array that does not hold real numbers."""
        if not is_real(self.xp, array.dtype):
            raise TypeError(
                f"{name} is of type {type(array).__name__} and dtype {array.dtype}; give real numbers: bool, integers, "
                f"or floats of 16 to 64 bits"
            )

    def native(self, array: Any) -> Any:
        """Return an array in the memory of the host as a NumPy array, one on an NVIDIA GPU as a torch tensor."""
        host = self.host_view(array)
        if host is not None:
            return host
        cuda = cuda_view(array)
        return array if cuda is None else cuda

    def from_native(self, array: Any, *, copy: bool = True) -> Any:
        """Return a torch tensor on a GPU as an array of this library; any other array as it is."""
        if not type(array).__module__.startswith("torch") or self.xp.__name__.endswith("torch"):
            return array
        from torch import cuda

        with cuda.device(array.device):  # torch hands tensors out only on the current device
            return self.xp.from_dlpack(array.clone() if copy else array)

    def host_view(self, array: Any) -> NDArray[Any] | None:
        """Return an array that lies in the memory of the host as a NumPy array; None for any other.

        It is not copied, unless it is of bfloat16, which NumPy does not have and which becomes float32.
        """
        try:
            if array.__dlpack_device__()[0] != CPU:
                return None
            view = np.asarray(array).astype(np.float32) if str(array.dtype) == "bfloat16" else np.from_dlpack(array)
        except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):  # a dtype that NumPy does not have
            return None
        return view if view.dtype.kind in "biuf" else None


def is_real(xp: Any, dtype: Any) -> bool:
    """Say whether a dtype is of real numbers that can be computed with."""
    return bool(xp.isdtype(dtype, ("bool", "integral", "real floating")) and "float8" not in str(dtype))
