"""The information geometry of LTR: coordinates, bingos, projections and mean field, as functions to run.

Every function takes NumPy arrays, anything that converts to them, or arrays of any library that follows the array API
standard. Results are of the same library, on the same device.

>>> import numpy as np
>>> from tucket import geometry
>>> x = np.arange(1.0, 25).reshape(3, 4, 2)
>>> np.allclose(geometry.from_theta(geometry.theta(x)), x)
True
"""

from tucket.geometry.bingos import Bingos, bingo_indices, bingos
from tucket.geometry.boltzmann import boltzmann
from tucket.geometry.coordinates import eta, from_eta, from_theta, theta
from tucket.geometry.geodesic import geodesic
from tucket.geometry.legendre import Legendre, legendre
from tucket.geometry.many_body import many_body
from tucket.geometry.mean_field import MeanField, mean_field
from tucket.geometry.mobius import mobius
from tucket.geometry.one_body import one_body, one_body_eta, one_body_theta
from tucket.geometry.projections import e_project, m_project

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
