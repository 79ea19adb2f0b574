"""Tucker models whose parts are arrays of another library, on the device of the tensor that they are models of."""

from __future__ import annotations

import math
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from tucket.backends.home import (
    Home,
    check_array,
    explain_followed,
    home_of,
    is_traced,
    on_gpu,
    on_host,
    same_home,
)
from tucket.base.axes import Axes
from tucket.base.partition import Partition
from tucket.kernels import pure
from tucket.models.model import SAFE_SQUARES, Index, Model, check_dtype, parse_index
from tucket.models.tucker import Block, BlockTucker, Tucker
from tucket.sources.dense import check_shape_match
from tucket.sources.foreign import Foreign, check_followed
from tucket.sources.source import Report

if TYPE_CHECKING:
    import os

__all__ = [
    "ArrayBlockTucker",
    "ArrayModel",
    "ArrayTucker",
    "deliver",
    "here",
    "taken",
]


class ArrayModel(ABC):
    """What models of arrays of other libraries can do; all else is asked of `to_numpy()`."""

    core: Any
    axes: Axes | None

    @property
    def home(self) -> Home:
        """The library of the parts, and the device that they are on."""
        home = home_of(self.core)
        if home is None:  # as JAX's functions of trees may leave it
            raise TypeError(
                f"the core of this {type(self).__name__} is of type {type(self.core).__name__}, and no array of "
                f"another library; if it is NumPy's, take to_numpy()"
            )
        return home

    @property
    @abstractmethod
    def parts(self) -> tuple[Any, ...]:
        """The core, and what the model holds of each mode."""

    @property
    @abstractmethod
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""

    @abstractmethod
    def dense_factors(self) -> list[Any]:
        """Return the factor matrices, one a mode, of shape (size, rank)."""

    @abstractmethod
    def to_numpy(self) -> Model:
        """Return the model on the host, which can do all that models can."""

    @abstractmethod
    def to_tensor(self) -> Any:
        """Return the whole tensor that the model stands for, dense, where its parts are."""

    @abstractmethod
    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""

    @property
    def rank(self) -> tuple[int, ...]:
        """Size of each mode of the core."""
        return tuple(self.core.shape)

    @property
    def dtype(self) -> Any:
        """Type of the core, the factors and the tensor."""
        return self.core.dtype

    @property
    def device(self) -> Any:
        """Where the parts are."""
        return self.home.device

    @property
    @abstractmethod
    def n_parameters(self) -> int:
        """How many real numbers the model holds."""

    def _is_traced(self) -> bool:
        return any(map(is_traced, self.parts))

    def kl(self, x: Any, *, workers: int | None = None, progress: Report | None = None) -> Any:
        """Generalised Kullback-Leibler divergence of `x` from the model: see `metrics.kl`.

        A float; or, where `x` or the model is followed for a gradient or a compiled function, an array of one number.
        Entries of `x` that are zero have no gradient of their own, but that of the model there.
        """
        if self._is_followed(x):
            return pure.divergence(self.home, x, self.to_tensor())
        found = self._kl_there(x) if progress is None else None
        return self.to_numpy().kl(x, workers=workers, progress=progress) if found is None else found

    def _kl_there(self, x: Any) -> float | None:  # noqa: ARG002
        """Do it on a GPU, where all is set under way at once; None where that cannot be done, or went wrong."""
        return None

    def relative_error(self, x: Any, *, workers: int | None = None, progress: Report | None = None) -> Any:
        """Frobenius norm of the difference from `x`, divided by that of `x`: see `metrics.relative_error`.

        A float or an array of one number, as with `kl`.
        """
        if self._is_followed(x):
            return pure.relative_error(self.home, x, self.to_tensor())
        found = self._error_there(x) if progress is None else None
        return self.to_numpy().relative_error(x, workers=workers, progress=progress) if found is None else found

    def _error_there(self, x: Any) -> float | None:  # noqa: ARG002
        """Do it on a GPU, with the parts where they are; None where that cannot be done, or went wrong."""
        return None

    def astype(self, dtype: DTypeLike) -> Any:
        """Return the model in float32 or float64."""
        target = self.home.nearest(check_dtype(dtype))
        if not self._is_traced():
            return deliver(self.to_numpy().astype(target), self.home)
        xp = self.home.xp
        return self._of(*(xp.astype(part, getattr(xp, target.name)) for part in self.parts))

    @abstractmethod
    def _of(self, core: Any, *others: Any) -> Any:
        """Return the same model with other parts."""

    def plot(self) -> Any:
        """Draw what there is to see of the model, as `tucket.plot.model` does; returns matplotlib's figure."""
        return self.to_numpy().plot()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the model, from the host, to exactly this path; `tucket.load` reads it back, as a model of NumPy's."""
        self.to_numpy().save(path)

    def _brought(self) -> list[NDArray[Any]]:
        """Return the parts on the host."""
        from tucket.kernels.foreign import bring_all

        try:
            return bring_all(self.parts)
        except (RuntimeError, TypeError):
            if not self._is_traced():
                raise
            raise explain_followed(self.core, "the model", can_detach=False) from None

    def _is_followed(self, x: Any) -> bool:
        """Say whether a tensor, which must fit the model, or the model is followed."""
        home = home_of(x)
        if not same_home(home, self.home):
            raise ValueError(
                f"x is {'no array of its library' if home is None else f'of {home}'}, but the model of {self.home}; "
                f"bring one to the other, or use model.to_numpy()"
            )
        check_array(x, "x")
        check_shape_match(x, self.shape, "the model")
        if not (self._is_traced() or is_traced(x)):
            return False
        check_followed(x, "x")
        return True

    def __array__(self, dtype: DTypeLike | None = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the dense tensor, so that NumPy's functions take a model: if its library lets them have it."""
        if copy is False:
            raise ValueError("a model holds no dense tensor to be shared; leave copy=False out")
        return np.asarray(self.to_tensor(), dtype)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, type(self)):
            return NotImplemented
        if home_of(self.core) is None or home_of(other.core) is None:
            return self is other
        return same_home(self.home, other.home) and self.to_numpy() == other.to_numpy()

    def __iter__(self) -> Iterator[Any]:
        """Unpack as `core, factors = model`, which is the form that TensorLy's functions take."""
        yield self.core
        yield self.dense_factors()

    def __repr__(self) -> str:
        if home_of(self.core) is None:
            return f"{type(self).__name__}(core={self.core!r})"
        return (
            f"{type(self).__name__}(shape={self.shape}, rank={self.rank}, dtype={self.dtype}, {self.home}): "
            f"{self.n_parameters:,} parameters for {math.prod(self.shape):,} elements"
        )


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ArrayBlockTucker(ArrayModel):
    r"""A core, and for each index of a mode its block and its weight within that block: see `BlockTucker`.

    `ltr` makes it of arrays of torch, CuPy, JAX and others that follow the array API standard.

    Attributes
    ----------
    core : array of shape `partition.rank`
    partition : Partition
    weights : tuple of arrays, one a mode
    """

    core: Any
    partition: Partition
    weights: tuple[Any, ...]
    axes: Axes | None = None

    def __post_init__(self) -> None:
        _tell_jax()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayBlockTucker, (self.core, self.partition, self.weights, self.axes)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The core and the weights."""
        return self.core, *self.weights

    def _of(self, core: Any, *others: Any) -> ArrayBlockTucker:
        return ArrayBlockTucker(core, self.partition, others, self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return self.partition.shape

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the weights."""
        return math.prod(self.rank) + sum(self.shape)

    @property
    def factors(self) -> tuple[Any, ...]:
        """The factor matrices, built dense, one a mode, of shape (size, rank)."""
        return tuple(self.dense_factors())

    def dense_factors(self) -> list[Any]:
        """Build the factor matrices, one a mode, of shape (size, rank)."""
        return [self._factor(mode) for mode in range(len(self.shape))]

    def blocks(self, mode: int | str) -> list[Block]:
        """List the blocks of a mode, on the host: see `BlockTucker.blocks`."""
        return self.to_numpy().blocks(mode)

    def _factor(self, mode: int) -> Any:
        blocks = self.partition[mode]
        indicator = pure.indicator(self.home, blocks.labels, blocks.rank)
        return self.home.xp.astype(indicator, self.dtype) * self.weights[mode][:, None]

    def to_numpy(self) -> BlockTucker:
        """Return the model on the host, which can do all that models can."""
        core, *weights = self._brought()
        return BlockTucker(core, self.partition, weights, self.axes)

    def to_tensor(self) -> Any:
        """Return the whole tensor that the model stands for, dense, where its parts are."""
        if not self._is_traced():
            if (there := self._there()) is not None:
                return self._write(*there)
            if on_host(self.core) is not None:
                return self.home.take(self.to_numpy().to_tensor())
        return self[...]

    def _kl_there(self, x: Any) -> float | None:
        """Do it on a GPU, where all is set under way at once; None where that cannot be done, or went wrong."""
        both = self._there_with(x)
        if both is None:
            return None
        from tucket.kernels.gpu import passes as gpu

        tensor, core, weights = both
        return gpu.divergence_of(tensor, self.partition, core, weights)

    def _error_there(self, x: Any) -> float | None:
        """Do it on a GPU; None where that cannot be done, or went wrong."""
        both = self._there_with(x)
        if both is None:
            return None
        from tucket.kernels.gpu import passes as gpu

        tensor, core, weights = both
        residual, norm, negative = gpu.residual(tensor, core, self.partition, weights)
        is_fine = not negative and math.isfinite(residual) and SAFE_SQUARES < norm < math.inf
        return math.sqrt(residual / norm) if is_fine else None

    def _there(self) -> tuple[Any, list[Any]] | None:
        """Return the core and the weights as tensors of torch's on a GPU; None if they are elsewhere."""
        core, *weights = map(on_gpu, self.parts)
        return None if core is None or any(vector is None for vector in weights) else (core, weights)

    def _there_with(self, x: Any) -> tuple[Any, Any, list[Any]] | None:
        """Return a tensor too, if it is there and small enough to be read at a time."""
        tensor, there = on_gpu(x), self._there()
        if tensor is None or there is None or tensor.numel() > Foreign(tensor, self.home).piece:
            return None
        return tensor, *there

    def _write(self, core: Any, weights: list[Any]) -> Any:
        import torch

        from tucket.kernels.gpu import passes as gpu

        out = torch.empty(self.shape, dtype=core.dtype, device=core.device)
        gpu.write(out, core, self.partition, weights)
        if isinstance(self.core, torch.Tensor):
            return out
        torch.cuda.current_stream(out.device).synchronize()  # or the parts might be gone before they are read
        return taken(out, self.home)

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""
        rows, kept = parse_index(index, self.shape)
        labels = [blocks.labels_at(some) for blocks, some in zip(self.partition.modes, rows)]
        # by numbers, since not every library has slices that go back
        places = [np.arange(size)[some] for size, some in zip(self.shape, rows)]
        chosen = [self.home.xp.take(vector, self.home.take(some)) for vector, some in zip(self.weights, places)]
        return pure.expand(self.home, self.core, labels, chosen)[kept]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class ArrayTucker(ArrayModel):
    """A core and a dense factor matrix a mode: see `Tucker`. `ntd` makes it of arrays of other libraries.

    Attributes
    ----------
    core : array
    factors : tuple of arrays, one a mode, of shape (size, rank)
    """

    core: Any
    factors: tuple[Any, ...]
    axes: Axes | None = None

    def __post_init__(self) -> None:
        _tell_jax()

    def __reduce__(self) -> tuple[Any, ...]:
        return ArrayTucker, (self.core, self.factors, self.axes)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The core and the factors."""
        return self.core, *self.factors

    def _of(self, core: Any, *others: Any) -> ArrayTucker:
        return ArrayTucker(core, others, self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return tuple(factor.shape[0] for factor in self.factors)

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the factors."""
        return math.prod(self.rank) + sum(math.prod(map(int, factor.shape)) for factor in self.factors)

    def dense_factors(self) -> list[Any]:
        """Return the factor matrices, one a mode, of shape (size, rank)."""
        return list(self.factors)

    def to_numpy(self) -> Tucker:
        """Return the model on the host, which can do all that models can."""
        core, *factors = self._brought()
        return Tucker(core, factors, self.axes)

    def to_tensor(self) -> Any:
        """Return the whole tensor that the model stands for, dense, where its parts are."""
        return self[...]

    def __getitem__(self, index: Index | tuple[Index, ...]) -> Any:
        """Return the part of the tensor that ints, slices and `...` ask for; no more is computed."""
        rows, kept = parse_index(index, self.shape)
        part, xp = self.core, self.home.xp
        with self.home.exact():
            for mode, (factor, some) in enumerate(zip(self.factors, rows)):
                chosen = xp.take(factor, self.home.take(np.arange(factor.shape[0])[some]), axis=0)
                part = xp.moveaxis(xp.tensordot(chosen, part, axes=((1,), (mode,))), 0, mode)
        return part[kept]


