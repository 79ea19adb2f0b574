"""The closed form compared with the Legendre decomposition on the same problems: python -m benchmarks.geometry."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import tucket as tk
from benchmarks.measure import seconds
from tucket import geometry
from tucket.geometry.log_linear import free_indices

CASES = (((4, 4, 4), 2), ((6, 6, 6), 3), ((8, 8, 8), 4), ((4, 4, 4, 4), 2), ((12, 12, 12), 6))


def measure() -> Iterator[dict[str, Any]]:
    """Project random tensors in three ways, and compare the results."""
    print(
        f"\n{'tensor, rank':22} {'free θ':>7} {'closed form':>12} {'natural':>12} {'gradient':>12}  largest difference"
    )
    for shape, rank in CASES:
        x = np.exp(np.random.default_rng(0).normal(size=shape) / 2)
        partition = tk.Partition.uniform(shape, rank)
        projections: dict[str, Callable[[], Any]] = {
            "closed form": lambda: tk.ltr(x, blocks=partition).to_tensor(),  # noqa: B023
            "natural": lambda: geometry.legendre(x, partition).tensor,  # noqa: B023
            "gradient": lambda: geometry.legendre(x, partition, method="gradient", n_iter_max=1000).tensor,  # noqa: B023
        }
        found = {name: project() for name, project in projections.items()}
        times = {
            name: float(np.median([seconds(partial(project)) for _ in range(3)]))
            for name, project in projections.items()
        }
        apart = {name: float(np.abs(found[name] / found["closed form"] - 1).max()) for name in ("natural", "gradient")}
        count = len(free_indices(partition, shape))
        columns = " ".join(f"{1000 * took:9.2f} ms" for took in times.values())
        print(
            f"{f'{shape}, {rank}':22} {count:7} {columns}  {apart['natural']:.0e}, {apart['gradient']:.0e}", flush=True
        )
        yield {"shape": shape, "rank": rank, "free": count, "seconds": times, "difference": apart}


if __name__ == "__main__":
    list(measure())
