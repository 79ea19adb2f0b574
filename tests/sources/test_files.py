"""Every kind of file opens with one call, and gives the tensor that was written."""

from __future__ import annotations

import gzip
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tucket as tk

X = np.random.default_rng(0).poisson(2.0, (6, 5, 4)).astype(np.float64)


def write_npy(folder: Path) -> Path:
    np.save(folder / "x.npy", X)
    return folder / "x.npy"


def write_fortran(folder: Path) -> Path:
    np.save(folder / "x.npy", np.asfortranarray(X))
    return folder / "x.npy"


def write_npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", X)
    return folder / "x.npz"


def write_fortran_npz(folder: Path) -> Path:
    np.savez(folder / "x.npz", other=np.ones(3), tensor=np.asfortranarray(X))
    return folder / "x.npz"


def write_compressed_npz(folder: Path) -> Path:
    np.savez_compressed(folder / "x.npz", tensor=X)
    return folder / "x.npz"


def write_coo_npz(folder: Path) -> Path:
    coords = np.array(np.nonzero(X)).T.astype(np.uint16)
    np.savez(folder / "x.npz", coords=coords, values=X[X > 0], shape=X.shape)
    return folder / "x.npz"


def write_zarr(folder: Path) -> Path:
    zarr = pytest.importorskip("zarr")

    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(2, 3, 4), dtype=X.dtype)
    array[...] = X
    return folder / "x.zarr"


def write_zarr_group(folder: Path) -> Path:
    zarr = pytest.importorskip("zarr")

    group = zarr.open_group(folder / "x.zarr", mode="w", zarr_format=2)
    group.create_array("counts", shape=X.shape, chunks=(4, 4, 4), dtype="<f4")[...] = X
    return folder / "x.zarr"


def write_sharded_zarr(folder: Path) -> Path:
    zarr = pytest.importorskip("zarr")

    array = zarr.create_array(folder / "x.zarr", shape=X.shape, chunks=(1, 5, 2), shards=(3, 5, 4), dtype=X.dtype)
    array[...] = X
    return folder / "x.zarr"


def write_hdf5(folder: Path) -> Path:
    h5py = pytest.importorskip("h5py")

    with h5py.File(folder / "x.h5", "w") as file:
        file.create_dataset("deep/counts", data=X, chunks=(2, 2, 2), compression="gzip")
    return folder / "x.h5"


def write_netcdf(folder: Path) -> Path:
    xr = pytest.importorskip("xarray")

    xr.Dataset({"counts": (("a", "b", "c"), X)}, {"b": list("vwxyz")}).to_netcdf(folder / "x.nc", engine="h5netcdf")
    return folder / "x.nc"


def write_matlab(folder: Path) -> Path:
    from scipy.io import savemat

    savemat(folder / "x.mat", {"counts": X})
    return folder / "x.mat"


def write_new_matlab(folder: Path) -> Path:
    """As version 7.3 does: a block of 512 bytes for MATLAB, then HDF5 with the modes in reverse."""
    h5py = pytest.importorskip("h5py")

    with h5py.File(folder / "x.mat", "w", userblock_size=512) as file:
        file.create_dataset("counts", data=X.T, chunks=(2, 2, 2))
    header = b"MATLAB 7.3 MAT-file".ljust(124) + b"\x00\x02IM"
    with (folder / "x.mat").open("r+b") as raw:
        raw.write(header)
    return folder / "x.mat"


def write_tns(folder: Path) -> Path:
    pytest.importorskip("pandas")
    lines = [f"{i + 1} {j + 1} {k + 1} {X[i, j, k]}" for i, j, k in np.argwhere(X)]
    (folder / "x.tns").write_text("# a comment\n" + "\n".join(lines) + "\n")
    return folder / "x.tns"


def write_tns_gz(folder: Path) -> Path:
    path = write_tns(folder)
    (folder / "x.tns.gz").write_bytes(gzip.compress(path.read_bytes()))
    return folder / "x.tns.gz"


