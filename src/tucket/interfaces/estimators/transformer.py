"""What the transformers share: checks of samples, and the calls of scikit-learn."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data

from tucket.base.checks import choose
from tucket.models.metrics import kl


class SampleTransformer(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """Reduces samples, which are non-negative arrays, to a few non-negative features."""

    _column: ClassVar[str]
    """What a feature belongs to."""

    observed: str
    random_state: Any
    _n_features_out: int

    @abstractmethod
    def _learn(self, samples: NDArray[Any]) -> NDArray[np.float64] | None:
        """Learn from samples; also return their features where these are known."""

    @abstractmethod
    def _features(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        """Return the features of samples."""

    @abstractmethod
    def _expand(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the samples that features stand for."""

    def fit(self, X: Any, y: Any = None) -> Self:  # noqa: ARG002, N803
        """Learn from samples.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        object
            The estimator.
        """
        self._learn(self._check(X, reset=True))
        return self

    def fit_transform(self, X: Any, y: Any = None) -> NDArray[np.float64]:  # noqa: ARG002, N803
        """Learn from samples, and return their features.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        array of shape (n_samples, n_features)
            Features of each sample.
        """
        samples = self._check(X, reset=True)
        features = self._learn(samples)
        return self._features(samples) if features is None else features

    def transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the features of samples.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Samples of the same shape as in `fit`.

        Returns
        -------
        array of shape (n_samples, n_features)
            Features of each sample.
        """
        check_is_fitted(self)
        return self._features(self._check(X, reset=False))

    def inverse_transform(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Return the samples that features stand for.

        Parameters
        ----------
        X : array of shape (n_samples, n_features)
            Features of each sample.

        Returns
        -------
        array of shape (n_samples, ...)
            Approximate samples.
        """
        check_is_fitted(self)
        features = np.asarray(X, np.float64)
        if features.ndim != 2 or features.shape[1] != self._n_features_out:
            raise ValueError(
                f"X has shape {features.shape}; give (samples, {self._n_features_out}), one column per {self._column}"
            )
        return self._expand(features)

    def score(self, X: Any, y: Any = None) -> float:  # noqa: ARG002, N803
        """Return the negative Kullback-Leibler divergence of samples from their approximation, divided by their sum.

        Of samples with gaps, only what is known counts.

        Parameters
        ----------
        X : array of shape (n_samples, ...)
            Non-negative samples.
        y : object, optional
            Ignored.

        Returns
        -------
        float
            At most 0; minus infinity if the approximation is 0 where a sample is not.
        """
        check_is_fitted(self)
        samples = self._check(X, reset=False)
        seen = np.isfinite(samples)
        total = float(samples.sum(dtype=np.float64, where=seen))
        back = self._expand(self._features(samples))
        return -kl(samples[seen], back[seen]) / total if total else 0.0

    def _check(self, X: Any, reset: bool) -> NDArray[Any]:  # noqa: N803
        finite = choose(self.observed, {"all": True, "finite": "allow-nan"}, "observed")
        given = X.astype(np.float64).filled(np.nan) if np.ma.is_masked(X) else X
        checks = {"ensure_all_finite": finite, "ensure_non_negative": True, "ensure_min_samples": 1}
        samples: NDArray[Any] = validate_data(self, given, reset=reset, allow_nd=True, dtype="numeric", **checks)
        if finite == "allow-nan" and (samples < 0).any():  # scikit-learn looks at the minimum, which may be NaN
            raise ValueError(f"Negative values in data passed to {type(self).__name__}")
        if reset:
            self.sample_shape_ = samples.shape[1:]
        elif samples.shape[1:] != self.sample_shape_:
            raise ValueError(f"X has samples of shape {samples.shape[1:]}; give {self.sample_shape_}, as in fit")
        return samples

    def _seed(self) -> int | None:
        """Return a seed for `ltr` or `ntd`."""
        if self.random_state is None:
            return None
        return int(check_random_state(self.random_state).randint(np.iinfo(np.int32).max))

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.positive_only = True
        tags.input_tags.allow_nan = self.observed == "finite"
        tags.input_tags.three_d_array = True
        tags.transformer_tags.preserves_dtype = ["float64"]
        return tags
