"""What the paper's experiments are: tensors, ranks, methods and repetitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["METHODS", "PANELS", "Method", "Panel", "Point", "Run", "chosen", "plan", "quickly", "tensor"]


@dataclass(frozen=True, slots=True)
class Point:
    """One place on the horizontal axis of a figure: a tensor, by its shape, and a rank."""

    shape: tuple[int, ...]
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of the paper's: `data` says which tensors, `along` what the horizontal axis shows."""

    name: str
    data: str
    title: str
    along: str
    points: tuple[Point, ...]

    def place(self, point: Point) -> int:
        """Return where on the horizontal axis a point lies."""
        places: dict[str, Callable[[], int]] = {
            "r": lambda: point.rank[0],
            "entries": lambda: math.prod(point.shape),
            "core": lambda: math.prod(point.rank),
        }
        return places[self.along]()


@dataclass(frozen=True, slots=True)
class Method:
    """A method: `is_ltr` of LTR's family, `is_random` if its result depends on a seed."""

    name: str
    label: str
    is_ltr: bool = False
    is_random: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run: what makes one row."""

    panel: Panel
    point: Point
    method: Method
    repetition: int
    cores: str


def _cube(modes: int, size: int, rank: int) -> Point:
    return Point((size,) * modes, (rank,) * modes)


DINO, FACES = (9, 9, 512, 512, 3), (92, 112, 400)
DINO_RANKS = (
    (1, 1, 1, 1, 1), (2, 2, 2, 2, 1),
    *((3, 3, r, r, 1) for r in (4, 5, 6, 7, 8, 16, 20, 40, 60, 80)),
)  # fmt: skip

PANELS = (
    Panel("a5", "uniform", "uniform noise, five modes of 30", "r", tuple(_cube(5, 30, r) for r in range(2, 16))),
    Panel("a3", "uniform", "uniform noise, three modes of 30", "r", tuple(_cube(3, 30, r) for r in range(2, 29))),
    Panel(
        "b", "uniform", "uniform noise, three modes, rank (10, 10, 10)", "entries",
        tuple(_cube(3, n, 10) for n in (30, 50, 60, 80, 100, 120, 150, 200, 300, 400, 500)),
    ),
    Panel("c", "lightfield", "4DLFD, dino", "core", tuple(Point(DINO, rank) for rank in DINO_RANKS)),
    Panel(
        "d", "attface", "AttFace", "core",
        tuple(Point(FACES, (r, r, r)) for r in (1, 3, 5, 10, 15, 20, 30, 40, 50, 60, 70, 80)),
    ),
)  # fmt: skip
"""The paper's caption of (a) speaks of five modes, its text of three: here are both."""

METHODS = (
    Method("ltr-published", "LTR as printed, random blocks", is_ltr=True, is_random=True),
    Method("ltr-random", "LTR, random blocks", is_ltr=True, is_random=True),
    Method("ltr-uniform", "LTR, uniform blocks", is_ltr=True),
    Method("ltr-segments", "LTR, segments", is_ltr=True),
    Method("ltr-clusters", "LTR, clusters", is_ltr=True),
    Method("lra-sntd", "lraSNTD"),
    Method("ntd-ls-paper", "NTD_LS, the paper's settings"),
    Method("ntd-kl-paper", "NTD_KL, the paper's settings"),
    Method("ntd-ls", "tk.ntd, LS"),
    Method("ntd-kl", "tk.ntd, KL"),
    Method("tensorly", "TensorLy"),
    Method("tensorly-hals", "TensorLy, HALS"),
)

BRIEF = 2.0
"""Seconds below which a method that is not random is timed more than once."""

AGAIN = 3
"""How often: nothing but its time can differ."""


def plan(panels: Sequence[Panel], repetitions: int = 20, cores: Sequence[str] = ("one", "all")) -> Iterator[Run]:
    """List all runs: on one core, then, at three points a panel, on all cores, where nothing but times can differ."""
    for which in cores:
        for panel in panels:
            for point in panel.points if which == "one" else quickly(panel).points:
                for method in METHODS:
                    count = repetitions if method.is_random and which == "one" else min(AGAIN, repetitions)
                    yield from (Run(panel, point, method, repetition, which) for repetition in range(count))


def quickly(panel: Panel) -> Panel:
    """Leave three points of a panel: the first, one between, and one that is not yet the most expensive."""
    last = 2 * len(panel.points) // 3
    return replace(panel, points=tuple(panel.points[place] for place in sorted({0, last // 2, last})))


def chosen(letters: str) -> list[Panel]:
    """Return the panels of a letter, or of all."""
    return [panel for panel in PANELS if letters == "all" or panel.name[0] == letters]


def tensor(panel: Panel, point: Point) -> Any:
    """Make or load the tensor of a point, in float64, which all methods are given."""
    import numpy as np

    from tucket.sources import datasets

    if panel.data == "uniform":
        return np.random.default_rng(0).random(point.shape)
    x = getattr(datasets, panel.data)()
    if x.shape != point.shape:
        raise ValueError(f"{panel.data}: the tensor is of shape {x.shape}, and the paper's of {point.shape}")
    return x.astype(np.float64)
