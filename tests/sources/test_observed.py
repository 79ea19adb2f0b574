"""What is known of a tensor: the same exposure and the same entries, whatever form they come in."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import tensors
from tucket.base.run import Run
from tucket.models.statistics import read
from tucket.sources import observed as observed_module
from tucket.sources.as_source import as_source
from tucket.sources.observed import Observed, observe
from tucket.sources.source import Chunk, Entries, Source
from tucket.sources.transformed import Transformed


def exposure_of(known: Observed) -> NDArray[np.float64]:
    """The exposure as a dense array."""
    part = known.part.to_numpy().astype(np.float64)
    return 1 - part if known.is_complement else part


def check(known: Source | Observed, x: NDArray[Any], exposure: NDArray[np.float64]) -> None:
    """Compare what is known with the definition: the exposure, and the tensor where it is not 0."""
    if isinstance(known, Source):
        assert (exposure == 1).all()
        np.testing.assert_array_equal(known.to_numpy(), x)
        return
    np.testing.assert_array_equal(exposure_of(known), exposure)
    np.testing.assert_array_equal(known.x.to_numpy(), np.where(exposure > 0, x, 0))


@given(tensors(max_dims=4), st.data(), st.sampled_from([1, 8, 1000]))
def test_a_mask_is_the_same_in_every_form(x: NDArray[Any], choice: st.DataObject, few: int) -> None:
    mask = np.array(choice.draw(st.lists(st.booleans(), min_size=x.size, max_size=x.size))).reshape(x.shape)
    cells = np.nonzero(mask)
    kinds: list[tuple[Any, Any]] = [(x, mask), (x, np.asfortranarray(mask))]
    if mask.any():
        sparse_mask = tk.from_entries(cells, np.ones(len(cells[0])), x.shape)
        stored = tk.from_entries(np.nonzero(x), x[x != 0], x.shape) if x.any() else x
        known = tk.from_entries(cells, x[mask], x.shape)
        kinds += [(x, sparse_mask), (stored, mask), (stored, sparse_mask), (known, "stored")]
    if x.dtype.kind == "f":
        kinds += [(np.where(mask, x, hidden), "finite") for hidden in (np.nan, np.inf, -np.inf)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(observed_module, "FEW", few)
        for given_x, observed in kinds:
            check(observe(as_source(given_x), observed), x, mask.astype(float))


@given(tensors(max_dims=3), st.data())
def test_an_exposure_broadcasts(x: NDArray[Any], choice: st.DataObject) -> None:
    sizes = [size if choice.draw(st.booleans()) else 1 for size in x.shape]
    values = st.sampled_from([0.0, 0.5, 2.0])
    exposure = np.array(choice.draw(st.lists(values, min_size=int(np.prod(sizes)), max_size=int(np.prod(sizes)))))
    exposure = exposure.reshape(sizes)
    full = np.broadcast_to(exposure, x.shape)
    check(observe(as_source(x), "all", exposure), x, full)
    if x.any():
        check(observe(tk.from_entries(np.nonzero(x), x[x != 0], x.shape), "all", exposure), x, full)


def test_entries_that_are_not_finite_are_gaps() -> None:
    x = scipy.sparse.coo_array(([1.0, np.nan, 3.0], ([0, 1, 2], [0, 1, 1])), shape=(3, 2))
    known = observe(as_source(x), "finite")
    assert isinstance(known, Observed)
    assert exposure_of(known).tolist() == [[1, 1], [1, 0], [1, 1]]
    assert known.x.to_numpy().tolist() == [[1, 0], [0, 0], [0, 3]]
    weighed = observe(as_source(x), "finite", [[2.0, 4.0]])
    assert isinstance(weighed, Observed)
    assert exposure_of(weighed).tolist() == [[2, 4], [2, 0], [2, 4]]


def test_chunks_are_changed_where_they_are_reduced() -> None:
    def double(chunk: Chunk | Entries, workers: int) -> Chunk | Entries:  # noqa: ARG001
        if isinstance(chunk, Chunk):
            return Chunk(2 * chunk.array, chunk.box)
        return chunk._replace(values=2 * chunk.values)

    x = np.arange(24.0).reshape(2, 3, 4)
    cut = tk.Partition.uniform(x.shape, (1, 3, 2))
    entries, stream = tk.from_entries(np.nonzero(x), x[x > 0], x.shape), as_source(tk.Stream([x[:1], x[1:]]))
    for source in (as_source(x), entries, stream):
        changed = Transformed(source, double)
        np.testing.assert_allclose(read(changed, cut, Run.of()).core, 2 * tk.collect(x, cut).core)
        np.testing.assert_allclose(changed.to_numpy(), 2 * x)
        changed.close()
