"""`ntd` of everything that `ltr` reads: the same fit, with names and labels, and memory that does not grow."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.sparse
from numpy.typing import NDArray

import tucket as tk
from tucket.decomposition.data import load_for_passes
from tucket.kernels.entries import values_at
from tucket.sources.as_source import as_source
from tucket.sources.dense import Array
from tucket.sources.source import Entries, Source
from tucket.sources.sparse import Sparse

NAMES, LABELS = ("day", "place", "hour"), {"hour": range(6, 16)}


def made() -> NDArray[np.float64]:
    """Counts with structure, and with an empty slice in every mode but the last."""
    rng = np.random.default_rng(0)
    core = rng.gamma(0.3, size=(3, 3, 3))
    rates = np.einsum("abc,ia,jb,kc->ijk", core, *(rng.gamma(0.5, size=(size, 3)) for size in (20, 15, 10)))
    rates[4], rates[:, 7] = 0, 0
    return np.asarray(rng.poisson(rates), np.float64)


X = made()


def table() -> Any:
    """The entries as a table, one row for each event."""
    pd = pytest.importorskip("pandas")
    rows = np.repeat(np.argwhere(X), X[X > 0].astype(int), axis=0)
    return pd.DataFrame({name: rows[:, mode] for mode, name in enumerate(NAMES)})


def to_zarr(folder: Path) -> Any:
    zarr = pytest.importorskip("zarr")
    stored = zarr.open_array(str(folder / "x.zarr"), mode="w", shape=X.shape, chunks=(7, 15, 4), dtype="f8")
    stored[...] = X
    return tk.open(folder / "x.zarr")


def to_npy(folder: Path) -> Any:
    np.save(folder / "x.npy", X)
    return tk.open(folder / "x.npy")


def to_parquet(folder: Path) -> Any:
    pytest.importorskip("pyarrow")
    table().to_parquet(folder / "x.parquet")
    return tk.from_parquet(folder / "x.parquet", NAMES)


def to_hdf5(folder: Path) -> Any:
    h5py = pytest.importorskip("h5py")
    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("x", data=X, chunks=(5, 5, 5))
    return tk.open(folder / "x.h5")


def to_tns(folder: Path) -> Any:
    pytest.importorskip("pandas")
    lines = (f"{i + 1} {j + 1} {k + 1} {X[i, j, k]:g}" for i, j, k in np.argwhere(X))
    (folder / "x.tns").write_text("\n".join(lines))
    return tk.open(folder / "x.tns")


def to_xarray(_: Path) -> Any:
    xarray = pytest.importorskip("xarray")
    return xarray.DataArray(X, dims=NAMES, coords={"hour": list(LABELS["hour"])})


FORMS: dict[str, Callable[[Path], Any]] = {
    "entries": lambda _: tk.from_entries(np.nonzero(X), X[X > 0], X.shape),
    "duplicates": lambda _: tk.from_entries(np.tile(np.nonzero(X), 2), np.tile(X[X > 0], 2) / 2, X.shape),
    "sparse": lambda _: pytest.importorskip("sparse").COO.from_numpy(X),
    "stream": lambda _: tk.Stream([X[rows : rows + 7] for rows in range(0, 20, 7)]),
    "sparse stream": lambda _: tk.Stream([pytest.importorskip("sparse").COO.from_numpy(X[:9]), X[9:]]),
    "dask": lambda _: pytest.importorskip("dask.array").from_array(X, chunks=(6, 8, 10)),
    "dask of sparse": lambda _: (
        pytest.importorskip("dask.array")
        .from_array(X, chunks=(6, 8, 10))
        .map_blocks(pytest.importorskip("sparse").COO.from_numpy)
    ),
    "zarr": to_zarr,
    "npy": to_npy,
    "hdf5": to_hdf5,
    "tns": to_tns,
    "parquet": to_parquet,
    "xarray": to_xarray,
}


@pytest.mark.parametrize("small", [0, 1 << 26], ids=["pass by pass", "loaded"])
@pytest.mark.parametrize("form", FORMS)
def test_the_same_fit(form: str, small: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tucket.decomposition.data.SMALL_BYTES", small)
    x = FORMS[form](tmp_path)
    if form in {"tns", "parquet"}:  # whose shape, or labels, are those of the entries
        used = np.ix_(*(np.flatnonzero(X.sum(axis=others)) for others in ((1, 2), (0, 2), (0, 1))))
        dense = X[used] if form == "parquet" else X
    else:
        dense = X
    start = tk.ltr(dense, 3, blocks="uniform")
    for loss in ("kl", "ls"):
        ours, expected = (tk.ntd(each, init=start, loss=loss, multilevel=False, n_iter_max=5) for each in (x, dense))
        assert ours.loss == pytest.approx(expected.loss, rel=1e-6)
        np.testing.assert_allclose(ours.to_tensor(), expected.to_tensor(), rtol=1e-4, atol=1e-4)
    by_default = tk.ntd(x, 3)
    assert by_default.loss == pytest.approx(by_default.kl(dense), rel=1e-9)
    assert by_default.loss <= tk.ltr(dense, 3).kl(dense)


def test_names_and_labels() -> None:
    entries = FORMS["entries"](Path())
    fit = tk.ntd(entries, {"day": 3, "place": None, "hour": 2}, names=NAMES, labels=LABELS, n_iter_max=3)
    assert fit.rank == (3, 15, 2)
    assert fit.axes is not None
    assert fit.axes.names == NAMES
    np.testing.assert_array_equal(fit.axes.labels[2], LABELS["hour"])
    by_table = tk.ntd(tk.from_table(table(), NAMES), 3, n_iter_max=3)
    assert by_table.axes is not None
    assert by_table.axes.names == NAMES
    assert by_table.shape == (len(np.unique(np.nonzero(X)[0])), len(np.unique(np.nonzero(X)[1])), 10)


def test_a_matrix_of_scipy() -> None:
    matrix = scipy.sparse.coo_array(X[0] + X[1])
    for loss in ("kl", "ls"):
        fit = tk.ntd(matrix.tocsr(), 4, loss=loss)
        dense = matrix.toarray()
        assert fit.loss == pytest.approx(fit.kl(dense) if loss == "kl" else fit.relative_error(dense), rel=1e-6)


@pytest.mark.parametrize("init", ["auto", "ltr", "hosvd", "random"])
def test_every_start_of_entries(init: Any) -> None:
    for loss in ("kl", "ls"):
        fit = tk.ntd(FORMS["entries"](Path()), (3, 4, None), init=init, loss=loss)
        assert fit.rank == (3, 4, 10)


def test_a_source_that_fails_in_mid_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tucket.decomposition.data.SMALL_BYTES", 0)
    reads = []

    class Failing:
        shape, dtype, chunks = X.shape, X.dtype, (7, 15, 10)

        def __getitem__(self, box: Any) -> Any:
            reads.append(box)
            if len(reads) == 14:
                raise OSError("disk gone")
            return X[box]

    from tucket.sources.chunked import Chunked

    monkeypatch.setattr("tucket.sources.chunked.BOX_BYTES", 1)
    with pytest.raises(ValueError, match=r"x\[.*\] cannot be read: disk gone"):
        tk.ntd(Chunked(Failing(), Failing.chunks), 3, multilevel=False, init="ltr")


def test_read_as_an_array(tmp_path: Path) -> None:
    for form, make in FORMS.items():
        found = as_source(make(tmp_path)).to_numpy()
        if form == "parquet":
            assert found.sum() == X.sum()
        else:
            np.testing.assert_array_equal(found, X)


def test_a_large_file_is_sketched_in_four_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tucket.decomposition.data.SMALL_BYTES", 0)
    monkeypatch.setattr("tucket.decomposition.levels.SKETCH_CELLS", 1500)
    monkeypatch.setattr("tucket.decomposition.ntd.SKETCH_CELLS", 1500)
    monkeypatch.setattr("tucket.decomposition.ntd.FULL_ENTRIES", 1000)
    seen: list[Any] = []
    x = to_npy(tmp_path)
    sketch = tk.ntd(x, 3, progress=seen.append)
    assert (sketch.n_passes, len(sketch.levels)) == (4, 1)
    assert sum(step.chunks == 1 for step in seen) == 4
    assert math.prod(sketch.levels[0]) <= 1500
    assert sketch.loss == pytest.approx(sketch.kl(X), rel=1e-9)
    whole = tk.ntd(x, 3, multilevel=True)
    assert whole.levels == (sketch.levels[0], X.shape)
    assert whole.n_passes > 4
    assert whole.loss < sketch.loss
    assert whole.loss == pytest.approx(whole.kl(X), rel=1e-9)


def test_an_array_of_mostly_zeros_is_read_as_entries(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tucket.decomposition.data.MANY_ENTRIES", 1)
    rng = np.random.default_rng(0)
    few = np.where(rng.random(X.shape) < 0.05, 1 + X, 0)
    for x, kind in ((few, Sparse), (1 + X, Array), (np.asfortranarray(few), Sparse), (few.astype(np.float32), Sparse)):
        assert type(load_for_passes(as_source(x))) is kind
        for loss in ("kl", "ls"):
            fit = tk.ntd(x, 3, loss=loss, names=NAMES)
            assert fit.loss == pytest.approx(fit.kl(x) if loss == "kl" else fit.relative_error(x), rel=1e-9)
            assert fit.axes is not None
    few[0, 1, 2] = -1
    with pytest.raises(ValueError, match=r"x\[0, 1, 2\] is -1"):
        tk.ntd(few, 3)
    few[0, 1, 2] = np.nan
    with pytest.raises(ValueError, match=r"x\[0, 1, 2\] is nan"):
        tk.ntd(few, 3)


def test_values_of_a_model_at_some_indices() -> None:
    rng = np.random.default_rng(0)
    for ndim in range(1, 6):
        shape, rank = rng.integers(1, 6, ndim), rng.integers(1, 4, ndim)
        core, factors = rng.random(rank), [rng.random(extent) for extent in zip(shape, rank)]
        coords = [rng.integers(0, size, 40) for size in shape]  # some of them several times
        expected = tk.Tucker(core, factors).to_tensor()[tuple(coords)]
        np.testing.assert_allclose(values_at(core, factors, coords), expected, rtol=1e-12)
        assert values_at(core, factors, [at[:0] for at in coords]).shape == (0,)


def test_sparse_tensors_of_many_modes() -> None:
    rng = np.random.default_rng(0)
    x = tk.from_entries([rng.integers(0, 10**4, 50) for _ in range(10)], np.ones(50), (10**4,) * 10)
    assert tk.ntd(x, 1).loss <= tk.ltr(x, 1).kl(x) * (1 + 1e-9)


def test_a_sparse_stream_is_never_made_dense() -> None:
    rng = np.random.default_rng(0)
    slabs = [
        scipy.sparse.csr_array((np.ones(50), (rng.integers(0, 20_000, 50), rng.integers(0, 20_000, 50))), (20_000,) * 2)
        for _ in range(2)
    ]
    fit = tk.ntd(tk.Stream(slabs), 2, n_iter_max=1, names=("row", "column"))
    assert fit.levels[-1] == (40_000, 20_000)
    assert fit.axes is not None
    assert fit.axes.names == ("row", "column")


def test_a_source_of_entries_in_several_chunks() -> None:
    class Own(Source):
        shape, sparse = (6, 7, 8), True

        def chunks(self, distinct: bool) -> Generator[Entries]:  # noqa: ARG002
            for index in range(3):
                yield Entries([np.array([index])] * 3, np.array([1.0 + index]), self.shape)

    assert tk.ntd(Own(), 2).kl(Own()) <= tk.ltr(Own(), 2).kl(Own())


def test_names_of_a_large_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    xarray = pytest.importorskip("xarray")
    monkeypatch.setattr("tucket.decomposition.data.SMALL_BYTES", 0)
    slabs = [xarray.DataArray(X[:9], dims=NAMES), xarray.DataArray(X[9:], dims=NAMES)]
    fit = tk.ntd(tk.Stream(slabs), {"day": 2, "place": 3, "hour": 2}, n_iter_max=2)
    assert fit.axes is not None
    assert (fit.rank, fit.axes.names) == ((2, 3, 2), NAMES)
    fit = tk.ntd(tk.Stream([X[:9], X[9:]]), 2, names=NAMES, n_iter_max=2)
    assert fit.axes is not None
    assert fit.axes.names == NAMES


def test_what_would_not_fit_the_memory_is_refused() -> None:
    shape = (10**6, 10**6, 1000)
    x = tk.from_entries(([1], [2], [3]), [1.0], shape)
    with pytest.raises(ValueError, match=r"rank \(30000, 30000, 1000\): the core would take 7,200.0 GB"):
        tk.ntd(x, 30_000)
    with pytest.raises(ValueError, match="finest: its 24,000,000,000,000 cells would take"):
        tk.ntd(x, 2, finest=tk.Partition.uniform(shape, (10**6, 10**6, 24)))
    with pytest.raises(TypeError, match="x: statistics hold sums alone"):
        tk.ntd(tk.collect(X, 2), 2)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_the_published_end_does_not_depend_on_the_unit(scale: float) -> None:
    x = np.random.default_rng(0).poisson(2.0, (12, 13, 14)) * scale
    assert tk.ntd(x, 2, preset="paper").n_iterations == 4


@pytest.mark.parametrize("loss", ["kl", "ls"])
def test_zeros_in_float32(loss: Any) -> None:
    fit = tk.ntd(np.zeros((3, 4)), 2, loss=loss, dtype="float32")
    assert (fit.loss, fit.dtype) == (0, np.float32)