def _tell_jax() -> None:
    """Let functions that JAX compiles take models, and return them."""
    if sys.modules.get("jax") is not None and not _told:
        with _telling:
            if not _told:
                _register()


_told: list[bool] = []
_telling = Lock()


def _register() -> None:
    from jax.tree_util import register_pytree_node

    register_pytree_node(
        ArrayBlockTucker,
        lambda model: ((model.core, model.weights), (model.partition, model.axes)),
        lambda known, parts: ArrayBlockTucker(parts[0], known[0], parts[1], known[1]),
    )
    register_pytree_node(
        ArrayTucker,
        lambda model: ((model.core, model.factors), model.axes),
        lambda axes, parts: ArrayTucker(parts[0], parts[1], axes),
    )
    _told.append(True)


def here(model: Any) -> Any:
    """Return a model on the host; and what is no model as it is."""
    return model.to_numpy() if isinstance(model, Model | ArrayModel) else model


def deliver(model: Any, home: Home | None) -> Any:
    """Return a model where the tensor is that it is a model of."""
    if home is None:
        return model
    if isinstance(model, BlockTucker):
        core, *weights = home.take_all([model.core, *model.weights])
        return ArrayBlockTucker(core, model.partition, tuple(weights), model.axes)
    core, *factors = home.take_all([model.core, *model.factors])
    return ArrayTucker(core, tuple(factors), model.axes)


def taken(tensor: Any, home: Home) -> Any:
    """Return a tensor of torch's on a GPU as an array of another library, not copied."""
    from tucket.kernels.gpu.passes import on_device_of

    with on_device_of(tensor):  # or torch does not hand it out
        return home.xp.from_dlpack(tensor)
