"""tucket: small non-negative Tucker models of non-negative tensors, in one pass, by a closed formula.

>>> import numpy as np
>>> import tucket as tk
>>> x = np.random.default_rng(0).random((30, 40, 50))
>>> model = tk.ltr(x, rank=(3, 4, 5))
>>> model.n_parameters, round(model.relative_error(x), 2)
(180, 0.5)
"""

from tucket import geometry, metrics
from tucket.axes import Axes
from tucket.blocks import Blocks
from tucket.fit import Fit
from tucket.geometry import legendre
from tucket.lra_sntd import lra_sntd
from tucket.ntd import ntd
from tucket.partition import Partition
from tucket.projection import best_rank1, ltr
from tucket.ranks import InformationCurve, information_curve
from tucket.sources import Source, Stream
from tucket.sources.files import open  # noqa: A004
from tucket.sources.source import Progress
from tucket.sources.sparse import from_entries
from tucket.sources.table import from_parquet, from_table
from tucket.statistics import Statistics, collect
from tucket.tucker import BlockTucker, Tucker, load

__version__ = "0.1.0"

__all__ = [
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
]
