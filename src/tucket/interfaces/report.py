"""A page about a model: one HTML file that any browser opens offline."""

from __future__ import annotations

import base64
import itertools
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket import __version__
from tucket.base.archive import check_target, replacing
from tucket.base.axes import mode_names
from tucket.base.boxes import halved
from tucket.base.partition import Partition
from tucket.interfaces.plot import image_modes, with_blocks
from tucket.interfaces.text import format_sizes, human_bytes
from tucket.models.block_tucker import BlockTucker
from tucket.models.collect import collect
from tucket.projection.information_curve import information_curve
from tucket.sources.as_source import as_source
from tucket.sources.dense import SMALL_BYTES, Array

__all__ = ["make_report", "write_report"]

CORE_ENTRIES = 1 << 17
"""Maximum number of core entries in the page, which reads them all at each move of the slider."""

IMAGE_PIXELS = 256
"""Maximum number of pixels along a side of an image in the page."""

IMAGES = 12
"""Maximum number of slices in the page."""

LISTED_INDICES = 40
"""Maximum number of indices or labels that the page lists per block."""


def write_report(path: str | Path, model: BlockTucker, data: Any = None, *, title: str | None = None) -> None:
    """Write a page about a model, which opens offline: its blocks, its core, and all coarser models by a slider.

    Parameters
    ----------
    path : str or Path
        File to write.
    model : BlockTucker
        A model made by `tucket.ltr`.
    data : array or source, optional
        The tensor, to show the errors of the model, and the originals of images.
    title : str, optional
        Title of the page; by default from the shape of the tensor.

    Raises
    ------
    TypeError, ValueError
        If the model has no blocks, or the data have another shape.

    See Also
    --------
    make_report : The same page as a string.

    Examples
    --------
    >>> import tempfile, tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     write_report(Path(folder, "groups.html"), tk.ltr(x, 2), x, title="Groups")
    """
    check_target(path)
    text = make_report(model, data, title=title)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def make_report(model: BlockTucker, data: Any = None, *, title: str | None = None) -> str:
    """Return a page about a model as a string.

    Parameters
    ----------
    model : BlockTucker
        A model made by `tucket.ltr`.
    data : array or source, optional
        The tensor, to show the errors of the model, and the originals of images.
    title : str, optional
        Title of the page; by default from the shape of the tensor.

    Returns
    -------
    str
        The page, in HTML.

    Raises
    ------
    TypeError, ValueError
        If the model has no blocks, or the data have another shape.

    See Also
    --------
    write_report : Write the page to a file.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> '"rank": "2 x 2"' in make_report(tk.ltr(x, 2))
    True
    """
    model = with_blocks(model)
    source = None if data is None else as_source(data, shape=model.shape).load_if_small()
    divergence, errors, entries = None, {}, int(np.prod(model.shape, dtype=np.float64))
    if source is not None:
        divergence = model.kl(source) / (float(model.core.sum()) or 1.0)
        errors = {"KL / sum": divergence, "relative error": model.relative_error(source)}
    page = {
        "title": title or f"A model of a {format_sizes(model.shape)} tensor",
        "facts": {
            "shape": format_sizes(model.shape),
            "rank": format_sizes(model.rank),
            "parameters": f"{model.n_parameters:,}",
            "entries of the tensor": f"{entries:,}",
            "compression": f"{entries / model.n_parameters:,.1f} x",
            "size of the model": human_bytes(model.n_parameters * model.dtype.itemsize),
            "sum": f"{float(model.core.sum()):,.6g}",
        },
        "errors": errors,
        "modes": _modes(model),
        **_numbers(model),
        "divergence": divergence,
        "pictures": _pictures(model, source.array if isinstance(source, Array) else None),
        "version": __version__,
    }
    template = files("tucket.interfaces").joinpath("report.html").read_text(encoding="utf-8")
    # a label that contains </script> must not end the script
    return template.replace("/*PAGE*/null", json.dumps(page).replace("<", "\\u003c"))


