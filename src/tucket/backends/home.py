"""Where an array of another library lives: which library, which device, and how to get there and back."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "Home",
    "check_array",
    "check_same_home",
    "explain_followed",
    "home_of",
    "is_traced",
    "is_transformed",
    "namespace_of",
    "on_gpu",
    "on_host",
    "same_home",
    "to_numpy",
]

CPU, CUDA = 1, 2
"""What DLPack calls a device whose memory is the host's, and a GPU of NVIDIA's."""


class Home(NamedTuple):
    """A library, by its namespace of the array API, and one of its devices."""

    xp: Any
    device: Any

    def take(self, array: NDArray[Any]) -> Any:
        """Bring an array of NumPy's here: in the memory of the host it may be shared."""
        fresh = array if array.flags.writeable and array.flags.c_contiguous else array.copy()
        if fresh.dtype == np.float64 and not self.has_float64():
            fresh = fresh.astype(np.float32)
        # arrays under a transformation of JAX's have no device of their own
        return self.xp.asarray(fresh) if self.device is None else self.xp.asarray(fresh, device=self.device)

    def has_float64(self) -> bool:
        """Say whether there are numbers of 64 bits: not on every device, and in JAX only where it is told to."""
        if self.xp.__name__.startswith("jax"):
            return bool(self.xp.result_type(float) == self.xp.float64)
        if "torch" in self.xp.__name__:
            return str(self.device) != "mps"
        kinds = getattr(self.xp, "__array_namespace_info__", None)
        return kinds is None or "float64" in kinds().dtypes(device=self.device, kind="real floating")

    def nearest(self, dtype: np.dtype[Any]) -> np.dtype[Any]:
        """Return a type of floats, or the widest that there is here."""
        return dtype if self.has_float64() else np.dtype(np.float32)

    def take_all(self, arrays: Sequence[NDArray[Any]]) -> list[Any]:
        """Bring several small arrays of one type here, to a device of torch's together, as each has its price."""
        if "torch" not in self.xp.__name__ or str(self.device) == "cpu":
            return [self.take(array) for array in arrays]
        whole = self.take(np.concatenate([array.reshape(-1) for array in arrays]))
        return [part.reshape(array.shape) for part, array in zip(whole.split([array.size for array in arrays]), arrays)]

    def exact(self) -> AbstractContextManager[object]:
        """Return a context in which products have all digits, which JAX leaves out on some devices."""
        if not self.xp.__name__.startswith("jax"):
            return nullcontext()
        context: AbstractContextManager[object] = import_module("jax").default_matmul_precision("highest")
        return context

    def __str__(self) -> str:
        library = self.xp.__name__.rpartition("array_api_compat.")[2].partition(".")[0]
        return library if self.device is None else f"{library} on {self.device}"


def home_of(x: Any) -> Home | None:
    """Return where an array of another library lives; None for all else."""
    kind = type(x)
    if not hasattr(kind, "__dlpack__"):
        return None
    if kind.__module__ == "torch":  # by far the most, who may be in a hurry
        return Home(_torch_namespace(), x.device)
    if isinstance(x, np.ndarray | np.generic) or hasattr(x, "dims"):
        return None
    import array_api_compat

    if not array_api_compat.is_array_api_obj(x):
        return None
    return Home(array_api_compat.array_namespace(x), _whole(array_api_compat.device(x)))


def _whole(device: Any) -> Any:
    """Return a device; of several, among which JAX shares an array out, all, each with the whole of an array."""
    if len(getattr(device, "device_set", ())) < 2:
        return device
    sharding = import_module("jax").sharding
    # None: where its neighbours are
    return sharding.NamedSharding(device.mesh, sharding.PartitionSpec()) if hasattr(device, "mesh") else None


def namespace_of(x: Any) -> Any:
    """Return the functions that go with an array, by the names of the array API: NumPy's own for its arrays."""
    if isinstance(x, np.ndarray):
        return np
    if type(x).__module__ == "torch":
        return _torch_namespace()
    home = home_of(x)
    return np if home is None else home.xp


def same_home(first: Home | None, second: Home | None) -> bool:
    """Say whether two arrays can be worked on together."""
    if first is None or second is None:
        return first is second
    return first.xp is second.xp and (first.device == second.device or None in (first.device, second.device))


def check_same_home(first: Any, second: Any, name: str, other: str) -> None:
    """Refuse two arrays that are not of the same library and on the same device."""
    homes = home_of(first), home_of(second)
    if not same_home(*homes):
        raise ValueError(
            f"{other} is of {homes[1] or 'NumPy'}, but {name} of {homes[0] or 'NumPy'}; bring one to the other"
        )


