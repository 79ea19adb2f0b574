"""The published multiplicative updates, one part of the model after another: what the paper compares LTR with.

Kim & Choi, "Nonnegative Tucker decomposition", CVPR 2007, for both losses, as in TensorLy: a divisor that would be
zero is a small number instead. A part that is zero stays zero.
"""

from __future__ import annotations

from tucket.kernels.algebra import Matrix, at_least

LEAST = 1e-11
"""Numerators and denominators are at least this, as in TensorLy."""


def ratio(numerator: Matrix, denominator: Matrix) -> Matrix:
    """Return the factor by which a part is multiplied."""
    return at_least(numerator, LEAST) / at_least(denominator, LEAST)
