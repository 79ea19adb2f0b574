"""Ranks compared by how well their models predict cells that are held out."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from tucket.base.checks import check_count, check_number, check_rng, choose, explain_keywords, listed, split_mask
from tucket.base.run import Run, StepCallback
from tucket.decomposition.losses import LOSSES, Loss
from tucket.decomposition.ntd import fit_components
from tucket.projection.cross_validation import CrossValidation
from tucket.projection.held_out import FOLDS, SHARE, FitRank, RankSearch, check_ranks, make_folds
from tucket.projection.ltr import fit_blocks
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observation, Observed, observe

METHODS: Mapping[str, Callable[..., FitRank]] = {"ltr": fit_blocks, "ntd": fit_components}


@explain_keywords
def cross_validate(
    x: Any,
    ranks: Iterable[Any] | None = None,
    *,
    method: Literal["ltr", "ntd"] = "ltr",
    folds: int = FOLDS,
    share: float = SHARE,
    names: Iterable[str] | None = None,
    labels: Mapping[int | str, ArrayLike] | Iterable[ArrayLike | None] | None = None,
    observed: Observation = "all",
    exposure: ArrayLike | None = None,
    rng: np.random.Generator | int | None = 0,
    workers: int | None = None,
    callback: StepCallback | None = None,
    **options: Any,
) -> CrossValidation:
    r"""Compare ranks by how well their models predict cells that are held out.

    A share of the known cells is hidden at random, several times. Each rank is fitted to the rest, and its loss on the
    hidden cells is measured: the divergence over their sum, or the relative error. All ranks are judged by the same
    cells. A small rank misses structure, and a large rank takes noise for structure; both predict worse.

    A model may give 0 to a cell that turns out not to be 0, which would make the divergence infinite. So a little of
    the rank-1 model is mixed into each model that is judged: the share, from 1e-6 to 0.5, is the one that suits the
    other repetitions best. The table shows it as `mix`.

    Parameters
    ----------
    x : array, source or anything that `ltr` takes
        The tensor; data that are not in memory are read into it. Of a sparse tensor, cells with and without entries are
        hidden alike, at most 4 million at a time.
    ranks : sequence of ranks, optional
        Each an int, one per mode, or a dict, as for `ltr`. By default ever larger ranks of all modes are tried until
        the loss rises, and then the rank of each mode is changed alone, as long as the loss falls.
    method : {"ltr", "ntd"}, default "ltr"
        What is fitted: blocks or components. Their best ranks differ: the indices of a mode may form few blocks that
        combine many components, or many blocks that share a few.
    folds : int, default 5
        How often cells are hidden.
    share : float between 0 and 1, default 0.1
        Share of the known cells that is hidden at a time.
    names : sequence of str, one per mode, optional
        Names of the modes, for arrays that have none of their own.
    labels : dict from modes to labels, or one sequence of labels or None per mode, optional
        Labels of the indices, for arrays that have none of their own.
    observed : {"all", "finite", "stored"}, Boolean array, or source, default "all"
        Which cells are known, as for `ltr`.
    exposure : array that broadcasts to the shape of `x`, optional
        For what each cell counts, as for `ltr`.
    rng : None, int or numpy.random.Generator, default 0
        Which cells are hidden.
    workers : int, optional
        Threads that may be used; by default as many as the process has processors. They share the repetitions.
    callback : callable, optional
        Called with a `Step` after each rank, with the mean loss on hidden cells.
    **options : object
        For "ltr" `blocks` and `max_sweeps`, for "ntd" `loss`, `init`, `n_iter_max` and `tol`, as there.

    Returns
    -------
    CrossValidation
        The loss of each rank, with its standard error; `best()` is the rank to take.

    Raises
    ------
    ValueError
        If an entry is negative or not finite, or too few cells are known to hide some of them.

    See Also
    --------
    ltr : Takes the best rank itself, by `rank="cv"`; so does `ntd`.
    information_curve : The information that models of every rank keep, from one pass.

    Examples
    --------
    Counts in two blocks per mode:

    >>> x = np.random.default_rng(0).poisson(np.kron([[9, 1], [2, 7]], np.ones((10, 8))))
    >>> table = cross_validate(x, [1, 2, 4])
    >>> table.best()
    (2, 2)
    >>> [score.rank for score in sorted(table.scores, key=lambda score: score.loss)]
    [(2, 2), (4, 4), (1, 1)]
    """
    run, fit = Run.of(workers, None, callback, rng), choose(method, METHODS, "method")
    takes = list(inspect.signature(fit).parameters)
    if unknown := [name for name in options if name not in takes]:
        raise TypeError(f"cross_validate: method={method!r} has no option {unknown[0]!r}; it has {listed(takes)}")
    times, hidden = check_count(folds, "folds"), check_number(share, "share", "a share between 0 and 1")
    if hidden >= 1:
        raise ValueError(f"share: got {share!r}; give a share between 0 and 1")
    loss = options.get("loss", "kl")
    by_mass = loss.by_mass if isinstance(loss, Loss) else choose(loss, LOSSES, "loss").by_mass
    fit_rank = fit(**options)
    x, observed = split_mask(x, observed)
    source = as_source(x)._named(names, labels)
    known = observe(source.load_if_small(), observed, exposure)
    axes = known.x.axes if isinstance(known, Observed) else known.axes
    wanted = None if ranks is None else check_ranks(ranks, axes, known.shape)
    search = RankSearch(make_folds(known, times, hidden, check_rng(rng), run), fit_rank, by_mass, run, axes)
    if wanted is None:
        search.search()
    else:
        for rank in wanted:
            search.score(rank)
    return search.table()
