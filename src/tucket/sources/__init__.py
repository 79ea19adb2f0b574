"""Sources of data and the reductions over them; errors for invalid data are raised here and name the entry."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["datasets"])
