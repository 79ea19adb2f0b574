"""Files of many formats as sources, each read by the package that is made for it."""

from __future__ import annotations

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.boxes import Box
from tucket.base.optional import import_optional
from tucket.sources.as_source import as_source
from tucket.sources.chunked import Chunked
from tucket.sources.columns import Bins
from tucket.sources.dense import Array, Mapped, as_tensor
from tucket.sources.errors import FileFormatError, close_on_error, explain_read_errors
from tucket.sources.from_entries import from_entries
from tucket.sources.from_parquet import from_parquet
from tucket.sources.images import IMAGES, open_image, open_tiff
from tucket.sources.source import Source
from tucket.sources.table import Table, read_batches


def _open_npy(path: Path, memory: int | None = None) -> Source:
    array = as_tensor(np.load(path, mmap_mode="r", allow_pickle=False), str(path))
    return Mapped(array, memory=memory)


def _open_npz(path: Path, key: str | None = None, memory: int | None = None) -> Source:
    with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:
        if "format" in archive.files and archive["format"].shape == () and archive["format"].item() == "tucket":
            kind = archive["kind"].item()
            reader = "tucket.Statistics.load" if kind == "Statistics" else "tucket.load"
            raise FileFormatError(f"{path} is not a tensor but a saved {kind}; read it with {reader}")
        if key is None and {"coords", "values", "shape"} <= set(archive.files):
            coords, values, shape = (archive[name] for name in ("coords", "values", "shape"))
            if coords.shape == (len(values), len(shape)):
                coords = coords.T
            source: Source = from_entries(tuple(coords), values, tuple(shape.tolist()))
        else:
            name = _choose(path, archive.files, key)
            mapped = _map_member(path, name)
            array = as_tensor(archive[name] if mapped is None else mapped, f"{path}[{name}]")
            source = Array(array) if mapped is None else Mapped(array, memory=memory)
        names = archive["mode_names"] if "mode_names" in archive.files else None
        labels = [archive[f"labels_{k}"] if f"labels_{k}" in archive.files else None for k in range(len(source.shape))]
    if key in (None, "tensor") and (names is not None or any(each is not None for each in labels)):
        source.axes = Axes._of(names, labels, source.shape)
    return source


def _map_member(path: Path, name: str) -> NDArray[Any] | None:
    """Map an array of an archive into memory; return None if it is compressed."""
    with zipfile.ZipFile(path) as archive:
        info = archive.getinfo(f"{name}.npy")
        if info.compress_type != zipfile.ZIP_STORED:
            return None
        with archive.open(info) as member:
            version = np.lib.format.read_magic(member)
            read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
            shape, fortran, dtype = read(member)
            skipped = member.tell()
    if dtype.hasobject or 0 in shape:
        return None
    with path.open("rb") as file:  # only the local header says how long it is, not the index of the archive
        file.seek(info.header_offset + 26)
        lengths = int.from_bytes(file.read(2), "little") + int.from_bytes(file.read(2), "little")
    start = info.header_offset + 30 + lengths + skipped
    return np.memmap(path, dtype, "r", start, shape, "F" if fortran else "C")


def _choose(path: Path, names: Iterable[str], key: str | None) -> str:
    """Choose one of the arrays of a file: the given key, the array called `tensor`, or the only one."""
    found = list(names)
    if key is not None:
        if key not in found:
            raise FileFormatError(f"{path} has no array {key!r}; it has {', '.join(map(repr, found)) or 'none'}")
        return key
    candidates = ["tensor"] if "tensor" in found else found
    if len(candidates) != 1:
        names = ", ".join(map(repr, found)) or "none"
        raise FileFormatError(f"{path} holds {len(found)} arrays, {names}; choose one, as with key=...")
    return candidates[0]


def _open_zarr(path: Path, key: str | None = None, memory: int | None = None) -> Source:
    zarr = import_optional("zarr", "files", "this file")
    stored = zarr.open(path, mode="r")
    if isinstance(stored, zarr.Array):
        if key is not None:
            raise FileFormatError(f"key: {path} is a single array, not a group that holds {key!r}; leave key out")
        return as_source(stored, str(path), memory)
    names = (name for name, member in stored.members(max_depth=None) if isinstance(member, zarr.Array))
    return as_source(stored[_choose(path, names, key)], str(path), memory)


