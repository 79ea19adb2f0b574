"""Decompose a tensor with nn_fac, which needs a separate environment; save the model and print the time as JSON.

PYTHON benchmarks/peer_nn_fac.py TENSOR.npy MODEL.npz INIT RULE ITERATIONS RANK...
"""

from __future__ import annotations

import json
import sys
import time
from contextlib import redirect_stdout

import numpy as np


def main(source: str, target: str, init: str, rule: str, iterations: str, *rank: str) -> None:
    """Run one decomposition, and save its model."""
    from nn_fac.ntd import ntd  # type: ignore[import-not-found]

    x = np.load(source).astype(np.float64)
    modes = x.ndim
    start = time.perf_counter()
    with redirect_stdout(sys.stderr):
        core, factors = ntd(
            x, [int(r) for r in rank], init=init, n_iter_max=int(iterations), tol=0, update_rule=rule,
            beta=2 if rule == "hals" else 1, sparsity_coefficients=[None] * (modes + 1),
            normalize=[False] * (modes + 1), fixed_modes=[],
        )  # fmt: skip
    seconds = time.perf_counter() - start
    np.savez(target, core=core, **{f"factor_{mode}": factor for mode, factor in enumerate(factors)})
    print(json.dumps({"seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
