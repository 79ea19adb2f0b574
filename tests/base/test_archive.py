from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from numpy.typing import NDArray

import tucket as tk
from strategies import cut_tensors

FILES = Path(__file__).parents[1] / "models" / "files"

X = np.random.default_rng(0).random((4, 5, 6))


def saved(model: Any, folder: Path) -> Path:
    path = folder / "model.npz"
    model.save(path)
    return path


def rewritten(path: Path, **changed: Any) -> Path:
    """Write the archive at `path` again with other arrays; None drops one."""
    with np.load(path) as archive:
        arrays = {**archive, **changed}
    np.savez(path, **{name: array for name, array in arrays.items() if array is not None})
    return path


@given(case=cut_tensors())
def test_a_model_comes_back_as_it_was(case: tuple[NDArray[Any], tk.Partition], tmp_path_factory: Any) -> None:
    x, partition = case
    block = tk.ltr(x, blocks=partition)
    path = tmp_path_factory.getbasetemp() / "again.npz"
    for model in (block, tk.Tucker(*block), block.astype(np.float32)):
        model.save(path)
        assert tk.load(path) == model


@pytest.mark.parametrize("name", ["model.npz", "model", "model.tucket", "мodel 1.npz"])
def test_the_path_is_used_as_given(tmp_path: Path, name: str) -> None:
    tk.ltr(X, 2, blocks="uniform").save(str(tmp_path / name))
    assert [path.name for path in tmp_path.iterdir()] == [name]
    assert tk.load(str(tmp_path / name)) == tk.ltr(X, 2, blocks="uniform")


def test_a_saved_model_is_readable_by_others_as_any_new_file(tmp_path: Path) -> None:
    (tmp_path / "plain").touch()
    path = saved(tk.ltr(X, 2, blocks="uniform"), tmp_path)
    assert path.stat().st_mode == (tmp_path / "plain").stat().st_mode


def test_a_failed_save_leaves_the_old_file_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = saved(tk.ltr(X, 2, blocks="uniform"), tmp_path)

    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        tk.ltr(X, 3, blocks="uniform").save(path)
    assert list(tmp_path.iterdir()) == [path]
    assert tk.load(path) == tk.ltr(X, 2, blocks="uniform")


