"""Cameras all around an object."""

import math

import numpy as np
import torch

from cameras import Cameras, concatenate, orbit_cameras

RIG = ((0.0, 8), (40.0, 6), (-40.0, 6), (75.0, 3), (-75.0, 3))  # elevation in degrees, number of views around
RIG_FOVY_DEG = 30.0  # narrow: less perspective, so the rig's views resemble each other where they overlap


def cameras_around(points: np.ndarray, size: int) -> Cameras:
    """26 cameras all around points [P, 3], above and below too, that frame them in pictures [size, size].

    They look at the middle of the points' bounding box, from so far that a ball around it that holds all just fits.
    """
    lower, upper = points.min(axis=0).astype(np.float64), points.max(axis=0).astype(np.float64)
    center = (lower + upper) / 2
    bound = max(float(np.linalg.norm(points - center, axis=1).max()), 1e-6)
    distance = 1.03 * bound / math.sin(math.radians(RIG_FOVY_DEG / 2))
    rings = []
    for ring, (elevation_deg, count) in enumerate(RIG):
        azimuths_deg = [(360.0 * k + 180.0 * (ring % 2)) / count for k in range(count)]
        rings.append(orbit_cameras(azimuths_deg, elevation_deg, distance, RIG_FOVY_DEG, size, size))
    return moved(concatenate(rings), center)


def moved(cameras: Cameras, offset: np.ndarray) -> Cameras:
    """The cameras, `offset` [3] (world units) further on, looking the same way."""
    viewmats = cameras.viewmats.clone()
    viewmats[:, :3, 3] -= viewmats[:, :3, :3] @ torch.as_tensor(offset, dtype=viewmats.dtype)
    return Cameras(viewmats, cameras.Ks, cameras.width, cameras.height)