def write_images(folder: Path) -> Path:
    image = pytest.importorskip("PIL.Image")

    (folder / "images").mkdir()
    (folder / "images" / "readme.txt").write_text("not an image")
    for number in range(12):  # 2 comes before 10
        image.fromarray(np.full((3, 4), number, np.uint8)).save(folder / "images" / f"frame{number}.png")
    return folder / "images"


def write_tiff(folder: Path) -> Path:
    tifffile = pytest.importorskip("tifffile")

    tifffile.imwrite(folder / "x.tif", X.astype(np.uint8), photometric="minisblack")
    return folder / "x.tif"


def write_compressed_tiff(folder: Path) -> Path:
    tifffile = pytest.importorskip("tifffile")

    tifffile.imwrite(folder / "x.tiff", X.astype(np.uint8), photometric="minisblack", compression="zlib")
    return folder / "x.tiff"


WRITERS = [
    write_npy, write_fortran, write_npz, write_fortran_npz, write_compressed_npz, write_coo_npz, write_zarr,
    write_zarr_group, write_sharded_zarr, write_hdf5, write_netcdf, write_matlab, write_new_matlab, write_tns,
    write_tns_gz, write_tiff, write_compressed_tiff,
]  # fmt: skip


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__[6:])
def test_a_file_is_what_was_written(write: Callable[[Path], Path], tmp_path: Path) -> None:
    path = write(tmp_path)
    for name in (path, str(path)):
        with tk.open(name) as source:
            assert source.shape == X.shape
            np.testing.assert_array_equal(tk.collect(source, None).core, X)
            model = tk.ltr(source, 3)
            assert model.kl(source) == pytest.approx(model.kl(X), rel=1e-12)
            assert str(X.shape) in repr(source) or source.axes


@pytest.mark.parametrize("write", WRITERS, ids=lambda write: write.__name__[6:])
def test_a_broken_file_is_refused(write: Callable[[Path], Path], tmp_path: Path) -> None:
    """Cut off in the middle: an error that names it, when it is opened or read, and nothing half-done."""
    path = write(tmp_path)
    if path.is_dir():
        path = max((each for each in path.rglob("*") if each.is_file() and "json" not in each.name), key=str)
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    opened = next(each for each in (path, *path.parents) if each.parent == tmp_path)
    if "tns" in path.name and path.suffix == ".tns":
        path.write_text("1 1\n1 2 3 4\n")
    with pytest.raises(ValueError, match=re.escape(opened.name)), tk.open(opened) as source:
        tk.collect(source, 1)


def test_files_that_are_no_such_thing(tmp_path: Path) -> None:
    for package in ("h5netcdf", "h5py", "pandas", "PIL", "tifffile", "xarray", "zarr"):
        pytest.importorskip(package)
    for name in (
        "x.npy", "x.npz", "x.h5", "x.nc", "x.mat", "x.tns", "x.tns.gz", "x.png", "x.tif", "x.zarr",
    ):  # fmt: skip
        (tmp_path / name).write_bytes(b"hello, this is not a tensor at all")
        with pytest.raises((ValueError, TypeError), match=re.escape(name)):
            tk.open(tmp_path / name)
        (tmp_path / name).write_bytes(b"")
        with pytest.raises((ValueError, TypeError), match=re.escape(name)):
            tk.open(tmp_path / name)


