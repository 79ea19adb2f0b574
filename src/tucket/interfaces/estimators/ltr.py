"""LTR as a scikit-learn transformer: samples along the first mode, each reduced to its block sums."""

from __future__ import annotations

import math
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

try:
    from tucket.interfaces.estimators.transformer import SampleTransformer
except ImportError:
    raise ImportError("LTR needs scikit-learn; install it with: pip install 'tucket[sklearn]'") from None

from tucket.base.axes import by_mode
from tucket.base.checks import as_index, rank_per_mode
from tucket.base.partition import Partition
from tucket.models.collect import collect
from tucket.projection.ltr import ltr
from tucket.projection.search import MAX_SWEEPS


class LTR(SampleTransformer):
    r"""Reduce samples, which are non-negative arrays, to a few non-negative features, in closed form.

    `fit` cuts the modes of the samples into blocks. The features of a sample are its block sums. The inverse spreads
    each block sum over the indices of the block by learned weights:

    .. math:: Q[n, i_2, \dots, i_d] = Z[n, b_2(i_2), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Samples may have gaps, with `observed="finite"`. The features of such a sample are the sums that are expected of its
    blocks: the sum of what is known of a block, divided by the sum of the weights there, which is the estimate of
    maximum likelihood for these weights. A block without known cells in a sample has its mean over the samples in
    `fit`. So `inverse_transform` says what stands in the gaps.

    Parameters
    ----------
    rank : int, sequence of int or None, dict, or "cv", default 8
        Number of blocks of each mode. Give one per mode, with the samples as mode 0, or a dict from mode number to
        rank; None keeps a mode whole, and so does leaving it out of the dict. An int is the rank of all modes but the
        samples, or their size where that is smaller. A rank of the samples groups similar samples: see `labels_`.
        "cv" chooses the rank of every mode, the samples included, that predicts held-out cells best: see `tucket.ltr`.
    blocks : {"clusters", "segments", "uniform", "random"}, or one per mode, default "clusters"
        How to cut the modes: see `tucket.ltr`.
    observed : {"all", "finite"}, default "all"
        "all" refuses NaN; "finite" takes cells that are NaN for unknown.
    max_sweeps : int, default 50
        Maximum number of sweeps of the search for blocks.
    random_state : int or RandomState, optional
        Seed of "random" blocks; fixed by default.
    workers : int, optional
        Maximum number of threads; by default one per processor.

    Attributes
    ----------
    partition_ : Partition
        Blocks of the modes of a sample.
    weights_ : list of arrays
        For each mode of a sample, the share of each index in its block.
    means_ : array of shape (n_blocks,)
        Mean features of the samples in `fit`.
    labels_ : array of int
        Block of each sample in `fit`; without a rank of the samples, each has its own.
    n_features_in_ : int
        Size of the second mode of `X`.
    sample_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    tucket.ltr : The same reduction as a function.
    NTD : Features by iteration, each the amount of a component.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().images
    >>> model = LTR(rank=(None, 4, 3)).fit(images)
    >>> model.transform(images).shape
    (1797, 12)
    """

    _column: ClassVar[str] = "block"

    def __init__(
        self,
        rank: Any = 8,
        *,
        blocks: Any = "clusters",
        observed: str = "all",
        max_sweeps: int = MAX_SWEEPS,
        random_state: Any = None,
        workers: int | None = None,
    ) -> None:
        self.rank = rank
        self.blocks = blocks
        self.observed = observed
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.workers = workers

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Learn from more samples: the first call chooses the blocks, and every call updates the weights.

        Gaps are filled by what the weights say before the update.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        LTR
            The estimator.
        """
        if not hasattr(self, "partition_"):
            return self.fit(X)
        samples = self._check(X, reset=False)
        seen = np.isfinite(samples)
        if not seen.all():
            samples = np.where(seen, samples, self._expand(self._features(samples)))
        found = collect(samples, self._cut(len(samples), 1), workers=self.workers)
        marginals = [known + more for known, more in zip(self._marginals, found.marginals[1:])]
        self._weigh(self._count + len(samples), self._sums + found.core.ravel(), marginals)
        return self

    def _learn(self, samples: NDArray[Any]) -> NDArray[np.float64] | None:
        ranks, blocks = self._ranks(samples.shape), self.blocks
        if isinstance(blocks, str) and ranks[0] is None:  # not "cv"
            blocks = (None, *(blocks,) * (samples.ndim - 1))
        options: dict[str, Any] = {name: getattr(self, name) for name in ("observed", "max_sweeps", "workers")}
        model = ltr(samples, ranks, blocks=blocks, rng=self._seed(), **options)
        self.labels_ = model.partition[0].labels
        self.partition_ = Partition(model.partition.modes[1:])
        self._n_features_out = math.prod(self.partition_.rank)
        self._weigh(len(samples), model.core.sum(axis=0).ravel(), list(model.marginals[1:]))
        if model.rank[0] < len(samples) or self.observed != "all":
            return None
        return np.array(model.core.reshape(len(samples), -1))  # the core already holds the sums of each sample

    def _ranks(self, shape: tuple[int, ...]) -> Any:
        if isinstance(self.rank, str):
            return self.rank
        ranks = rank_per_mode(by_mode(self.rank, None, len(shape), None, "rank"), shape)
        return ranks if as_index(self.rank) is None else (None, *ranks[1:])

    def _weigh(self, count: int, sums: NDArray[np.float64], marginals: list[NDArray[np.float64]]) -> None:
        """Keep what adds up over samples: their number, block sums and marginals; compute the weights from them."""
        self._count, self._sums, self._marginals = count, sums, marginals
        self.means_, self.weights_ = sums / count, []
        for marginal, blocks in zip(marginals, self.partition_.modes):
            mass = blocks.expand(blocks.sum(marginal))
            equal = 1 / blocks.expand(blocks.sizes)  # the weights of a block that has no mass yet
            self.weights_.append(np.divide(marginal, mass, where=mass > 0, out=equal))

    def _features(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        seen = np.isfinite(samples)
        if seen.all():
            return self._block_sums(samples)
        weights = self._expand(np.ones((1, self._n_features_out)))
        sums, parts = self._block_sums(np.where(seen, samples, 0)), self._block_sums(np.where(seen, weights, 0))
        features = np.tile(self.means_, (len(samples), 1))
        np.divide(sums, parts, where=parts > 0, out=features)
        return features

    def _block_sums(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        cut = self._cut(len(samples), len(samples))
        return np.array(collect(samples, cut, workers=self.workers).core.reshape(len(samples), -1))

    def _cut(self, count: int, rank: int) -> Partition:
        """Return the blocks of some samples, which are themselves cut into `rank` blocks."""
        return Partition((*Partition.uniform((count,), rank).modes, *self.partition_.modes))

    def _expand(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Spread block sums over the indices of the blocks."""
        samples = features.reshape(-1, *self.partition_.rank)
        for mode, (blocks, weights) in enumerate(zip(self.partition_.modes, self.weights_), 1):
            after = (1,) * (samples.ndim - mode - 1)
            samples = blocks.expand(samples, mode) * weights.reshape(-1, *after)
        return samples
