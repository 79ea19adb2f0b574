"""Checks of arguments: each error says which argument or mode, what came, and what would do."""

from __future__ import annotations

import inspect
import math
import operator
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec, SupportsIndex, TypeVar

import numpy as np
from numpy.typing import DTypeLike, NDArray

Choice = TypeVar("Choice")
Made = TypeVar("Made")
Arguments = ParamSpec("Arguments")

Rank = SupportsIndex | Sequence[SupportsIndex | None]
"""An int for all modes, or one per mode with None where a mode is left whole."""


def as_index(value: Any) -> int | None:
    """Return an integer of any library as an int; None for everything else, and for a bool."""
    if isinstance(value, (bool, np.bool)) or "bool" in str(getattr(value, "dtype", "")):
        return None
    try:
        return operator.index(value)
    except TypeError:
        return None


def check_count(value: object, name: str) -> int:
    """Return an int from 1."""
    count = as_index(value)
    if count is None or count < 1:
        raise ValueError(f"{name}: got {value!r}; give an int from 1")
    return count


def check_number(value: Any, name: str, what: str = "a number", least: float | None = None) -> float:
    """Return a positive number, or one from `least`."""
    is_number = isinstance(value, (int, float, np.number)) and not isinstance(value, bool)
    if not is_number or not (value > 0 if least is None else value >= least):
        bound = "above 0, or None" if least is None else f"from {least:g}"
        raise ValueError(f"{name}: got {value!r}; give {what} {bound}")
    return float(value)


def choose(name: str, choices: Mapping[str, Choice], argument: str) -> Choice:
    """Look up a name, or raise an error that lists the known ones."""
    try:
        return choices[name]
    except (KeyError, TypeError):
        alike = [known for known in choices if isinstance(name, str) and known.lower() == name.lower()]
        remedy = f"did you mean {alike[0]!r}?" if alike else f"give one of {listed(choices)}"
        raise ValueError(f"{argument}: unknown {name!r}; {remedy}") from None


def listed(choices: Iterable[str]) -> str:
    """Join names with commas."""
    return ", ".join(map(repr, choices))


def check_rng(rng: object) -> np.random.Generator:
    """Return a generator made by `numpy.random.default_rng` (SPEC 7)."""
    try:
        return np.random.default_rng(rng)  # type: ignore[arg-type]
    except (TypeError, ValueError) as error:
        raise type(error)(
            f"rng: cannot use {rng!r}; give None, a non-negative int or a numpy.random.Generator"
        ) from error


def check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    """Return float32 or float64; torch dtypes are accepted too."""
    try:
        target = np.dtype(str(dtype).removeprefix("torch.") if type(dtype).__module__ == "torch" else dtype)
    except TypeError:
        target = np.dtype(object)
    if target not in (np.float32, np.float64):
        raise TypeError(f"dtype: cannot use {dtype!r}; give float32 or float64")
    return target


def check_real(dtype: np.dtype[Any], name: str, kind: str) -> None:
    """Refuse dtypes that the kernels cannot read."""
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise TypeError(
            f"{name} is of type {kind} and dtype {dtype}; give real numbers: bool, integers, or float16 to float64"
        )


def check_shape(shape: tuple[int, ...], name: str) -> None:
    """Refuse a tensor without modes, or with an empty mode."""
    if not shape:
        raise ValueError(f"{name} is a scalar (0-d); give an array of at least one mode")
    if 0 in shape:
        raise ValueError(f"mode {shape.index(0)} of {name} is empty (shape {shape}); give at least one index")


def check_memory(n_bytes: int, what: str) -> None:
    """Refuse what the memory of this machine, or of the control group of this process, can't hold."""
    most = _memory_bytes()
    if n_bytes > most:
        raise ValueError(f"{what} would take {n_bytes / 1e9:,.1f} GB, and there are {most / 1e9:,.1f} GB of memory")


@cache
def _memory_bytes() -> float:
    limits = [math.inf]
    if hasattr(os, "sysconf"):
        limits.append(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"))
    with suppress(OSError, ValueError):  # no such control group, or no limit: "max"
        limits.append(int(Path("/sys/fs/cgroup/memory.max").read_text()))
    return min(limits)


def check_shape_match(tensor: Any, shape: tuple[int, ...], owner: str, name: str = "x") -> None:
    """Refuse a tensor with a shape that does not match."""
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}, but {owner} is of shape {shape}")


def check_sizes(shape: Iterable[int]) -> tuple[int, ...]:
    """Return a shape as a tuple: at least one mode, and at least one index per mode."""
    try:
        sizes = tuple(operator.index(size) for size in shape)
    except TypeError as error:
        raise TypeError(f"shape: cannot use {shape!r}; give a tuple of ints, one per mode") from error
    if not sizes or min(sizes) < 1 or max(sizes) > np.iinfo(np.intp).max:
        raise ValueError(f"shape: cannot use {sizes}; give at least one mode, each of size 1 to 2**63 - 1")
    return sizes


