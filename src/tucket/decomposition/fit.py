"""The result of a decomposition: its model, and the record of its iterations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from tucket.base.run import Step
from tucket.models.tucker import Tucker


@dataclass(frozen=True, slots=True, init=False, eq=False, repr=False)
class Fit(Tucker):
    """The result of `ntd`: a model, the iterations that led to it, and why they ended.

    A `Fit` is a `Tucker` model: you can unpack, slice, expand, measure, plot and save it like one. `save` writes only
    the model.

    Parameters
    ----------
    model : Tucker
        The columns of its factors sum to 1, so that the core holds the mass of each combination of components.
    trace : sequence of Step
        The iterations after which the loss of the whole tensor is known.
    stopped : {"converged", "iterations", "budget"}
        Why it ended: the gain fell below `tol`, or the iterations or the budget were used up.
    levels : sequence of shapes
        Number of blocks per mode on each level, coarsest first.
    n_iterations : int
        Number of iterations, including those with unknown loss.
    n_passes : int, default 0
        Passes over data that are not in memory.

    See Also
    --------
    ntd : Returns a fit.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9))
    >>> fit = tk.ntd(x, 2)
    >>> core, factors = fit
    >>> fit.stopped, fit == fit.model, bool(fit[5, 7] > 13)
    ('converged', True, True)
    """

    trace: tuple[Step, ...]
    stopped: str
    levels: tuple[tuple[int, ...], ...]
    n_iterations: int
    n_passes: int

    def __init__(
        self,
        model: Tucker,
        trace: Sequence[Step],
        stopped: str,
        levels: Sequence[tuple[int, ...]],
        n_iterations: int,
        n_passes: int = 0,
    ) -> None:
        self._fill(model.core, model.factors, model.axes)
        found = tuple(trace), stopped, tuple(levels), n_iterations, n_passes
        for name, value in zip(("trace", "stopped", "levels", "n_iterations", "n_passes"), found):
            object.__setattr__(self, name, value)

    def __reduce__(self) -> tuple[Any, ...]:
        return Fit, (self.model, *self._history)

    def _with(self, parts: Sequence[Any]) -> Self:
        model = Tucker._of(parts[0], parts[1:], self.axes)
        return type(self)(model, *self._history)

    @property
    def _history(self) -> tuple[Any, ...]:
        return self.trace, self.stopped, self.levels, self.n_iterations, self.n_passes

    @property
    def model(self) -> Tucker:
        """The model alone."""
        return Tucker._of(self.core, self.factors, self.axes)

    @property
    def loss(self) -> float:
        """Divergence of the tensor from the model, or relative error."""
        return self.trace[-1].loss

    @property
    def seconds(self) -> float:
        """Seconds that it took."""
        return self.trace[-1].seconds

    @property
    def unused(self) -> tuple[NDArray[np.intp], ...]:
        """Components of each mode with negligible mass: at most a millionth of the total."""
        core = self.to_numpy().core
        modes = range(core.ndim)
        masses = (core.sum(axis=tuple(k for k in modes if k != mode), dtype=np.float64) for mode in modes)
        return tuple(np.flatnonzero(mass <= 1e-6 * mass.sum()) for mass in masses)

    def _kind(self) -> str:
        return Tucker.__name__

    def __repr__(self) -> str:
        idle = [int(components.size) for components in self.unused]
        return (
            f"Fit(rank={self.rank}, loss={self.loss:.6g}, {self.n_iterations} iterations "
            f"in {self.seconds:.3g} s, stopped={self.stopped!r}{f', unused={idle}' if any(idle) else ''})"
        )
