"""Methods that fill the gaps of a tensor: ours, means, TensorLy and scikit-learn.

The gaps are NaN. Every method returns the filled tensor, and the rank that it took.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

import tucket as tk

CP_ITERATIONS, IMPUTER_ROUNDS = 300, 10
"""Iterations of TensorLy and rounds of scikit-learn, at most."""

LossName = Literal["kl", "ls"]
LOSSES: tuple[LossName, ...] = ("kl", "ls")

Array = NDArray[Any]
Method = Callable[[Array], tuple[Array, Any]]


@dataclass(frozen=True)
class Setting:
    """How the methods treat a tensor.

    Attributes
    ----------
    blocks, components : tuple of int
        Ranks of `ltr` and of `ntd`.
    cp : int
        Rank of the CP model, with about as many numbers as the others.
    choices : sequence of tuples
        Ranks from which `ntd` chooses by cross-validation.
    averaged : int
        The mode that means are taken over.
    columns : int
        The mode that has one column per index in the table that scikit-learn completes.
    """

    blocks: tuple[int, ...]
    components: tuple[int, ...]
    cp: int
    choices: Sequence[tuple[int, ...]]
    averaged: int
    columns: int


def by_blocks(y: Array, rank: Any) -> tuple[Array, Any]:
    """Fill the gaps with `ltr`."""
    model = tk.ltr(y, rank, observed="finite")
    return model.fill(y), model.rank


def by_components(y: Array, rank: Any, loss: LossName = "kl") -> tuple[Array, Any]:
    """Fill the gaps with `ntd`."""
    fit = tk.ntd(y, rank, loss=loss, observed="finite")
    return fit.model.fill(y), fit.rank


def by_best_components(y: Array, ranks: Sequence[tuple[int, ...]]) -> tuple[Array, Any]:
    """Fill the gaps with `ntd` of the rank that predicts held-out cells best."""
    return by_components(y, tk.cross_validate(y, ranks, method="ntd", observed="finite").best())


def by_mean(y: Array, mode: int) -> tuple[Array, None]:
    """Fill the gaps with means over a mode, or with the mean of everything where a whole fibre is hidden."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Mean of empty slice")
        means = np.nanmean(y, axis=mode, keepdims=True)
    means = np.where(np.isnan(means), np.nanmean(y), means)
    return np.where(np.isnan(y), means, y), None


def by_cp(y: Array, rank: int, iterations: int | None = None) -> tuple[Array, Any]:
    """Fill the gaps with TensorLy's CP model, from random factors; its mask is 1 where a cell is known."""
    from tensorly.cp_tensor import cp_to_tensor
    from tensorly.decomposition import non_negative_parafac

    known = np.isfinite(y)
    start = np.where(known, y, y[known].mean())
    model = non_negative_parafac(
        start,
        rank,
        n_iter_max=iterations or CP_ITERATIONS,
        init="random",
        mask=known.astype(np.float64),
        random_state=0,
    )
    return np.where(known, y, cp_to_tensor(model)), rank


def by_imputer(y: Array, columns: int) -> tuple[Array, None]:
    """Fill the gaps with scikit-learn: a regression of every column of an unfolding on all others, in rounds."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    moved = np.moveaxis(y, columns, -1)
    imputer = IterativeImputer(max_iter=IMPUTER_ROUNDS, min_value=0, random_state=0, keep_empty_features=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        table = imputer.fit_transform(moved.reshape(-1, moved.shape[-1]))
    return np.moveaxis(table.reshape(moved.shape), -1, columns), None


def methods(setting: Setting) -> dict[str, Method]:
    """Return functions that fill the gaps of a tensor, which are NaN."""
    return {
        "ltr": partial(by_blocks, rank=setting.blocks),
        "ltr, rank by cv": partial(by_blocks, rank="cv"),
        "ntd": partial(by_components, rank=setting.components),
        "ntd, best of five ranks": partial(by_best_components, ranks=setting.choices),
        "ntd, least squares": partial(by_components, rank=setting.components, loss="ls"),
        "mean": partial(by_mean, mode=setting.averaged),
        "TensorLy CP": partial(by_cp, rank=setting.cp),
        "scikit-learn": partial(by_imputer, columns=setting.columns),
    }


def warm_up(y: Array, setting: Setting) -> None:
    """Load the compiled loops and the packages."""
    by_blocks(y, setting.blocks)
    for loss in LOSSES:
        tk.ntd(y, setting.components, loss=loss, observed="finite", n_iter_max=1)
    by_cp(y, setting.cp, iterations=1)
    by_imputer(np.where(np.arange(12).reshape(4, 3) == 5, np.nan, 1.0), 1)
