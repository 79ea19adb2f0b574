"""Names of the modes of a tensor, and labels of their indices."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.checks import as_index, check_rank, frozen


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Axes:
    """Names of the modes of a tensor, and labels of their indices.

    Parameters
    ----------
    names : iterable
        One name per mode; each becomes a string.
    labels : iterable of array-like or None, optional
        One sequence of labels per mode, or None. Labels are numbers, times or strings; others become strings.

    Raises
    ------
    ValueError
        If two modes have the same name, or the labels do not fit the names.

    See Also
    --------
    from_entries, from_table : Sparse tensors with named modes.

    Examples
    --------
    >>> axes = Axes(("city", "hour"), (["Bonn", "Kyoto"], None))
    >>> axes.labels[0]
    array(['Bonn', 'Kyoto'], dtype='<U5')
    >>> axes
    Axes(city: 2 labels, hour)
    """

    names: tuple[str, ...]
    labels: tuple[NDArray[Any] | None, ...]

    def __init__(self, names: Iterable[object], labels: Iterable[ArrayLike | None] | None = None) -> None:
        strings = tuple(map(str, names))
        if len(set(strings)) < len(strings):
            twice = next(name for name in strings if strings.count(name) > 1)
            raise ValueError(f"modes: {twice!r} names two modes; give each a name of its own")
        given = (None,) * len(strings) if labels is None else tuple(labels)
        if len(given) != len(strings):
            raise ValueError(f"labels: got {len(given)} for {len(strings)} modes; give one sequence or None per mode")
        object.__setattr__(self, "names", strings)
        object.__setattr__(self, "labels", tuple(map(_as_labels, given)))

    def __reduce__(self) -> tuple[Any, ...]:
        return Axes, (self.names, self.labels)

    @classmethod
    def _of(
        cls, names: Iterable[object] | None, labels: Iterable[ArrayLike | None] | None, shape: Sequence[int]
    ) -> Self:
        """Return axes that fit a shape; by default, names are the numbers of the modes."""
        return cls(range(len(shape)) if names is None else names, labels)._check(tuple(shape))

    def _check(self, shape: tuple[int, ...]) -> Self:
        """Return these axes if they fit a shape, or raise."""
        if len(self.names) != len(shape):
            raise ValueError(f"modes: got {len(self.names)} names, {self.names}, for shape {shape}; give one per mode")
        for name, labels, size in zip(self.names, self.labels, shape):
            if labels is not None and len(labels) != size:
                raise ValueError(f"mode {name!r}: got {len(labels)} labels for {size} indices; give one per index")
        return self

    def _append(self, other: Axes, mode: int) -> Axes:
        """Return the axes of two tensors joined along a mode."""
        if self.names != other.names:
            raise ValueError(f"the modes are called {self.names} and {other.names}; give tensors of the same modes")
        for k, (ours, theirs) in enumerate(zip(self.labels, other.labels)):
            if k != mode and not _same_labels(ours, theirs):
                raise ValueError(f"mode {self.names[k]!r}: its labels differ; give tensors with the same labels")
        first, second = self.labels[mode], other.labels[mode]
        joined = None if first is None or second is None else np.concatenate((first, second))
        return Axes(self.names, (*self.labels[:mode], joined, *self.labels[mode + 1 :]))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Axes):
            return NotImplemented
        return self.names == other.names and all(map(_same_labels, self.labels, other.labels))

    def __hash__(self) -> int:
        return hash(self.names)

    def __repr__(self) -> str:
        parts = (n if ls is None else f"{n}: {len(ls)} labels" for n, ls in zip(self.names, self.labels))
        return f"Axes({', '.join(parts)})"

    def _to_arrays(self) -> dict[str, NDArray[Any]]:
        """Return the arrays to save."""
        labels = {f"axis_{mode}": each for mode, each in enumerate(self.labels) if each is not None}
        return {"names": np.array(self.names), **labels}

    @classmethod
    def _from_arrays(cls, arrays: Mapping[str, NDArray[Any]]) -> Axes | None:
        """Return the axes of a saved model, or None."""
        if "names" not in arrays:
            return None
        names = np.atleast_1d(arrays["names"]).tolist()
        return cls(names, [arrays.get(f"axis_{mode}") for mode in range(len(names))])


def name_modes(
    axes: Axes | None,
    names: Iterable[object] | None,
    labels: Mapping[int | str, ArrayLike] | Iterable[ArrayLike | None] | None,
    shape: tuple[int, ...],
) -> Axes | None:
    """Return axes with the names and labels that the user gave for data without their own."""
    if names is None and labels is None:
        return axes
    if names is not None and axes is not None:
        raise ValueError(f"names: the data have names of their own, {axes.names}; leave names out")
    held = Axes._of(names, None, shape) if axes is None else axes
    given = (None,) * len(shape) if labels is None else tuple(by_mode(labels, held, len(shape), None, "labels"))
    if len(given) != len(shape):
        raise ValueError(f"labels: got {len(given)} for {len(shape)} modes; give one sequence per mode, or None")
    for name, ours, theirs in zip(held.names, held.labels, given):
        if ours is not None and theirs is not None:
            raise ValueError(f"labels: mode {name!r} has labels of its own; leave its labels out")
    merged = [theirs if ours is None else ours for ours, theirs in zip(held.labels, given)]
    return Axes(held.names, merged)._check(shape)


def mode_names(axes: Axes | None, count: int) -> tuple[str, ...]:
    """Return the names of the modes, or names made of their numbers."""
    return tuple(f"mode {mode}" for mode in range(count)) if axes is None else axes.names


def find_mode(mode: Any, axes: Axes | None, count: int) -> int:
    """Return the number of a mode from 0, given its name or its number, which may count from the end."""
    if isinstance(mode, str):
        if axes is None:
            raise IndexError(f"mode {mode!r}: the modes have no names; give a number from 0 to {count - 1}")
        if mode not in axes.names:
            raise IndexError(f"mode {mode!r} is unknown; the modes are {', '.join(map(repr, axes.names))}")
        return axes.names.index(mode)
    number = as_index(mode)
    if number is None:
        raise TypeError(f"mode: cannot use {mode!r} of type {type(mode).__name__}; give a number or a name")
    if not -count <= number < count:
        raise IndexError(f"mode {number} is out of range for {count} modes")
    return number % count


def by_mode(values: Any, axes: Axes | None, count: int, default: Any, argument: str) -> Any:
    """Return a mapping from modes to values as a tuple with one value per mode; anything else unchanged."""
    if not isinstance(values, Mapping):
        return values
    spread = [default] * count
    seen: set[int] = set()
    for mode, value in values.items():
        try:
            number = find_mode(mode, axes, count)
        except (IndexError, TypeError) as error:
            raise type(error)(f"{argument}: {error}") from None
        if number in seen:
            raise ValueError(f"{argument}: mode {mode!r} is given twice")
        seen.add(number)
        spread[number] = value
    return tuple(spread)


def find_cells(
    coords: Sequence[ArrayLike] | Mapping[int | str, ArrayLike], shape: tuple[int, ...], axes: Axes | None
) -> list[NDArray[np.intp]]:
    """Return the indices of cells in every mode, given as indices from 0 or as labels."""
    given = tuple(by_mode(coords, axes, len(shape), None, "coords"))
    if len(given) != len(shape):
        raise ValueError(f"coords: got {len(given)} sequences for {len(shape)} modes; give one per mode")
    found = [_find_indices(each, mode, size, axes) for mode, (each, size) in enumerate(zip(given, shape))]
    lengths = {len(indices) for indices in found if len(indices) != 1}
    if len(lengths) > 1:
        raise ValueError(f"coords: got sequences of lengths {[len(each) for each in found]}; give one index per cell")
    return [np.broadcast_to(indices, next(iter(lengths), 1)) for indices in found]


def _find_indices(given: Any, mode: int, size: int, axes: Axes | None) -> NDArray[np.intp]:
    """Return the indices of one mode, given as such or as labels."""
    name = mode_names(axes, mode + 1)[mode] if axes is None else f"mode {axes.names[mode]!r}"
    if given is None:
        raise ValueError(f"coords: {name} is missing; give its indices, or its labels")
    values = np.atleast_1d(np.asarray(given))
    if values.ndim != 1:
        raise ValueError(f"coords: {name}: got shape {values.shape}; give a flat sequence, one index per cell")
    if values.dtype.kind in "iu":
        bad = (values < 0) | (values >= size)
        if bad.any():
            raise ValueError(f"coords: {name}: there is no index {values[bad][0]}; give indices from 0 to {size - 1}")
        return values.astype(np.intp)
    labels = None if axes is None else axes.labels[mode]
    if labels is None:
        raise ValueError(f"coords: {name} has no labels; give indices from 0 to {size - 1}, not {values.dtype}")
    order = np.argsort(labels, kind="stable")
    at = np.minimum(np.searchsorted(labels[order], values), size - 1)
    bad = labels[order][at] != values
    if bad.any():
        raise ValueError(f"coords: {name}: there is no label {values[bad][0].item()!r}")
    return order[at]


def check_rank_by_mode(rank: Any, axes: Axes | None, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the rank of every mode, given as one int, one per mode, or a mapping from modes."""
    return check_rank(by_mode(rank, axes, len(shape), None, "rank"), shape)


def _as_labels(values: ArrayLike | None) -> NDArray[Any] | None:
    """Return labels as an array that can be saved without pickling: numbers, times or strings."""
    if values is None:
        return None
    labels = np.asarray(values)
    if labels.ndim != 1:
        raise ValueError(f"labels: got shape {labels.shape}; give a flat sequence with one label per index")
    if labels.dtype.kind not in "biufMmU":
        labels = np.array([str(label) for label in labels.tolist()])
    return frozen(labels)


def _same_labels(ours: NDArray[Any] | None, theirs: NDArray[Any] | None) -> bool:
    if ours is None or theirs is None:
        return ours is theirs
    return np.array_equal(ours, theirs, equal_nan=ours.dtype.kind in "fMm" and theirs.dtype.kind in "fMm")
