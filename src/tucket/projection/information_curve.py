"""Every rank from one pass: how much information the models of a nested family keep."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tucket.base.axes import Axes
from tucket.base.checks import check_count, choose, explain_keywords
from tucket.base.optional import import_optional
from tucket.base.partition import Partition
from tucket.base.run import ProgressCallback, Run, StepCallback, ordered_map
from tucket.kernels.measures import v_log_v
from tucket.models.collect import read_finely
from tucket.models.statistics import Statistics
from tucket.projection.unfolding import information_in


@dataclass(frozen=True, slots=True)
class Point:
    """One rank: its model's blocks, its divergence, and the share of the total correlation that it keeps."""

    partition: Partition
    kl: float
    kept: float

    @property
    def rank(self) -> tuple[int, ...]:
        """Number of blocks of each mode."""
        return self.partition.rank

    @property
    def n_parameters(self) -> int:
        """Number of entries of the model's core and weights."""
        return math.prod(self.rank) + sum(self.partition.shape)


@dataclass(frozen=True, slots=True)
class InformationCurve:
    """Divergence and information kept along a nested family of ranks, from the finest to rank 1.

    Parameters
    ----------
    joint : tuple of Point
        The path that takes, in any mode, the step that loses least for each parameter saved.
    modes : tuple of tuples of Point
        For each mode, the path that coarsens this mode alone.
    total : float
        Sum of the tensor.
    axes : Axes, optional
        Names and labels of the modes.
    are_counts : bool, default True
        Whether all block sums are whole numbers.
    """

    joint: tuple[Point, ...]
    modes: tuple[tuple[Point, ...], ...]
    total: float
    axes: Axes | None = None
    are_counts: bool = True

    def retain(self, share: float) -> Point:
        """Return the smallest model on the joint path that keeps a share of the information.

        Parameters
        ----------
        share : float
            From 0 to 1.

        Returns
        -------
        Point
        """
        kept = [point for point in self.joint if point.kept >= share]
        if not kept:
            raise ValueError(
                f"retain: the finest model, of rank {self.joint[0].rank}, keeps {self.joint[0].kept:.4f}, "
                f"less than {share}; give less, or a rank"
            )
        return kept[-1]

    def within(self, parameters: int) -> Point:
        """Return the largest model on the joint path with at most so many parameters.

        Parameters
        ----------
        parameters : int
            Numbers that the model may hold.

        Returns
        -------
        Point
        """
        for point in self.joint:
            if point.n_parameters <= parameters:
                return point
        least = self.joint[-1].n_parameters
        raise ValueError(f"max_parameters: got {parameters}, but the rank-1 model has {least}; give at least that")

    def shortest_description(self) -> Point:
        """Return the model of least description length: divergence plus half of log S for each free parameter.

        The entries are taken for counts, with S of them in all. There is a warning if they are not: then the choice
        depends on the unit of the data.

        Returns
        -------
        Point
        """
        if not self.are_counts:
            warnings.warn(
                "the description length takes entries for counts, and these are not whole numbers: the rank would be "
                "another one in another unit; give counts, or choose by rank='cv' or retain=",
                stacklevel=2,
            )

        def length(point: Point) -> float:
            free = math.prod(point.rank) - 1 + sum(s - r for s, r in zip(point.partition.shape, point.rank))
            return point.kl + free / 2 * math.log(max(self.total, 1))

        least = min(map(length, self.joint))
        # points with only one mode cut are the same tensor: of equals, the smallest
        return next(point for point in reversed(self.joint) if length(point) <= least + 1e-9 * abs(least))

    def knee(self) -> Point:
        """Return the point of the joint path farthest above the line from its smallest to its largest model.

        Returns
        -------
        Point
        """
        sizes = np.log([point.n_parameters for point in self.joint])
        kept = np.array([point.kept for point in self.joint])
        across = (sizes - sizes[-1]) / ((sizes[0] - sizes[-1]) or 1)
        above = (kept - kept[-1]) / ((kept[0] - kept[-1]) or 1) - across
        return self.joint[int(above.argmax())]

    def to_pandas(self) -> Any:
        """Return a table of all paths, with one row per point.

        Returns
        -------
        pandas.DataFrame
        """
        pd = import_optional("pandas", "pandas", "to_pandas")
        names = range(len(self.modes)) if self.axes is None else self.axes.names
        paths = [("joint", self.joint), *((f"mode {name}", path) for name, path in zip(names, self.modes))]
        return pd.DataFrame(
            [
                {"path": name, "rank": p.rank, "n_parameters": p.n_parameters, "kl": p.kl, "kept": p.kept}
                for name, path in paths
                for p in path
            ]
        )

    def __repr__(self) -> str:
        shown = [self.retain(share) for share in (0.99, 0.95, 0.9, 0.8, 0.5) if self.joint[0].kept >= share]
        lines = [f"{point.kept:7.1%} {point.n_parameters:>12,}  {point.rank}" for point in shown]
        return "\n".join([f"InformationCurve of {len(self.joint)} models", "   kept   parameters  rank", *lines])


