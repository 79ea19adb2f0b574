"""The iteration: `ntd`, and the methods that it is compared with."""
