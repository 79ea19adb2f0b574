"""The tensors of the paper's experiments: loaders for the files as their authors give them out."""

from __future__ import annotations

import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.optional import need
from tucket.sources.images import read_image

__all__ = ["attface", "lightfield"]

Pathlike = str | os.PathLike[str]

SUBJECTS, PHOTOGRAPHS = 40, 10
FACES_SHAPE, FACES_SUM = (92, 112, 400), 464221104
FACES = "https://www.cl.cam.ac.uk/research/dtg/attarchive/pub/data/att_faces.zip"
GET_FACES = (
    "give the path of the Database of Faces (a folder with s1/1.pgm to s40/10.pgm, or attface.npz), or name the folder "
    f"it is in in TUCKET_DATA, or let attface(download=True) fetch {FACES}; it is to be credited to AT&T Laboratories "
    "Cambridge, and cited as Samaria & Harter, Parameterisation of a stochastic model for human face identification "
    "(1994)"
)

VIEWS = (9, 9)
GET_LIGHTFIELD = (
    "give the path of a scene of the 4D Light Field Dataset (a folder with input_Cam000.png to input_Cam080.png, or an "
    ".npz), or name the folder it is in in TUCKET_DATA; it is given out at https://lightfield-analysis.uni-konstanz.de "
    "for non-commercial use (CC BY-NC-SA 4.0), and lightfield(download=True, url=...) fetches an archive whose address "
    "you were given; cite Honauer et al., A dataset and evaluation methodology for depth estimation on 4D light fields "
    "(2016)"
)


def attface(
    path: Pathlike | None = None, *, download: bool = False, url: str = FACES, known_hash: str | None = None
) -> NDArray[np.uint8]:
    """Load the Database of Faces, ten photographs each of forty people: (column, row, photograph), (92, 112, 400).

    Photograph j of person s, both counted from 1, is `[:, :, 10 * (s - 1) + j - 1]`.

    Parameters
    ----------
    path
        A folder in which, at any depth, `s1/1.pgm` to `s40/10.pgm` lie, as in the archive that AT&T Laboratories
        Cambridge give out, or an .npz with an array `tensor`. By default `attface.npz` or `att_faces` in the folder
        that the environment variable TUCKET_DATA names. With `download`, the folder to keep the archive in; by default
        the user's cache.
    download
        Whether to fetch the archive, if it is not there yet, with the package pooch.
    url
        Where from.
    known_hash
        What the archive must hash to, as in "sha256:..."; in any case its photographs must sum to what they should.
    """
    if download:
        x = _faces(_fetch(path, url, known_hash, "attface"))
        if (total := int(x.sum(dtype=np.int64))) != FACES_SUM:
            raise ValueError(f"{url}: its photographs sum to {total}, not to {FACES_SUM}, so they are not the paper's")
        return x
    found = _find(path, ("attface.npz", "att_faces"), "attface", GET_FACES)
    x = _tensor(found) if found.is_file() else _faces(found)
    return _checked(x, FACES_SHAPE, found, GET_FACES)


def lightfield(
    path: Pathlike | None = None, *, download: bool = False, url: str | None = None, known_hash: str | None = None
) -> NDArray[np.uint8]:
    """Load a scene of the 4D Light Field Dataset: (view, view, row, column, colour), (9, 9, 512, 512, 3).

    The paper's is the one named dino.

    Parameters
    ----------
    path
        A folder in which, at any depth, `input_Cam000.png` to `input_Cam080.png` of one scene lie, or an .npz with an
        array `tensor`. By default `lf_dino_png` or `dino` in the folder that the environment variable TUCKET_DATA
        names. With `download`, the folder to keep the archive in; by default the user's cache.
    download
        Whether to fetch an archive of the scene, if it is not there yet, with the package pooch.
    url
        Where from: who agrees to the terms of the data set is given addresses.
    known_hash
        What the archive must hash to, as in "sha256:...".
    """
    if download:
        if url is None:
            raise ValueError(f"url: lightfield(download=True) needs one; {GET_LIGHTFIELD}")
        x = _views(_fetch(path, url, known_hash, "lightfield"))
        return _checked(x, (*x.shape[:4], 3), url, GET_LIGHTFIELD)
    found = _find(path, ("lf_dino_png", "dino"), "lightfield", GET_LIGHTFIELD)
    x = _tensor(found) if found.is_file() else _views(found)
    size = x.shape[2:4] if x.ndim == 5 else (512, 512)
    return _checked(x, (*VIEWS, *size, 3), found, GET_LIGHTFIELD)


