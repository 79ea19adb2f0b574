"""The scikit-learn estimator, the command line, plots, reports and comparisons."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["plot", "report"])