def rank_per_mode(rank: Any, shape: tuple[int, ...]) -> tuple[Any, ...]:
    """Return one unchecked rank per mode; one int for all modes is lowered to the size of smaller modes."""
    is_scalar = getattr(rank, "ndim", None) == 0  # an array of one number, of any library
    if not is_scalar and not isinstance(rank, str) and isinstance(rank, Iterable):
        return one_per_mode(rank, shape, "rank")
    most = as_index(rank)
    return (rank,) * len(shape) if most is None else tuple(min(most, size) for size in shape)


def check_rank(rank: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the checked rank of every mode."""
    ranks = rank_per_mode(rank, shape)
    return tuple(check_mode_rank(r, size, mode) for mode, (r, size) in enumerate(zip(ranks, shape)))


def check_mode_rank(rank: Any, size: int, mode: int) -> int:
    """Return the checked rank of one mode; None leaves the mode whole."""
    if rank is None:
        return size
    blocks = as_index(rank)
    remedy = f"give an int from 1 to {size}, or None to leave the mode alone"
    if blocks is None:
        raise TypeError(f"mode {mode}: rank {rank!r} is of type {type(rank).__name__}; {remedy}")
    if blocks < 1:
        raise ValueError(f"mode {mode}: rank {blocks} is too small; {remedy}")
    if blocks > size:
        raise ValueError(
            f"mode {mode}: rank {blocks} is larger than its size {size}; "
            f"give at most {size}, or None to leave the mode alone"
        )
    return blocks


def one_per_mode(values: Any, shape: Sequence[int], name: str) -> tuple[Any, ...]:
    """Return values as a tuple; there must be one per mode."""
    if not isinstance(values, Iterable):
        raise TypeError(f"{name}: cannot use {values!r}; give {len(shape)} entries, one per mode")
    given = tuple(values)
    if len(given) != len(shape):
        raise ValueError(
            f"{name}: got {len(given)} entries for {len(shape)} modes of shape {tuple(shape)}; give one per mode"
        )
    return given


def in_mode(mode: int, make: Callable[..., Made], *arguments: Any) -> Made:
    """Call `make`, and name the mode in its errors."""
    try:
        return make(*arguments)
    except (TypeError, ValueError) as error:
        raise type(error)(f"mode {mode}: {error}") from None


def bad_value(name: str, index: Sequence[int], value: float) -> ValueError:
    """Make the error for a negative or non-finite entry."""
    where = f"{name}[{', '.join(map(str, index))}] is {value}; every entry must be finite and not negative"
    if value < 0:
        return ValueError(f"{where} (clip it, as with numpy.maximum)")
    if value == np.inf:
        return ValueError(f"{where} (infinite values cannot be modelled)")
    return ValueError(f"{where} (if it is missing, tucket.ltr takes observed='finite')")


def frozen(array: NDArray[Any]) -> NDArray[Any]:
    """Return `array` itself if it cannot be written to, else a read-only copy of it."""
    if array.flags.writeable or not array.flags.owndata:
        array = array.copy()
        array.flags.writeable = False
    return array


def seal(fresh: NDArray[Any]) -> NDArray[Any]:
    """Make a new array read-only, in place."""
    fresh.flags.writeable = False
    return fresh


ALIASES = {
    "random_state": "rng",
    "seed": "rng",
    "n_jobs": "workers",
    "n_threads": "workers",
    "max_iter": "n_iter_max",
    "n_iter": "n_iter_max",
    "maxiters": "n_iter_max",
    "n_components": "rank",
    "ranks": "rank",
    "beta_loss": "loss",
    "tolerance": "tol",
    "stoptol": "tol",
    "verbose": "callback",
}
"""Keywords of TensorLy, scikit-learn and pyttb, and the names that stand for them here."""


def explain_keywords(function: Callable[Arguments, Made]) -> Callable[Arguments, Made]:
    """Say what a keyword of another library is called here, where the function has it."""
    known = inspect.signature(function).parameters

    @wraps(function)
    def call(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Made:
        for name in kwargs.keys() - known.keys():
            if ALIASES.get(name) in known:
                raise TypeError(
                    f"{function.__name__}: there is no argument {name!r}; it is called {ALIASES[name]!r} here"
                )
        return function(*args, **kwargs)

    return call


def is_all(observed: object) -> bool:
    """Say whether all cells are known."""
    return isinstance(observed, str) and observed == "all"


def split_mask(x: Any, observed: Any) -> tuple[Any, Any]:
    """Return the data of a masked NumPy array, and which of them are known; anything else unchanged."""
    if not np.ma.is_masked(x):
        return x, observed
    if not is_all(observed):
        raise TypeError("observed: x is a masked array, and its mask says what is known; leave observed out")
    return x.data, ~np.ma.getmaskarray(x)
