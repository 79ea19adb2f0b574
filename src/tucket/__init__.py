"""tucket: small non-negative Tucker models of non-negative tensors, in one pass, by a closed formula.

>>> import numpy as np
>>> import tucket as tk
>>> x = np.random.default_rng(0).random((30, 40, 50))
>>> model = tk.ltr(x, rank=(3, 4, 5))
>>> model.n_parameters, round(model.relative_error(x), 2)
(180, 0.5)
"""

from tucket import geometry, metrics
from tucket.blocks import Blocks
from tucket.fit import Fit
from tucket.geometry import legendre
from tucket.lra_sntd import lra_sntd
from tucket.ntd import ntd
from tucket.partition import Partition
from tucket.projection import best_rank1, ltr
from tucket.ranks import InformationCurve, information_curve
from tucket.statistics import Statistics, collect
from tucket.tucker import BlockTucker, Tucker, load

__version__ = "0.1.0"

__all__ = [
    "BlockTucker",
    "Blocks",
    "Fit",
    "InformationCurve",
    "Partition",
    "Statistics",
    "Tucker",
    "best_rank1",
    "collect",
    "geometry",
    "information_curve",
    "legendre",
    "load",
    "lra_sntd",
    "ltr",
    "metrics",
    "ntd",
]
