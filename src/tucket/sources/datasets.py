"""Loaders for tensors of the paper's experiments, from the files as their authors distribute them."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.archive import NPZ_ERRORS
from tucket.base.optional import import_optional
from tucket.sources.images import read_image

__all__ = ["attface", "lightfield"]

Pathlike = str | os.PathLike[str]

FACES_SHAPE, FACES_SUM = (92, 112, 400), 464221104
FACES_URL = "https://www.cl.cam.ac.uk/research/dtg/attarchive/pub/data/att_faces.zip"
GET_FACES = (
    f"give the path of the Database of Faces, set TUCKET_DATA to its parent folder, or use attface(download=True) to "
    f"fetch {FACES_URL}; please credit AT&T Laboratories Cambridge and cite Samaria & Harter (1994)"
)
GET_LIGHTFIELD = (
    "give the path of a scene of the 4D Light Field Dataset, set TUCKET_DATA to its parent folder, or get an address "
    "from https://lightfield-analysis.uni-konstanz.de (CC BY-NC-SA 4.0, non-commercial use) for "
    "lightfield(download=True, url=...); please cite Honauer et al. (2016)"
)


def attface(
    path: Pathlike | None = None, *, download: bool = False, url: str = FACES_URL, known_hash: str | None = None
) -> NDArray[np.uint8]:
    """Load the Database of Faces: ten photographs each of forty people.

    Parameters
    ----------
    path : str or path, optional
        A folder with `s1/1.pgm` to `s40/10.pgm` at any depth, or an .npz file with an array `tensor`; by default
        `attface.npz` or `att_faces` in the folder that the environment variable TUCKET_DATA names. With `download`,
        the folder to keep the archive in, by default the user's cache.
    download : bool, default False
        Whether to download the archive, unless it is there already; needs the package pooch.
    url : str, optional
        The address of the archive.
    known_hash : str, optional
        The hash of the archive, as in "sha256:...".

    Returns
    -------
    numpy.ndarray
        Bytes of shape (92, 112, 400): column, row, photograph. Photograph j of person s, both counted from 1, is
        `[:, :, 10 * (s - 1) + j - 1]`.

    Raises
    ------
    FileNotFoundError
        If there are no such files.
    ValueError
        If the files are not the photographs.

    See Also
    --------
    lightfield : A larger tensor, with five modes.

    Examples
    --------
    Forty groups of photographs, and blocks of pixels:

    >>> import tucket as tk
    >>> faces = tk.datasets.attface(download=True)  # doctest: +SKIP
    >>> model = tk.ltr(faces, (23, 28, 40), blocks="uniform")  # doctest: +SKIP
    >>> round(model.relative_error(faces), 3)  # doctest: +SKIP
    0.211
    """
    if download:
        x = _checked(_faces(_fetch(path, url, known_hash, "attface")), FACES_SHAPE, url, GET_FACES)
        if (total := int(x.sum(dtype=np.int64))) != FACES_SUM:
            raise ValueError(f"{url}: its photographs sum to {total}, not to {FACES_SUM}, so they are not the paper's")
        return x
    found = _find(path, ("attface.npz", "att_faces"), "attface", GET_FACES)
    x = _tensor(found) if found.is_file() else _faces(found)
    return _checked(x, FACES_SHAPE, found, GET_FACES)


def lightfield(
    path: Pathlike | None = None, *, download: bool = False, url: str | None = None, known_hash: str | None = None
) -> NDArray[np.uint8]:
    """Load a scene of the 4D Light Field Dataset: photographs from 9 x 9 positions. The paper uses the scene dino.

    Parameters
    ----------
    path : str or path, optional
        A folder with `input_Cam000.png` to `input_Cam080.png` of one scene at any depth, or an .npz file with an array
        `tensor`. By default `lf_dino_png` or `dino` in the folder that TUCKET_DATA names. With `download`, the folder
        to keep the archive in, by default the user's cache.
    download : bool, default False
        Whether to download an archive of the scene, unless it is there already; needs the package pooch.
    url : str, optional
        The address of the archive, which you get when you agree to the terms of the data set.
    known_hash : str, optional
        The hash of the archive, as in "sha256:...".

    Returns
    -------
    numpy.ndarray
        Bytes of shape (9, 9, 512, 512, 3): row and column of the camera, row, column, colour.

    Raises
    ------
    FileNotFoundError
        If there are no such files.
    ValueError
        If the files are not the views of one scene, or if `download` is given without `url`.

    See Also
    --------
    attface : A smaller tensor, with three modes.

    Examples
    --------
    Neighbouring cameras see almost the same, so few blocks of them are enough:

    >>> import tucket as tk
    >>> views = tk.datasets.lightfield("dino")  # doctest: +SKIP
    >>> model = tk.ltr(views, (3, 3, 60, 60, 1), blocks="uniform")  # doctest: +SKIP
    >>> round(model.relative_error(views), 3)  # doctest: +SKIP
    0.115
    """
    if download:
        if url is None:
            raise ValueError(f"url: lightfield(download=True) needs one; {GET_LIGHTFIELD}")
        x = _views(_fetch(path, url, known_hash, "lightfield"))
        return _checked(x, (*x.shape[:4], 3), url, GET_LIGHTFIELD)
    found = _find(path, ("lf_dino_png", "dino"), "lightfield", GET_LIGHTFIELD)
    x = _tensor(found) if found.is_file() else _views(found)
    size = x.shape[2:4] if x.ndim == 5 else (512, 512)
    return _checked(x, (9, 9, *size, 3), found, GET_LIGHTFIELD)


def _find(path: Pathlike | None, names: tuple[str, ...], what: str, how: str) -> Path:
    """Return the given path, or the first of the default ones that exists."""
    folder = os.environ.get("TUCKET_DATA")
    places = [Path(path)] if path is not None else [Path(folder) / name for name in names] if folder else []
    for each in places:
        if each.exists():
            return each
    looked = f"there is no {' nor '.join(map(str, places))}" if places else "no path was given"
    raise FileNotFoundError(f"{what}: {looked}; {how}")


def _fetch(path: Pathlike | None, url: str, known_hash: str | None, what: str) -> Path:
    """Download and unpack an archive, and return the folder of its files."""
    pooch = import_optional("pooch", "datasets", f"{what}(download=True)")
    unpacked, kept = pooch.Unzip(), path or pooch.os_cache("tucket")
    try:
        pooch.retrieve(url, known_hash, path=kept, processor=unpacked)
    except zipfile.BadZipFile as error:
        raise ValueError(f"{url}: got no zip archive; remove it from {kept} before you try again") from error
    return Path(unpacked.extract_dir)


def _tensor(path: Path) -> NDArray[Any]:
    """Read the array `tensor` of an .npz."""
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            return np.asarray(arrays["tensor"])
    except NPZ_ERRORS as error:
        raise ValueError(f"{path} is not an .npz file with an array named tensor: {error}") from error


def _faces(folder: Path) -> NDArray[np.uint8]:
    people = _only(folder, "s1/1.pgm", GET_FACES).parents[1]
    images = _images([people / f"s{person}" / f"{photo}.pgm" for person in range(1, 41) for photo in range(1, 11)])
    return np.ascontiguousarray(images.transpose(2, 1, 0))


def _views(folder: Path) -> NDArray[np.uint8]:
    first = _only(folder, "input_Cam000.png", GET_LIGHTFIELD)
    images = _images([first.with_name(f"input_Cam{view:03d}.png") for view in range(81)])
    return images.reshape(9, 9, *images.shape[1:])


def _only(folder: Path, name: str, how: str) -> Path:
    """Return the only file of this name below a folder."""
    found = sorted(folder.rglob(name))
    if len(found) != 1:
        problem = f"there are {found[0]} and {found[1]}" if found else f"there is no {name} in it"
        raise ValueError(f"{folder}: {problem}; {how}")
    return found[0]


def _images(paths: list[Path]) -> NDArray[np.uint8]:
    """Stack images of bytes of the same shape."""
    images: list[NDArray[np.uint8]] = []
    for path in paths:
        if not path.exists():
            raise FileNotFoundError(f"{path} is missing, though the first file of its data set exists")
        image = read_image(path)
        shape = images[0].shape if images else image.shape
        images.append(_checked(image, shape, path, "give the original files"))
    return np.stack(images)


def _checked(x: NDArray[Any], shape: tuple[int, ...], path: object, how: str) -> NDArray[np.uint8]:
    if x.shape != shape or x.dtype != np.uint8:
        raise ValueError(f"{path} holds {x.dtype} of shape {x.shape}, not uint8 of shape {shape}; {how}")
    return x
