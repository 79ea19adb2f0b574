"""Compiled loop over the entries of a sparse tensor. It releases the GIL and expects checked arrays."""

# mypy: disable-error-code="no-untyped-def,no-untyped-call,untyped-decorator"

from __future__ import annotations

import numpy as np

from tucket.kernels.cpu.loops import compiled


@compiled()
def add_entries(coords, values, offsets, steps, marginals, core, cells):
    """Add entries to the marginals and to the core.

    `marginals` holds those of all modes, one after another: index i of mode k is at offsets[k] + i. `core` is flat, and
    steps[offsets[k] + i] is what index i of mode k adds to the position in it. `cells` is scratch memory.
    """
    count = values.size
    for e in range(count):
        cells[e] = 0
    for mode in range(offsets.size):
        for e in range(count):
            at = offsets[mode] + np.uint64(coords[mode, e])
            marginals[at] += values[e]
            cells[e] += steps[at]
    for e in range(count):
        core[cells[e]] += values[e]
