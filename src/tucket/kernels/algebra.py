"""Products of tensors and matrices of any backend."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any

import numpy as np

from tucket.backends import get_namespace

Matrix = Any  # a float array of any backend, with any number of modes
Parts = tuple[Matrix, list[Matrix]]  # the core and factors of a Tucker model


def reshape(array: Matrix, shape: tuple[int, ...]) -> Matrix:
    """Return an array of another shape, by its own method if it has one, which is faster."""
    return array.reshape(shape) if hasattr(array, "reshape") else get_namespace(array).reshape(array, shape)


def multiply(part: Matrix, matrix: Matrix, mode: int) -> Matrix:
    """Contract one mode with the rows of a matrix; its columns become the indices of the mode."""
    before, size, after = math.prod(part.shape[:mode]), part.shape[mode], math.prod(part.shape[mode + 1 :])
    shape = (*part.shape[:mode], matrix.shape[1], *part.shape[mode + 1 :])
    if after == 1:  # one product instead of many
        return reshape(reshape(part, (before, size)) @ matrix, shape)
    return reshape(matrix.T @ reshape(part, (before, size, after)), shape)


def multiply_all(part: Matrix, matrices: Mapping[int, Matrix]) -> Matrix:
    """Contract several modes; the one that shrinks most goes first, which makes the others cheaper."""
    for mode in sorted(matrices, key=lambda mode: matrices[mode].shape[1] / matrices[mode].shape[0]):
        part = multiply(part, matrices[mode], mode)
    return part


def weigh(part: Matrix, vectors: Mapping[int, Matrix]) -> Matrix:
    """Multiply a tensor by vectors along some of its modes."""
    for mode, vector in vectors.items():
        part = part * reshape(vector, (-1,) + (1,) * (part.ndim - mode - 1))
    return part


def without(matrices: Mapping[int, Matrix], mode: int) -> dict[int, Matrix]:
    """Return all matrices except that of one mode."""
    return {k: matrix for k, matrix in matrices.items() if k != mode}


def unfold(part: Matrix, mode: int) -> Matrix:
    """Return a tensor as a matrix, with a row for each index of one mode."""
    return reshape(get_namespace(part).moveaxis(part, mode, 0), (part.shape[mode], -1))


def inner_product(a: Matrix, b: Matrix) -> Matrix:
    """Return the inner product of two tensors, as an array of one number."""
    return reshape(a, (-1,)) @ reshape(b, (-1,))


def at_least(array: Matrix, least: float) -> Matrix:
    """Replace smaller entries by `least`."""
    if isinstance(array, np.ndarray):
        return np.maximum(array, least)
    if hasattr(array, "clamp"):  # a torch tensor: this copies no number to the device, so it can be recorded
        return array.clamp(min=least)
    return get_namespace(array).clip(array, least, None)


def quotient(a: Matrix, b: Matrix) -> Matrix:
    """Divide by non-negative numbers; the result is 0 where the divisor is."""
    return share(a * get_namespace(a).astype(b > 0, a.dtype), b)


def share(a: Matrix, b: Matrix) -> Matrix:
    """Divide by non-negative numbers that are 0 only where `a` is 0."""
    return a / at_least(b, least_of(b.dtype))


def least_of(dtype: Any) -> float:
    """Return the smallest normal number of a dtype, which replaces 0 as a divisor."""
    return 2.0**-1022 if "64" in str(dtype) else 2.0**-126


def distance_of(value: Any) -> float:
    """Return a distance as a float: at least 0, and infinity for NaN."""
    number = float(value)
    return math.inf if math.isnan(number) else max(0.0, number)


def kronecker(matrices: Sequence[Matrix]) -> Matrix:
    """Return the Kronecker product of matrices."""

    def pair(a: Matrix, b: Matrix) -> Matrix:
        extent = a.shape[0] * b.shape[0], a.shape[1] * b.shape[1]
        return reshape(a[:, None, :, None] * b[None, :, None, :], extent)

    return reduce(pair, matrices)


def select(flag: Any, a: Any, b: Any) -> Any:
    """Return `a` if a flag is set, else `b`; on a device, the host does not read the flag."""
    if isinstance(flag, bool | np.bool):
        return a if flag else b
    return get_namespace(flag).where(flag, a, b)


def to_mixture(core: Matrix, factors: Sequence[Matrix]) -> Parts:
    """Scale the columns of the factors to sum 1, and the core so that the model stays the same."""
    sums = {mode: get_namespace(core).sum(factor, axis=0) for mode, factor in enumerate(factors)}
    return weigh(core, sums), [share(factor, sums[mode]) for mode, factor in enumerate(factors)]


def join(pieces: Sequence[Matrix]) -> Matrix:
    """Concatenate pieces along the first mode."""
    return pieces[0] if len(pieces) == 1 else get_namespace(pieces[0]).concat(pieces)
