"""The Tucker model: a small core, and a dense factor matrix per mode."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.backends import NUMPY, get_backend
from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.kernels.entries import values_at
from tucket.models.model import Model, register_with_jax
from tucket.models.parts import check_part, check_parts, check_range


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Tucker(Model):
    r"""A core and a dense factor matrix per mode.

    .. math:: Q[i_1, \dots, i_d] = \sum_{j_1 \dots j_d} G[j_1, \dots, j_d] \prod_k A_k[i_k, j_k]

    Parameters
    ----------
    core : array of non-negative numbers, of shape (rank_1, ..., rank_d)
        Of NumPy or any other library.
    factors : sequence of arrays, one per mode, of shape (size, rank)
        Of the same library.
    axes : Axes, optional
        Names of the modes, and labels of their indices.

    See Also
    --------
    BlockTucker : The same with factors that have one non-zero entry per row.
    ntd : Makes a Tucker model of least error.

    Examples
    --------
    >>> model = Tucker(np.ones((1, 1)), [np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])])
    >>> model.to_tensor()
    array([[ 3.,  5.],
           [ 6., 10.]])
    >>> model[1, :]
    array([ 6., 10.])
    """

    _others: ClassVar[str] = "factors"

    core: Any
    factors: tuple[Any, ...]
    axes: Axes | None

    def __init__(self, core: ArrayLike, factors: Iterable[ArrayLike], axes: Axes | None = None) -> None:
        held = check_part(core, "core")
        matrices = check_parts(factors, "factors", held)
        for mode, (factor, rank) in enumerate(zip(matrices, held.shape)):
            if factor.ndim != 2 or factor.shape[1] != rank:
                raise ValueError(
                    f"mode {mode}: the factor is of shape {tuple(factor.shape)}; "
                    f"give a matrix of {rank} columns, as many as the core has there"
                )
        if get_backend(held) is NUMPY:
            check_range(held, (factor.sum(axis=1, dtype=np.float64).max() for factor in matrices))
        self._fill(held, matrices, axes)
        if axes is not None:
            axes._check(self.shape)

    @classmethod
    def _of(cls, core: Any, factors: Iterable[Any], axes: Axes | None = None) -> Self:
        """Make a model of parts that are known to fit, without checks."""
        model = object.__new__(cls)
        model._fill(core, tuple(factors), axes)
        return model

    def _fill(self, core: Any, factors: tuple[Any, ...], axes: Axes | None) -> None:
        for name, value in (("core", core), ("factors", factors), ("axes", axes)):
            object.__setattr__(self, name, value)
        if sys.modules.get("jax") is not None:
            register_with_jax(
                Tucker, lambda model: model.axes, lambda axes, parts: Tucker._of(parts[0], parts[1:], axes)
            )

    def __reduce__(self) -> tuple[Any, ...]:
        make = type(self) if self.backend is NUMPY else type(self)._of  # NumPy arrays are to be read-only again
        return make, (self.core, self.factors, self.axes)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The core and the factors."""
        return self.core, *self.factors

    def _with(self, parts: Sequence[Any]) -> Self:
        return type(self)._of(parts[0], parts[1:], self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return tuple(int(factor.shape[0]) for factor in self.factors)

    def dense_factors(self) -> list[Any]:
        """Return the factor matrices, one per mode, of shape (size, rank).

        Returns
        -------
        list of arrays
        """
        return list(self.factors)

    def _expand(self, part: Any, mode: int, rows: slice) -> Any:
        backend = self.backend
        factor, reshape = backend.take_rows(self.factors[mode], rows), backend.xp.reshape
        before, after = tuple(part.shape[:mode]), tuple(part.shape[mode + 1 :])
        # matrix products on the array as it lies; one product instead of many when the mode is the last
        flat = reshape(part, (math.prod(before), self.rank[mode], math.prod(after)))
        product = factor @ flat if after else flat[:, :, 0] @ factor.T
        return reshape(product, (*before, factor.shape[0], *after))

    def _part(self, box: Box) -> Self:
        return self._with([self.core, *(factor[rows] for factor, rows in zip(self.factors, box))])

    def _at(self, coords: Sequence[NDArray[Any]], workers: int = 1) -> NDArray[np.float64]:  # noqa: ARG002
        return values_at(self.core, self.factors, coords)

    def _total(self) -> float:
        part = self.core.astype(np.float64)
        for factor in self.factors:
            part = np.tensordot(factor.sum(axis=0, dtype=np.float64), part, axes=(0, 0))
        return float(part)

    def _square_sum(self, scale: float) -> float:
        core = self.core.astype(np.float64) / scale
        part = core
        for factor in self.factors:  # the first axis goes, its successor comes last: in the end the order is the old
            part = np.tensordot(part, factor.T @ factor.astype(np.float64), axes=(0, 0))
        return float((core * part).sum())

    def _most(self) -> float:
        return math.prod((float(factor.sum(axis=1).max()) for factor in self.factors), start=float(self.core.max()))

    def _same_structure(self, other: Any) -> bool:
        return bool(self.shape == other.shape and self.rank == other.rank)

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"core": self.core, **numbered("factor", self.factors)}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Tucker:
        core = arrays["core"]
        return Tucker(core, (arrays[f"factor_{mode}"] for mode in range(core.ndim)), Axes._from_arrays(arrays))


def numbered(name: str, parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return arrays by a name with a number, as they are saved."""
    return {f"{name}_{mode}": part for mode, part in enumerate(parts)}
