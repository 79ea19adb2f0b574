"""A page about a model: one file, with all that it shows in it, that any browser opens without a network."""

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
from tucket.interfaces.plot import image_modes
from tucket.interfaces.text import human_bytes, times
from tucket.models.arrays import here
from tucket.models.collect import collect
from tucket.models.model import Model
from tucket.models.statistics import Statistics
from tucket.models.tucker import BlockTucker
from tucket.projection.information_curve import information_curve
from tucket.sources.as_source import as_source
from tucket.sources.dense import SMALL, Array

__all__ = ["make_report", "write_report"]

CELLS = 1 << 17
"""Entries of the core that the page works with; a larger one is cut coarser first."""

PIXELS = 256
"""Longest side of an image in the page."""

IMAGES = 12
"""Slices of the tensor that can be looked at."""

LABELS = 40
"""Labels of a block that are listed."""


def write_report(path: str | Path, model: BlockTucker, data: Any = None, *, title: str | None = None) -> None:
    """Write the page, under a temporary name first, so that nobody meets half of it.

    Parameters
    ----------
    path
        Where to write it.
    model : BlockTucker
        What it is about.
    data : array or source
        The tensor, if its errors and, of images, the originals are to be shown.
    title : str
        What to call it.
    """
    check_target(path)
    text = make_report(model, data, title=title)
    with replacing(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def make_report(model: BlockTucker, data: Any = None, *, title: str | None = None) -> str:
    """Return the page as text."""
    model = here(model)
    if not isinstance(model, BlockTucker):
        raise TypeError(f"model: got a {type(model).__name__}; a report is about blocks: give a model of ltr's")
    source = None if data is None else as_source(data, shape=model.shape)
    facts, errors = _facts(model), {}
    if source is not None:
        source = source.held()
        errors = {
            "KL divergence / sum": model.kl(source) / (float(model.core.sum()) or 1.0),
            "relative error": model.relative_error(source),
        }
    page = {
        "title": title or f"A model of a {times(model.shape)} tensor",
        "facts": facts,
        "errors": errors,
        "modes": _modes(model),
        **_numbers(model),
        "lost": errors.get("KL divergence / sum"),
        "pictures": _pictures(model, source.array if isinstance(source, Array) else None),
        "version": __version__,
    }
    template = files("tucket.interfaces").joinpath("report.html").read_text(encoding="utf-8")
    # no text of the page's own may end the script that holds it
    return template.replace("/*PAGE*/null", json.dumps(page).replace("<", "\\u003c"))


def _facts(model: Model) -> dict[str, str]:
    entries = int(np.prod(model.shape, dtype=np.float64))
    return {
        "shape": times(model.shape),
        "rank": times(model.rank),
        "parameters": f"{model.n_parameters:,}",
        "entries of the tensor": f"{entries:,}",
        "compression": f"{entries / model.n_parameters:,.1f} x",
        "size of the model": human_bytes(model.n_parameters * model.dtype.itemsize),
        "sum": f"{float(model.core.sum()):,.6g}",
    }


def _numbers(model: BlockTucker) -> dict[str, Any]:
    """Return what the page computes every coarser model from: core, marginals, blocks, and the order of joining."""
    grid = Partition.uniform(model.rank, halved(model.rank, CELLS))
    statistics = collect(model.block_masses(), grid)
    path = information_curve(_of_core(statistics)).joint
    partition = model.partition.compose(grid)
    return {
        "shape": list(model.shape),
        "core": _packed(statistics.core),
        "rank": list(statistics.rank),
        "labels": [_packed(blocks.labels.astype(np.int32)) for blocks in partition.modes],
        "marginals": [_packed(marginal) for marginal in model.marginals],
        "joins": _joins([point.partition for point in path]),
    }


def _of_core(statistics: Statistics) -> Statistics:
    return collect(statistics.core, Partition.uniform(statistics.rank, statistics.rank))


def _joins(partitions: list[Partition]) -> list[list[int]]:
    """Tell a path of partitions by its steps: in which mode, and which block joins the one before it."""
    steps = []
    for fine, coarse in itertools.pairwise(partitions):
        mode = next(k for k, (a, b) in enumerate(zip(fine.rank, coarse.rank)) if a != b)
        kept = coarse[mode].starts
        gone = next(at for at, start in enumerate(fine[mode].starts) if at >= len(kept) or kept[at] != start)
        steps.append([mode, gone])
    return steps


def _modes(model: BlockTucker) -> list[dict[str, Any]]:
    """Return names and blocks of the modes, in words."""
    names = mode_names(model.axes, len(model.shape))
    return [{"name": name, "blocks": [_words(block) for block in model.blocks(k)]} for k, name in enumerate(names)]


def _words(block: Any) -> dict[str, Any]:
    if block.labels is not None:
        shown, more = block.labels[:LABELS], len(block.labels) - LABELS
        text = ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")
    elif isinstance(block.indices, slice):
        text = f"{block.indices.start} to {block.indices.stop - 1}"
    else:
        shown, more = block.indices[:LABELS], len(block.indices) - LABELS
        text = ", ".join(map(str, shown)) + (f" and {more} more" if more > 0 else "")
    return {"mass": block.mass, "members": text}


def _pictures(model: BlockTucker, x: NDArray[Any] | None) -> dict[str, Any] | None:
    """Return which slices are images, and some of the originals, made small."""
    modes = image_modes(model.shape) if len(model.shape) > 1 else []
    if not modes or min(model.shape[k] for k in modes[:2]) < 8:
        return None
    others = [k for k in range(len(model.shape)) if k not in modes]
    counts = [model.shape[k] for k in others]
    places = [np.unravel_index(n, counts) for n in np.unique(np.linspace(0, np.prod(counts) - 1, IMAGES).astype(int))]
    step = max(1, -(-max(model.shape[k] for k in modes[:2]) // PIXELS))
    pictures: dict[str, Any] = {
        "modes": modes,
        "others": others,
        "places": [[int(i) for i in place] for place in places],
        "names": [_place_name(model, others, place) for place in places],
        "step": step,
    }
    if x is None or x.nbytes > SMALL:
        return pictures
    top = float(x.max()) or 1.0
    shown = []
    for place in pictures["places"]:
        where = tuple(
            (slice(None, None, step) if k in modes[:2] else slice(None)) if k in modes else place[others.index(k)]
            for k in range(x.ndim)
        )
        shown.append(_packed(np.round(255 * (x[where] / top)).astype(np.uint8)))
    return {**pictures, "originals": shown, "top": top}


def _place_name(model: BlockTucker, modes: list[int], place: Any) -> str:
    """Return the indices of a slice in words."""
    words = []
    for mode, index in zip(modes, place):
        labels = None if model.axes is None else model.axes.labels[mode]
        name = mode_names(model.axes, len(model.shape))[mode]
        words.append(f"{name} {index}" if labels is None else f"{name} {labels[index]}")
    return ", ".join(words) or "all"


def _packed(array: NDArray[Any]) -> dict[str, Any]:
    """Return an array as text."""
    plain = np.ascontiguousarray(array, array.dtype.newbyteorder("<"))
    return {"type": plain.dtype.name, "shape": list(array.shape), "data": base64.b64encode(plain.tobytes()).decode()}
