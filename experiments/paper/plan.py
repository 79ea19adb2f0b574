"""The plan of the paper's experiments: tensors, ranks, methods and repetitions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["METHODS", "PANELS", "Method", "Panel", "Point", "Run", "load_tensor", "panels_of", "plan", "thin_out"]


@dataclass(frozen=True, slots=True)
class Point:
    """One point on the horizontal axis of a figure: the shape of a tensor, and a rank."""

    shape: tuple[int, ...]
    rank: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Panel:
    """One figure of the paper: `data` names the tensors, `along` the quantity on the horizontal axis."""

    name: str
    data: str
    title: str
    along: str
    points: tuple[Point, ...]

    def position(self, point: Point) -> int:
        """Return the position of a point on the horizontal axis."""
        positions: dict[str, Callable[[], int]] = {
            "r": lambda: point.rank[0],
            "entries": lambda: math.prod(point.shape),
            "core": lambda: math.prod(point.rank),
        }
        return positions[self.along]()


@dataclass(frozen=True, slots=True)
class Method:
    """A method: `is_ltr` if it is a form of LTR, `is_random` if its result depends on a seed."""

    name: str
    label: str
    is_ltr: bool = False
    is_random: bool = False


@dataclass(frozen=True, slots=True)
class Run:
    """One run, which makes one row of results."""

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
"""For (a), the caption in the paper says five modes and the text says three, so both are here."""

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

BRIEF_SECONDS = 2.0
"""A method that is not random is timed more than once if it takes less than this."""

TIMINGS = 3
"""How often a method that is not random is run: only its time can differ."""


def plan(panels: Sequence[Panel], repetitions: int = 20, cores: Sequence[str] = ("one", "all")) -> Iterator[Run]:
    """List all runs: on one core, and then, at three points per panel, on all cores."""
    for which in cores:
        for panel in panels:
            for point in panel.points if which == "one" else thin_out(panel).points:
                for method in METHODS:
                    count = repetitions if method.is_random and which == "one" else min(TIMINGS, repetitions)
                    yield from (Run(panel, point, method, repetition, which) for repetition in range(count))


def thin_out(panel: Panel) -> Panel:
    """Keep three points of a panel: the first, one in between, and one at two thirds of the panel."""
    last = 2 * len(panel.points) // 3
    return replace(panel, points=tuple(panel.points[place] for place in sorted({0, last // 2, last})))


def panels_of(letter: str) -> list[Panel]:
    """Return the panels of a letter, or all panels."""
    return [panel for panel in PANELS if letter == "all" or panel.name[0] == letter]


def load_tensor(panel: Panel, point: Point) -> Any:
    """Make or load the tensor of a point, as float64, which all methods get."""
    import numpy as np

    from tucket.sources import datasets

    if panel.data == "uniform":
        return np.random.default_rng(0).random(point.shape)
    x = getattr(datasets, panel.data)()
    if x.shape != point.shape:
        raise ValueError(f"{panel.data}: the tensor has shape {x.shape}; the paper's has {point.shape}")
    return x.astype(np.float64)
