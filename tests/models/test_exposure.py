"""Statistics of tensors with gaps: sums of what is known, and of the exposure."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import oracles
import tucket as tk
from strategies import partitions, tensors

Case = tuple[NDArray[np.float64], NDArray[np.float64], tk.Partition]


@st.composite
def gappy(draw: st.DrawFn) -> Case:
    x = draw(tensors(max_dims=4, dtypes=("<f8", "u1"))).astype(np.float64)
    exposure = np.array(draw(st.lists(st.sampled_from([0.0, 0.5, 2.0]), min_size=x.size, max_size=x.size)))
    return x, exposure.reshape(x.shape), draw(partitions(x.shape))


@given(gappy())
def test_both_sums_are_those_of_the_definition(case: Case) -> None:
    x, exposure, partition = case
    mask, labels = exposure > 0, [blocks.labels for blocks in partition.modes]
    for found, whole in (
        (tk.collect(np.where(mask, x, np.nan), partition, observed="finite"), mask.astype(float)),
        (tk.collect(x, partition, observed=mask, exposure=exposure), exposure),
    ):
        assert found.exposure is not None
        for ours, theirs in ((found, np.where(mask, x, 0)), (found.exposure, whole)):
            tolerance = 1e-9 * theirs.sum()
            np.testing.assert_allclose(ours.core, oracles.block_sums(theirs, labels), atol=tolerance)
            for mode, marginal in enumerate(ours.marginals):
                np.testing.assert_allclose(marginal, oracles.marginal(theirs, mode), atol=tolerance)


@pytest.fixture
def case() -> Case:
    rng = np.random.default_rng(0)
    x, mask = rng.poisson(3.0, (8, 6, 4)).astype(float), rng.random((8, 6, 4)) < 0.7
    return np.where(mask, x, np.nan), mask.astype(float), tk.Partition.uniform(x.shape, (4, 3, 2))


def test_they_add_join_coarsen_and_are_saved(case: Case, tmp_path: Path) -> None:
    x, mask, partition = case
    found = tk.collect(x, partition, observed="finite")
    assert (found + found).exposure == found.exposure + found.exposure  # type: ignore[operator]
    halves = [tk.collect(x[rows], (2, 3, 2), observed="finite") for rows in (slice(4), slice(4, None))]
    assert halves[0].append(halves[1]) == found
    coarse = tk.Partition.uniform(x.shape, (2, 1, 2))
    assert found.coarsen(coarse) == tk.collect(x, coarse, observed="finite")
    found.save(tmp_path / "s.npz")
    assert tk.Statistics.load(tmp_path / "s.npz") == found == pickle.loads(pickle.dumps(found))
    assert "exposure=" in repr(found)
    np.testing.assert_allclose(found.rates(), found.core / tk.collect(mask, partition).core)
    np.testing.assert_allclose(tk.collect(mask, partition).rates() * 8, tk.collect(mask, partition).core)


def test_statistics_with_and_without_gaps_go_together_if_both_have_an_exposure(case: Case) -> None:
    x, mask, partition = case
    whole = tk.collect(np.ones(x.shape), partition, observed="finite")
    assert whole.exposure == tk.collect(np.ones(x.shape), partition)
    assert (whole + tk.collect(x, partition, observed="finite")).exposure is not None
    with pytest.raises(ValueError, match="one of the statistics has an exposure and the other has none"):
        whole + tk.collect(mask, partition)


@pytest.mark.parametrize(
    "use",
    [
        lambda stats: stats.project(),
        lambda stats: stats.total_correlation(),
        lambda stats: tk.ltr(stats, 2),
        lambda stats: tk.information_curve(stats),
    ],
)
def test_what_does_not_follow_is_refused(use: Any, case: Case) -> None:
    x, _, partition = case
    with pytest.raises(ValueError, match="does not follow from statistics of a tensor with gaps or exposure"):
        use(tk.collect(x, partition, observed="finite"))


def test_masked_arrays_and_delayed_statistics(case: Case) -> None:
    x, mask, partition = case
    masked = np.ma.array(x, mask=mask == 0)
    assert tk.collect(masked, partition) == tk.collect(x, partition, observed="finite")
    with pytest.raises(TypeError, match="compute=False is for tensors without gaps"):
        tk.collect(masked, partition, compute=False)
    with pytest.raises(TypeError, match="this needs a tensor without gaps"):
        tk.information_curve(masked)
