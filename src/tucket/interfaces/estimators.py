"""LTR as a transformer of scikit-learn's: samples along the first mode, each reduced to its block sums."""

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

from tucket.base.blocks import as_index
from tucket.base.partition import Partition, check_mode_rank, one_a_mode
from tucket.models.collect import collect
from tucket.models.tucker import BlockTucker
from tucket.projection.ltr import ltr

__all__ = ["LTR"]


class LTR(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    r"""Reduce samples, non-negative arrays of any number of modes, to few non-negative features, in closed form.

    The modes of the samples are cut into blocks. The features of a sample are its block sums; they are spread over the
    indices of each block by the weights that were learned:

    .. math:: Q[n, i_2, \dots, i_d] = Z[n, b_2(i_2), \dots, b_d(i_d)] \prod_k w_k[i_k]

    Parameters
    ----------
    rank : int, or one a mode, each an int or None
        Number of blocks of each mode, that of the samples included; None leaves a mode whole. An int, for all modes
        but the samples, is lowered to the size of a mode that has less. A rank of the samples groups those that are
        alike in the search for the other blocks: see `labels_`.
    blocks : {"clusters", "segments", "uniform", "random"}, or one a mode
        How to cut: see `tucket.ltr`.
    max_sweeps : int
        Sweeps of the search for blocks, at most.
    random_state : None, int or RandomState
        For "random" blocks, and for the starts of a search.
    workers : int
        How many threads may be used; by default as many as the process has processors.

    Attributes
    ----------
    partition_ : Partition
        The blocks of the modes of a sample.
    weights_ : list of arrays
        Each index's share of its block, a mode at a time.
    labels_ : array of int
        The block of each sample that the blocks were learned from: its own number, if the samples have no rank.
    n_features_in_ : int
        Size of the second mode of `X`, which scikit-learn calls so.
    sample_shape_ : tuple of int
        Shape of a sample.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().images
    >>> model = LTR(rank=(None, 4, 3))
    >>> model.fit_transform(images).shape
    (1797, 12)
    >>> model.inverse_transform(model.transform(images[:2])).shape
    (2, 8, 8)
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
        """Learn blocks and weights from samples, the first mode of `X`; `y` is ignored."""
        self._learn(self._check(X, reset=True))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:  # noqa: ARG002, N803
        """Learn from samples and return their features, which come with the learning if the samples have no rank."""
        samples = self._check(X, reset=True)
        model = self._learn(samples)
        return (
            np.array(model.core.reshape(len(samples), -1)) if model.rank[0] == len(samples) else self._features(samples)
        )

    def partial_fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Learn from more samples: the first call chooses the blocks, and all of them the weights."""
        if not hasattr(self, "partition_"):
            return self.fit(X)
        samples = self._check(X, reset=False)
        whole = (1, *samples.shape[1:])
        found = collect(samples, Partition.uniform(samples.shape, whole), workers=self.workers)
        return self._weigh([known + more for known, more in zip(self._marginals, found.marginals[1:])])

    def _learn(self, samples: NDArray[Any]) -> BlockTucker:
        ranks, blocks = self._ranks(samples.shape), self.blocks
        if isinstance(blocks, str) and ranks[0] is None:
            blocks = (None, *(blocks,) * (samples.ndim - 1))  # the samples stay as they are
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
        most = as_index(self.rank)
        if most is not None:
            if most < 1:
                check_mode_rank(most, shape[1], 1)
            return (None, *(min(most, size) for size in shape[1:]))
        return one_a_mode(self.rank, shape, "rank") if self.rank is not None else (None,) * len(shape)

    def _weigh(self, marginals: list[NDArray[np.float64]]) -> Self:
        """Take the marginals of the modes of a sample, over all samples, for weights."""
        self._marginals, self.weights_ = marginals, []
        for marginal, blocks in zip(marginals, self.partition_.modes):
            mass = blocks.expand(blocks.sum(marginal))
            alike = 1 / blocks.expand(blocks.sizes)  # in a block that had no mass so far
            self.weights_.append(np.divide(marginal, mass, where=mass > 0, out=alike))
        return self

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the features of samples: their block sums, flat."""
        check_is_fitted(self, "partition_")
        return self._features(self._check(X, reset=False))

    def _features(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        whole = Partition.uniform(samples.shape[:1], samples.shape[:1])
        cut = Partition((*whole.modes, *self.partition_.modes))
        return np.array(collect(samples, cut, workers=self.workers).core.reshape(len(samples), -1))

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the samples that features stand for."""
        check_is_fitted(self, "partition_")
        features = np.asarray(X, np.float64)
        if features.ndim != 2 or features.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has shape {features.shape}; give (samples, {self._n_features_out}), a column for each block"
            )
        samples = features.reshape(-1, *self.partition_.rank)
        for mode, (blocks, weights) in enumerate(zip(self.partition_.modes, self.weights_), 1):
            after = (1,) * (samples.ndim - mode - 1)
            samples = blocks.expand(samples, mode) * weights.reshape(-1, *after)
        return samples

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return minus the divergence of samples from what their features stand for, over their total.

        Mass at an index that had none when the weights were learned, though its block had, makes it minus infinity.
        """
        from tucket.models.metrics import kl

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