def test_a_missing_file_or_folder_says_its_name(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.npz"):
        tk.load(tmp_path / "none.npz")
    with pytest.raises(FileNotFoundError, match="nowhere"):
        tk.ltr(X, 2, blocks="uniform").save(tmp_path / "nowhere" / "model.npz")
    with pytest.raises(IsADirectoryError):
        tk.load(tmp_path)


@pytest.mark.parametrize("content", [b"", b"PK", b"hello", b"\x89PNG\r\n\x1a\n" + bytes(99), b"\x80\x04K\x01."])
def test_a_file_that_is_not_an_archive(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "other.npz"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=r"other\.npz is not a tucket file, or is truncated"):
        tk.load(path)


def test_another_array_file(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", X)
    with pytest.raises(ValueError, match=r"x\.npy is not a tucket file"):
        tk.load(tmp_path / "x.npy")
    np.savez(tmp_path / "x.npz", X)
    with pytest.raises(ValueError, match=r"x\.npz is not a tucket file: its header is missing"):
        tk.load(tmp_path / "x.npz")
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        archive.writestr("a.txt", "hello")
    with pytest.raises(ValueError, match=r"x\.zip is (damaged|not a tucket file)"):
        tk.load(tmp_path / "x.zip")


def test_a_file_cut_or_damaged_anywhere(tmp_path: Path) -> None:
    path = saved(tk.ltr(X, 2, blocks="uniform"), tmp_path)
    whole = path.read_bytes()
    for end in range(0, len(whole), 37):
        path.write_bytes(whole[:end])
        with pytest.raises(ValueError, match=r"model\.npz is (not a tucket file|damaged)"):
            tk.load(path)
    for place in range(0, len(whole), 37):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        with contextlib.suppress(ValueError):  # no other error may come, and no other model
            assert tk.load(path) == tk.ltr(X, 2, blocks="uniform")


def test_a_newer_version(tmp_path: Path) -> None:
    path = rewritten(saved(tk.ltr(X, 2, blocks="uniform"), tmp_path), version=np.array(2))
    with pytest.raises(ValueError, match="has format version 2, and this tucket reads versions up to 1; upgrade"):
        tk.load(path)


class Bomb:
    """What runs when it is unpickled."""

    def __reduce__(self) -> Any:
        return (os.mkdir, ("exploded",))


def test_objects_are_never_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    path = rewritten(saved(tk.ltr(X, 2, blocks="uniform"), tmp_path), core=np.array([Bomb()], object))
    with pytest.raises(ValueError, match="holds Python objects, which are never read"):
        tk.load(path)
    assert not Path("exploded").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"core": None}, "is not a complete model: 'core' is missing"),
        ({"weights_1": None}, "is not a complete model: 'weights_1' is missing"),
        ({"starts_0": None}, "is not a complete model: 'starts_0' is missing"),
        ({"kind": np.array("Statistics")}, "holds a 'Statistics', not a model"),
        ({"kind": np.array(3)}, "its header is missing"),
        ({"version": np.array("one")}, "its header is missing"),
        ({"format": np.array([1, 2])}, "its header is missing"),
        ({"core": np.ones((2, 2))}, "is not a valid model: it is of shape"),
        ({"core": np.full((2, 2, 2), np.nan)}, "is not a valid model: core.* is nan"),
        ({"weights_1": np.ones(3)}, r"is not a valid model: it is of shape \(4, 3, 6\), but should be"),
        ({"shape": None}, "is not a complete model: 'shape' is missing"),
        ({"weights_1": -np.ones(5)}, "is not a valid model: weights.1..* is -1.0"),
        ({"starts_1": np.array([0, 9])}, "is not a valid model: start 9 is outside"),
        ({"starts_1": np.array(["a"])}, "is not a valid model: starts: got <U1 entries"),
    ],
)
def test_an_archive_that_is_no_model(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    path = rewritten(saved(tk.ltr(X, 2, blocks="uniform"), tmp_path), **changed)
    with pytest.raises(ValueError, match=message):
        tk.load(path)


def test_models_of_format_version_1_stay_readable() -> None:
    """A file kept from the first version: reading it must go on."""
    folder = FILES
    model = tk.load(folder / "block_v1.npz")
    assert isinstance(model, tk.BlockTucker)
    assert model.partition == tk.Partition.from_labels([[0, 0, 1, 1], [1, 0, 1], [0, 1]])
    assert model == tk.ltr(np.arange(24).reshape(4, 3, 2), blocks=model.partition)
    dense = tk.load(folder / "tucker_v1.npz")
    assert dense == tk.Tucker(*model)


def test_an_archive_is_plain_npz() -> None:
    with np.load(FILES / "block_v1.npz", allow_pickle=False) as archive:
        assert archive["format"] == "tucket"
        assert archive["core"].shape == (2, 2, 2)
    assert zipfile.is_zipfile(io.BytesIO((FILES / "block_v1.npz").read_bytes()))


def test_a_link_stays_a_link_and_a_mode_stays_a_mode(tmp_path: Path) -> None:
    real = saved(tk.ltr(X, 2, blocks="uniform"), tmp_path)
    real.chmod(0o640)
    link = tmp_path / "link.npz"
    link.symlink_to(real)
    tk.ltr(X, 3, blocks="uniform").save(link)
    assert link.is_symlink()
    assert real.stat().st_mode & 0o777 == 0o640
    assert tk.load(real).rank == (3, 3, 3)


def test_a_folder_is_no_file_to_write(tmp_path: Path) -> None:
    with pytest.raises(IsADirectoryError, match="it is a folder; give a file name in it"):
        tk.ltr(X, 2, blocks="uniform").save(tmp_path)
