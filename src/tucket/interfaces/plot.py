"""Pictures of models: blocks, cores, information, errors and slices. Each takes `ax`, and returns what it drew on.

The colours are those of Okabe and Ito, and cividis, which people with any kind of colour vision can tell apart.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from tucket.backends.home import home_of
from tucket.base.axes import find_mode, mode_names
from tucket.base.optional import need
from tucket.kernels.foreign import bring
from tucket.models.arrays import here
from tucket.models.model import Model
from tucket.models.tucker import BlockTucker

if TYPE_CHECKING:
    from tucket.decomposition.fit import Fit
    from tucket.interfaces.compare import Entry
    from tucket.projection.information_curve import InformationCurve

__all__ = ["blocks", "core", "errors", "information", "model", "slices"]

COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
MARKS = "osD^vPX*"

LONGEST = 600
"""Bars of a marginal, at most."""


def blocks(model: BlockTucker, mode: int | str = 0, *, ax: Any = None) -> Any:
    """Draw the blocks of a mode over its marginal: neighbouring colours are different blocks."""
    model = here(model)
    if not isinstance(model, BlockTucker):
        raise TypeError(f"model: got a {type(model).__name__}, which has no blocks; give a model of ltr's")
    ax = _axes(ax)
    number = find_mode(mode, model.axes, len(model.shape))
    marginal = model.marginals[number]
    labels = model.partition[number].labels
    # of a long mode the largest of some neighbours is shown, since a bar thinner than a pixel is not seen
    first = np.unique(np.linspace(0, len(marginal), min(len(marginal), LONGEST), endpoint=False).astype(int))
    heights = np.maximum.reduceat(marginal, first)
    widths = np.diff(np.append(first, len(marginal)))
    shades = np.array([COLOURS[label % 6] for label in range(model.rank[number])])
    ax.bar(first - 0.5, heights, width=widths, align="edge", color=shades[labels[first]], linewidth=0)
    edges = np.flatnonzero(labels[1:] != labels[:-1]) + 0.5
    if len(edges) <= 100:
        ax.vlines(edges, 0, marginal.max(initial=0), color="white", linewidth=0.5)
    ax.set(xlim=(-0.5, len(marginal) - 0.5), xlabel=_name(model, number), ylabel="marginal")
    ax.set_title(f"{model.rank[number]} blocks of {len(marginal)} indices", fontsize=10)
    _label_ticks(ax, model, number)
    return ax


def core(model: Model, modes: tuple[int | str, int | str] = (0, 1), *, ax: Any = None) -> Any:
    """Draw the core of a model, summed over all but two modes, in the order of its blocks."""
    model = here(model)
    ax = _axes(ax)
    count = len(model.shape)
    first, second = (find_mode(mode, model.axes, count) for mode in (modes if count > 1 else (0, 0)))
    if count > 1 and first == second:
        raise ValueError(f"modes: got {modes}; give two different ones")
    held = model.core.astype(np.float64)
    flat = held.sum(axis=tuple(k for k in range(count) if k not in (first, second)))
    flat = flat.reshape(1, -1) if count == 1 else flat if first < second else flat.T
    image = ax.imshow(flat, cmap="cividis", aspect="auto", interpolation="nearest")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    ax.figure.colorbar(image, ax=ax, label="sum of the block")
    ax.set(ylabel=f"blocks of {_name(model, first)}" if count > 1 else "", xlabel=f"blocks of {_name(model, second)}")
    ax.set_title(f"core, {' x '.join(map(str, model.rank))}", fontsize=10)
    return ax


def information(curve: InformationCurve, *, ax: Any = None) -> Any:
    """Draw how much of the information the models of a curve keep, against the numbers that they hold."""
    ax = _axes(ax)
    names = mode_names(curve.axes, len(curve.modes))
    ax.plot([p.n_parameters for p in curve.joint], [p.kept for p in curve.joint], color=COLOURS[7], label="all modes")
    for path, name, colour in zip(curve.modes, names, COLOURS * len(curve.modes)):
        ax.plot([p.n_parameters for p in path], [p.kept for p in path], "--", color=colour, label=f"{name} alone")
    knee = curve.knee()
    ax.plot(knee.n_parameters, knee.kept, "o", color=COLOURS[5], label=f"knee: {knee.rank}")
    ax.set(xscale="log", xlabel="parameters", ylabel="information kept", ylim=(0, 1.02))
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    return ax


def errors(results: Iterable[Entry] | Fit, *, measure: str = "relative_error", ax: Any = None) -> Any:
    """Draw error against time: of methods that were compared, or of the iterations of one."""
    ax = _axes(ax)
    trace = getattr(results, "trace", None)
    if trace is not None:
        ax.plot([step.seconds for step in trace], [step.loss for step in trace], ".-", color=COLOURS[0])
        ax.set(xscale="log", xlabel="seconds", ylabel="loss")
    else:
        for entry, colour, mark in zip(results, COLOURS * 9, MARKS * 9):  # type: ignore[arg-type]
            ax.plot(entry.seconds, getattr(entry, measure), mark, color=colour, label=entry.method, markersize=8)
        names = {"relative_error": "relative error", "kl": "KL / sum"}
        ax.set(xscale="log", xlabel="seconds", ylabel=names.get(measure, measure))
        ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    return ax


def slices(x: Any, model: Model, index: Sequence[int] | None = None, *, axes: Any = None) -> Any:
    """Draw a slice of a tensor of images, its approximation, and what is left between them, side by side.

    The slice has two neighbouring modes of most alike size, and one of three or four, if it comes after them, for
    colour; `index` says which of the indices of the other modes, by default the first.
    """
    model = here(model)
    x = np.asarray(x) if home_of(x) is None else bring(x)
    if x.shape != model.shape:
        raise ValueError(f"x has shape {x.shape}, but the model is of shape {model.shape}")
    image = image_modes(model.shape)
    others = [k for k in range(x.ndim) if k not in image]
    at = [0] * len(others) if index is None else list(index)
    if len(at) != len(others):
        raise ValueError(f"index: got {len(at)} numbers; give {len(others)}, one for each of the modes {others}")
    where = tuple(slice(None) if k in image else at[others.index(k)] for k in range(x.ndim))
    original, found = x[where].astype(np.float64), np.asarray(model[where], np.float64)
    if axes is None:
        plt = need("matplotlib.pyplot", "plot", "a plot")
        axes = plt.subplots(1, 3, figsize=(9, 3.2), layout="constrained")[1]
    top = original.max() or 1.0
    shades = {} if original.ndim == 3 else {"cmap": "cividis", "vmin": 0, "vmax": 1}
    for ax, part, title in zip(axes, (original, found), ("original", "approximation")):
        ax.imshow(np.clip(part / top, 0, 1), **shades)
        ax.set_title(title, fontsize=10)
    rest = (original - found) / top
    rest = rest.mean(axis=2) if rest.ndim == 3 else rest
    widest = float(np.abs(rest).max()) or 1.0
    axes[2].imshow(rest, cmap="PuOr", vmin=-widest, vmax=widest)
    axes[2].set_title("residual", fontsize=10)
    for ax in axes:
        ax.set(xticks=[], yticks=[])
    return axes


def image_modes(shape: Sequence[int]) -> list[int]:
    """Return the modes that make an image: neighbours of most alike size, and one of 3 or 4 after them, for colour.

    Examples
    --------
    >>> image_modes((9, 9, 512, 512, 3)), image_modes((92, 112, 400))
    ([2, 3, 4], [0, 1])
    """
    if len(shape) < 2:
        raise ValueError(f"a tensor of shape {tuple(shape)} has no slice that is an image; give at least two modes")

    def alike(first: int) -> tuple[bool, float, int]:
        low, high = sorted(shape[first : first + 2])
        return low < 8, high / low, -low * high

    first = min(range(len(shape) - 1), key=alike)
    image = [first, first + 1]
    colour = image[-1] + 1
    return [*image, colour] if colour < len(shape) and shape[colour] in (3, 4) else image


def model(model: Model) -> Any:
    """Draw what there is to see of a model: the blocks of each mode over its marginal, and the core."""
    model = here(model)
    plt = need("matplotlib.pyplot", "plot", "a plot")
    count = len(model.shape)
    pairs = [(k, k + 1) for k in range(min(count - 1, 2))] or [(0, 0)]
    shown = list(range(count)) if isinstance(model, BlockTucker) else []
    total = len(shown) + len(pairs)
    columns = min(total, 4)
    rows = -(-total // columns)
    figure, axes = plt.subplots(rows, columns, figsize=(4 * columns, 3.2 * rows), squeeze=False, layout="constrained")
    places = list(axes.ravel())
    for mode, ax in zip(shown, places):
        blocks(model, mode, ax=ax)  # type: ignore[arg-type]
    for pair, ax in zip(pairs, places[len(shown) :]):
        core(model, pair, ax=ax)
    for ax in places[total:]:
        ax.remove()
    return figure


def _axes(ax: Any) -> Any:
    if ax is not None:
        return ax
    plt = need("matplotlib.pyplot", "plot", "a plot")
    return plt.subplots(layout="constrained")[1]


def _name(model: Model, mode: int) -> str:
    return mode_names(model.axes, len(model.shape))[mode]


def _label_ticks(ax: Any, model: Model, mode: int) -> None:
    labels = None if model.axes is None else model.axes.labels[mode]
    if labels is not None and len(labels) <= 30:
        ax.set_xticks(range(len(labels)), [str(label) for label in labels], rotation=90, fontsize=7)
