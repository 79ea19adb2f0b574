"""Compiled loops over entries of a sparse tensor: checked arrays in, arrays out, without the GIL."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import compiled

__all__ = ["add"]


@compiled()
def add(coords, values, first, steps, marginals, core, places):
    """Add entries to the marginals, which lie one after another from `first` on, and to the flat core.

    steps[first[k] + i] is how far into the core index i of mode k leads.
    """
    count = values.size
    for e in range(count):
        places[e] = 0
    for mode in range(first.size):
        for e in range(count):
            at = first[mode] + np.uint64(coords[mode, e])
            marginals[at] += values[e]
            places[e] += steps[at]
    for e in range(count):
        core[places[e]] += values[e]
