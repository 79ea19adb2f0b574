"""Many-body approximation: keep chosen interactions between modes and no others."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

from tucket.backends import get_namespace
from tucket.geometry.checks import Dense, check_positive, precision, refuse_traced, shares


def many_body(x: Any, interactions: Iterable[Sequence[int]], *, n_iter_max: int = 10_000, tol: float = 1e-12) -> Dense:
    """Return the nearest tensor that has only the chosen interactions between modes.

    Each interaction is a set of modes. The result keeps the joint marginal of each set, and the marginal of every
    mode; apart from these, the modes are independent. It is found by iterative proportional fitting.

    The method is from Ghalamkari, Sugiyama and Kawahara, "Many-body approximation for non-negative tensors",
    NeurIPS 2023.

    Parameters
    ----------
    x : array_like
        A tensor with no negative entries.
    interactions : iterable of sequences of int
        The sets of modes; modes count from 0.
    n_iter_max : int, optional
        The maximum number of cycles over all sets.
    tol : float, optional
        Iterations end when no marginal is off by more than this share of the total.

    Returns
    -------
    array
        The nearest tensor, with the total of `x`.

    Raises
    ------
    ValueError
        If an entry of `x` is negative or not finite, or a set names a mode that `x` does not have.
    TypeError
        If `x` requires a gradient, or is being compiled.

    See Also
    --------
    m_project : Projection with any set of free θ.

    Examples
    --------
    >>> import numpy as np
    >>> x = np.arange(1.0, 25).reshape(2, 3, 4)
    >>> q = many_body(x, [(0, 1), (2,)])
    >>> np.allclose(q.sum(axis=2), x.sum(axis=2)), np.allclose(q.sum(axis=(0, 1)), x.sum(axis=(0, 1)))
    (True, True)
    """
    p, total = shares(refuse_traced(check_positive(x, allow_zero=True)))
    xp, count = get_namespace(p), p.ndim
    kept = {_check_modes(modes, count) for modes in interactions} | {(mode,) for mode in range(count)}
    summed = [tuple(k for k in range(count) if k not in modes) for modes in kept]
    q, enough = xp.full_like(p, 1 / math.prod(p.shape)), max(tol, 4 * precision(p))
    for _ in range(n_iter_max if total else 0):
        worst = 0.0
        for axes in summed:
            wanted, found = xp.sum(p, axis=axes, keepdims=True), xp.sum(q, axis=axes, keepdims=True)
            seen = found > 0
            q = q * (xp.where(seen, wanted, xp.zeros_like(wanted)) / xp.where(seen, found, xp.ones_like(found)))
            worst = max(worst, float(xp.max(xp.abs(wanted - found))))
        if worst <= enough:
            break
    return total * q


def _check_modes(modes: Sequence[int], count: int) -> tuple[int, ...]:
    found = tuple(sorted({int(mode) for mode in modes}))
    if not found or found[0] < 0 or found[-1] >= count:
        raise ValueError(f"interactions: cannot use {tuple(modes)}; give modes from 0 to {count - 1}")
    return found
