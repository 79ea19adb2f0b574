"""Tucker models of every backend, and the statistics that they are made from."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["metrics"])
