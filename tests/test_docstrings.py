"""Docstrings of public names have the sections of numpydoc; the list of those that lack one can only become shorter."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from functools import cached_property
from types import FunctionType
from typing import Any

import pytest

import tucket as tk

pytest.importorskip("numpydoc")

from numpydoc.docscrape import get_doc_object
from numpydoc.validate import validate

EVERYWHERE = {
    "GL08",  # no docstring
    "PR01",  # a parameter is missing
    "PR02",  # a parameter does not exist
    "PR03",  # parameters are in another order than in the signature
    "PR04",  # a parameter has no type
    "PR10",  # there is no space before the colon of a parameter
    "RT01",  # no section Returns
    "SS03",  # the summary does not end with a period
    "SS05",  # the summary does not begin with an infinitive
}
FUNCTIONS = EVERYWHERE | {
    "EX01",  # no section Examples
    "SA01",  # no section See Also
}

KNOWN_GAPS: set[str] = {
    "Axes.append", "Axes.check", "Axes.from_arrays", "Axes.of", "Axes.to_arrays", "BlockTucker.block_masses",
    "BlockTucker.dense_factors", "Blocks", "Blocks.compose", "Blocks.expand", "Blocks.from_labels",
    "Blocks.from_starts", "Blocks.indices", "Blocks.labels_at", "Blocks.quotient", "Blocks.random",
    "Blocks.refines", "Blocks.sum", "Blocks.uniform", "Blocks.within", "InformationCurve", "InformationCurve.knee",
    "InformationCurve.retain", "InformationCurve.shortest_description", "InformationCurve.to_pandas",
    "InformationCurve.within", "Model.astype", "Model.to_numpy", "Partition", "Partition.compose",
    "Partition.from_labels", "Partition.from_starts", "Partition.quotient", "Partition.random", "Partition.refines",
    "Partition.replace", "Partition.uniform", "Partition.within", "Progress", "Source.chunks",
    "Source.load_if_small", "Source.reduce", "Statistics", "Statistics.append", "Statistics.coarsen",
    "Statistics.load", "Statistics.project", "Statistics.save", "Stream.filling", "Stream.of",
    "Tucker.dense_factors", "best_rank1", "collect", "information_curve", "lra_sntd",
}  # fmt: skip


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield public methods and properties, each under the name of the class that defines it."""
    for owner in cls.__mro__:
        if owner.__module__.startswith("tucket."):
            for name, member in vars(owner).items():
                if isinstance(member, classmethod | staticmethod):
                    member = member.__func__
                if isinstance(member, FunctionType | property | cached_property) and not name.startswith("_"):
                    yield f"{owner.__name__}.{name}", member


def public() -> dict[str, Any]:
    """Return public functions and classes by their names, those of public modules, and what the classes have."""
    found: dict[str, Any] = {}
    for name in tk.__all__:
        thing = getattr(tk, name)
        if inspect.ismodule(thing):
            found |= {f"{name}.{each}": getattr(thing, each) for each in thing.__all__}
        else:
            found[name] = thing
    for cls in filter(inspect.isclass, list(found.values())):
        found |= members(cls)
    return found


PUBLIC = public()


def gaps(name: str) -> set[str]:
    """Return numpydoc's codes of what a docstring lacks; and "Raises", which numpydoc does not look for."""
    thing = PUBLIC[name]
    document = get_doc_object(thing)
    found = {code for code, _ in validate(document)["errors"]}
    if inspect.isfunction(thing) and "." not in thing.__qualname__:
        return found & FUNCTIONS | (set() if document["Raises"] else {"Raises"})
    return found & EVERYWHERE


@pytest.mark.parametrize("name", sorted(set(PUBLIC) - KNOWN_GAPS))
def test_docstring(name: str) -> None:
    missing = gaps(name)
    assert not missing, f"the docstring of {name}: {', '.join(sorted(missing))}"


def test_known_gaps_can_only_become_fewer() -> None:
    complete = KNOWN_GAPS - {name for name in PUBLIC if gaps(name)}
    assert not complete, f"remove from KNOWN_GAPS: {', '.join(sorted(complete))}"
