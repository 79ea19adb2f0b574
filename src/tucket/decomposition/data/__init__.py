"""How a decomposition reads a tensor: one file per way."""
