"""What data may come from, and the reductions over it; bad data is refused here, with its place."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(__name__, submodules=["datasets"])
