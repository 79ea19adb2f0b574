from . import geometry
from .analysis.cross_validate import cross_validate
from .base.axes import Axes
from .base.blocks import Blocks
from .base.partition import Partition
from .base.run import Progress, Step
from .decomposition.fit import Fit
from .decomposition.lra_sntd import lra_sntd
from .decomposition.ntd import ntd
from .geometry import legendre
from .interfaces import plot, report
from .interfaces.estimators.ltr import LTR
from .interfaces.estimators.ntd import NTD
from .models import metrics
from .models.block_tucker import BlockTucker
from .models.collect import collect
from .models.load import load
from .models.statistics import Statistics
from .models.tucker import Tucker
from .projection.best_rank1 import best_rank1
from .projection.cross_validation import CrossValidation
from .projection.information_curve import InformationCurve, information_curve
from .projection.ltr import ltr
from .sources import datasets
from .sources.from_entries import from_entries
from .sources.from_parquet import from_parquet
from .sources.from_table import from_table
from .sources.open import open  # noqa: A004
from .sources.source import Source
from .sources.stream import Stream

__all__ = [
    "LTR",
    "NTD",
    "Axes",
    "BlockTucker",
    "Blocks",
    "CrossValidation",
    "Fit",
    "InformationCurve",
    "Partition",
    "Progress",
    "Source",
    "Statistics",
    "Step",
    "Stream",
    "Tucker",
    "best_rank1",
    "collect",
    "cross_validate",
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
    "report",
]

__version__: str
