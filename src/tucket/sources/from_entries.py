"""Sparse tensors from the indices and values of their entries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from tucket.base.axes import Axes
from tucket.base.checks import check_real, check_sizes
from tucket.sources.sparse import Sparse


def from_entries(
    coords: Any,
    values: ArrayLike,
    shape: Sequence[int],
    *,
    modes: Iterable[str] | None = None,
    labels: Iterable[ArrayLike | None] | None = None,
) -> Sparse:
    """Return a sparse tensor from the indices and values of its entries; all others are zero.

    Parameters
    ----------
    coords : sequence of array of int, or array of int of shape (n, d) or (d, n)
        For each of the d modes, the indices of the n entries, from 0 on. Entries with the same indices are added.
    values : array of shape (n,)
        The entries: real numbers. They must be finite and not negative, which is checked when they are read.
    shape : tuple of int
        The size of each mode.
    modes : iterable of str, optional
        Names of the modes.
    labels : iterable of array-like or None, optional
        For each mode, labels of its indices, or None.

    Returns
    -------
    Source
        The tensor.

    Raises
    ------
    ValueError
        If the lengths of `coords`, `values`, `modes` or `labels` do not fit each other or the shape.
    IndexError
        If an entry lies outside the shape.
    TypeError
        If indices are not ints, or values are not real numbers.

    See Also
    --------
    from_table : A sparse tensor from the rows of a table.

    Examples
    --------
    Two groups of users, each with items of its own:

    >>> users, items, ratings = [0, 0, 1, 2, 2], [0, 1, 0, 2, 3], [4, 5, 5, 2, 3]
    >>> from_entries((users, items), ratings, (3, 4), modes=("user", "item"), labels=(["ann", "bob", "cho"], None))
    <Sparse of a tensor of shape {'user': 3, 'item': 4} with 5 entries>
    """
    sizes = check_sizes(shape)
    weights = np.asarray(values)
    if weights.ndim != 1:
        raise ValueError(f"values: got shape {weights.shape}; give one number per entry")
    check_real(weights.dtype, "values", type(values).__name__)
    indices = _as_coords(coords, len(weights), len(sizes))
    for mode, (each, size) in enumerate(zip(indices, sizes)):
        if len(each) and not (each.min() >= 0 and each.max() < size):
            at = int(np.argmax((each < 0) | (each >= size)))
            raise IndexError(
                f"entry {at} of coords has index {each[at]} in mode {mode}; its size is {size}, so give 0 to {size - 1}"
            )
    axes = None if modes is None and labels is None else Axes._of(modes, labels, sizes)
    return Sparse(indices, weights, sizes, axes)


def _as_coords(coords: Any, entries: int, modes: int) -> list[NDArray[Any]]:
    """Return one array of indices per mode."""
    wanted = f"give {modes} arrays of {entries} ints, one per mode"
    if isinstance(coords, np.ndarray) and coords.shape == (entries, modes):
        if entries == modes:
            raise ValueError(f"coords: shape {coords.shape} is ambiguous: its rows may be entries or modes; {wanted}")
        coords = coords.T
    arrays = [np.asarray(each) for each in coords] if isinstance(coords, Iterable) else []
    if len(arrays) != modes or any(each.shape != (entries,) for each in arrays):
        shapes = coords.shape if isinstance(coords, np.ndarray) else [each.shape for each in arrays]
        raise ValueError(f"coords: got shape {shapes} for {entries} values of a tensor of {modes} modes; {wanted}")
    for mode, each in enumerate(arrays):
        if each.dtype.kind not in "iu" and each.size:
            raise TypeError(f"coords: mode {mode} has indices of {each.dtype}; {wanted}")
    return [each if each.size else each.astype(np.intp) for each in arrays]
