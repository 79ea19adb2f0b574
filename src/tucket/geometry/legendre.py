"""The Legendre decomposition: a projection by gradients, which the closed form of `ltr` is checked against."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from tucket.backends import get_namespace
from tucket.base.run import Run, Step, StepCallback
from tucket.geometry.checks import Dense, divergence, precision
from tucket.geometry.coordinates import sums_above
from tucket.geometry.log_linear import ROUNDING, Basis, LogLinear, fisher, largest, prepare, solve


@dataclass(frozen=True, slots=True)
class Legendre:
    """The result of `legendre`.

    Parameters
    ----------
    tensor : array
        The nearest tensor of the log-linear model.
    theta : array
        Its natural parameters, which are 0 off the basis.
    trace : tuple of Step
        One step per iteration; its loss is the divergence.
    stopped : {"converged", "iterations"}
        Why the iterations ended.
    """

    tensor: Dense
    theta: Dense
    trace: tuple[Step, ...]
    stopped: str


def legendre(
    x: Any,
    basis: Basis,
    *,
    method: Literal["natural", "gradient"] = "natural",
    n_iter_max: int = 10_000,
    tol: float = 1e-10,
    callback: StepCallback | None = None,
) -> Legendre:
    """Find the tensor nearest to `x` that has few non-zero natural parameters θ, by gradient descent.

    Starting from the uniform tensor, the free θ follow the gradient of the divergence D(x; Q) to the m-projection of
    `x` (Sugiyama, Nakahara and Tsuda, "Legendre decomposition for tensors", NeurIPS 2018).

    Parameters
    ----------
    x : array_like
        A tensor with positive entries.
    basis : Partition, or array_like of bool, or sequence of indices
        Where θ is free: off the bingos of contiguous blocks, or where true, or at these indices; and at the first.
    method : {"natural", "gradient"}, optional
        The natural gradient, for at most 4000 free θ, or the plain one, which needs many more iterations.
    n_iter_max : int, optional
        Maximum number of iterations.
    tol : float, optional
        Iterations end when no free η differs from that of `x` by more than this share of the total.
    callback : callable, optional
        Called with a `Step` after each iteration.

    Returns
    -------
    Legendre
        The tensor, its θ, the trace, and why the iterations ended.

    Raises
    ------
    ValueError
        If an entry of `x` is not positive and finite, or the basis does not fit or is too large.

    See Also
    --------
    ltr : The same tensor for the basis of a partition, in closed form.

    Examples
    --------
    >>> from tucket import Partition
    >>> legendre([[1, 2], [3, 4]], Partition.uniform((2, 2), 1)).tensor.round(6)
    array([[1.2, 1.8],
           [2.8, 4.2]])
    """
    if method not in ("natural", "gradient"):
        raise ValueError(f"method: unknown {method!r}; give 'natural' or 'gradient'")
    p, total, model = prepare(x, basis)
    if method == "natural":
        model.check_size(", or method='gradient'")
    run, trace = Run.of(callback=callback), list[Step]()

    def record(kl: float) -> None:
        trace.append(run.report(len(trace) + 1, total * kl))

    parameters, q, stopped = _descend(p, model, method == "natural", n_iter_max, tol, record)
    xp = get_namespace(q)
    scale = xp.log(xp.reshape(q, (-1,))[:1]) + math.log(total)
    full = xp.concat([scale, xp.reshape(model.spread(parameters), (-1,))[1:]])
    return Legendre(total * q, xp.reshape(full, p.shape), tuple(trace), stopped)


def _descend(
    p: Dense, model: LogLinear, natural: bool, n_iter_max: int, tol: float, record: Callable[[float], None]
) -> tuple[Dense, Dense, str]:
    """Lower the divergence from `p`; return the free parameters, the distribution and why the iterations ended."""
    target, parameters = model.at_free(sums_above(p)), model.zeros[1:]
    q, step, steepest = model.distribution(parameters), 1.0, math.inf
    least, rounding = divergence(p, q), max(ROUNDING, 4 * precision(p))
    for _ in range(n_iter_max):
        sums = sums_above(q)
        gradient = target - model.at_free(sums)
        slope = largest(gradient)
        if slope <= tol:
            return parameters, q, "converged"
        direction = solve(fisher(sums, model.free), gradient) if natural else gradient
        ahead, moved, reached, step = model.search_line(
            parameters, direction, 1.0 if natural else 2 * step, partial(divergence, p), least + rounding
        )
        if reached > least - rounding and slope >= steepest / 2:  # only rounding errors are left
            return parameters, q, "converged"
        parameters, q, least, steepest = ahead, moved, min(least, reached), min(steepest, slope)
        record(least)
    return parameters, q, "iterations"
