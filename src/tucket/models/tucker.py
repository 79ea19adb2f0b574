"""Tucker models: a small core, and for each mode what carries it to full size."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket import kernels
from tucket.base import archive
from tucket.base.axes import Axes, find_mode
from tucket.base.blocks import Blocks
from tucket.base.boxes import Box
from tucket.base.partition import Partition, check_partition
from tucket.kernels import foreign
from tucket.kernels.sums import CLOSE
from tucket.models.model import SAFE_SQUARES, Model, cast_part, check_part, check_parts, check_range
from tucket.sources import reductions as passes
from tucket.sources.source import Chunk, Report

if TYPE_CHECKING:
    import os

    from scipy.sparse import csr_array

__all__ = ["Block", "BlockTucker", "Tucker", "blocks_from_arrays", "blocks_to_arrays", "load"]


class Block(NamedTuple):
    """A block of one mode: its indices, as a slice where they are neighbours, its mass, and the indices' labels."""

    indices: slice | NDArray[np.intp]
    mass: float
    labels: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Tucker(Model):
    r"""A core and a dense factor matrix a mode.

    .. math:: Q[i_1, \dots, i_d] = \sum_{j_1 \dots j_d} G[j_1, \dots, j_d] \prod_k A_k[i_k, j_k]

    Examples
    --------
    >>> model = Tucker(np.ones((1, 1)), [np.array([[1.0], [2.0]]), np.array([[3.0], [5.0]])])
    >>> model.to_tensor()
    array([[ 3.,  5.],
           [ 6., 10.]])
    >>> model[1, :]
    array([ 6., 10.])
    """

    core: NDArray[Any]
    factors: tuple[NDArray[Any], ...]
    axes: Axes | None

    def __init__(self, core: ArrayLike, factors: Iterable[ArrayLike], axes: Axes | None = None) -> None:
        held = check_part(core, "core")
        matrices = check_parts(factors, "factors", held)
        for mode, (factor, rank) in enumerate(zip(matrices, held.shape)):
            if factor.ndim != 2 or factor.shape[1] != rank:
                raise ValueError(
                    f"mode {mode}: the factor is of shape {factor.shape}; "
                    f"give a matrix of {rank} columns, as many as the core has there"
                )
        check_range(held, (factor.sum(axis=1, dtype=np.float64).max() for factor in matrices))
        object.__setattr__(self, "core", held)
        object.__setattr__(self, "factors", matrices)
        object.__setattr__(self, "axes", axes and axes.check(self.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        return Tucker, (self.core, self.factors, self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return tuple(len(factor) for factor in self.factors)

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the factors."""
        return self.core.size + sum(factor.size for factor in self.factors)

    def dense_factors(self) -> list[NDArray[Any]]:
        """Return the factor matrices, one a mode, of shape (size, rank)."""
        return list(self.factors)

    def _expand(self, part: NDArray[Any], mode: int, rows: slice) -> NDArray[Any]:
        factor = self.factors[mode][rows]
        before, after = part.shape[:mode], part.shape[mode + 1 :]
        # matrix products on the array as it lies; one product instead of many when the mode is the last
        flat = part.reshape(math.prod(before), self.rank[mode], math.prod(after))
        product: NDArray[Any] = factor @ flat if after else flat[:, :, 0] @ factor.T
        return product.reshape(*before, len(factor), *after)

    def _cast(self, dtype: np.dtype[Any]) -> Self:
        return type(self)(cast_part(self.core, "core", dtype), self.factors, self.axes)

    def _part(self, box: Box) -> Tucker:
        return Tucker(self.core, [factor[rows] for factor, rows in zip(self.factors, box)])

    def _at(self, coords: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        first, *others = (factor[indices].astype(np.float64) for indices, factor in zip(coords, self.factors))
        part: NDArray[np.float64] = np.tensordot(first, self.core, axes=1)
        for rows in others:
            part = np.einsum("nr...,nr->n...", part, rows)
        return part

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

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"core": self.core, **_numbered("factor", self.factors)}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> Tucker:
        core = arrays["core"]
        return cls(core, (arrays[f"factor_{mode}"] for mode in range(core.ndim)), Axes.from_arrays(arrays))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Tucker):
            return NotImplemented
        return self.axes == other.axes and _same([self.core, *self.factors], [other.core, *other.factors])


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class BlockTucker(Model):
    r"""A core, and for each index of a mode its block and its weight within that block.

    .. math:: Q[i_1, \dots, i_d] = G[b_1(i_1), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Factor k has one non-zero entry a row, :math:`w_k[i]` in column :math:`b_k(i)`, and is built only when
    it is asked for.

    Examples
    --------
    >>> partition = Partition.from_starts((3, 2), [[0, 2], [0]])
    >>> model = BlockTucker([[8.0], [4.0]], partition, [[0.25, 0.75, 1.0], [0.5, 0.5]])
    >>> model.to_tensor()
    array([[1., 1.],
           [3., 3.],
           [2., 2.]])
    >>> core, factors = model
    >>> factors[0]
    array([[0.25, 0.  ],
           [0.75, 0.  ],
           [0.  , 1.  ]])
    """

    core: NDArray[Any]
    partition: Partition
    weights: tuple[NDArray[Any], ...]
    axes: Axes | None

    def __init__(
        self, core: ArrayLike, partition: Partition, weights: Iterable[ArrayLike], axes: Axes | None = None
    ) -> None:
        held = check_part(core, "core")
        check_partition(partition)
        if held.shape != partition.rank:
            raise ValueError(f"the core is of shape {held.shape}; give the partition's rank {partition.rank}")
        vectors = check_parts(weights, "weights", held)
        for mode, (vector, size) in enumerate(zip(vectors, partition.shape)):
            if vector.shape != (size,):
                raise ValueError(f"mode {mode}: the weights are of shape {vector.shape}; give {size} of them")
        check_range(held, (vector.max() for vector in vectors))
        object.__setattr__(self, "core", held)
        object.__setattr__(self, "partition", partition)
        object.__setattr__(self, "weights", vectors)
        object.__setattr__(self, "axes", axes and axes.check(self.shape))

    def __reduce__(self) -> tuple[Any, ...]:
        return BlockTucker, (self.core, self.partition, self.weights, self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return self.partition.shape

    @property
    def n_parameters(self) -> int:
        """Number of entries of the core and the weights."""
        return self.core.size + sum(self.shape)

    @property
    def factors(self) -> tuple[NDArray[Any], ...]:
        """The factor matrices, built dense, one a mode, of shape (size, rank)."""
        return tuple(self.dense_factors())

    def dense_factors(self) -> list[NDArray[Any]]:
        """Build the factor matrices, one a mode, of shape (size, rank)."""
        matrices = [np.zeros(extent, self.dtype) for extent in zip(self.shape, self.rank)]
        for matrix, blocks, vector in zip(matrices, self.partition.modes, self.weights):
            matrix[np.arange(blocks.size), blocks.labels] = vector
        return matrices

    def blocks(self, mode: int | str) -> list[Block]:
        """List the blocks of a mode: the indices of each, the mass that the model puts on them, and their labels.

        Examples
        --------
        >>> model = BlockTucker([[8.0], [4.0]], Partition.from_labels([[0, 1, 0], [0, 0]]), [[0.5, 1, 0.5], [0.5, 0.5]])
        >>> model.blocks(0)
        [Block(indices=array([0, 2]), mass=8.0, labels=None), Block(indices=array([1]), mass=4.0, labels=None)]
        >>> model.blocks(1)
        [Block(indices=slice(0, 2, None), mass=12.0, labels=None)]
        """
        number = find_mode(mode, self.axes, len(self.shape))
        blocks = self.partition[number]
        labels = None if self.axes is None else self.axes.labels[number]
        masses = self.block_masses().sum(axis=tuple(k for k in range(len(self.shape)) if k != number))
        indices: Sequence[slice | NDArray[np.intp]]
        if blocks.contiguous:
            indices = list(map(slice, blocks.starts.tolist(), [*blocks.starts[1:].tolist(), blocks.size]))
        else:
            order = np.argsort(blocks.labels, kind="stable")
            indices = np.split(order, np.cumsum(blocks.sizes)[:-1])
        return [
            Block(where, float(mass), None if labels is None else labels[where]) for where, mass in zip(indices, masses)
        ]

    @property
    def marginals(self) -> tuple[NDArray[np.float64], ...]:
        """For each mode, the sums of the tensor over all other modes: those of the data, if `ltr` has made the model.

        Examples
        --------
        >>> partition = Partition.uniform((2, 2), 1)
        >>> BlockTucker([[8.0]], partition, [[0.25, 0.75], [0.5, 0.5]]).marginals
        (array([2., 6.]), array([4., 4.]))
        """
        masses, found = self.block_masses(), []
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, self.weights)):
            whole = blocks.expand(blocks.sum(vector))
            shares = np.divide(vector, whole, where=whole > 0, out=np.zeros(blocks.size))
            mass = masses.sum(axis=tuple(k for k in range(masses.ndim) if k != mode))
            found.append(blocks.expand(mass) * shares)
        return tuple(found)

    def block_masses(self) -> NDArray[np.float64]:
        """Return the sum of the model over each block."""
        masses = self.core.astype(np.float64)
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, self.weights)):
            masses = masses * blocks.sum(vector).reshape(-1, *(1,) * (len(self.shape) - mode - 1))
        return masses

    def sparse_factors(self) -> list[csr_array[Any]]:
        """Build the factor matrices as SciPy's sparse arrays, with one stored entry a row.

        Examples
        --------
        >>> partition = Partition.uniform((1_000_000,), 1_000)
        >>> model = BlockTucker(np.ones(1_000), partition, [np.full(1_000_000, 0.001)])
        >>> model.sparse_factors()[0].nnz
        1000000
        """
        from scipy.sparse import csr_array

        return [
            csr_array((vector.copy(), blocks.labels, np.arange(blocks.size + 1)), shape=(blocks.size, blocks.rank))
            for blocks, vector in zip(self.partition.modes, self.weights)
        ]

    def kl(self, x: Any, *, workers: int | None = None, progress: Report | None = None) -> float:
        r"""Generalised Kullback-Leibler divergence of `x` from the model, in one pass over `x`.

        .. math:: D(P; Q) = \sum P \log P - \sum_b G_P[b] \log G[b]
                  - \sum_k \sum_i m_k[i] \log w_k[i] - \sum P + \sum Q

        with the block sums :math:`G_P` and the marginals :math:`m_k` of `x`: see `metrics.kl`. As a difference
        of sums it is good to about 1e-15 of the sum of all \|P log P\|.
        """
        source = self._check_shape(x)
        model_total = self._total()
        # logarithms of entries in a unit of their own size are small, and so is what rounding does to them
        unit = 2.0 ** round(math.log2(model_total / source.size)) if model_total else 1.0
        sums = passes.block_sums(source, [self.partition], workers, unit, progress)[0]
        terms = [_times_log(sums.core, self.core / unit), *map(_times_log, sums.marginals, self.weights)]
        found = sums.moments.v_log_v if sums.moments else math.nan
        divergence = found - sum(terms) + (model_total - float(sums.core.sum()))
        is_vague = sums.is_rough and divergence < CLOSE * model_total
        if is_vague or math.isnan(divergence) or divergence == -math.inf:  # some sum is too large for this way
            return Model.kl(self, x, workers=workers, progress=progress)
        return max(0.0, divergence)

    def _misfit(self, chunk: Chunk, most: float, workers: int) -> tuple[float, float, float]:
        if isinstance(chunk.array, np.ndarray) and kernels.is_large(chunk.array.shape):
            part = self._part(chunk.box)
            found = kernels.residual(chunk.array, part.core, part.partition, part.weights, workers)
            residual, norm, negative = found
            if not negative and np.isfinite(residual) and SAFE_SQUARES < norm < math.inf:
                return 1.0, residual, norm
        return Model._misfit(self, chunk, most, workers)

    def _misfit_abroad(self, chunk: Chunk, scale: float) -> tuple[float, float, bool]:
        part = self._part(chunk.box)
        return foreign.residual(chunk.array, part.core, part.partition, part.weights, scale)

    def _write(self, out: NDArray[Any], workers: int) -> None:
        if kernels.is_large(self.shape):
            kernels.write(out, self.core, self.partition, self.weights, workers)
        else:
            out[...] = self[...]

    def _cast(self, dtype: np.dtype[Any]) -> Self:
        return type(self)(cast_part(self.core, "core", dtype), self.partition, self.weights, self.axes)

    def _part(self, box: Box) -> BlockTucker:
        inside, blocks = self.partition.within(box)
        return BlockTucker(self.core[blocks], inside, [vector[rows] for vector, rows in zip(self.weights, box)])

    def _at(self, coords: Sequence[NDArray[Any]]) -> NDArray[np.float64]:
        places = tuple(blocks.labels[indices] for blocks, indices in zip(self.partition.modes, coords))
        values: NDArray[np.float64] = self.core[places].astype(np.float64)
        for vector, indices in zip(self.weights, coords):
            values *= vector[indices]
        return values

    def _total(self) -> float:
        return float(self.block_masses().sum())

    def _square_sum(self, scale: float) -> float:
        part = np.square(self.core.astype(np.float64) / scale)
        for blocks, vector in zip(self.partition.modes, self.weights):
            part = np.tensordot(blocks.sum(np.square(vector, dtype=np.float64)), part, axes=(0, 0))
        return float(part)

    def _expand(self, part: NDArray[Any], mode: int, rows: slice) -> NDArray[Any]:
        expanded = part.take(self.partition[mode].labels_at(rows), axis=mode)
        expanded *= self.weights[mode][rows].reshape(-1, *(1,) * (part.ndim - mode - 1))
        return expanded

    def _most(self) -> float:
        return math.prod((float(vector.max()) for vector in self.weights), start=float(self.core.max()))

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"core": self.core, **_numbered("weights", self.weights), **blocks_to_arrays(self.partition)}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> BlockTucker:
        core = arrays["core"]
        weights = [arrays[f"weights_{mode}"] for mode in range(core.ndim)]
        partition = blocks_from_arrays(arrays, [vector.size for vector in weights])
        return cls(core, partition, weights, Axes.from_arrays(arrays))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BlockTucker):
            return NotImplemented
        return (
            self.partition == other.partition
            and self.axes == other.axes
            and _same([self.core, *self.weights], [other.core, *other.weights])
        )


def load(path: str | os.PathLike[str]) -> Tucker | BlockTucker:
    """Read a model that `save` wrote. Nothing is unpickled, so a file from anywhere is safe to try."""
    kind, arrays = archive.read(path)
    for model in (Tucker, BlockTucker):
        if kind == model.__name__:
            return archive.build(path, "model", partial(_load, model), arrays)
    remedy = "; read it with tucket.Statistics.load" if kind == "Statistics" else ""
    raise ValueError(f"{path} holds a {kind!r}, not a model{remedy}")


def _load(model: type[Tucker | BlockTucker], arrays: dict[str, NDArray[Any]]) -> Tucker | BlockTucker:
    loaded = model._from_arrays(arrays)
    if loaded.shape != tuple(np.atleast_1d(arrays["shape"]).tolist()):
        raise ValueError(f"it is of shape {loaded.shape}, but should be {arrays['shape']}")
    return loaded


def blocks_to_arrays(partition: Partition) -> dict[str, NDArray[Any]]:
    """Return what is saved of a partition."""
    return {
        f"starts_{mode}" if blocks.contiguous else f"labels_{mode}": (
            blocks.starts if blocks.contiguous else blocks.labels
        )
        for mode, blocks in enumerate(partition.modes)
    }


def blocks_from_arrays(arrays: Mapping[str, NDArray[Any]], shape: Sequence[int]) -> Partition:
    """Build a partition of what was saved."""
    return Partition(
        tuple(
            Blocks.from_labels(arrays[f"labels_{mode}"])
            if f"labels_{mode}" in arrays
            else Blocks.from_starts(size, arrays[f"starts_{mode}"])
            for mode, size in enumerate(shape)
        )
    )


def _numbered(name: str, parts: Iterable[NDArray[Any]]) -> dict[str, NDArray[Any]]:
    return {f"{name}_{mode}": part for mode, part in enumerate(parts)}


def _same(ours: Sequence[NDArray[Any]], theirs: Sequence[NDArray[Any]]) -> bool:
    return len(ours) == len(theirs) and all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in zip(ours, theirs))


def _times_log(masses: NDArray[np.float64], model: NDArray[Any]) -> float:
    """Return the sum of masses times log model, where mass that the model has no room for makes it -inf."""
    seen = masses > 0
    with np.errstate(divide="ignore"):
        return float((masses[seen] * np.log(model[seen], dtype=np.float64)).sum())