def check_criterion(rank: object, retain: object, max_parameters: object) -> Callable[[InformationCurve], Point]:
    """Return how a rank is to be chosen from a curve."""
    asked = {"rank": rank, "retain": retain, "max_parameters": max_parameters}
    given = [f"{name}={value!r}" for name, value in asked.items() if value is not None]
    if len(given) > 1:
        raise ValueError(f"{' and '.join(given)} contradict each other; give one of rank, retain and max_parameters")
    if isinstance(rank, str):
        # "cv" is dealt with before, and stands here for the error message
        return choose(rank, dict.fromkeys(("mdl", "cv"), InformationCurve.shortest_description), "rank")
    if retain is not None:
        if not isinstance(retain, (int, float, np.number)) or isinstance(retain, bool) or not 0 < retain <= 1:
            raise ValueError(f"retain: got {retain!r}; give a share above 0, up to 1")
        share = float(retain)
        return lambda curve: curve.retain(share)
    count = check_count(max_parameters, "max_parameters")
    return lambda curve: curve.within(count)


@explain_keywords
def information_curve(
    x: Any,
    *,
    workers: int | None = None,
    callback: StepCallback | None = None,
    progress: ProgressCallback | None = None,
) -> InformationCurve:
    """Return how much information the models of a nested family of ranks keep, from one pass over the data.

    Parameters
    ----------
    x : array of real numbers, finite and not negative; or a source, a stream or Statistics
        The tensor, as for `collect`; a large one is first cut into fine contiguous blocks. Or statistics of a tensor,
        with the finest blocks to look at; without their moments, divergence and share are relative to those blocks.
    workers : int, optional
        Threads that may be used; by default as many as the process has processors.
    callback : callable, optional
        Called with a `Step` after each join on the joint path; its loss is the divergence of the model then.
    progress : callable, optional
        Called with a `Progress` after each chunk of the data.

    Returns
    -------
    InformationCurve
        The models from the finest to rank 1, for all modes together and for each mode alone.

    Raises
    ------
    ValueError
        If an entry is negative or not finite.

    See Also
    --------
    ltr : Takes the rank from this curve, by `retain=`, `max_parameters=` or `rank="mdl"`.

    Examples
    --------
    >>> x = np.outer([1, 2, 5, 5], [3, 3, 1]) + 9 * np.eye(4, 3)
    >>> curve = information_curve(x)
    >>> curve.retain(0.9).rank
    (4, 3)
    """
    run = Run.of(workers, progress, callback)
    statistics = x if isinstance(x, Statistics) else read_finely(x, run)
    modes = range(len(statistics.rank))

    def follow(some: Sequence[int]) -> tuple[Point, ...]:
        points = []
        for done, point in enumerate(_path(statistics, some)):
            points.append(point)
            if some is modes and done:
                run.report(done, point.kl)
        return tuple(points)

    threads = 1 if callback else run.workers  # a callback is called in the thread of the caller
    joint, *paths = ordered_map(follow, [modes, *([mode] for mode in modes)], threads)
    are_counts = bool((statistics.core % 1 == 0).all())
    return InformationCurve(joint, tuple(paths), statistics.total, statistics.axes, are_counts)


def _path(statistics: Statistics, modes: Sequence[int]) -> Iterator[Point]:
    """Yield the finest point and ever coarser ones: each joins the neighbours that lose least a parameter saved."""
    whole, kept, total = statistics.total_correlation(), information_in(statistics.core), statistics.total
    # it is a difference of entropies: below this, all of it is rounding
    least = 1e-13 * (math.log(max(total, 1.0)) + sum(math.log(size) + 1 for size in statistics.shape))
    core = Shrinking(statistics.core / (total or 1.0), modes)
    while True:
        lost = whole - kept if whole - kept > least else 0.0
        share = max(0.0, kept / whole) if lost and whole > least else 1.0
        grid = Partition.from_starts(statistics.rank, core.starts)
        yield Point(statistics.partition.compose(grid), total * lost, share)
        step = core.cheapest()
        if step is None:
            return
        kept -= core.join(*step)


