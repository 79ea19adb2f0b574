"""Boltzmann machines as tensors."""

from __future__ import annotations

from typing import Any

from tucket.backends import check_same_backend, get_namespace
from tucket.geometry.checks import Dense, check_real

MAX_UNITS = 20
"""The most units of a Boltzmann machine: the tensor has two to the power of this many entries."""


def boltzmann(bias: Any, weights: Any) -> Dense:
    r"""Return the distribution of a Boltzmann machine as a tensor with one mode of size 2 per unit.

    .. math:: p(x) \propto \exp\Big( \sum_i b_i x_i + \sum_{i < j} w_{ij} x_i x_j \Big), \qquad x_i \in \{0, 1\}

    Parameters
    ----------
    bias : array_like
        One number per unit, for at most 20 units.
    weights : array_like
        A symmetric matrix with zeros on its diagonal.

    Returns
    -------
    array
        The distribution; its entries sum to 1.

    Raises
    ------
    ValueError
        If the shapes do not match, the matrix is not symmetric with a zero diagonal, or a number is not finite.

    See Also
    --------
    mean_field : Products of independent units near the machine.

    Examples
    --------
    >>> import numpy as np
    >>> boltzmann([np.log(3), 0], [[0, 0], [0, 0]]).round(3)
    array([[0.125, 0.125],
           [0.375, 0.375]])
    """
    b, w = check_machine(bias, weights)
    xp, units = get_namespace(b), b.shape[0]
    energies = xp.zeros_like(b[:1])
    for unit in reversed(range(units)):  # each unit doubles the states: the first half without it, the second with it
        field = b[unit : unit + 1]
        for other in reversed(range(unit + 1, units)):
            field = xp.concat([field, field + w[unit, other]])
        energies = xp.concat([energies, energies + field])
    p = xp.exp(energies - xp.max(energies))
    return xp.reshape(p / xp.sum(p), (2,) * units)


def check_machine(bias: Any, weights: Any) -> tuple[Dense, Dense]:
    """Return the bias and the weights of a Boltzmann machine as floats."""
    check_same_backend(bias, weights, "bias", "weights")
    b, w = check_real(bias, "bias"), check_real(weights, "weights")
    xp, shape = get_namespace(b), tuple(b.shape)
    if len(shape) != 1 or shape[0] > MAX_UNITS:
        raise ValueError(f"bias: got shape {shape}; give one number per unit, for at most {MAX_UNITS} units")
    if tuple(w.shape) != shape * 2:
        raise ValueError(f"weights: got shape {tuple(w.shape)}; give a matrix of {shape[0]} rows and columns")
    if not bool(xp.all(w == w.T)) or bool(xp.any(xp.linalg.diagonal(w) != 0)):
        raise ValueError("weights: the matrix is not symmetric with zeros on its diagonal; give one that is")
    return b, w
