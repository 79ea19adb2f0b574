"""LTR as a scikit-learn transformer: samples along the first mode, each reduced to its block sums."""

from __future__ import annotations

import math
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

try:
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils import check_random_state
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError:
    raise ImportError("LTR needs scikit-learn; install it with: pip install 'tucket[sklearn]'") from None

from tucket.base.axes import by_mode
from tucket.base.checks import as_index, rank_per_mode
from tucket.base.partition import Partition
from tucket.models.block_tucker import BlockTucker
from tucket.models.collect import collect
from tucket.models.metrics import kl
from tucket.projection.ltr import ltr


class LTR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Reduce samples, which are non-negative arrays, to a few non-negative features, in closed form.

    `fit` cuts the modes of the samples into blocks. The features of a sample are its block sums. The inverse spreads
    each block sum over the indices of the block by learned weights:

    .. math:: Q[n, i_2, \dots, i_d] = Z[n, b_2(i_2), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Parameters
    ----------
    rank : int, sequence of int or None, or dict, default 8
        Number of blocks of each mode. Give one per mode, with the samples as mode 0, or a dict from mode number to
        rank; None keeps a mode whole, and so does leaving it out of the dict. An int is the rank of all modes but the
        samples, or their size where that is smaller. A rank of the samples groups similar samples: see `labels_`.
    blocks : {"clusters", "segments", "uniform", "random"}, or one per mode, default "clusters"
        How to cut the modes: see `tucket.ltr`.
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
    labels_ : array of int
        Block of each sample in `fit`; without a rank of the samples, each has its own.
    n_features_in_ : int
        Size of the second mode of `X`.
    sample_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    tucket.ltr : The same reduction as a function.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().images
    >>> model = LTR(rank=(None, 4, 3)).fit(images)
    >>> model.transform(images).shape
    (1797, 12)
    """

    def __init__(
        self,
        rank: Any = 8,
        *,
        blocks: Any = "clusters",
        max_sweeps: int = 50,
        random_state: Any = None,
        workers: int | None = None,
    ) -> None:
        self.rank = rank
        self.blocks = blocks
        self.max_sweeps = max_sweeps
        self.random_state = random_state
        self.workers = workers

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Learn blocks and weights.

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
        self._learn(self._check(X, reset=True))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:  # noqa: ARG002, N803
        """Learn blocks and weights, and return the features.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        array of shape (n_samples, n_blocks)
            Block sums of each sample.
        """
        samples = self._check(X, reset=True)
        model = self._learn(samples)
        if model.rank[0] < len(samples):
            return self._features(samples)
        return np.array(model.core.reshape(len(samples), -1))  # the core already holds the sums of each sample

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Learn from more samples: the first call chooses the blocks, and every call updates the weights.

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
        found = collect(samples, (1, *samples.shape[1:]), workers=self.workers)
        return self._weigh([known + more for known, more in zip(self._marginals, found.marginals[1:])])

    def _learn(self, samples: NDArray[Any]) -> BlockTucker:
        ranks, blocks = self._ranks(samples.shape), self.blocks
        if isinstance(blocks, str) and ranks[0] is None:
            blocks = (None, *(blocks,) * (samples.ndim - 1))
        rng = None
        if self.random_state is not None:
            rng = int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))
        model = ltr(samples, ranks, blocks=blocks, rng=rng, max_sweeps=self.max_sweeps, workers=self.workers)
        self.labels_ = model.partition[0].labels
        self.partition_ = Partition(model.partition.modes[1:])
        self._n_features_out = math.prod(self.partition_.rank)
        self._weigh(list(model.marginals[1:]))
        return model

    def _ranks(self, shape: tuple[int, ...]) -> tuple[Any, ...]:
        ranks = rank_per_mode(by_mode(self.rank, None, len(shape), None, "rank"), shape)
        return ranks if as_index(self.rank) is None else (None, *ranks[1:])

    def _weigh(self, marginals: list[NDArray[np.float64]]) -> Self:
        """Keep the marginals of the modes of a sample, over all samples, and compute the weights from them."""
        self._marginals, self.weights_ = marginals, []
        for marginal, blocks in zip(marginals, self.partition_.modes):
            mass = blocks.expand(blocks.sum(marginal))
            equal = 1 / blocks.expand(blocks.sizes)  # the weights of a block that has no mass yet
            self.weights_.append(np.divide(marginal, mass, where=mass > 0, out=equal))
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the features of samples.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Samples of the same shape as in `fit`.

        Returns
        -------
        array of shape (n_samples, n_blocks)
            Block sums of each sample.
        """
        check_is_fitted(self, "partition_")
        return self._features(self._check(X, reset=False))

    def _features(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        whole = Partition.uniform(samples.shape[:1], samples.shape[:1])
        cut = Partition((*whole.modes, *self.partition_.modes))
        return np.array(collect(samples, cut, workers=self.workers).core.reshape(len(samples), -1))

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the samples that features stand for.

        Parameters
        ----------
        X : array of shape (n_samples, n_blocks)
            Block sums of each sample.

        Returns
        -------
        array of shape (n_samples, ...)
            Approximate samples.
        """
        check_is_fitted(self, "partition_")
        features = np.asarray(X, np.float64)
        if features.ndim != 2 or features.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has shape {features.shape}; give (samples, {self._n_features_out}), one column per block"
            )
        samples = features.reshape(-1, *self.partition_.rank)
        for mode, (blocks, weights) in enumerate(zip(self.partition_.modes, self.weights_), 1):
            after = (1,) * (samples.ndim - mode - 1)
            samples = blocks.expand(samples, mode) * weights.reshape(-1, *after)
        return samples

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return the negative Kullback-Leibler divergence of samples from their approximation, divided by their sum.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            At most 0; minus infinity if an index with weight 0 has mass.
        """
        check_is_fitted(self, "partition_")
        samples = self._check(X, reset=False)
        total = float(samples.sum(dtype=np.float64))
        return -kl(samples, self.inverse_transform(self.transform(samples))) / total if total else 0.0

    def _check(self, X: Any, reset: bool) -> NDArray[Any]:  # noqa: N803
        samples: NDArray[Any] = validate_data(
            self, X, reset=reset, allow_nd=True, dtype="numeric", ensure_non_negative=True, ensure_min_samples=1
        )
        if reset:
            self.sample_shape_ = samples.shape[1:]
        elif samples.shape[1:] != self.sample_shape_:
            raise ValueError(f"X has samples of shape {samples.shape[1:]}; give {self.sample_shape_}, as in fit")
        return samples

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
