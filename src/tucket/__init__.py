"""tucket: small non-negative Tucker models of non-negative tensors, in one pass, by a closed formula.

>>> import numpy as np
>>> import tucket as tk
>>> hours = np.repeat([[9, 1], [2, 8]], [4, 3], axis=0)        # seven hours, two stations: a morning and an evening
>>> x = np.random.default_rng(0).poisson(np.multiply.outer(hours, [5, 4, 6, 1, 1]))
>>> model = tk.ltr(x, rank=(2, 2, 2))
>>> model.partition[0].labels.tolist(), round(model.relative_error(x), 2)
([0, 0, 0, 0, 1, 1, 1], 0.16)
"""

import lazy_loader

__version__ = "0.2.0.dev0"

# names are imported when they are first used, from where __init__.pyi says that they are
__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
