"""Plots of models: blocks, cores, information, errors and slices."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from tucket.backends import get_backend
from tucket.base.axes import find_mode, mode_names
from tucket.base.optional import import_optional
from tucket.interfaces.text import format_sizes
from tucket.models.block_tucker import BlockTucker
from tucket.models.model import Model

if TYPE_CHECKING:
    from tucket.decomposition.fit import Fit
    from tucket.interfaces.compare import Entry
    from tucket.projection.cross_validation import CrossValidation
    from tucket.projection.information_curve import InformationCurve

__all__ = ["blocks", "core", "cross_validation", "errors", "information", "model", "slices"]

# the palette of Okabe and Ito: like cividis, it works for people with any colour vision
COLOURS = ("#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#000000")
MARKERS = "osD^vPX*"

MAX_BARS = 600
"""Maximum number of bars of a marginal: about one per pixel of a small figure."""

MAX_EDGES = 100
"""Maximum number of white lines between blocks: more would hide the bars."""

MAX_TICK_LABELS = 30
"""Maximum number of labels that an axis shows."""


def blocks(model: BlockTucker, mode: int | str = 0, *, ax: Any = None) -> Any:
    """Plot the marginal of a mode, coloured by block.

    Parameters
    ----------
    model : BlockTucker
        A model made by `tucket.ltr`.
    mode : int or str, default 0
        Number or name of the mode.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    TypeError
        If the model has no blocks.

    See Also
    --------
    tucket.BlockTucker.blocks : The same blocks as a list.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> blocks(tk.ltr(x, 2), mode=1).get_title()
    '2 blocks of 10 indices'
    """
    model = with_blocks(model)
    ax = _new_axes() if ax is None else ax
    number = find_mode(mode, model.axes, len(model.shape))
    marginal, labels = model.marginals[number], model.partition[number].labels
    # a bar thinner than a pixel is invisible: in a long mode, each bar shows the largest of several neighbours
    first = np.unique(np.linspace(0, len(marginal), min(len(marginal), MAX_BARS), endpoint=False).astype(int))
    heights = np.maximum.reduceat(marginal, first)
    widths = np.diff(np.append(first, len(marginal)))
    colours = np.array([COLOURS[label % 6] for label in range(model.rank[number])])
    ax.bar(first - 0.5, heights, width=widths, align="edge", color=colours[labels[first]], linewidth=0)
    edges = np.flatnonzero(labels[1:] != labels[:-1]) + 0.5
    if len(edges) <= MAX_EDGES:
        ax.vlines(edges, 0, marginal.max(initial=0), color="white", linewidth=0.5)
    ax.set(xlim=(-0.5, len(marginal) - 0.5), xlabel=_name(model, number), ylabel="marginal")
    ax.set_title(f"{model.rank[number]} blocks of {len(marginal)} indices", fontsize=10)
    index_labels = None if model.axes is None else model.axes.labels[number]
    if index_labels is not None and len(index_labels) <= MAX_TICK_LABELS:
        ax.set_xticks(range(len(index_labels)), [str(label) for label in index_labels], rotation=90, fontsize=7)
    return ax


def core(model: Model, modes: tuple[int | str, int | str] = (0, 1), *, ax: Any = None) -> Any:
    """Plot the core of a model, summed over all modes but two.

    Parameters
    ----------
    model : Model
        Any model.
    modes : pair of int or str, default (0, 1)
        The modes of the rows and the columns, by number or name.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    ValueError
        If both modes are the same.

    See Also
    --------
    model : The blocks and the core.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> core(tk.ltr(x, 2)).get_title()
    'core, 2 x 2'
    """
    model = model.to_numpy()
    count = len(model.shape)
    first, second = (find_mode(mode, model.axes, count) for mode in (modes if count > 1 else (0, 0)))
    if count > 1 and first == second:
        raise ValueError(f"modes: got {modes}; give two different ones")
    ax = _new_axes() if ax is None else ax
    sums = model.core.sum(axis=tuple(k for k in range(count) if k not in (first, second)), dtype=np.float64)
    sums = sums.reshape(1, -1) if count == 1 else sums if first < second else sums.T
    image = ax.imshow(sums, cmap="cividis", aspect="auto", interpolation="nearest")
    for axis in (ax.xaxis, ax.yaxis):
        axis.get_major_locator().set_params(integer=True)
    ax.figure.colorbar(image, ax=ax, label="sum of the block")
    ax.set(ylabel=f"blocks of {_name(model, first)}" if count > 1 else "", xlabel=f"blocks of {_name(model, second)}")
    ax.set_title(f"core, {format_sizes(model.rank)}", fontsize=10)
    return ax


def information(curve: InformationCurve, *, ax: Any = None) -> Any:
    """Plot the share of information that models keep against their number of parameters.

    Parameters
    ----------
    curve : InformationCurve
        Result of `tucket.information_curve`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    See Also
    --------
    tucket.information_curve : Computes the curve.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> information(tk.information_curve(x)).get_legend().get_texts()[-1].get_text()
    'knee: (2, 2)'
    """
    ax = _new_axes() if ax is None else ax
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


def cross_validation(table: CrossValidation, *, ax: Any = None) -> Any:
    """Plot the loss on held-out cells, and on those of the fit, against the size of the model.

    Parameters
    ----------
    table : CrossValidation
        The result of `tucket.cross_validate`.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    See Also
    --------
    tucket.cross_validate : Makes the table.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.random.default_rng(0).poisson(np.kron([[9, 1], [2, 7]], np.ones((10, 8))))
    >>> cross_validation(tk.cross_validate(x, [1, 2, 4])).get_xlabel()
    'parameters'
    """
    ax = _new_axes() if ax is None else ax
    scores = sorted(table.scores, key=lambda score: (score.n_parameters, score.loss))
    best, chosen = table.least, table.best()
    sizes = [score.n_parameters for score in scores]
    errors = [score.error_beside(best) for score in scores]
    ax.errorbar(sizes, [s.loss for s in scores], errors, fmt="o", color=COLOURS[0], capsize=3, label="held-out cells")
    ax.plot(sizes, [s.fitted for s in scores], ".", color=COLOURS[1], label="cells of the fit")
    taken = next(score for score in scores if score.rank == chosen)
    ax.plot(taken.n_parameters, taken.loss, "o", ms=14, mfc="none", color=COLOURS[2], label=f"rank {chosen}")
    ax.set(xscale="log", xlabel="parameters", ylabel=table.loss)
    ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    return ax


def errors(results: Iterable[Entry] | Fit, *, measure: str = "relative_error", ax: Any = None) -> Any:
    """Plot error against time, of several methods or of the iterations of one.

    Parameters
    ----------
    results : Fit, or iterable of Entry
        Result of `tucket.ntd` or of `tucket.interfaces.compare.compare`.
    measure : {"relative_error", "kl"}, default "relative_error"
        Which error of the methods to plot. A Fit always shows its own loss.
    ax : matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    matplotlib.axes.Axes
        The axes with the plot.

    Raises
    ------
    TypeError
        If the results are of another kind.

    See Also
    --------
    tucket.ntd : Returns a Fit.

    Examples
    --------
    >>> import tucket as tk
    >>> fit = tk.ntd(np.add.outer(np.arange(1.0, 7), np.arange(1.0, 9)), 2)
    >>> errors(fit).get_ylabel()
    'loss'
    """
    from tucket.interfaces.compare import Entry

    trace = getattr(results, "trace", None)
    entries = [] if trace is not None else list(results) if isinstance(results, Iterable) else [results]
    if not all(isinstance(entry, Entry) for entry in entries):
        raise TypeError(f"takes a Fit or the entries of compare; got a {type(results).__name__}")
    ax = _new_axes() if ax is None else ax
    if trace is not None:
        ax.plot([step.seconds for step in trace], [step.loss for step in trace], ".-", color=COLOURS[0])
        ax.set(xscale="log", xlabel="seconds", ylabel="loss")
    else:
        for entry, colour, marker in zip(entries, COLOURS * 9, MARKERS * 9):
            ax.plot(entry.seconds, getattr(entry, measure), marker, color=colour, label=entry.method, markersize=8)
        names = {"relative_error": "relative error", "kl": "KL / sum"}
        ax.set(xscale="log", xlabel="seconds", ylabel=names.get(measure, measure))
        ax.legend(fontsize=8)
    ax.grid(alpha=0.3)
    return ax


def slices(x: Any, model: Model, index: Sequence[int] | None = None, *, axes: Any = None) -> Any:
    """Plot a slice of a tensor of images, its approximation, and the residual, side by side.

    An image has the two neighbouring modes of most similar size, and a mode of 3 or 4 after them as its colours.

    Parameters
    ----------
    x : array
        The tensor.
    model : Model
        A model of the same shape.
    index : sequence of int, optional
        Which slice: one index for each of the other modes; the first slice by default.
    axes : sequence of three matplotlib.axes.Axes, optional
        Where to draw; a new figure by default.

    Returns
    -------
    sequence of matplotlib.axes.Axes
        The axes with the three images.

    Raises
    ------
    ValueError
        If `x` and the model differ in shape, or `index` has another length.

    See Also
    --------
    tucket.report.write_report : A page with many slices.

    Examples
    --------
    >>> import tucket as tk
    >>> images = np.kron(np.eye(3)[:, :, None], np.ones((4, 8, 16)))  # a bar that moves
    >>> [ax.get_title() for ax in slices(images, tk.ltr(images, 3), [2])]
    ['original', 'approximation', 'residual']
    """
    model = model.to_numpy()
    x = get_backend(x).to_numpy(x)
    if x.shape != model.shape:
        raise ValueError(f"x has shape {x.shape}, but the model is of shape {model.shape}")
    image = image_modes(model.shape)
    others = [k for k in range(x.ndim) if k not in image]
    indices = [0] * len(others) if index is None else list(index)
    if len(indices) != len(others):
        raise ValueError(f"index: got {len(indices)} numbers; give {len(others)}, one for each of the modes {others}")
    box = tuple(slice(None) if k in image else indices[others.index(k)] for k in range(x.ndim))
    original, approximation = (np.asarray(each[box], np.float64) for each in (x, model))
    if axes is None:
        axes = _pyplot().subplots(1, 3, figsize=(9, 3.2), layout="constrained")[1]
    top = original.max() or 1.0
    shades = {} if original.ndim == 3 else {"cmap": "cividis", "vmin": 0, "vmax": 1}
    for ax, part in zip(axes, (original, approximation)):
        ax.imshow(np.clip(part / top, 0, 1), **shades)
    residual = (original - approximation) / top
    residual = residual.mean(axis=2) if residual.ndim == 3 else residual
    widest = float(np.abs(residual).max()) or 1.0
    axes[2].imshow(residual, cmap="PuOr", vmin=-widest, vmax=widest)
    for ax, title in zip(axes, ("original", "approximation", "residual")):
        ax.set(xticks=[], yticks=[])
        ax.set_title(title, fontsize=10)
    return axes


def image_modes(shape: Sequence[int]) -> list[int]:
    """Return the modes of an image: the neighbours of most similar size, and a mode of 3 or 4 after them as colour.

    >>> image_modes((9, 9, 512, 512, 3)), image_modes((92, 112, 400))
    ([2, 3, 4], [0, 1])
    """
    if len(shape) < 2:
        raise ValueError(f"a tensor of shape {tuple(shape)} has no slice that is an image; give at least two modes")

    def unlikeness(first: int) -> tuple[bool, float, int]:
        low, high = sorted(shape[first : first + 2])
        return low < 8, high / low, -low * high

    first = min(range(len(shape) - 1), key=unlikeness)
    image = [first, first + 1]
    colour = image[-1] + 1
    return [*image, colour] if colour < len(shape) and shape[colour] in (3, 4) else image


def model(model: Model) -> Any:
    """Plot a model: the blocks of each mode over its marginal, if it has blocks, and the core.

    Parameters
    ----------
    model : Model
        Any model.

    Returns
    -------
    matplotlib.figure.Figure
        The new figure.

    Raises
    ------
    ImportError
        If Matplotlib is not installed.

    See Also
    --------
    blocks, core : The parts alone.

    Examples
    --------
    >>> import tucket as tk
    >>> x = np.kron([[9, 1], [1, 9]], np.ones((4, 5)))  # two groups of rows and of columns
    >>> [ax.get_title() for ax in model(tk.ltr(x, 2)).axes[:3]]
    ['2 blocks of 8 indices', '2 blocks of 10 indices', 'core, 2 x 2']
    """
    model = model.to_numpy()
    count = len(model.shape)
    plots = [partial(blocks, model, mode) for mode in range(count)] if isinstance(model, BlockTucker) else []
    plots += [partial(core, model, (k, k + 1)) for k in range(min(count - 1, 2))] or [partial(core, model)]
    columns = min(len(plots), 4)
    rows = -(-len(plots) // columns)
    size = 4 * columns, 3.2 * rows
    figure, axes = _pyplot().subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for draw, ax in zip(plots, axes.flat):
        draw(ax=ax)
    for ax in axes.flat[len(plots) :]:
        ax.remove()
    return figure


def with_blocks(model: Any) -> BlockTucker:
    """Return a model in NumPy arrays, if it has blocks."""
    found = model.to_numpy() if hasattr(model, "to_numpy") else model
    if not isinstance(found, BlockTucker):
        raise TypeError(f"model: got a {type(model).__name__}, which has no blocks; give a model made by tucket.ltr")
    return found


def _pyplot() -> Any:
    return import_optional("matplotlib.pyplot", "plot", "a plot")


def _new_axes() -> Any:
    return _pyplot().subplots(layout="constrained")[1]


def _name(model: Model, mode: int) -> str:
    return mode_names(model.axes, len(model.shape))[mode]
