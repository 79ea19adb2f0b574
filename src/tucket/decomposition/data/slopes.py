"""Sums over all entries of a tensor and of a model: what losses that are sums over entries go down by."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from tucket.backends import get_namespace
from tucket.decomposition.data.data import Data, Terms
from tucket.kernels.algebra import Matrix, join, kronecker, multiply_all, reshape, unfold, without

NARROW_COLUMNS, TALL_COST = 64, 200
"""Columns up to which a product is slow, and the cost of an entry of a matrix beside a multiplication."""


def slopes(data: Data, core: Matrix, factors: Sequence[Matrix], terms: Terms) -> tuple[Matrix, list[Matrix], Any]:
    """Return the derivatives of <R, Q> by the core and by each factor, in one pass, with weights R and the model Q.

    The weights are made of the entries of the tensor and of the model by `terms`; the sum that it returns for each part
    is returned for all.

    The model is a product of two matrices: rows for the outer modes, columns for the inner ones.
    """
    split = _choose_split(data.shape, core.shape)
    outer_factors = {mode: factors[mode] for mode in range(split)}
    outer = multiply_all(core, {mode: factor.T for mode, factor in outer_factors.items()})
    inner = kronecker(factors[split:])
    if split:
        found = data.each(lambda rows, part: _weight_sums(part, split, outer[rows, ...], inner, terms))
    else:
        found = [_weight_sums(data, split, outer, inner, terms)]
    pieces, inner_sums, sums = zip(*found)
    outer_slopes = join(pieces)
    factor_slopes = [
        unfold(multiply_all(outer_slopes, without(outer_factors, mode)), mode) @ unfold(core, mode).T
        for mode in range(split)
    ]
    factor_slopes += _split_slopes(sum(inner_sums), factors[split:])
    return multiply_all(outer_slopes, outer_factors), factor_slopes, sum(sums)


def _weight_sums(data: Data, split: int, outer: Matrix, inner: Matrix, terms: Terms) -> tuple[Matrix, Matrix, Any]:
    """Sum the weights against either matrix of a product, and the sum that `terms` returns."""
    table, outer_sums, inner_sums, total = reshape(outer, (-1, inner.shape[1])), [], 0.0, 0.0
    for some, part in data.rows(split):
        rows = table[some, :]
        weights, more = terms(data, part, rows @ inner.T)
        outer_sums.append(weights @ inner)
        inner_sums, total = inner_sums + weights.T @ rows, total + more
    return reshape(join(outer_sums), outer.shape), inner_sums, total


def _choose_split(shape: Sequence[int], rank: Sequence[int]) -> int:
    """Return how many modes are outer, so that the products are cheap and the matrices small.

    An entry takes as many multiplications as the inner modes have components; narrow matrices are slow, and tall
    ones take memory.
    """

    def cost(split: int) -> float:
        width, components = math.prod(shape[split:]), math.prod(rank[split:])
        too_large = split > 0 and width * components > math.prod(shape)
        if too_large:
            return math.inf
        return components * (1 + NARROW_COLUMNS / width) + TALL_COST * components / width

    return min(range(len(shape) - 1, min(1, len(shape) - 1) - 1, -1), key=cost)


def _split_slopes(slopes: Matrix, factors: Sequence[Matrix]) -> list[Matrix]:
    """Return the slopes of the factors of a Kronecker product, given those of the product."""
    xp, count = get_namespace(slopes), len(factors)
    if count == 1:
        return [slopes]
    shape = (*(factor.shape[0] for factor in factors), *(factor.shape[1] for factor in factors))
    # a factor's rows and columns side by side, so that they go in one product
    paired = xp.permute_dims(reshape(slopes, shape), tuple(axis for k in range(count) for axis in (k, count + k)))
    pairs = reshape(paired, tuple(math.prod(factor.shape) for factor in factors))
    vectors = {k: reshape(factor, (-1, 1)) for k, factor in enumerate(factors)}
    return [reshape(multiply_all(pairs, without(vectors, k)), factor.shape) for k, factor in enumerate(factors)]