def _find(path: Pathlike | None, names: tuple[str, ...], what: str, how: str) -> Path:
    """Return the path that was given, or the first there is of those that are looked for."""
    folder = os.environ.get("TUCKET_DATA")
    places = [Path(folder) / name for name in names] if folder else []
    if path is not None:
        places = [Path(path)]
    for each in places:
        if each.exists():
            return each
    looked = f"there is no {' nor '.join(map(str, places))}" if places else "no path was given"
    raise FileNotFoundError(f"{what}: {looked}; {how}")


def _fetch(path: Pathlike | None, url: str, known_hash: str | None, what: str) -> Path:
    """Fetch and unpack an archive, and return the folder of what was in it."""
    pooch = need("pooch", "datasets", f"{what}(download=True)")
    unpacked = pooch.Unzip()
    try:
        pooch.retrieve(url, known_hash, path=path or pooch.os_cache("tucket"), processor=unpacked)
    except zipfile.BadZipFile as error:
        kept = path or pooch.os_cache("tucket")
        raise ValueError(f"{url}: what came is no zip archive; remove it from {kept} before you try again") from error
    return Path(unpacked.extract_dir)


def _tensor(path: Path) -> NDArray[Any]:
    """Read the array `tensor` of an .npz."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays["tensor"])
    except (
        AttributeError,
        EOFError,
        KeyError,
        OSError,
        TypeError,
        ValueError,
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(f"{path} is no .npz with an array named tensor: {error}") from error


def _faces(folder: Path) -> NDArray[np.uint8]:
    people = _only(folder, "s1/1.pgm", GET_FACES).parents[1]
    files = [people / f"s{s}" / f"{j}.pgm" for s in range(1, SUBJECTS + 1) for j in range(1, PHOTOGRAPHS + 1)]
    return np.stack([_image(each, FACES_SHAPE[1::-1]).T for each in files], axis=-1)


def _views(folder: Path) -> NDArray[np.uint8]:
    first = _only(folder, "input_Cam000.png", GET_LIGHTFIELD)
    image = _image(first)
    files = [first.with_name(f"input_Cam{i:03d}.png") for i in range(VIEWS[0] * VIEWS[1])]
    return np.stack([_image(each, image.shape) for each in files]).reshape(*VIEWS, *image.shape)


def _only(folder: Path, name: str, how: str) -> Path:
    """Return the one file of that name below a folder."""
    found = sorted(folder.rglob(name))
    if len(found) != 1:
        told = f"there are {found[0]} and {found[1]}" if found else f"there is no {name} in it"
        raise ValueError(f"{folder}: {told}; {how}")
    return found[0]


def _image(path: Path, shape: tuple[int, ...] | None = None) -> NDArray[np.uint8]:
    """Read an image of bytes."""
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}, where others of its kind are")
    image = read_image(path)
    return _checked(image, image.shape if shape is None else shape, path, "give the files as they were given out")


def _checked(x: NDArray[Any], shape: tuple[int, ...], path: object, how: str) -> NDArray[np.uint8]:
    if x.shape != shape or x.dtype != np.uint8:
        raise ValueError(f"{path} holds {x.dtype} of shape {x.shape}, not uint8 of shape {shape}; {how}")
    return x