def test_images(tmp_path: Path) -> None:
    folder = write_images(tmp_path)
    source = tk.open(folder)
    assert source.shape == (12, 3, 4)
    assert tk.collect(source, None).marginals[0].tolist() == [12 * number for number in range(12)]
    assert source.axes is not None
    assert source.axes.names == ("image", "row", "column")
    assert source.axes.labels[0] is not None
    assert source.axes.labels[0][2] == "frame2.png"
    folded = tk.open(folder, shape=(3, 4), memory=1 << 16)
    assert folded.shape == (3, 4, 3, 4)
    assert tk.collect(folded, None).core[2, 1, 0, 0] == 9
    assert tk.open(folder / "frame3.png").shape == (3, 4)
    with pytest.raises(ValueError, match=r"12 images cannot be folded into \(5, 2\)"):
        tk.open(folder, shape=(5, 2))
    image = pytest.importorskip("PIL.Image")

    image.fromarray(np.zeros((2, 2), np.uint8)).save(folder / "frame5.png")
    with pytest.raises(ValueError, match=r"frame5.png is an image of uint8 of shape \(2, 2\), but frame0.png"):
        tk.collect(tk.open(folder), 1)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match=r"empty is a folder without images; give one with \.png"):
        tk.open(tmp_path / "empty")


def test_labels_of_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", tensor=X, mode_names=["a", "b", "c"], labels_1=list("vwxyz"))
    source = tk.open(tmp_path / "x.npz")
    assert source.axes == tk.Axes(("a", "b", "c"), (None, list("vwxyz"), None))
    assert tk.ltr(source, {"b": 2}).rank == (6, 2, 4)


def test_tables_in_files(tmp_path: Path) -> None:
    pytest.importorskip("pyarrow")
    text = "user,item,stars\nann,x,2\nbob,y,3\nann,y,1\n"
    (tmp_path / "x.csv").write_text(text)
    (tmp_path / "x.csv.gz").write_bytes(gzip.compress(text.encode()))
    for name in ("x.csv", "x.csv.gz"):
        source = tk.open(tmp_path / name, modes=["user", "item"], value="stars")
        assert tk.collect(source, None).core.tolist() == [[2, 1], [0, 3]]
    with pytest.raises(ValueError, match=r"modes: got none; .*x.csv has the columns 'user', 'item', 'stars'; say"):
        tk.open(tmp_path / "x.csv")
    with pytest.raises(ValueError, match=r"column 'movie' is missing in .*x.csv; it has 'user'"):
        tk.open(tmp_path / "x.csv", modes=["movie"])


def test_bad_calls(tmp_path: Path) -> None:
    pytest.importorskip("pandas")
    several = tmp_path / "several.npz"
    np.savez(several, a=np.ones((2, 3)), b=np.ones((2, 3)))
    assert tk.open(several, key="b").shape == (2, 3)
    stats = tk.collect(X, 2)
    stats.save(tmp_path / "stats.npz")
    tk.ltr(X, 2).save(tmp_path / "model.npz")
    write_npy(tmp_path)
    cases: list[tuple[type[Exception], str, Callable[[], Any]]] = [
        (FileNotFoundError, "there is no file none.npy", lambda: tk.open("none.npy")),
        (ValueError, "unknown file format '.xyz'; give one of .npy, .npz, .zarr", lambda: tk.open(unknown)),
        (ValueError, "holds 2 arrays, 'a', 'b'; choose one, as with key=", lambda: tk.open(several)),
        (ValueError, "has no array 'c'; it has 'a', 'b'", lambda: tk.open(several, key="c")),
        (TypeError, "key: not an option for x.npy; its options are memory", lambda: tk.open(npy, key="a")),
        (ValueError, "memory: got 'lots'; give at least 65536 bytes", lambda: tk.open(npy, memory="lots")),
        (ValueError, "memory: got 5; give at least 65536 bytes", lambda: tk.open(npy, memory=5)),
        (ValueError, "stats.npz is not a tensor but a saved Statistics", lambda: tk.open(tmp_path / "stats.npz")),
        (ValueError, "model.npz is not a tensor but a saved BlockTucker", lambda: tk.open(tmp_path / "model.npz")),
        (ValueError, "read it with tucket.Statistics.load", lambda: tk.load(tmp_path / "stats.npz")),
        (ValueError, "models are read by tucket.load", lambda: tk.Statistics.load(tmp_path / "model.npz")),
        (TypeError, "key: only for files; x is a ndarray", lambda: tk.open(X, key="a")),
        (ValueError, "entry 1 reads 0 2 3; give indices that start at 1", lambda: tk.open(zero_based)),
        (
            ValueError,
            "good.tns cannot be read: entry 0 of coords has index 2 in mode 1; its size is 2",
            lambda: tk.open(good, shape=(3, 2)),
        ),
        (TypeError, "dtype", lambda: tk.open(complex_)),
    ]
    unknown, npy, zero_based, good = (tmp_path / name for name in ("x.xyz", "x.npy", "zero.tns", "good.tns"))
    unknown.touch()
    zero_based.write_text("1 1 1\n0 2 3\n")
    good.write_text("1 3 1\n")
    complex_ = tmp_path / "complex.npy"
    np.save(complex_, X * 1j)
    for kind, message, call in cases:
        with pytest.raises(kind, match=re.escape(message)):
            call()


