"""Loaders of the paper's tensors: the original files, and errors about others."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import numpy as np
import pytest
from numpy.typing import NDArray

import tucket as tk
from tucket.sources import datasets

image = pytest.importorskip("PIL.Image")
pytest.importorskip("pooch")


def write_faces(root: Path, faces: NDArray[np.uint8]) -> Path:
    for number in range(400):
        file = root / f"s{number // 10 + 1}" / f"{number % 10 + 1}.pgm"
        file.parent.mkdir(parents=True, exist_ok=True)
        image.fromarray(np.ascontiguousarray(faces[:, :, number].T)).save(file)
    return root


def write_views(root: Path, views: NDArray[np.uint8]) -> Path:
    root.mkdir(parents=True)
    for number, view in enumerate(views.reshape(81, *views.shape[2:])):
        image.fromarray(view).save(root / f"input_Cam{number:03d}.png")
    return root


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve a folder on a loopback address."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(folder))) as server:
        Thread(target=server.serve_forever).start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()


def pack(folder: Path, archive: Path) -> None:
    with zipfile.ZipFile(archive, "w") as packed:
        for file in sorted(folder.rglob("*.p*")):
            packed.write(file, file.relative_to(folder.parent))


@pytest.fixture
def faces() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (92, 112, 400), np.uint8)


@pytest.fixture
def views() -> NDArray[np.uint8]:
    return np.random.default_rng(0).integers(0, 256, (9, 9, 5, 7, 3), np.uint8)


def test_faces_of_folders_and_archives(
    faces: NDArray[np.uint8], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_faces(tmp_path / "data" / "att_faces" / "orl", faces)
    np.testing.assert_array_equal(tk.datasets.attface(tmp_path / "data"), faces)
    monkeypatch.setenv("TUCKET_DATA", str(tmp_path / "data"))
    np.testing.assert_array_equal(tk.datasets.attface(), faces)
    np.savez(tmp_path / "data" / "attface.npz", tensor=faces[:, ::-1])
    np.testing.assert_array_equal(tk.datasets.attface(), faces[:, ::-1])


def test_views(views: NDArray[np.uint8], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = write_views(tmp_path / "training" / "dino", views)
    (scene / "objectids_lowres.png").write_bytes(b"not a view")
    np.testing.assert_array_equal(tk.datasets.lightfield(tmp_path), views)
    monkeypatch.setenv("TUCKET_DATA", str(scene.parent))
    np.testing.assert_array_equal(tk.datasets.lightfield(), views)
    np.savez(tmp_path / "any.npz", tensor=views)
    np.testing.assert_array_equal(tk.datasets.lightfield(tmp_path / "any.npz"), views)


def test_the_real_ones(data: Path) -> None:
    faces = tk.datasets.attface(data / "attface.npz")
    assert (faces.shape, faces.sum(dtype=np.int64)) == ((92, 112, 400), 464221104)
    views = tk.datasets.lightfield(data / "lf_dino_png")
    assert (views.shape, views.sum(dtype=np.int64)) == ((9, 9, 512, 512, 3), 7706151479)


def test_download(faces: NDArray[np.uint8], views: NDArray[np.uint8], tmp_path: Path, data: Path) -> None:
    (tmp_path / "site").mkdir()
    real = tk.datasets.attface(data / "attface.npz")
    pack(write_faces(tmp_path / "att_faces", real), tmp_path / "site" / "faces.zip")
    pack(write_faces(tmp_path / "others", faces), tmp_path / "site" / "others.zip")
    pack(write_views(tmp_path / "dino", views), tmp_path / "site" / "dino.zip")
    (tmp_path / "site" / "page.zip").write_text("<html>not found</html>")
    cache = tmp_path / "cache"
    with served(tmp_path / "site") as address:
        np.testing.assert_array_equal(tk.datasets.attface(cache, download=True, url=f"{address}/faces.zip"), real)
        np.testing.assert_array_equal(tk.datasets.lightfield(cache, download=True, url=f"{address}/dino.zip"), views)
        with pytest.raises(ValueError, match="not to 464221104"):
            tk.datasets.attface(cache, download=True, url=f"{address}/others.zip")
        with pytest.raises(ValueError, match="hash"):
            tk.datasets.lightfield(tmp_path, download=True, url=f"{address}/dino.zip", known_hash="sha256:" + "0" * 64)
        with pytest.raises(ValueError, match="got no zip archive"):
            tk.datasets.attface(cache, download=True, url=f"{address}/page.zip")
    again = tk.datasets.lightfield(cache, download=True, url=f"{address}/dino.zip")  # without a server
    np.testing.assert_array_equal(again, views)


def test_what_is_missing_is_named(views: NDArray[np.uint8], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TUCKET_DATA", raising=False)
    with pytest.raises(FileNotFoundError, match=r"attface: no path was given; .*att_faces\.zip.*Samaria"):
        tk.datasets.attface()
    with pytest.raises(FileNotFoundError, match=r"lightfield: there is no .*; .*CC BY-NC-SA.*Honauer"):
        tk.datasets.lightfield(tmp_path / "none")
    with pytest.raises(ValueError, match=r"url: lightfield\(download=True\) needs one"):
        tk.datasets.lightfield(download=True)
    with pytest.raises(ValueError, match=r"there is no s1/1\.pgm in it"):
        tk.datasets.attface(tmp_path)
    scene = write_views(tmp_path / "two" / "dino", views)
    write_views(tmp_path / "two" / "cotton", views)
    with pytest.raises(ValueError, match=r"there are .*cotton.* and .*dino"):
        tk.datasets.lightfield(tmp_path / "two")
    (scene / "input_Cam042.png").unlink()
    with pytest.raises(FileNotFoundError, match="input_Cam042"):
        tk.datasets.lightfield(scene)
    image.fromarray(views[0, 0, :3]).save(scene / "input_Cam042.png")
    with pytest.raises(ValueError, match=r"input_Cam042.png holds uint8 of shape \(3, 7, 3\), not uint8 of shape \(5,"):
        tk.datasets.lightfield(scene)


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04garbage", b"garbage"])
def test_files_that_are_no_archive(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "faces.npz").write_bytes(content)
    with pytest.raises(ValueError, match=r"faces\.npz is not an \.npz file with an array named tensor"):
        datasets.attface(tmp_path / "faces.npz")


def test_archives_of_something_else(tmp_path: Path) -> None:
    np.savez(tmp_path / "x.npz", faces=np.ones(3))
    with pytest.raises(ValueError, match="array named tensor"):
        datasets.attface(tmp_path / "x.npz")
    np.savez(tmp_path / "y.npz", tensor=np.ones((92, 112, 400)))
    with pytest.raises(ValueError, match="holds float64"):
        datasets.attface(tmp_path / "y.npz")
