"""The demonstration: two photographs as one tensor, reduced to several ranks by both variants of LTR."""

from __future__ import annotations

import time
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.archive import replacing
from tucket.base.axes import Axes
from tucket.base.optional import import_optional
from tucket.interfaces.report import write_report
from tucket.interfaces.text import format_sizes, table
from tucket.projection.ltr import ltr
from tucket.sources.dense import Array

AXES = Axes(("photograph", "row", "column", "colour"), (("temple", "flower"), None, None, ("red", "green", "blue")))
RANKS = ((2, 10, 15, 3), (2, 30, 45, 3), (2, 90, 135, 3), (2, 180, 270, 3))
VARIANTS: Any = (("published", "random"), *(("projection", blocks) for blocks in ("random", "uniform", "segments")))
HEADINGS = ("rank", "variant", "blocks", "parameters", "compression", "rel. error", "KL / sum", "time")


def run(picture: Path) -> None:
    """Print a table of all reductions, draw some beside the originals, and write a page about one."""
    if picture.is_dir():
        raise ValueError(f"{picture} is a folder; give the name of a picture in it")
    import_optional("matplotlib", "demo", "the demo")
    x = np.stack(import_optional("sklearn.datasets", "demo", "the demo").load_sample_images().images)
    print(f"Two photographs as one tensor ({', '.join(AXES.names)}) of shape {x.shape}\n")
    ltr(x, RANKS[0], blocks="segments")  # so that the first row does not pay for imports
    models: dict[Any, Any] = {}  # of each rank and variant, with the last blocks that VARIANTS gives it
    rows = []
    for rank, (variant, blocks) in product(RANKS, VARIANTS):
        began = time.perf_counter()
        models[rank, variant] = model = ltr(Array(x, AXES), rank, blocks=blocks, variant=variant, rng=0)
        seconds, error, kl = time.perf_counter() - began, model.relative_error(x), model.kl(x) / x.sum(dtype=float)
        sizes = f"{model.n_parameters:,}", f"{x.size / model.n_parameters:.1f} x"
        quality = f"{error:.4f}", f"{kl:.5f}", f"{1000 * seconds:.0f} ms"
        rows.append((format_sizes(rank), variant, blocks, *sizes, *quality))
    print(table(HEADINGS, rows, words=3))
    picture.parent.mkdir(parents=True, exist_ok=True)
    _draw(x, models, picture)
    print(f"\nOriginals and approximations side by side: {picture.resolve()}")
    page = picture.with_suffix(".html")
    write_report(page, models[RANKS[2], "projection"], x, title="Two photographs")
    print(f"A page about one of the models, to open in a browser: {page.resolve()}")


def _draw(x: NDArray[Any], models: dict[Any, Any], picture: Path) -> None:
    """Draw one line per photograph and variant: the original, then one approximation per rank."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(16, 10), layout="constrained")
    lines = product(range(2), ("projection", "published"))
    for axes, (photograph, variant) in zip(figure.subplots(4, 5), lines):
        shown = [models[rank, variant] for rank in RANKS]
        titles = [f"{format_sizes(model.rank)}: error {model.relative_error(x):.3f}" for model in shown]
        for ax, images, title in zip(axes, [x, *shown], ["original", *titles]):
            ax.imshow(np.clip(images[photograph] / 255, 0, 1))
            ax.set_title(title, fontsize=10)
            ax.set(xticks=[], yticks=[])
        axes[0].set_ylabel(f"{variant}: {dict(VARIANTS)[variant]} blocks", fontsize=10)
    with replacing(picture) as temporary:
        figure.savefig(temporary, dpi=90, format="png")