def _open_hdf5(path: Path, key: str | None = None, memory: int | None = None) -> Source:
    h5py = import_optional("h5py", "files", "this file")
    names: list[str] = []

    def add(name: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.shape and name[0] != "#":  # groups of MATLAB begin with #
            names.append(name)

    with close_on_error(h5py.File(path, "r")) as file:
        file.visititems(add)
        stored = file[_choose(path, names, key)]
        if path.suffix.lower() != ".mat":
            return Chunked(stored, stored.chunks, None, str(path), memory, file)
        chunks = stored.chunks and stored.chunks[::-1]
        return Chunked(_Reversed(stored), chunks, None, str(path), memory, file)


def _open_matlab(path: Path, key: str | None = None, memory: int | None = None) -> Source:
    from scipy.io import loadmat, whosmat

    try:
        names = [name for name, *_ in whosmat(path)]
    except NotImplementedError:  # version 7.3 is HDF5
        return _open_hdf5(path, key, memory)
    name = _choose(path, names, key)
    return as_source(loadmat(path, variable_names=[name])[name], f"{path}[{name}]", memory)


class _Reversed:
    """An array of MATLAB in HDF5, which has its modes in reverse order."""

    def __init__(self, array: Any) -> None:
        self.array, self.shape, self.dtype = array, array.shape[::-1], array.dtype

    def __getitem__(self, box: Box) -> Any:
        return self.array[box[::-1]].T


TNS_ROWS = 1 << 20
"""Lines of a text file that are parsed at a time."""


def _open_tns(path: Path, shape: Sequence[int] | None = None, modes: Sequence[str] | None = None) -> Source:
    pandas = import_optional("pandas", "files", "this file")
    coords: list[NDArray[Any]] = []
    values: list[NDArray[Any]] = []
    with pandas.read_csv(path, sep=r"\s+", header=None, comment="#", chunksize=TNS_ROWS) as reader:
        for part in reader:
            first = sum(map(len, values))
            rows = part.to_numpy(np.float64)  # exact for indices up to 2**53
            bad = ~(
                np.isfinite(rows).all(axis=1) & (rows[:, :-1] >= 1).all(axis=1) & (rows[:, :-1] % 1 == 0).all(axis=1)
            )
            if bad.any():
                at = int(np.argmax(bad))
                raise FileFormatError(
                    f"{path}: entry {first + at} reads {' '.join(map(str, part.iloc[at].tolist()))}; "
                    f"give indices that start at 1, and a finite value"
                )
            coords.append(rows[:, :-1].T.astype(np.int64) - 1)
            values.append(rows[:, -1].copy())
    indices, weights = np.concatenate(coords, axis=1), np.concatenate(values)
    sizes = tuple((indices.max(axis=1) + 1).tolist()) if shape is None else tuple(shape)
    return from_entries(tuple(indices), weights, sizes, modes=modes)


def _open_csv(
    path: Path, modes: Sequence[str] = (), value: str | None = None, bins: Mapping[str, Bins] | None = None
) -> Source:
    csv = import_optional("pyarrow.csv", "files", "this file")

    def batches() -> Iterator[Any]:
        with explain_read_errors(path):
            reader = csv.open_csv(path)
        with reader:
            yield from read_batches(path, iter(reader))

    with csv.open_csv(path) as reader:
        names = reader.schema.names
    return Table(batches, names, modes, value, bins, str(path))


def _open_parquet(
    path: Path,
    modes: Sequence[str] = (),
    value: str | None = None,
    bins: Mapping[str, Bins] | None = None,
    memory: int | None = None,
) -> Source:
    return from_parquet(path, modes, value, bins=bins, memory=memory)


def _open_netcdf(path: Path, key: str | None = None, memory: int | None = None) -> Source:
    xarray = import_optional("xarray", "files", "this file")
    with path.open("rb") as file:
        engine = "scipy" if file.read(3) == b"CDF" else "h5netcdf"  # the classic format, or HDF5
    import_optional(engine, "files", "this file")
    with close_on_error(xarray.open_dataset(path, engine=engine)) as data:
        source = as_source(data[_choose(path, map(str, data.data_vars), key)], str(path), memory)
        if isinstance(source, Chunked):
            source.closing = data
        return source


READERS: Mapping[str, Callable[..., Source]] = {
    ".npy": _open_npy,
    ".npz": _open_npz,
    ".zarr": _open_zarr,
    ".h5": _open_hdf5,
    ".hdf5": _open_hdf5,
    ".nc": _open_netcdf,
    ".mat": _open_matlab,
    ".tns": _open_tns,
    ".tns.gz": _open_tns,
    ".csv": _open_csv,
    ".csv.gz": _open_csv,
    ".parquet": _open_parquet,
    ".tif": open_tiff,
    ".tiff": open_tiff,
    **dict.fromkeys(IMAGES[:-2], open_image),
}
