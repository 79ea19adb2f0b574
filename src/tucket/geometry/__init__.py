"""The information geometry of LTR: coordinates, bingos, projections and mean field, as functions to run.

Every function takes arrays of NumPy or of a library that follows the array API standard, and returns arrays of the same
library, on the same device. Functions that iterate raise a TypeError for arrays that require a gradient.

>>> import numpy as np
>>> from tucket import geometry
>>> x = np.arange(1.0, 25).reshape(3, 4, 2)
>>> np.allclose(geometry.from_theta(geometry.theta(x)), x)
True
"""

from tucket.geometry.bingos import Bingos, bingo_indices, bingos
from tucket.geometry.coordinates import eta, from_eta, from_theta, geodesic, mobius, theta
from tucket.geometry.legendre import Legendre, legendre
from tucket.geometry.mean_field import MeanField, boltzmann, mean_field, one_body, one_body_eta, one_body_theta
from tucket.geometry.projections import e_project, m_project, many_body

__all__ = [
    "Bingos",
    "Legendre",
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