def check_array(x: Any, name: str) -> None:
    """Refuse what is no dense array of real numbers."""
    if type(x).__module__ == "torch" and _is_plain_in_torch(x.dtype, x.layout, x.device.type) and not x.is_nested:
        return
    home = home_of(x)
    assert home is not None
    layout = str(getattr(x, "layout", ""))
    if getattr(x, "is_nested", False):
        raise TypeError(f"{name} is a nested tensor of torch's; give a dense one, such as {name}.to_padded_tensor(0.0)")
    if layout.startswith("torch.") and layout != "torch.strided":
        raise TypeError(
            f"{name} is a sparse tensor of torch's ({layout}); give its entries, as with "
            f"{name} = {name}.to_sparse_coo().coalesce().cpu(), tucket.from_entries({name}.indices(), {name}.values(), "
            f"tuple({name}.shape)), or {name}.to_dense()"
        )
    if getattr(getattr(x, "device", None), "type", None) == "meta":
        raise TypeError(f"{name} is on torch's device meta, and has no entries; give a tensor that has")
    sharding: Any = getattr(getattr(x, "aval", None), "sharding", None)
    if any(getattr(sharding, "spec", ())) and any(kind.name == "Explicit" for kind in sharding.mesh.axis_types):
        raise TypeError(
            f"{name} is shared out by JAX along axes of type Explicit ({sharding.spec}), and this needs Auto; give "
            f"jax.device_put({name}, NamedSharding(Mesh(devices, names), {name}.sharding.spec)), or make the mesh with "
            f"axis_types=(AxisType.Auto, ...)"
        )
    if not _is_real(home.xp, x.dtype):
        raise TypeError(
            f"{name} is of type {type(x).__name__} and dtype {x.dtype}; give real numbers: bool, integers, or "
            f"floats of 16 to 64 bits"
        )


def is_traced(x: Any) -> bool:
    """Say whether an array is followed: by JAX, which has no values of it yet, or by torch, for a gradient."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return bool(x.requires_grad and torch.is_grad_enabled()) or is_transformed(x)
    jax = sys.modules.get("jax")
    return jax is not None and isinstance(x, jax.core.Tracer)


def is_transformed(x: Any) -> bool:
    """Say whether a tensor of torch's is inside of a function such as `torch.vmap` works on, or carries a tangent."""
    torch = sys.modules["torch"]
    if torch._C._functorch.is_functorch_wrapped_tensor(x):
        return True
    forward = torch.autograd.forward_ad
    return bool(forward._current_level >= 0 and forward.unpack_dual(x).tangent is not None)


def explain_followed(x: Any, name: str, can_detach: bool = True) -> TypeError:
    """Make the error for an array that is followed where its values are looked at."""
    is_whole = can_detach and hasattr(x, "detach") and not is_transformed(x)
    remedy = f"give {name}.detach()" if is_whole else "call it outside of the function that is transformed"
    return TypeError(
        f"{name} is followed, for a gradient or a compiled function, by {home_of(x)}, and this looks at its values; "
        f"{remedy}"
    )


def on_host(x: Any) -> NDArray[Any] | None:
    """Return an array whose entries are in the memory of the host as one of NumPy's; None for all else.

    It is not copied, unless it is of bfloat16, which NumPy does not have: then all is in float32.
    """
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        return to_numpy(x) if x.device.type == "cpu" else None
    try:
        if x.__dlpack_device__()[0] != CPU:
            return None
        array = np.asarray(x).astype(np.float32) if str(x.dtype) == "bfloat16" else np.from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError, TypeError, ValueError):  # a type that NumPy does not have
        return None
    return array if array.dtype.kind in "biuf" else None


def to_numpy(x: Any) -> NDArray[Any]:
    """Return a tensor of torch's as an array of NumPy's, within torch.func too; not copied if that need not be."""
    torch = sys.modules["torch"]
    with torch._C._DisableFuncTorch():
        plain = x.detach().cpu().resolve_neg()
        array: NDArray[Any] = (plain.float() if x.dtype == torch.bfloat16 else plain).numpy()
        return array


def on_gpu(x: Any) -> Any:
    """Return an array in the memory of a GPU of NVIDIA's as a tensor of torch's, not copied; None for all else."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(x, torch.Tensor):
        if x.device.type != "cuda" or not _has_triton():
            return None
        return x.detach().resolve_neg() if x.requires_grad or x.is_neg() else x
    try:
        # torch knows no strides that go back
        if x.__dlpack_device__()[0] != CUDA or not _has_triton() or min(getattr(x, "strides", None) or [0]) < 0:
            return None
        return import_module("torch").from_dlpack(x)
    except (AttributeError, BufferError, RuntimeError):
        return None


def _is_real(xp: Any, dtype: Any) -> bool:
    return xp.isdtype(dtype, ("bool", "integral", "real floating")) and "float8" not in str(dtype)


@cache
def _is_plain_in_torch(dtype: Any, layout: Any, device: str) -> bool:
    return str(layout) == "torch.strided" and device != "meta" and _is_real(_torch_namespace(), dtype)


@cache
def _torch_namespace() -> Any:
    return import_module("array_api_compat.torch")


@cache
def _has_triton() -> bool:
    from importlib.util import find_spec

    if find_spec("torch") is None or find_spec("triton") is None:
        return False
    return bool(import_module("torch").cuda.is_available())
