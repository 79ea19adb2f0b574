"""The block model: a small core, and for each index of a mode its block and its weight within that block."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket import kernels
from tucket.backends import NUMPY, get_backend
from tucket.base.axes import Axes, find_mode
from tucket.base.blocks import Blocks
from tucket.base.boxes import Box
from tucket.base.partition import Partition, check_partition
from tucket.base.run import Run
from tucket.kernels.measures import KL_RECHECK, SAFE_SQUARES, power_of_two
from tucket.models.model import Model, register_with_jax
from tucket.models.parts import check_part, check_parts, check_range
from tucket.models.tucker import numbered
from tucket.sources.dense import Array
from tucket.sources.reductions import block_sums
from tucket.sources.source import Chunk, Source

if TYPE_CHECKING:
    from scipy.sparse import csr_array


class Block(NamedTuple):
    """A block of one mode: its indices, as a slice where they are neighbours, its mass, and the indices' labels."""

    indices: slice | NDArray[np.intp]
    mass: float
    labels: NDArray[Any] | None = None


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class BlockTucker(Model):
    r"""A core, and for each index of a mode its block and its weight within that block.

    .. math:: Q[i_1, \dots, i_d] = G[b_1(i_1), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Factor k has one non-zero entry per row, :math:`w_k[i]` in column :math:`b_k(i)`. It is built only when you ask for
    it.

    Parameters
    ----------
    core : array of non-negative numbers, of shape `partition.rank`
        Of NumPy or any other library.
    partition : Partition
        The blocks of each mode.
    weights : sequence of arrays, one per mode
        The weight of each index, of the same library.
    axes : Axes, optional
        Names of the modes, and labels of their indices.

    See Also
    --------
    ltr : Makes the block model that is nearest to a tensor.
    Tucker : The same with dense factors.

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

    _others: ClassVar[str] = "weights"

    core: Any
    partition: Partition
    weights: tuple[Any, ...]
    axes: Axes | None

    def __init__(
        self, core: ArrayLike, partition: Partition, weights: Iterable[ArrayLike], axes: Axes | None = None
    ) -> None:
        held = check_part(core, "core")
        check_partition(partition)
        if tuple(held.shape) != partition.rank:
            raise ValueError(f"the core is of shape {tuple(held.shape)}; give the partition's rank {partition.rank}")
        vectors = check_parts(weights, "weights", held)
        for mode, (vector, size) in enumerate(zip(vectors, partition.shape)):
            if tuple(vector.shape) != (size,):
                raise ValueError(f"mode {mode}: the weights are of shape {tuple(vector.shape)}; give {size} of them")
        if get_backend(held) is NUMPY:
            check_range(held, (vector.max() for vector in vectors))
        self._fill(held, partition, vectors, axes and axes._check(partition.shape))

    @classmethod
    def _of(cls, core: Any, partition: Partition, weights: Iterable[Any], axes: Axes | None = None) -> Self:
        """Make a model of parts that are known to fit, without checks."""
        model = object.__new__(cls)
        model._fill(core, partition, tuple(weights), axes)
        return model

    def _fill(self, core: Any, partition: Partition, weights: tuple[Any, ...], axes: Axes | None) -> None:
        for name, value in (("core", core), ("partition", partition), ("weights", weights), ("axes", axes)):
            object.__setattr__(self, name, value)
        if sys.modules.get("jax") is not None:
            register_with_jax(
                BlockTucker,
                lambda model: (model.partition, model.axes),
                lambda known, parts: BlockTucker._of(parts[0], known[0], parts[1:], known[1]),
            )

    def __reduce__(self) -> tuple[Any, ...]:
        make = type(self) if self.backend is NUMPY else type(self)._of  # NumPy arrays are to be read-only again
        return make, (self.core, self.partition, self.weights, self.axes)

    @property
    def parts(self) -> tuple[Any, ...]:
        """The core and the weights."""
        return self.core, *self.weights

    def _with(self, parts: Sequence[Any]) -> Self:
        return type(self)._of(parts[0], self.partition, parts[1:], self.axes)

    @property
    def shape(self) -> tuple[int, ...]:
        """Size of each mode of the tensor that the model stands for."""
        return self.partition.shape

    @property
    def factors(self) -> tuple[Any, ...]:
        """The factor matrices, built dense, one per mode, of shape (size, rank)."""
        return tuple(self.dense_factors())

    def dense_factors(self) -> list[Any]:
        """Build the factor matrices, one per mode, of shape (size, rank).

        Returns
        -------
        list of arrays
        """
        backend = self.backend
        return [
            backend.xp.astype(backend.indicator(blocks.labels, blocks.rank), vector.dtype) * vector[:, None]
            for blocks, vector in zip(self.partition.modes, self.weights)
        ]

    def blocks(self, mode: int | str) -> list[Block]:
        """List the blocks of a mode: the indices of each, the mass that the model puts on them, and their labels.

        Parameters
        ----------
        mode : int or str
            Number or name of the mode.

        Returns
        -------
        list of Block

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
        masses = self.to_numpy().block_masses().sum(axis=tuple(k for k in range(len(self.shape)) if k != number))
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
    def marginals(self) -> tuple[Any, ...]:
        """For each mode, the sums of the tensor over all other modes: those of the data, if `ltr` has made the model.

        Examples
        --------
        >>> partition = Partition.uniform((2, 2), 1)
        >>> BlockTucker([[8.0]], partition, [[0.25, 0.75], [0.5, 0.5]]).marginals
        (array([2., 6.]), array([4., 4.]))
        """
        masses, sum_ = self.block_masses(), self.backend.xp.sum
        found = []
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, self.weights)):
            others = tuple(k for k in range(masses.ndim) if k != mode)
            mass = sum_(masses, axis=others) if others else masses
            found.append(kernels.expand_blocks(mass, blocks) * kernels.shares(self.backend.as_float(vector), blocks))
        return tuple(found)

    def block_masses(self) -> Any:
        """Return the sum of the model over each block.

        Returns
        -------
        array of shape `rank`
        """
        backend = self.backend
        masses = backend.as_float(self.core)
        for mode, (blocks, vector) in enumerate(zip(self.partition.modes, self.weights)):
            sums = kernels.sum_blocks(backend.as_float(vector), blocks)
            masses = masses * backend.xp.reshape(sums, (-1, *(1,) * (len(self.shape) - mode - 1)))
        return masses

    def sparse_factors(self) -> list[csr_array[Any]]:
        """Build the factor matrices as SciPy sparse arrays of NumPy numbers, with one stored entry per row.

        Returns
        -------
        list of scipy.sparse.csr_array

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
            for blocks, vector in zip(self.partition.modes, self.to_numpy().weights)
        ]

    def _kl(self, source: Source, run: Run) -> float:
        r"""Return the divergence in one pass over `x`, without the tensor of the model.

        .. math:: D(P; Q) = \sum P \log P - \sum_b G_P[b] \log G[b]
                  - \sum_k \sum_i m_k[i] \log w_k[i] - \sum P + \sum Q

        with the block sums :math:`G_P` and the marginals :math:`m_k` of `x`. As a difference of sums it is good to
        about 1e-15 of the sum of all \|P log P\|.
        """
        model_total = self._total()
        # logarithms of entries in a unit of their own size are small, and so is what rounding does to them
        unit = power_of_two(model_total / source.size)
        sums = block_sums(source, [self.partition], run, unit)[0]
        terms = [_times_log(sums.core, self.core / unit), *map(_times_log, sums.marginals, self.weights)]
        found = sums.moments.v_log_v if sums.moments else math.nan
        divergence = found - sum(terms) + (model_total - float(sums.core.sum()))
        is_vague = sums.low_precision and divergence < KL_RECHECK * model_total
        if is_vague or math.isnan(divergence) or divergence == -math.inf:  # some sum is too large for this way
            return Model._kl(self, source, run)
        return max(0.0, divergence)

    def _on_gpu(self, source: Source) -> tuple[Any, Any, list[Any]] | None:
        """Return a tensor, the core and the weights as the GPU's kernels read them; None if one cannot be read so."""
        if not isinstance(source, Array) or kernels.kernels_for(source.array).divergence is None:
            return None
        core, *weights = map(self.backend.native, self.parts)
        alike = all(get_backend(part) == get_backend(source.array) for part in (core, *weights))
        return (source.array, core, weights) if alike and source.n_chunks == 1 else None

    def _kl_on_device(self, source: Source) -> float | None:
        given = self._on_gpu(source)
        if given is None:
            return None
        tensor, core, weights = given
        find = kernels.kernels_for(tensor).divergence
        return find and find(tensor, self.partition, core, weights)

    def _error_on_device(self, source: Source) -> float | None:
        given = self._on_gpu(source)
        if given is None:
            return None
        tensor, core, weights = given
        found = kernels.residual(tensor, core, self.partition, weights)
        if found is None:
            return None
        residual, norm, negative = found
        is_fine = not negative and math.isfinite(residual) and SAFE_SQUARES < norm < math.inf
        return math.sqrt(residual / norm) if is_fine else None

    def _residual(self, chunk: Chunk, scale: float, workers: int) -> tuple[float, float, bool]:
        if scale == 1.0 or get_backend(chunk.array) is not NUMPY:
            part = self._part(chunk.box)
            found = kernels.residual(chunk.array, part.core, part.partition, part.weights, scale, workers)
            if found is not None:
                return found
        return Model._residual(self, chunk, scale, workers)

    def _write(self, out: NDArray[Any], workers: int) -> None:
        if not kernels.write(out, self.core, self.partition, self.weights, workers):
            out[...] = self[...]

    def _tensor_on_device(self) -> Any:
        backend = self.backend
        core, *weights = self.parts if self._is_traced() else map(backend.native, self.parts)
        if self._is_traced() or get_backend(core).kernels != "cuda":
            return Model._tensor_on_device(self)
        import torch

        out = torch.empty(self.shape, dtype=core.dtype, device=core.device)
        kernels.write(out, core, self.partition, weights)
        if not isinstance(self.core, torch.Tensor):
            torch.cuda.current_stream(out.device).synchronize()  # or the parts might be gone before they are read
        return backend.from_native(out, copy=False)

    def _part(self, box: Box) -> Self:
        inside, blocks = self.partition._within(box)
        weights = [vector[rows] for vector, rows in zip(self.weights, box)]
        return type(self)._of(self.core[blocks], inside, weights)

    def _at(self, coords: Sequence[NDArray[Any]], workers: int = 1) -> NDArray[np.float64]:
        return kernels.block_model_at(coords, self.partition, self.core, self.weights, workers)

    def _total(self) -> float:
        return float(self.block_masses().sum())

    def _square_sum(self, scale: float) -> float:
        part = np.square(self.core.astype(np.float64) / scale)
        for blocks, vector in zip(self.partition.modes, self.weights):
            part = np.tensordot(blocks.sum(np.square(vector, dtype=np.float64)), part, axes=(0, 0))
        return float(part)

    def _expand(self, part: Any, mode: int, rows: slice) -> Any:
        backend = self.backend
        labels = backend.from_numpy(self.partition[mode]._labels_at(rows))
        weights = backend.take_rows(self.weights[mode], rows)
        row = backend.xp.reshape(weights, (-1, *(1,) * (part.ndim - mode - 1)))
        return backend.xp.take(part, labels, axis=mode) * row

    def _most(self) -> float:
        return math.prod((float(vector.max()) for vector in self.weights), start=float(self.core.max()))

    def _same_structure(self, other: Any) -> bool:
        return bool(self.partition == other.partition)

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        return {"core": self.core, **numbered("weights", self.weights), **blocks_to_arrays(self.partition)}

    @classmethod
    def _from_arrays(cls, arrays: dict[str, NDArray[Any]]) -> BlockTucker:
        core = arrays["core"]
        weights = [arrays[f"weights_{mode}"] for mode in range(core.ndim)]
        partition = blocks_from_arrays(arrays, [vector.size for vector in weights])
        return BlockTucker(core, partition, weights, Axes._from_arrays(arrays))


def blocks_to_arrays(partition: Partition) -> dict[str, NDArray[Any]]:
    """Return what is saved of a partition."""
    return {
        f"starts_{mode}" if blocks.contiguous else f"labels_{mode}": (
            blocks.starts if blocks.contiguous else blocks.labels
        )
        for mode, blocks in enumerate(partition.modes)
    }


def blocks_from_arrays(arrays: Mapping[str, NDArray[Any]], shape: Sequence[int]) -> Partition:
    """Build a partition from what was saved."""
    return Partition(
        tuple(
            Blocks.from_labels(arrays[f"labels_{mode}"])
            if f"labels_{mode}" in arrays
            else Blocks.from_starts(size, arrays[f"starts_{mode}"])
            for mode, size in enumerate(shape)
        )
    )


def _times_log(masses: NDArray[np.float64], model: NDArray[Any]) -> float:
    """Return the sum of masses times log model: -inf where there is mass but none in the model."""
    seen = masses > 0
    with np.errstate(divide="ignore"):
        return float((masses[seen] * np.log(model[seen], dtype=np.float64)).sum())