def test_objects_are_never_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{}, 1], object), allow_pickle=True)
    np.savez(tmp_path / "x.npz", tensor=np.array([{}, 1], object))
    for name in ("x.npy", "x.npz"):
        with pytest.raises(ValueError, match=name):
            tk.open(tmp_path / name)


def test_chunks_larger_than_memory(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")

    array = zarr.create_array(tmp_path / "x.zarr", shape=(1000, 1000), chunks=(500, 500), dtype="f8")
    with pytest.raises(ValueError, match=r"memory: got 1,000,000 .* chunks of 2,000,000 .* at least 8,000,000"):
        tk.open(tmp_path / "x.zarr", memory="1 MB")
    assert tk.open(array, memory=8_000_000).shape == (1000, 1000)


@pytest.mark.parametrize("kind", ["npy", "zarr", "h5"])
def test_bad_values_deep_inside_are_refused_with_their_place(kind: str, tmp_path: Path) -> None:
    x = np.ones((50, 40, 30))
    x[41, 7, 29] = np.nan
    path = tmp_path / f"x.{kind}"
    if kind == "npy":
        np.save(path, x)
    elif kind == "zarr":
        zarr = pytest.importorskip("zarr")

        zarr.create_array(path, shape=x.shape, chunks=(7, 9, 11), dtype=x.dtype)[...] = x
    else:
        h5py = pytest.importorskip("h5py")

        with h5py.File(path, "w") as file:
            file["x"] = x
    for work in (lambda source: tk.ltr(source, 3), lambda source: tk.collect(source, 2), tk.information_curve):
        with tk.open(path, memory=1 << 17) as source, pytest.raises(ValueError, match=r"x\[41, 7, 29\] is nan"):
            work(source)


@pytest.mark.parametrize(
    ("name", "shape", "total"),
    [
        ("uber_b02512.tns", (183, 24, 40, 40), 198673),
        ("movielens_small.npz", (671, 9066, 22), None),
        ("lf_dino_png", (81, 512, 512, 3), 7706151479),
        ("adult_7way.npz", (9, 16, 7, 15, 5, 2, 2), 32561),
        ("attface.npz", (92, 112, 400), 464221104),
        ("hangzhou_metro.npz", (80, 25, 108), 29248681),
    ],
)
def test_real_files_open_with_one_call(data: Path, name: str, shape: tuple[int, ...], total: int | None) -> None:
    if not name.endswith(".npz"):
        pytest.importorskip("pandas" if name.endswith(".tns") else "PIL")
    source = tk.open(data / name)
    assert source.shape == shape
    if total is None:
        with np.load(data / name) as archive:
            total = float(archive["values"].sum(dtype=np.float64))  # type: ignore[assignment]
    model = tk.ltr(source, [min(size, 5) for size in shape], blocks="uniform")
    assert float(model.core.sum()) == pytest.approx(total, rel=1e-12)
    assert np.isfinite(model.kl(source))


def test_real_light_field_is_folded(data: Path) -> None:
    pytest.importorskip("PIL")
    source = tk.open(data / "lf_dino_png", shape=(9, 9))
    assert source.shape == (9, 9, 512, 512, 3)
    model = tk.ltr(source, (3, 3, 60, 60, 1), blocks="uniform")
    assert f"{model.relative_error(source):.5f}" == "0.11543"
    assert f"{model.kl(source) / 7706151479:.6f}" == "0.008282"


@pytest.mark.parametrize("name", ["kinetic.npy", "il2_response.npy"])
def test_real_bad_values_are_refused(data: Path, name: str) -> None:
    with pytest.raises(ValueError, match=r"x\[\d+, \d+, \d+, \d+\] is (-|nan)"):
        tk.ltr(tk.open(data / name), 2)


def test_pages_of_a_tiff_are_not_mixed_up(tmp_path: Path) -> None:
    """Two threads read ahead, and the pages share a file."""
    tifffile = pytest.importorskip("tifffile")

    x = np.random.default_rng(0).poisson(3, (300, 64, 64)).astype(np.uint16)
    with tifffile.TiffWriter(tmp_path / "x.tif") as writer:
        for page in x:  # the way that makes a series of each
            writer.write(page, compression="zlib")
    with tk.open(tmp_path / "x.tif", memory=1 << 18) as source:
        assert source.shape == x.shape
        for _ in range(3):
            np.testing.assert_array_equal(tk.collect(source, (None, 1, 1)).core[:, 0, 0], x.sum(axis=(1, 2)))
    shape = (10, 30, 64, 64)
    tifffile.imwrite(
        tmp_path / "y.tif", x.reshape(shape), compression="zlib", photometric="minisblack", metadata={"axes": "TZYX"}
    )
    with tk.open(tmp_path / "y.tif", memory=1 << 18) as source:
        assert source.shape == shape
        assert source.n_chunks == 40
        np.testing.assert_array_equal(
            tk.collect(source, (None, None, 1, 1)).core[:, :, 0, 0], x.sum((1, 2)).reshape(10, 30)
        )
    with tifffile.TiffWriter(tmp_path / "z.tif") as writer:
        writer.write(x[0])
        writer.write(x[0, :5])
    with pytest.raises(ValueError, match=r"z.tif: page 1 is of uint16 of shape \(5, 64\), but page 0"):
        tk.open(tmp_path / "z.tif")


def test_classic_netcdf(tmp_path: Path) -> None:
    xr = pytest.importorskip("xarray")

    xr.DataArray(X, dims=list("abc"), name="v").to_netcdf(tmp_path / "x.nc", engine="scipy")
    with tk.open(tmp_path / "x.nc") as source:
        np.testing.assert_array_equal(tk.collect(source, None).core, X)


def test_arrays_deep_in_a_zarr_group(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")

    group = zarr.open_group(tmp_path / "x.zarr", mode="w")
    group.create_array("deep/one", shape=X.shape, chunks=(3, 3, 3), dtype=X.dtype)[...] = X
    group.create_array("deep/two", shape=(2, 2), chunks=(2, 2), dtype=X.dtype)
    np.testing.assert_array_equal(tk.collect(tk.open(tmp_path / "x.zarr", key="deep/one"), None).core, X)
    with pytest.raises(ValueError, match="holds 2 arrays"):
        tk.open(tmp_path / "x.zarr")
    zarr.create_array(tmp_path / "y.zarr", shape=X.shape, chunks=(3, 3, 3), dtype=X.dtype)
    with pytest.raises(ValueError, match=r"key: .*y.zarr is a single array"):
        tk.open(tmp_path / "y.zarr", key="nope")


def test_sparse_archives(tmp_path: Path) -> None:
    """As many entries as modes: by rows, as archives have them; with names."""
    np.savez(tmp_path / "x.npz", coords=[[0, 1], [1, 1]], values=[1.0, 2.0], shape=(2, 3), mode_names=["a", "b"])
    source = tk.open(tmp_path / "x.npz")
    assert tk.collect(source, None).core.tolist() == [[0, 1, 0], [0, 2, 0]]
    assert source.axes == tk.Axes(("a", "b"))
