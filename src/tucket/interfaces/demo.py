"""The demonstration: two photographs as one tensor, reduced to several ranks by both variants."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.archive import replacing
from tucket.base.axes import Axes
from tucket.base.optional import need
from tucket.interfaces.report import write_report
from tucket.interfaces.text import table, times
from tucket.models.tucker import BlockTucker
from tucket.projection.ltr import ltr

__all__ = ["run"]

RANKS = ((2, 10, 15, 3), (2, 30, 45, 3), (2, 90, 135, 3), (2, 180, 270, 3))
RUNS: tuple[tuple[Any, Any], ...] = (
    ("published", "random"),
    ("projection", "random"),
    ("projection", "uniform"),
    ("projection", "segments"),
)
HEADINGS = ("rank", "variant", "blocks", "parameters", "compression", "rel. error", "KL / sum", "time")


@dataclass(frozen=True, slots=True)
class Row:
    """One reduction and how well it did."""

    variant: str
    blocks: str
    model: BlockTucker
    seconds: float
    relative_error: float
    kl: float

    def cells(self) -> tuple[str, ...]:
        """Return what the table shows."""
        return (
            times(self.model.rank),
            self.variant,
            self.blocks,
            f"{self.model.n_parameters:,}",
            f"{np.prod(self.model.shape) / self.model.n_parameters:.1f} x",
            f"{self.relative_error:.4f}",
            f"{self.kl:.5f}",
            f"{1000 * self.seconds:.0f} ms",
        )


def run(picture: Path) -> None:
    """Reduce, print the table, and draw originals and approximations side by side."""
    if picture.is_dir():
        raise ValueError(f"{picture} is a folder; give the name of a picture in it")
    photographs = load_photographs()
    print(f"Two photographs as one tensor (photograph, row, column, colour) of shape {photographs.shape}\n")
    rows = list(reduce_all(photographs))
    print(table(HEADINGS, [row.cells() for row in rows], words=3))
    picture.parent.mkdir(parents=True, exist_ok=True)
    draw(photographs, rows, picture)
    print(f"\nOriginals and approximations side by side: {picture.resolve()}")
    page = picture.with_suffix(".html")
    axes = Axes(("photograph", "row", "column", "colour"), (("temple", "flower"), None, None, ("red", "green", "blue")))
    last = rows[-2 * len(RUNS) - 1].model  # the third rank from above, of segments
    write_report(page, BlockTucker(last.core, last.partition, last.weights, axes), photographs, title="Two photographs")
    print(f"A page about one of the models, to open in a browser: {page.resolve()}")


def load_photographs() -> NDArray[np.uint8]:
    """Return scikit-learn's two photographs, stacked."""
    need("matplotlib", "demo", "the demo")
    samples = need("sklearn.datasets", "demo", "the demo").load_sample_images()
    stacked: NDArray[np.uint8] = np.stack(samples.images)
    return stacked


def reduce_all(photographs: NDArray[Any]) -> Iterator[Row]:
    """Reduce the photographs to every rank in every way."""
    total = photographs.sum(dtype=np.float64)
    ltr(photographs, RANKS[0], blocks="segments")  # so that the first row does not pay for what is set up once
    for rank in RANKS:
        for variant, blocks in RUNS:
            began = time.perf_counter()
            model = ltr(photographs, rank, blocks=blocks, variant=variant, rng=0)
            seconds = time.perf_counter() - began
            error, kl = model.relative_error(photographs), model.kl(photographs) / total
            yield Row(variant, blocks, model, seconds, error, kl)


def draw(photographs: NDArray[Any], rows: list[Row], picture: Path) -> None:
    """Draw each photograph and its approximations: a line a variant, a column a rank."""
    from matplotlib.figure import Figure

    lines = [(photograph, way) for photograph in range(len(photographs)) for way in (RUNS[-1], RUNS[0])]
    figure = Figure(figsize=(3.2 * (1 + len(RANKS)), 2.5 * len(lines)), layout="constrained")
    axes = figure.subplots(len(lines), 1 + len(RANKS))
    for line, (photograph, (variant, blocks)) in zip(axes, lines):
        shown = [row for row in rows if (row.variant, row.blocks) == (variant, blocks)]
        titles = ["original", *(f"{row.cells()[0]}: error {row.relative_error:.3f}" for row in shown)]
        images = [photographs[photograph], *(row.model[photograph] for row in shown)]
        for place, title, image in zip(line, titles, images):
            place.set_title(title, fontsize=10)
            place.imshow(np.clip(image / 255, 0, 1))
            place.set(xticks=[], yticks=[])
        line[0].set_ylabel(f"{variant}: {blocks}", fontsize=10)
    with replacing(picture) as temporary:
        figure.savefig(temporary, dpi=90, format="png")
