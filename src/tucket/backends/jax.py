"""JAX: arrays on any of its devices, shared out among several, or traced by its transformations."""

from __future__ import annotations

from contextlib import AbstractContextManager
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.backends.array_api import ArrayApi

RUN_INDICES = 64
"""Neighbours that are added one by one, in what may be float32; more where there are more groups than that."""


class Jax(ArrayApi):
    """JAX arrays on one device, or the same on each of several."""

    __slots__ = ()

    def __init__(self, xp: Any, device: Any) -> None:
        super().__init__(xp, _whole(device))

    @property
    def has_float64(self) -> bool:
        """Whether floats of 64 bits are enabled."""
        return bool(self.xp.result_type(float) == self.xp.float64)

    def to_numpy(self, array: Any) -> NDArray[Any]:
        """Return a small array as a NumPy array."""
        return np.array(array, np.float32 if array.dtype == "bfloat16" else None)

    def full_precision(self) -> AbstractContextManager[object]:
        """Return a context in which matrix products have all digits: JAX rounds more on some devices."""
        context: AbstractContextManager[object] = import_module("jax").default_matmul_precision("highest")
        return context

    def check(self, array: Any, name: str) -> None:
        """Refuse an array that is shared out along explicit axes, or does not hold real numbers."""
        sharding: Any = getattr(getattr(array, "aval", None), "sharding", None)
        if any(getattr(sharding, "spec", ())) and any(kind.name == "Explicit" for kind in sharding.mesh.axis_types):
            raise TypeError(
                f"{name} is shared out by JAX along axes of type Explicit ({sharding.spec}), and this needs Auto; give "
                f"jax.device_put({name}, NamedSharding(Mesh(devices, names), {name}.sharding.spec)), or make the mesh "
                f"with axis_types=(AxisType.Auto, ...)"
            )
        super().check(array, name)

    def is_traced(self, array: Any) -> bool:
        """Say whether an array is inside of a function that JAX transforms."""
        return isinstance(array, import_module("jax").core.Tracer)

    def has_values(self, array: Any) -> bool:
        """Say whether the entries of an array can be looked at."""
        return not self.is_traced(array)

    def detach(self, array: Any) -> Any:
        """Return the array as a constant, through which no gradient flows."""
        return import_module("jax").lax.stop_gradient(array)

    def sum_groups(self, array: Any, labels: NDArray[np.intp], count: int) -> Any:
        """Sum the entries of the last axis over groups, not by a product, which may have few digits.

        JAX adds the entries of a group one by one. In float32 that loses digits where they are many; so only runs of
        neighbours are added in this way, and then the runs as a tree.
        """
        xp, jax = self.xp, import_module("jax")
        run = max(RUN_INDICES, count)
        runs = -(-len(labels) // run)
        places = self.from_numpy(labels + np.arange(len(labels)) // run * count)
        first = xp.moveaxis(array, -1, 0)
        sums = jax.ops.segment_sum(first, places, runs * count)
        return xp.moveaxis(xp.sum(xp.reshape(sums, (runs, count, *first.shape[1:])), axis=0), 0, -1)


def _whole(device: Any) -> Any:
    """Return a device; of several, among which JAX shares an array out, all of them, each with the whole array."""
    if len(getattr(device, "device_set", ())) < 2:
        return device
    sharding = import_module("jax").sharding
    # None: where its neighbours are
    return sharding.NamedSharding(device.mesh, sharding.PartitionSpec()) if hasattr(device, "mesh") else None
