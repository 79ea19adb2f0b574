"""NTD as a scikit-learn transformer: each sample is reduced to its coordinates in a few components."""

from __future__ import annotations

from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

try:
    from tucket.interfaces.estimators.transformer import SampleTransformer
except ImportError:
    raise ImportError("NTD needs scikit-learn; install it with: pip install 'tucket[sklearn]'") from None

from tucket.base.checks import choose
from tucket.decomposition.ntd import MAX_ITERATIONS, TOL, ntd
from tucket.models.tucker import Tucker

SETTLED = 1e-8
"""Largest change of a sample's coordinates in a round, as a share of their sum, that ends its rounds."""


class NTD(SampleTransformer):
    r"""Reduce samples, which are non-negative arrays, to their coordinates in a few non-negative components.

    `fit` decomposes the samples as `tucket.ntd` does. A component is an array of the shape of a sample, with sum 1,
    made of the core and of the factors of the other modes. The features of a sample are the non-negative amounts of
    the components that come nearest to it:

    .. math:: Q[n, i_2, \dots, i_d] = \sum_j Z[n, j] \, C[j, i_2, \dots, i_d]

    Samples may have gaps, with `observed="finite"`: then what is known of a sample decides, and `inverse_transform`
    says what stands in the gaps. A component that has no influence on what is known has its mean over the samples in
    `fit`, in proportion to what is known. A sample without known cells has the means.

    Parameters
    ----------
    rank : int, sequence of int or None, dict, or "cv", default 8
        Number of components of each mode, as for `tucket.ntd`. That of mode 0, the samples, is the number of features.
    loss : {"kl", "ls"}, default "kl"
        The loss to minimise: the Kullback-Leibler divergence, or least squares.
    observed : {"all", "finite"}, default "all"
        "all" refuses NaN; "finite" takes cells that are NaN for unknown.
    n_iter_max : int, default 1000
        Maximum iterations of `fit` on each level, and of `transform`.
    tol : float, default 1e-4
        Relative tolerance of `fit`, as for `tucket.ntd`.
    random_state : int or RandomState, optional
        Seed of random starts; fixed by default.
    workers : int, optional
        Maximum number of threads; by default one per processor.

    Attributes
    ----------
    components_ : array of shape (n_components, ...)
        The components, each of the shape of a sample.
    model_ : Fit
        The decomposition of the samples in `fit`, with its core and factors.
    means_ : array of shape (n_components,)
        Mean features of the samples in `fit`.
    n_features_in_ : int
        Size of the second mode of `X`.
    sample_shape_ : tuple of int
        Shape of a sample.

    See Also
    --------
    tucket.ntd : The same decomposition as a function.
    LTR : Features in closed form, each the sum of a block.

    Examples
    --------
    >>> from sklearn.datasets import load_digits
    >>> images = load_digits().images[:100]
    >>> model = NTD(rank=(6, 4, 4)).fit(images)
    >>> model.transform(images).shape, model.components_.shape
    ((100, 6), (6, 8, 8))
    """

    _column: ClassVar[str] = "component"

    def __init__(
        self,
        rank: Any = 8,
        *,
        loss: str = "kl",
        observed: str = "all",
        n_iter_max: int = MAX_ITERATIONS,
        tol: float = TOL,
        random_state: Any = None,
        workers: int | None = None,
    ) -> None:
        self.rank = rank
        self.loss = loss
        self.observed = observed
        self.n_iter_max = n_iter_max
        self.tol = tol
        self.random_state = random_state
        self.workers = workers

    def _learn(self, samples: NDArray[Any]) -> None:
        choose(self.loss, {"kl": 0, "ls": 0}, "loss")
        options: dict[str, Any] = {name: getattr(self, name) for name in ("loss", "observed", "n_iter_max", "tol")}
        self.model_ = ntd(samples, self.rank, rng=self._seed(), workers=self.workers, **options)
        core, (weights, *factors) = self.model_
        found = Tucker(core, [np.eye(len(core)), *factors]).to_tensor()
        sums = found.sum(axis=tuple(range(1, found.ndim)))
        self.components_ = found / np.where(sums > 0, sums, 1).reshape(-1, *(1,) * (found.ndim - 1))
        self.means_, self._n_features_out = weights.mean(axis=0) * sums, len(core)

    def _features(self, samples: NDArray[Any]) -> NDArray[np.float64]:
        """Multiply the coordinates of each sample by updates that never raise its loss, until they settle."""
        flat = samples.reshape(len(samples), -1)
        seen = np.isfinite(flat).astype(np.float64)
        x, parts = np.where(seen > 0, flat, 0.0), self.components_.reshape(len(self.components_), -1)
        expected = (seen @ parts.T) @ self.means_
        scales = np.where(seen.any(axis=1), _ratio(x.sum(axis=1), expected), 1.0)
        features: NDArray[np.float64] = scales[:, None] * self.means_
        rows = np.arange(len(x))
        for _ in range(self.n_iter_max):
            now, known = features[rows], seen[rows]
            model = now @ parts
            pair = (_ratio(x[rows], model), known) if self.loss == "kl" else (x[rows], known * model)
            wanted, found = (each @ parts.T for each in pair)
            features[rows] = np.where(found > 0, now * _ratio(wanted, found), now)
            change = np.abs(features[rows] - now).max(axis=1)
            rows = rows[change > SETTLED * now.sum(axis=1)]
            if not len(rows):
                break
        return features

    def _expand(self, features: NDArray[np.float64]) -> NDArray[np.float64]:
        samples: NDArray[np.float64] = np.tensordot(features, self.components_, axes=1)
        return samples


def _ratio(above: NDArray[np.float64], below: NDArray[np.float64]) -> NDArray[np.float64]:
    """Divide; anything by 0 is 0."""
    found = np.zeros_like(below)
    np.divide(above, below, where=below > 0, out=found)
    return found
