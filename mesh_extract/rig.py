"""Cameras all around an object, and what they see of its Gaussians."""

import math

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras, concatenate, orbit_cameras
from gaussians import Gaussians
from gs_renderer import render
from rasterize.definition import EPS2D

# Rings of views: elevation in degrees and number. Gaussians are fitted to views about as high as their picture's, and
# there alone they are known to look right: one half to both sides of it, relative to it.
FITTED = ((-5.0, 8), (10.0, 8))
# Views for what those do not see, and how much they count for what both see.
ELSEWHERE = ((50.0, 4), (-50.0, 4), (85.0, 1), (-85.0, 1))
ELSEWHERE_WEIGHT = 0.1
VIEW_COUNT = sum(count for _, count in FITTED + ELSEWHERE)
FOVY_DEG = 30.0  # narrow: less perspective, so the views resemble each other where they overlap
_STEEPEST_DEG = 85.0


def cameras_around(points: np.ndarray | Tensor, size: int, elevation_deg: float = 0.0) -> Cameras:
    """26 cameras all around points [P, 3], above and below too, that frame them in pictures [size, size]; on the CPU.

    They look at the middle of the points' bounding box, from so far that a ball around it that holds all just fits.

    Args:
        elevation_deg: of the picture's camera.
    """
    points = torch.as_tensor(points).double()
    center = (points.amin(dim=0) + points.amax(dim=0)) / 2
    x, y, z = (points - center).unbind(1)
    bound = max(math.sqrt(float((x * x + y * y + z * z).max())), 1e-6)
    distance = 1.03 * bound / math.sin(math.radians(FOVY_DEG / 2))
    heights = [(float(np.clip(elevation_deg + e, -_STEEPEST_DEG, _STEEPEST_DEG)), n) for e, n in FITTED]
    rings = []
    for ring, (height_deg, count) in enumerate([*heights, *ELSEWHERE]):
        azimuths_deg = [(360.0 * k + 180.0 * (ring % 2)) / count for k in range(count)]
        rings.append(orbit_cameras(azimuths_deg, height_deg, distance, FOVY_DEG, size, size))
    return moved(concatenate(rings), center.cpu().numpy())


def view_weights() -> np.ndarray:
    """How much each camera of `cameras_around` counts [26], float32."""
    weights = np.full(VIEW_COUNT, ELSEWHERE_WEIGHT, np.float32)
    weights[: sum(count for _, count in FITTED)] = 1.0
    return weights


def moved(cameras: Cameras, offset: np.ndarray) -> Cameras:
    """The cameras, `offset` [3] (world units) further on, looking the same way."""
    viewmats = cameras.viewmats.clone()
    viewmats[:, :3, 3] -= viewmats[:, :3, :3] @ torch.as_tensor(offset, dtype=viewmats.dtype)
    return Cameras(viewmats, cameras.Ks, cameras.width, cameras.height)


@torch.no_grad()
def draw_coverage(gaussians: Gaussians, cameras: Cameras, pixel: float = 0.0) -> Tensor:
    """Coverage [C, H, W] of Gaussians as cameras see it, float32, in [0, 1], on the device of the Gaussians.

    Args:
        pixel: as of `as_fitted`.
    """
    gaussians = as_fitted(gaussians.detach().to(torch.float32), cameras, pixel)
    return render(gaussians, cameras.to(gaussians.means.device)).alpha


def as_fitted(gaussians: Gaussians, cameras: Cameras, pixel: float) -> Gaussians:
    """Gaussians that look in these cameras' finer pixels as wide as in those that they were fitted in.

    The rasteriser makes all that it draws wider, by EPS2D pixels²; Gaussians are fitted to look right when that is
    added, so in finer pixels they are too thin (Yu et al. 2024, "Mip-Splatting"). What these views add too little is
    added here.

    Args:
        pixel: side, in world units, of the pixels that the Gaussians were fitted in; 0: not known.
    Returns:
        `gaussians` itself where nothing is to be added.
    """
    variance = EPS2D * (pixel**2 - pixel_at(gaussians.means, cameras) ** 2) if pixel > 0 and len(gaussians) else 0.0
    return gaussians.widened(variance) if variance > 0 else gaussians


def pixel_at(points: Tensor, cameras: Cameras) -> float:
    """Side of a pixel, world units, at the depth of the middle of points [P, 3], the mean over the cameras."""
    middle = points.double().mean(dim=0).cpu()
    views, intrinsics = cameras.viewmats.double().cpu(), cameras.Ks.double().cpu()
    depths = views[:, 2, :3] @ middle + views[:, 2, 3]
    return float((depths / intrinsics[:, 0, 0]).mean())
