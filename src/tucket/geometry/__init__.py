"""The information geometry of LTR: coordinates, bingos, projections and mean field, each as a thing to run.

Arrays of other libraries stay where they are: what comes back is of the same library, on the same device.

>>> import numpy as np
>>> from tucket import geometry
>>> x = np.random.default_rng(0).random((3, 4, 2)) + 0.1
>>> np.allclose(geometry.from_theta(geometry.theta(x)), x)
True
"""

from tucket.geometry.coordinates import (
    Bingos,
    bingo_indices,
    bingos,
    eta,
    from_eta,
    from_theta,
    geodesic,
    mobius,
    theta,
)
from tucket.geometry.mean_field import MeanField, boltzmann, mean_field, one_body, one_body_eta, one_body_theta
from tucket.geometry.projections import Legendre, LegendreStep, e_project, legendre, m_project, many_body

__all__ = [
    "Bingos",
    "Legendre",
    "LegendreStep",
    "MeanField",
    "bingo_indices",
    "bingos",
    "boltzmann",
    "e_project",
    "eta",
    "from_eta",
    "from_theta",
    "geodesic",
    "legendre",
    "m_project",
    "many_body",
    "mean_field",
    "mobius",
    "one_body",
    "one_body_eta",
    "one_body_theta",
    "theta",
]
