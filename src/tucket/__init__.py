"""tucket: small non-negative Tucker models of non-negative tensors, in one pass, by a closed formula.

>>> import numpy as np
>>> import tucket as tk
>>> x = np.random.default_rng(0).random((30, 40, 50))
>>> model = tk.ltr(x, rank=(3, 4, 5))
>>> model.n_parameters, round(model.relative_error(x), 2)
(180, 0.5)
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tucket import datasets, geometry, metrics, plot
    from tucket.arrays.model import ArrayBlockTucker, ArrayTucker
    from tucket.axes import Axes
    from tucket.blocks import Blocks
    from tucket.collecting import collect
    from tucket.decompose import ntd
    from tucket.estimator import LTR
    from tucket.fit import Fit
    from tucket.geometry import legendre
    from tucket.partition import Partition
    from tucket.projection import best_rank1, ltr
    from tucket.ranks import InformationCurve, information_curve
    from tucket.sequential import lra_sntd
    from tucket.sources.files import open  # noqa: A004
    from tucket.sources.source import Progress, Source
    from tucket.sources.sparse import from_entries
    from tucket.sources.stream import Stream
    from tucket.sources.table import from_parquet, from_table
    from tucket.statistics import Statistics
    from tucket.tucker import BlockTucker, Tucker, load

__version__ = "0.1.0"

__all__ = [
    "LTR",
    "ArrayBlockTucker",
    "ArrayTucker",
    "Axes",
    "BlockTucker",
    "Blocks",
    "Fit",
    "InformationCurve",
    "Partition",
    "Progress",
    "Source",
    "Statistics",
    "Stream",
    "Tucker",
    "best_rank1",
    "collect",
    "datasets",
    "from_entries",
    "from_parquet",
    "from_table",
    "geometry",
    "information_curve",
    "legendre",
    "load",
    "lra_sntd",
    "ltr",
    "metrics",
    "ntd",
    "open",
    "plot",
]

_HOMES = {
    "LTR": "estimator",
    "ArrayBlockTucker": "arrays.model",
    "ArrayTucker": "arrays.model",
    "Axes": "axes",
    "BlockTucker": "tucker",
    "Blocks": "blocks",
    "Fit": "fit",
    "InformationCurve": "ranks",
    "Partition": "partition",
    "Progress": "sources.source",
    "Source": "sources.source",
    "Statistics": "statistics",
    "Stream": "sources.stream",
    "Tucker": "tucker",
    "best_rank1": "projection",
    "collect": "collecting",
    "from_entries": "sources.sparse",
    "from_parquet": "sources.table",
    "from_table": "sources.table",
    "information_curve": "ranks",
    "legendre": "geometry",
    "load": "tucker",
    "lra_sntd": "sequential",
    "ltr": "projection",
    "ntd": "decompose",
    "open": "sources.files",
}
"""Where each name lives: it is imported when it is first asked for, so that nobody waits for what he does not use."""


if not TYPE_CHECKING:  # who reads types is to be told of names that there are not

    def __getattr__(name: str) -> Any:
        if name in _HOMES:
            value = getattr(import_module(f"tucket.{_HOMES[name]}"), name)
            globals()[name] = value
            return value
        if name.isidentifier() and not name.startswith("_"):
            try:
                return import_module(f"tucket.{name}")
            except ModuleNotFoundError as error:
                if error.name != f"tucket.{name}":
                    raise
        raise AttributeError(f"module 'tucket' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]
