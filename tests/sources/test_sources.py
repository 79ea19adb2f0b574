"""Every source gives the statistics of the dense array, whatever its chunks, order and duplicates."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

import tucket as tk
from strategies import cut_tensors, partitions, tensors
from tucket import kernels
from tucket.base.run import Run
from tucket.kernels import sparse as sparse_kernel
from tucket.kernels.measures import Sums, v_log_v
from tucket.models import collect as collecting
from tucket.projection import search
from tucket.projection.search import Search
from tucket.projection.strategies import Clusters, Segments, segments
from tucket.projection.unfolding import add_rows, information_kept
from tucket.sources import reductions as passes
from tucket.sources.chunked import Chunked
from tucket.sources.dense import Array, Mapped
from tucket.sources.source import Entries
from tucket.sources.sparse import coalesce

PLAIN = ("?", "u1", "<i4", "<i8", "<f4", "<f8")
"""Types that every package knows."""


@pytest.fixture(scope="module", params=["numpy", "numba"], autouse=True)
def kernel(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run everything on both kernels, whatever the size of the tensor."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kernels, "COMPILED_ENTRIES", 0 if request.param == "numba" else 1 << 60)
        patch.setattr(sparse_kernel, "THREAD_ENTRIES", 1)
        patch.setattr(sparse_kernel, "COMPILED_ENTRIES", 0 if request.param == "numba" else 1 << 60)
        yield request.param


Data = st.DataObject
Way = Callable[[NDArray[Any], Data], Any]


def cut(size: int, data: Data, empty: bool = True) -> list[int]:
    """Cut a size into parts, some of which may be empty."""
    cuts = sorted(data.draw(st.lists(st.integers(0, size), max_size=4)))
    parts = np.diff([0, *cuts, size]).tolist()
    return parts if empty else [part for part in parts if part]


def entries(x: NDArray[Any], data: Data) -> tuple[list[NDArray[Any]], NDArray[np.float64]]:
    """List the entries of a tensor in any order: some split in two, some that are zero."""
    coords = [np.append(i, j) for i, j in zip(np.nonzero(x), np.nonzero(x))]
    coords = [np.append(i, j) for i, j in zip(coords, [[0]] * x.ndim)]
    half = x[np.nonzero(x)].astype(np.float64) / 2
    values = np.concatenate((half, half, [0.0]))
    order = data.draw(st.permutations(range(len(values))))
    return [indices[order] for indices in coords], values[order]


def raw(x: NDArray[Any], data: Data) -> Any:
    coords, values = entries(x, data)
    kind = data.draw(st.sampled_from(["i2", "u4", "i8"]))
    return tuple(indices.astype(kind) for indices in coords), values, x.shape


def pydata(x: NDArray[Any], data: Data) -> Any:
    sparse = pytest.importorskip("sparse")

    coo = sparse.COO.from_numpy(np.ascontiguousarray(x))
    return coo.asformat("gcxs") if data.draw(st.booleans()) and x.ndim > 1 else coo


def matrix(x: NDArray[Any], data: Data) -> Any:
    import scipy.sparse

    if x.ndim != 2:
        return raw(x, data)
    coords, values = entries(x, data)
    coo = scipy.sparse.coo_array((values, tuple(coords)), shape=x.shape)
    return coo.asformat(data.draw(st.sampled_from(["coo", "csr", "csc", "lil", "dok"])))


def table(x: NDArray[Any], data: Data) -> Any:
    pd = pytest.importorskip("pandas")
    pl = pytest.importorskip("polars")
    pa = pytest.importorskip("pyarrow")

    coords, values = entries(x, data)
    # every index must occur for the labels to be all of them
    extra = [np.arange(max(x.shape)) % size for size in x.shape]
    columns = {f"mode {k}": np.append(i, j) for k, (i, j) in enumerate(zip(coords, extra))}
    columns["value"] = np.append(values, np.zeros(max(x.shape)))
    make = data.draw(st.sampled_from([pd.DataFrame, pl.DataFrame, pa.table]))
    return tk.from_table(make(columns), list(columns)[:-1], "value")


def dask_array(x: NDArray[Any], data: Data) -> Any:
    da = pytest.importorskip("dask.array")

    return da.from_array(x, chunks=tuple(tuple(cut(size, data)) for size in x.shape))


def labelled(x: NDArray[Any], data: Data) -> Any:
    xr = pytest.importorskip("xarray")

    array = xr.DataArray(x, dims=[f"mode {k}" for k in range(x.ndim)])
    return array.chunk(data.draw(st.integers(1, 4))) if data.draw(st.booleans()) else array


def stream(x: NDArray[Any], data: Data) -> Any:
    mode = data.draw(st.integers(0, x.ndim - 1))
    ends = np.cumsum(cut(x.shape[mode], data))[:-1]
    slabs = np.split(x, ends, axis=mode)
    return tk.Stream(slabs, mode) if mode or data.draw(st.booleans()) else iter(slabs)


def mapped(x: NDArray[Any], data: Data) -> Any:
    file = tempfile.NamedTemporaryFile(suffix=".npy")  # noqa: SIM115 - lives as long as the array
    np.save(file, x)
    file.flush()
    array = np.load(file.name, mmap_mode=data.draw(st.sampled_from(["r", "r+", "c"])))
    return Mapped(array, memory=data.draw(st.integers(4, 4 * x.nbytes)))


def chunked(x: NDArray[Any], data: Data) -> Any:
    chunks = [data.draw(st.integers(1, size)) for size in x.shape]
    least = 4 * int(np.prod(chunks)) * x.itemsize
    return Chunked(x, chunks, memory=data.draw(st.integers(least, 3 * least)))


def zarr_array(x: NDArray[Any], data: Data) -> Any:
    zarr = pytest.importorskip("zarr")

    chunks = tuple(data.draw(st.integers(1, size)) for size in x.shape)
    array = zarr.create_array({}, shape=x.shape, chunks=chunks, dtype=x.dtype)
    array[...] = x
    return array


def hdf5(x: NDArray[Any], data: Data) -> Any:
    h5py = pytest.importorskip("h5py")

    file = h5py.File(f"{id(data)}", "w", driver="core", backing_store=False)
    chunks = tuple(data.draw(st.integers(1, size)) for size in x.shape)
    return file.create_dataset("x", data=x, chunks=chunks if data.draw(st.booleans()) else None)


WAYS: list[Way] = [
    raw, pydata, matrix, table, dask_array, labelled, stream, mapped, chunked, zarr_array, hdf5,
]  # fmt: skip


def test_a_search_over_sparse_unfoldings_reports_its_divergence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "DENSE_CELLS", 0)
    x = np.random.default_rng(0).poisson(0.5, (9, 8, 7)).astype(float)
    steps: list[tk.Step] = []
    model = tk.ltr(tk.from_entries(np.nonzero(x), x[np.nonzero(x)], x.shape), 3, callback=steps.append)
    assert min(step.loss for step in steps) == pytest.approx(model.kl(x), rel=1e-9)


def assert_same(ours: tk.Statistics, x: NDArray[Any], partition: tk.Partition) -> None:
    dense = tk.collect(x, partition, moments=True)
    assert ours.partition == partition
    np.testing.assert_allclose(ours.core, dense.core, rtol=1e-12, atol=0)
    for marginal, expected in zip(ours.marginals, dense.marginals):
        np.testing.assert_allclose(marginal, expected, rtol=1e-12, atol=0)
    size = float(np.abs(v_log_v(x)).sum())
    assert ours.moments is not None
    assert dense.moments is not None
    assert ours.moments.v_log_v == pytest.approx(dense.moments.v_log_v, abs=1e-12 * size)
    assert ours.moments.v_squared == pytest.approx(dense.moments.v_squared, rel=1e-12)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@settings(max_examples=30)
@given(case=cut_tensors(dtypes=PLAIN), data=st.data())
def test_statistics_are_those_of_the_dense_array(
    way: Way, case: tuple[NDArray[Any], tk.Partition], data: st.DataObject
) -> None:
    x, partition = case
    assert_same(tk.collect(way(x, data), partition, moments=True), x, partition)


@pytest.mark.parametrize("way", [mapped, chunked, stream, dask_array], ids=lambda way: way.__name__)
@settings(max_examples=30)
@given(case=cut_tensors(), data=st.data())
def test_any_type_and_layout(way: Way, case: tuple[NDArray[Any], tk.Partition], data: st.DataObject) -> None:
    x, partition = case
    before = x.copy()
    assert_same(tk.collect(way(x, data), partition, moments=True), x, partition)
    np.testing.assert_array_equal(x, before)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@settings(max_examples=15)
@given(x=tensors(dtypes=PLAIN), y=st.data(), data=st.data())
def test_distances_are_those_of_the_dense_array(
    way: Way, x: NDArray[Any], y: st.DataObject, data: st.DataObject
) -> None:
    """Of models of another tensor too, and of models that are no blocks."""
    other = x.astype(np.float64) + 1
    blocks = tk.ltr(other, blocks=data.draw(partitions(x.shape)))
    for model in (blocks, tk.Tucker(blocks.core, blocks.factors)):
        total = float(x.sum(dtype=np.float64)) + float(other.sum())
        assert model.kl(way(x, y)) == pytest.approx(model.kl(x), abs=1e-11 * total * (1 + np.log(total)))
        expected = model.relative_error(x)
        found = model.relative_error(way(x, y))
        # the square of the error is a difference where only entries are known
        assert found == pytest.approx(expected, rel=1e-9, abs=1e-7 * (expected or 1) if np.isfinite(expected) else 0)


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
@settings(max_examples=10)
@given(x=tensors(min_dims=2, max_dims=4, dtypes=PLAIN), data=st.data())
def test_searches_and_curves(way: Way, x: NDArray[Any], data: st.DataObject) -> None:
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    start = tk.ltr(x, rank, blocks="uniform").kl(x)
    slack = 1e-9 * float(x.sum(dtype=np.float64)) + 1e-12
    strategies: tuple[Any, ...] = ("segments", "clusters")
    for blocks in strategies:
        model = tk.ltr(way(x, data), rank, blocks=blocks)
        assert model.rank == tuple(rank)
        assert model.kl(x) <= start + slack
    curve, dense = tk.information_curve(way(x, data)), tk.information_curve(x)
    assert curve.total == pytest.approx(dense.total, rel=1e-12)
    assert curve.joint[0].kl == pytest.approx(dense.joint[0].kl, abs=slack)
    assert curve.joint[-1].kl == pytest.approx(dense.joint[-1].kl, abs=slack)


@settings(max_examples=30)
@given(x=tensors(min_dims=2, max_dims=3, dtypes=("<f8",)), data=st.data())
def test_sparse_unfoldings(x: NDArray[Any], data: st.DataObject) -> None:
    """Held sparse, they lead to blocks as good as those from dense ones, by the same steps."""
    rank = [data.draw(st.integers(1, size)) for size in x.shape]
    source = tk.from_entries(*raw(x, data))
    partition = tk.Partition.uniform(x.shape, rank)
    modes = range(x.ndim)
    dense = Search(source, Run()).unfoldings(partition, modes)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search, "DENSE_CELLS", 0)
        patch.setattr(segments, "DENSE_CELLS", 0)
        sparse = Search(source, Run()).unfoldings(partition, modes)
        for mode, (rows, expected) in enumerate(zip(sparse, dense)):
            np.testing.assert_allclose(rows.toarray(), expected, rtol=1e-12, atol=0)
            blocks = partition[mode]
            np.testing.assert_allclose(add_rows(rows, blocks), add_rows(expected, blocks), rtol=1e-12)
            kept = information_kept(expected, partition, mode, blocks)
            for strategy in (Segments(), Clusters()):
                patch.setattr(segments, "DENSE_CELLS", 1 << 20)
                better = strategy.improve(rows, blocks, 1)
                assert better.rank == blocks.rank
                assert information_kept(expected, partition, mode, better) >= kept - 1e-12 or strategy.contiguous
                patch.setattr(segments, "DENSE_CELLS", 0)
        model = tk.ltr(source, rank, blocks="clusters")
    assert model.kl(x) <= tk.ltr(x, rank, blocks="uniform").kl(x) + 1e-9 * (x.sum() + 1)


@given(case=cut_tensors(max_dims=3), data=st.data())
def test_parts_merge_in_any_tree(case: tuple[NDArray[Any], tk.Partition], data: st.DataObject) -> None:
    """What a cluster does: sums of boxes of the tensor, added in any order and grouping."""
    x, partition = case
    source = chunked(x, data)
    reduction = passes.BlockSums((partition,), 1.0)
    parts = [reduction.of(chunk, 1) for chunk in source.chunks(False)]
    parts = data.draw(st.permutations(parts))
    while len(parts) > 1:
        few = data.draw(st.integers(2, len(parts)))
        parts = [reduction.merge(parts[:few]), *parts[few:]]
    sums: Sums = reduction.total(parts)[0].sums
    dense = kernels.block_sums(x, partition)
    np.testing.assert_allclose(sums.core, dense.core, rtol=1e-12, atol=0)
    for marginal, expected in zip(sums.marginals, dense.marginals):
        np.testing.assert_allclose(marginal, expected, rtol=1e-12, atol=0)


@given(x=tensors(dtypes=("<f8",)), data=st.data())
def test_coalesced_entries_are_distinct(x: NDArray[Any], data: st.DataObject) -> None:
    coords, values = entries(x, data)
    found = coalesce(
        Entries([indices[part] for indices in coords], values[part], x.shape)
        for part in np.array_split(np.arange(len(values)), data.draw(st.integers(1, 3)))
    )
    assert len(set(zip(*(indices.tolist() for indices in found.coords)))) == len(found.values)
    dense = np.zeros(x.shape)
    dense[tuple(found.coords)] = found.values
    np.testing.assert_allclose(dense, x, rtol=1e-15)
    # where the places are too many to be numbered
    huge = coalesce([Entries([indices.astype(np.int64) for indices in coords], values, (2**40,) * x.ndim)])
    np.testing.assert_array_equal(np.array(huge.coords), np.array(found.coords))


@settings(max_examples=50)
@given(x=tensors(dtypes=("<f8", "u1")), data=st.data())
def test_streams_of_unknown_length(x: NDArray[Any], data: st.DataObject) -> None:
    mode = data.draw(st.integers(0, x.ndim - 1))
    slabs = np.split(x, np.cumsum(cut(x.shape[mode], data))[:-1], axis=mode)
    rank = [None if k == mode else data.draw(st.integers(1, size)) for k, size in enumerate(x.shape)]
    statistics = tk.collect(tk.Stream(iter(slabs), mode), rank, moments=True)
    assert_same(statistics, x, tk.Partition.uniform(x.shape, rank))
    parts = [tk.collect(slab, rank) for slab in slabs if slab.size]
    whole = parts[0]
    for part in parts[1:]:
        whole = whole.append(part, mode)
    np.testing.assert_allclose(whole.core, statistics.core)
    with pytest.MonkeyPatch.context() as patch:
        most = data.draw(st.integers(1, x.size))
        patch.setattr(collecting, "FINE_CELLS", most)
        sketch = collecting.read_finely(tk.Stream(iter(slabs), mode), Run())
    assert_same(sketch, x, sketch.partition)
    assert sketch.core.size <= max(most, 1)


def test_a_stream_is_read_once() -> None:
    slabs = tk.Stream(iter([np.ones((2, 3))] * 2))
    assert tk.collect(slabs, (None, 1)).total == 12
    with pytest.raises(ValueError, match="the slabs can be read only once"):
        tk.collect(slabs, (None, 1))
    again = tk.Stream([np.ones((2, 3))] * 2)
    assert tk.collect(again, (None, 1)) == tk.collect(again, (None, 1))


def test_pages_of_a_private_mapping_are_kept(tmp_path: Path) -> None:
    """What was written to a copy-on-write mapping exists nowhere but in memory."""
    np.save(tmp_path / "x.npy", np.ones((64, 1024)))
    private = np.load(tmp_path / "x.npy", mmap_mode="c")
    private[5] = 3.0
    for _ in range(2):
        assert tk.collect(private, 1).total == private.sum() == 63 * 1024 + 3 * 1024
    shared = np.load(tmp_path / "x.npy", mmap_mode="r+")
    shared[5] = 2.0
    assert tk.collect(shared, 1).total == shared.sum() == 63 * 1024 + 2 * 1024


@pytest.mark.parametrize("way", [mapped, chunked, raw, stream, dask_array], ids=lambda way: way.__name__)
@settings(max_examples=10)
@given(x=tensors(min_dims=2, max_dims=3, dtypes=("<f8",)), data=st.data())
def test_progress_is_reported_for_every_chunk(way: Way, x: NDArray[Any], data: st.DataObject) -> None:
    steps: list[tk.Progress] = []
    source = way(x, data)
    tk.collect(source, tk.Partition.uniform(x.shape, 1), progress=steps.append)
    last = steps[-1]
    assert last.bytes == sum(step.new_bytes for step in steps)
    assert [step.chunks for step in steps] == list(range(1, len(steps) + 1)) or way is dask_array
    if way in (mapped, chunked, dask_array):
        assert (last.chunks, last.bytes) == (last.n_chunks, x.nbytes)
        assert last.n_bytes == x.nbytes


def test_delayed(kernel: str) -> None:
    da = pytest.importorskip("dask.array")

    assert kernel
    x = np.random.default_rng(0).random((8, 9))
    array = da.from_array(x, chunks=3)
    partition = tk.Partition.uniform(x.shape, (2, 3))
    promised = tk.collect(array, partition, moments=True, compute=False)
    assert hasattr(promised, "dask")
    assert_same(promised.compute(), x, partition)
    model = promised.project().compute()
    np.testing.assert_allclose(model.core, tk.ltr(x, blocks=partition).core, rtol=1e-12)


def test_dask_of_sparse_chunks() -> None:
    da = pytest.importorskip("dask.array")
    sparse = pytest.importorskip("sparse")

    x = np.random.default_rng(0).poisson(0.3, (12, 10)).astype(float)
    array = da.from_array(x, chunks=(5, 4)).map_blocks(sparse.COO)
    partition = tk.Partition.uniform(x.shape, 3)
    assert_same(tk.collect(array, partition, moments=True), x, partition)
    model = tk.ltr(array, 3)
    assert model.kl(array) == pytest.approx(model.kl(x))
    assert model.relative_error(array) == pytest.approx(model.relative_error(x))


X = np.random.default_rng(0).poisson(1.0, (6, 5, 4)).astype(np.float64)


def test_chunks_of_dask_must_be_what_the_array_declares() -> None:
    da = pytest.importorskip("dask.array")
    sparse = pytest.importorskip("sparse")

    array = da.from_array(X, chunks=3)
    model = tk.ltr(X, 2)
    for wrong, message in (
        (lambda block: block[:1], r"chunk x\[\d:\d, \d:\d, \d:\d\] came with shape \(1, \d, \d\); it should be \(3,"),
        (lambda block: np.concatenate([block] * 8), r"came with shape \(24,"),
        (lambda block: sparse.COO.from_numpy(np.concatenate([block] * 2)), r"came with shape \(6,"),
        (lambda block: block.astype(object), "and dtype object; give real numbers"),
        (lambda block: block * 1j, "and dtype complex128; give real numbers"),
        (
            lambda block: np.ma.masked_greater(block, 0),
            "has masked entries; fill them with estimates, .*: zeros",
        ),
        (lambda block: sparse.COO.from_numpy(block + 1, fill_value=1.0), "has fill value 1.0"),
    ):
        bad = array.map_blocks(wrong, dtype=float)
        with pytest.raises((TypeError, ValueError), match=message):
            tk.collect(bad, 2)
        with pytest.raises((TypeError, ValueError), match=message):
            model.relative_error(bad)


def test_small_index_types_do_not_wrap() -> None:
    da = pytest.importorskip("dask.array")
    sparse = pytest.importorskip("sparse")

    x = np.random.default_rng(0).poisson(0.3, (200, 6)).astype(np.float64)

    def as_coo(block: Any) -> Any:
        where = np.nonzero(block)
        return sparse.COO(np.array(where), block[where], shape=block.shape, idx_dtype=np.int8)

    array = da.from_array(x, chunks=(100, 6)).map_blocks(as_coo)
    np.testing.assert_array_equal(tk.collect(array, (None, 1)).marginals[0], x.sum(axis=1))


def test_streams_of_sparse_slabs() -> None:
    sparse = pytest.importorskip("sparse")

    coo = sparse.COO.from_numpy(X)
    model = tk.ltr(X, 2)
    for each in (model, tk.Tucker(model.core, model.factors)):
        assert each.kl(iter([coo[:3], coo[3:]])) == pytest.approx(each.kl(X))
        assert each.relative_error(iter([coo[:3], coo[3:]])) == pytest.approx(each.relative_error(X))
        with pytest.raises(TypeError, match="x came in 1 dense and 1 sparse chunks; give all of one kind"):
            each.relative_error(iter([coo[:3], X[3:]]))
    huge = tk.from_entries(([0, 99999], [0, 499], [3, 4]), [1.0, 2.0], (100000, 500, 500))
    assert tk.ltr(iter([huge]), 2).core.sum() == 3


def test_streams_behave_like_arrays() -> None:
    xr = pytest.importorskip("xarray")

    def slabs(x: Any = X) -> Iterator[Any]:
        return iter([x[:2], x[2:4], x[4:]])

    with pytest.raises(ValueError, match="mode 0: the stream grows it, so that it cannot be cut into 2"):
        tk.collect(slabs(), 2)
    partition = tk.Partition.uniform(X.shape, (4, 3, 2))
    assert tk.ltr(slabs(), blocks=partition) == tk.ltr(X, blocks=partition)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(collecting, "FINE_CELLS", 3)
        with pytest.raises(ValueError, match="mode 0: its 6 indices are too many to be left whole"):
            tk.ltr(slabs(), (None, 1, 1), blocks="uniform")
    named = xr.DataArray(X, dims=("t", "a", "b"), coords={"a": list("vwxyz")})
    grown = tk.collect(slabs(named), {"a": 2})
    assert grown.rank == (6, 2, 4)
    assert grown.axes == tk.Axes(("t", "a", "b"), (None, list("vwxyz"), None))
    assert tk.collect(slabs(named), tk.Partition.uniform(X.shape, 2)).axes == grown.axes
    assert tk.collect(tk.Stream([named[:2], named[2:]], "t"), (None, 2, 2)).shape == X.shape
    assert tk.collect(slabs(), {0: None, 1: 2}).rank == (6, 2, 4)
    bad = X.copy()
    bad[4, 3, 2] = -1
    for call in (lambda: tk.collect(slabs(bad), (None, 2, 2)), lambda: tk.ltr(slabs(bad), 2)):
        with pytest.raises(ValueError, match=r"x\[4, 3, 2\] is -1.0"):
            call()
    where = np.nonzero(bad[2:])
    parts = [tk.from_entries(np.nonzero(X[:2]), X[:2][np.nonzero(X[:2])], (2, 5, 4))]
    parts += [tk.from_entries(where, bad[2:][where], (4, 5, 4))]
    with pytest.raises(ValueError, match=r"x\[4, 3, 2\] is -1.0"):
        tk.ltr(X, 2).kl(iter(parts))
    with pytest.raises(ValueError, match=r"slab 1 has shape \(2, 4\)"):
        tk.collect(iter([X[:2], X[0, :2]]), (None, 2, 2))
    with pytest.raises(ValueError, match=r"slab 1 has shape \(2, 5, 3\), but the first has \(2, 5, 4\)"):
        tk.collect(iter([X[:2], X[:2, :, :3]]), (None, 2, 2))
    with pytest.raises(ValueError, match="the 2 slabs fill 4 of the 6 indices of mode 0"):
        tk.collect(iter([X[:2], X[2:4]]), partition)
    with pytest.raises(ValueError, match="starts at index 4 of mode 0; it does not fit"):
        tk.collect(iter([X[:4], X[:4]]), partition)
    with pytest.raises(ValueError, match="the stream holds no slab"):
        tk.collect(iter([]), (None, 2))
    with pytest.raises(TypeError, match=r"mode: cannot use 1\.5 of type float"):
        tk.Stream([X], 1.5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match=r"slab 0 has shape \(6, 5, 4\): mode 3 is out of range for 3 modes"):
        tk.collect(tk.Stream([X], 3), (None, 2, 2))


def test_empty_chunks_beside_tiny_numbers() -> None:
    da = pytest.importorskip("dask.array")

    x = np.zeros((4, 4))
    x[2:] = 1e-170 * np.arange(1, 9).reshape(2, 4)
    model = tk.ltr(x, 1)
    for other in (da.from_array(x, chunks=2), iter([x[:2], x[2:]])):
        assert model.relative_error(other) == pytest.approx(model.relative_error(x))


def test_sums_that_are_too_large_on_a_cluster() -> None:
    da = pytest.importorskip("dask.array")

    array = da.from_array(np.full((4, 4), 1e308), chunks=1)
    promised = tk.collect(array, 4, compute=False)
    calls: list[Callable[[], Any]] = [lambda: tk.collect(array, 4), promised.compute]
    for call in calls:
        with pytest.raises(ValueError, match="the sum of x is too large for float64"):
            call()


def test_nobody_goes_on_reading_after_an_error() -> None:
    import threading

    x = np.ones((90, 80, 60))
    x[77, 66, 55] = -1
    source = Chunked(x, (10, 10, 10), memory=1 << 16)
    before = threading.active_count()
    with pytest.raises(ValueError, match=r"x\[77, 66, 55\] is -1") as kept:
        tk.collect(source, 2)
    assert threading.active_count() == before
    assert kept.value


def test_small_files_are_searched_in_memory(tmp_path: Path) -> None:
    """Where nothing is gained by reading once a sweep, the blocks are those of the array."""
    np.save(tmp_path / "x.npy", X)
    reads: list[tk.Progress] = []
    found = tk.ltr(np.load(tmp_path / "x.npy", mmap_mode="r"), 2, progress=reads.append)
    assert found == tk.ltr(X, 2)
    assert found == tk.ltr(Chunked(X, (2, 2, 2)), 2)


def test_labelled_arrays() -> None:
    sparse = pytest.importorskip("sparse")
    xr = pytest.importorskip("xarray")

    named = xr.DataArray(X, dims=("t", "a", "b"), coords={"a": list("vwxyz")})
    assert tk.ltr(named, 2).axes == tk.Axes(("t", "a", "b"), (None, list("vwxyz"), None))
    assert tk.ltr(named, 2, variant="published", rng=0).axes == tk.ltr(named, 2).axes
    assert tk.ntd(named, 2).model.axes == tk.ltr(named, 2).axes
    assert tk.ntd(named, init=tk.ltr(named, 2)).model.axes == tk.ltr(named, 2).axes
    held = xr.DataArray(sparse.COO.from_numpy(X), dims=("t", "a", "b"))
    assert isinstance(tk.open(held), type(tk.from_entries(([0],), [1], (1,))))
    missing = xr.DataArray(X, dims=list("abc"), coords={"a": [1, 2, 3, 4, 5, np.nan]})
    statistics = tk.collect(missing, 2)
    assert (statistics + statistics).total == 2 * X.sum()
    for name in ("core", "block_t", "factor_t"):
        dataset = tk.ltr(named.rename(a=name), 2).to_xarray()
        assert dataset[name].to_numpy().tolist() == list("vwxyz")
    plain = tk.ltr(X, 2).to_xarray()
    assert plain["factor_mode_0"].dims == ("mode_0", "block_mode_0")
    with pytest.raises(TypeError, match="x is a Dataset of 1 variables, 'v'; give one of them, as with x"):
        tk.ltr(xr.Dataset({"v": named}), 2)
    assert tk.ltr(((1, 2), (3, 4), (5, 6)), 1).shape == (3, 2)


def test_a_labelled_array_in_a_file_is_read_in_boxes(tmp_path: Path) -> None:
    """Fails if the private attributes of xarray change that say whether an array has been loaded."""
    xr = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")

    xr.DataArray(X, dims=list("abc"), name="v").to_netcdf(tmp_path / "x.nc", engine="h5netcdf")
    with xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as data:
        assert type(tk.open(data["v"])) is Chunked
        assert tk.collect(data["v"], 1).total == X.sum()
        assert type(tk.open(data["v"])) is Chunked  # a pass does not load it either
        assert type(tk.open(data["v"].load())) is Array
    assert type(tk.open(xr.DataArray(X))) is Array


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((([0], [0]), [1.0], (2.9, 4)), "shape: cannot use (2.9, 4)"),
        ((([], []), [], (-2, 4)), "shape: cannot use (-2, 4)"),
        ((([0],), [1.0], 5), "shape: cannot use 5"),
        ((([0], [5]), [1.0], (2, 4)), "entry 0 of coords has index 5 in mode 1; its size is 4"),
        ((([0, -1], [0, 0]), [1.0, 1.0], (2, 4)), "entry 1 of coords has index -1 in mode 0"),
        ((([0.5], [0]), [1.0], (2, 4)), "coords: mode 0 has indices of float64"),
        ((([0], [0], [0]), [1.0], (2, 4)), "coords: got shape [(1,), (1,), (1,)] for 1 values of a tensor of 2 modes"),
        (
            (np.zeros((2, 2), int), [1.0, 1.0], (2, 4)),
            "its rows may be entries or modes; give 2 arrays of 2 ints",
        ),
        ((([0], [0]), [[1.0]], (2, 4)), "values: got shape (1, 1)"),
        ((([0], [0]), ["a"], (2, 4)), "give real numbers"),
    ],
)
def test_bad_entries(arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises((ValueError, TypeError, IndexError)) as caught:
        tk.from_entries(*arguments)
    assert message in str(caught.value)


def test_negative_duplicates_are_not_hidden_in_their_sum() -> None:
    source = tk.from_entries(([1, 1], [2, 2]), [5.0, -1.0], (2, 4))
    for moments in (False, True):
        with pytest.raises(ValueError, match=r"x\[1, 2\] is -1.0"):
            tk.collect(source, 1, moments=moments)


def test_small_arrays_of_dask_are_not_cut_too_fine() -> None:
    """A search goes over them again and again: in few chunks, kept where the work is done."""
    da = pytest.importorskip("dask.array")

    x = np.random.default_rng(0).random((40, 40))
    source = tk.open(da.from_array(x, chunks=2))
    assert source.n_chunks == 400
    assert source.load_if_small().n_chunks == 1
    assert tk.ltr(da.from_array(x, chunks=2), 5).kl(x) <= tk.ltr(x, 5, blocks="uniform").kl(x)
    with pytest.raises(TypeError, match="compute=False is for dask arrays, not for streams"):
        tk.collect(iter([x]), (None, 2), compute=False)


def test_chunks_of_the_wrong_shape_are_refused() -> None:
    class Liar:
        shape, dtype = (6, 5), np.dtype(float)

        def __getitem__(self, box: Any) -> Any:
            return np.ones((1, 5))

    with pytest.raises(ValueError, match=r"x\[0:2, 0:5\] was read as float64 of shape \(1, 5\); it should be float64"):
        tk.collect(Chunked(Liar(), (2, 5), memory=1 << 9), 1)


def test_a_bar_of_tqdm() -> None:
    import io

    tqdm = pytest.importorskip("tqdm").tqdm

    x = np.ones((40, 30))
    with tqdm(total=x.nbytes, unit="B", unit_scale=True, file=io.StringIO()) as bar:
        tk.collect(Chunked(x, (4, 30), memory=1 << 12), 2, progress=lambda step: bar.update(step.new_bytes))
        assert bar.n == x.nbytes
