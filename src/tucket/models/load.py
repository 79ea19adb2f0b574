"""Reading models back."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tucket.base import archive
from tucket.models.block_tucker import BlockTucker
from tucket.models.tucker import Tucker

if TYPE_CHECKING:
    import os


def load(path: str | os.PathLike[str]) -> Tucker | BlockTucker:
    """Read a model that `save` wrote.

    Nothing is unpickled, so a file from anywhere is safe to try.

    Parameters
    ----------
    path : str or path
        The file.

    Returns
    -------
    Tucker or BlockTucker
        A model of NumPy arrays, equal to the one that was saved.

    Raises
    ------
    ValueError
        If the file is damaged, or holds anything but a model.

    See Also
    --------
    Tucker.save, BlockTucker.save : Write a model.
    Statistics.load : Reads statistics.

    Examples
    --------
    >>> import tempfile, tucket as tk
    >>> model = tk.ltr(np.outer([1, 2, 3], [4, 5]), 1)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model.save(f"{folder}/model.npz")
    ...     load(f"{folder}/model.npz") == model
    True
    """
    kind, arrays = archive.read(path)
    for model in (Tucker, BlockTucker):
        if kind == model.__name__:
            return archive.build(path, "model", partial(_load, model), arrays)
    remedy = "; read it with tucket.Statistics.load" if kind == "Statistics" else ""
    raise ValueError(f"{path} holds a {kind!r}, not a model{remedy}")


def _load(model: type[Tucker | BlockTucker], arrays: dict[str, NDArray[Any]]) -> Tucker | BlockTucker:
    loaded = model._from_arrays(arrays)
    if loaded.shape != tuple(np.atleast_1d(arrays["shape"]).tolist()):
        raise ValueError(f"it is of shape {loaded.shape}, but should be {arrays['shape']}")
    return loaded
