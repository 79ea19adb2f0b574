"""A block model as a large NumPy array, or compared with one: compiled loops expand it tile by tile."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tucket.base.boxes import Box
from tucket.base.partition import Partition
from tucket.base.run import ordered_map
from tucket.kernels.cpu import loops
from tucket.kernels.cpu.sums import TILE_COLUMNS, Array, BoxBlocks, MemoryOrdered, Rows, merge, short_split

MODEL_ROWS, MODEL_ENTRIES = 1 << 12, 1 << 18
"""Rows of a box in which a model is expanded, or its entries if rows are short."""


def write(out: Array, core: Array, partition: Partition, weights: Sequence[Array], workers: int = 1) -> None:
    """Write the tensor of a model to `out`."""
    ordered = MemoryOrdered.of(out, partition)
    core, weights = core.transpose(ordered.order), [weights[mode] for mode in ordered.order]

    def write_box(box: Box) -> None:
        target = ordered.tensor[box]
        rows = target if ordered.readable else np.empty(target.shape, target.dtype)
        for tile in _model_tiles(ordered.blocks_in(box), rows, core, weights, writeable=True):
            loops.write_rows(*tile)
        if rows is not target:
            target[...] = rows

    for _ in ordered_map(write_box, _boxes(ordered, workers), workers):
        pass


def residual(
    tensor: Array, core: Array, partition: Partition, weights: Sequence[Array], scale: float = 1.0, workers: int = 1
) -> tuple[float, float, bool]:
    """Return the sums of squares of tensor - model and tensor, and whether an entry is negative."""
    del scale  # squares are float64 here
    ordered = MemoryOrdered.of(tensor, partition)
    core, weights = core.transpose(ordered.order), [weights[mode] for mode in ordered.order]

    def compare(box: Box) -> tuple[float, float, bool]:
        tiles = _model_tiles(ordered.blocks_in(box), ordered.read(box), core, weights)
        residuals, squares, negative = zip(*(loops.compare_rows(*tile) for tile in tiles))
        return sum(residuals), sum(squares), any(negative)

    residuals, squares, negative = zip(*ordered_map(compare, _boxes(ordered, workers), workers))
    return sum(residuals), sum(squares), any(negative)


def _boxes(ordered: MemoryOrdered, workers: int) -> Iterator[Box]:
    """Cut a tensor into boxes in which a model is expanded."""
    columns = math.prod(ordered.tensor.shape[short_split(ordered.tensor) :])
    return ordered.boxes(workers, max(MODEL_ENTRIES, MODEL_ROWS * columns))


def _model_tiles(
    blocks: BoxBlocks, tensor: Array, core: Array, weights: Sequence[Array], writeable: bool = False
) -> Iterator[tuple[Any, ...]]:
    """Yield the arguments of `write_rows` and `compare_rows` for each tile of columns of a box."""
    split = short_split(tensor)
    flat, offsets, _ = Rows.of(tensor, split, writeable)
    labels, column_labels = (merge(blocks.labels[a:b], blocks.ranks[a:b]) for a, b in ((0, split), (split, None)))
    # the weights are multiplied by the scale of the core first: a product of many small weights could underflow
    scale = float(core.max()) or 1.0
    parts = [weight[rows] for weight, rows in zip(weights, blocks.box)]
    row_weights, column_weights = (
        reduce(lambda product, vector: np.multiply.outer(product, vector).ravel(), some, np.full(1, math.sqrt(scale)))
        for some in (parts[:split], parts[split:])
    )
    flat_core = core[blocks.region].reshape(-1, math.prod(blocks.ranks[split:])) / np.float64(scale)
    for low in range(0, len(column_labels), TILE_COLUMNS):
        tile = slice(low, low + TILE_COLUMNS)
        columns = flat_core.take(column_labels[tile], axis=1) * column_weights[tile]
        yield flat, offsets + np.uint64(low), labels, row_weights, columns