class Shrinking:
    """A core with blocks that are joined, pair after pair, and what each pair of neighbours would lose.

    The second of a pair stays where it is, without mass, and is passed over, until half of the core is such.
    """

    def __init__(self, core: NDArray[np.float64], modes: Sequence[int]) -> None:
        from tucket.kernels.cpu import scores

        # the longest mode first, since most of the slabs that are joined are its: they then lie in one piece
        self.axes = [int(axis) for axis in np.argsort(np.argsort([-size for size in core.shape], kind="stable"))]
        self.core = core.transpose(np.argsort(self.axes)).copy(order="C")
        self.modes, self.scores = modes, scores
        self.starts = [np.arange(size) for size in core.shape]
        self.alive = [starts.copy() for starts in self.starts]
        axes = set(range(core.ndim))
        self.masses = [core.sum(axis=tuple(axes - {mode})) for mode in axes]
        # what is lost of the sum of v log v over the core; what is lost over the masses counts against it
        self.losses = {mode: self._neighbours(self.core, self.axes[mode], self.alive[mode]) for mode in modes}

    def _neighbours(self, part: NDArray[np.float64], axis: int, alive: NDArray[np.intp]) -> NDArray[np.float64]:
        if axis == part.ndim - 1:  # rows of one entry: better turned first
            part, axis = np.ascontiguousarray(np.moveaxis(part, axis, 0)), 0
        shape = part.shape
        flat = part.reshape(math.prod(shape[:axis]), shape[axis], math.prod(shape[axis + 1 :]))
        losses: NDArray[np.float64] = self.scores.join_neighbours(flat, alive)
        return losses

    def cheapest(self) -> tuple[int, int, float] | None:
        """Return the mode and pair that lose least for each parameter saved, and the loss."""
        size = math.prod(map(len, self.alive))
        found = []
        for mode in self.modes:
            alive = self.alive[mode]
            if len(alive) > 1:
                mass = self.masses[mode][alive]
                losses = self.losses[mode][:-1] - (
                    v_log_v(mass[:-1]) + v_log_v(mass[1:]) - v_log_v(mass[:-1] + mass[1:])
                )
                pair = int(losses.argmin())
                found.append((float(losses[pair]) * len(alive) / size, mode, pair, float(losses[pair])))
        return min(found)[1:] if found else None

    def join(self, mode: int, pair: int, loss: float) -> float:
        """Join a pair of neighbours; return the loss."""
        alive, axis = self.alive[mode], self.axes[mode]
        first, second = alive[pair], alive[pair + 1]
        slabs = np.moveaxis(self.core, axis, 0)
        one, other = slabs[first].copy(), slabs[second].copy()
        both = one + other
        for k in self.modes:
            if k != mode:
                inner = self.axes[k] - (self.axes[k] > axis)
                for part, sign in ((both, 1), (one, -1), (other, -1)):
                    self.losses[k] += sign * self._neighbours(part, inner, self.alive[k])
        slabs[first], slabs[second] = both, 0
        self.masses[mode][first] += self.masses[mode][second]
        self.starts[mode] = np.delete(self.starts[mode], pair + 1)
        self.alive[mode] = alive = np.delete(alive, pair + 1)
        losses = np.delete(self.losses[mode], pair + 1)
        for k in (pair - 1, pair):
            if 0 <= k < len(alive) - 1:
                a, b = (np.ascontiguousarray(slabs[alive[at]]).ravel() for at in (k, k + 1))
                losses[k] = self.scores.join_all(a, b)
        self.losses[mode] = losses
        if 2 * math.prod(map(len, self.alive)) < self.core.size:
            self._compact()
        return loss

    def _compact(self) -> None:
        """Drop what has no mass any more."""
        by_axis = sorted(range(self.core.ndim), key=lambda mode: self.axes[mode])
        self.core = self.core[np.ix_(*(self.alive[mode] for mode in by_axis))]
        self.masses = [mass[alive] for mass, alive in zip(self.masses, self.alive)]
        self.alive = [np.arange(len(alive)) for alive in self.alive]