def _numbers(model: BlockTucker) -> dict[str, Any]:
    """Return all that coarser models follow from: core, blocks, marginals, and the order in which blocks merge."""
    grid = Partition.uniform(model.rank, halved(model.rank, CORE_ENTRIES))
    core = collect(model.block_masses(), grid).core
    path = information_curve(collect(core, Partition.uniform(core.shape, core.shape))).joint
    partition = model.partition.compose(grid)
    return {
        "shape": list(model.shape),
        "core": _packed(core),
        "rank": list(core.shape),
        "labels": [_packed(blocks.labels.astype(np.int32)) for blocks in partition.modes],
        "marginals": [_packed(marginal) for marginal in model.marginals],
        "merges": _merges([point.partition for point in path]),
    }


def _merges(partitions: list[Partition]) -> list[list[int]]:
    """Return each step of a path: its mode, and the block that merges with the block before it."""
    steps = []
    for fine, coarse in itertools.pairwise(partitions):
        mode = next(k for k, (a, b) in enumerate(zip(fine.rank, coarse.rank)) if a != b)
        kept = coarse[mode].starts
        gone = next(at for at, start in enumerate(fine[mode].starts) if at >= len(kept) or kept[at] != start)
        steps.append([mode, gone])
    return steps


def _modes(model: BlockTucker) -> list[dict[str, Any]]:
    """Return the names of the modes, and the mass and the members of each block."""
    names = mode_names(model.axes, len(model.shape))
    return [
        {"name": name, "blocks": [{"mass": block.mass, "members": _members(block)} for block in model.blocks(k)]}
        for k, name in enumerate(names)
    ]


def _members(block: Any) -> str:
    """Return the labels or the indices of a block as text."""
    if block.labels is None and isinstance(block.indices, slice):
        return f"{block.indices.start} to {block.indices.stop - 1}"
    members = block.indices if block.labels is None else block.labels
    more = len(members) - LISTED_INDICES
    return ", ".join(map(str, members[:LISTED_INDICES])) + (f" and {more} more" if more > 0 else "")


def _pictures(model: BlockTucker, x: NDArray[Any] | None) -> dict[str, Any] | None:
    """Return which slices the page shows, and the original images, made smaller; None without images."""
    modes = image_modes(model.shape) if len(model.shape) > 1 else []
    if not modes or min(model.shape[k] for k in modes[:2]) < 8:
        return None
    others = [k for k in range(len(model.shape)) if k not in modes]
    counts = [model.shape[k] for k in others]
    numbers = np.unique(np.linspace(0, np.prod(counts) - 1, IMAGES).astype(int))
    places = [[int(i) for i in np.unravel_index(number, counts)] for number in numbers]
    step = max(1, -(-max(model.shape[k] for k in modes[:2]) // IMAGE_PIXELS))
    names = [_place_name(model, others, place) for place in places]
    pictures: dict[str, Any] = {"modes": modes, "others": others, "places": places, "names": names, "step": step}
    if x is None or x.nbytes > SMALL_BYTES:
        return pictures
    top = float(x.max()) or 1.0
    box: list[Any] = [slice(None, None, step) if k in modes[:2] else slice(None) for k in range(x.ndim)]
    originals = []
    for place in places:
        for mode, index in zip(others, place):
            box[mode] = index
        originals.append(_packed(np.round(255 * (x[tuple(box)] / top)).astype(np.uint8)))
    return {**pictures, "originals": originals, "top": top}


def _place_name(model: BlockTucker, modes: list[int], place: list[int]) -> str:
    """Return what to call a slice: the index or the label in each of the other modes."""
    names = mode_names(model.axes, len(model.shape))
    labels = (None,) * len(model.shape) if model.axes is None else model.axes.labels
    words = (f"{names[k]} {i if (known := labels[k]) is None else known[i]}" for k, i in zip(modes, place))
    return ", ".join(words) or "all"


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as text."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {"type": plain.dtype.name, "shape": list(array.shape), "data": base64.b64encode(plain.tobytes()).decode()}
