"""White Gaussians before a white background: what a fit to pictures without coverage leaves around the object."""

import torch
from torch import Tensor

from cameras import orbit_cameras
from gaussians import Gaussians
from gs_renderer import render

WHITE = 0.98  # of every channel: five levels of 255 below white are seen by nobody
HIDING = 0.1  # coverage that must go with the white Gaussians for one of them to be in front of nothing
# The official code's six cameras (azimuth, elevation); its elevations are negative above.
AZIMUTHS_DEG = (0.0, 180.0, 90.0, 180.0, 90.0, -90.0)
ELEVATIONS_DEG = (0.0, 0.0, 0.0, -20.0, -20.0, 0.0)
SIZE_PX = 512


@torch.no_grad()
def white_before_nothing(gaussians: Gaussians, min_scale: float, radius: float, fovy_deg: float) -> Tensor:
    """Which Gaussians to drop [N], bool: white ones that cover nothing but the background. After MicroDreamer.

    The views of a prior without coverage are over white, so that a white Gaussian beside the object costs nothing and
    yet has coverage, which ends up in the mesh. One that is larger than `min_scale` along an axis goes if the coverage
    at its centre falls by more than 0.1, in any of six pictures, when all such Gaussians are taken away: behind it is
    nothing else. White parts of the object, with others behind them, stay.

    Args:
        min_scale: standard deviation, world units; smaller ones stay whatever their colour.
        radius, fovy_deg: of the cameras.
    """
    white = (gaussians.rgb >= WHITE).all(dim=-1) & (gaussians.scales.amax(dim=-1) > min_scale)
    cameras = orbit_cameras(
        AZIMUTHS_DEG, ELEVATIONS_DEG, radius, fovy_deg, SIZE_PX, SIZE_PX, device=gaussians.means.device
    )
    before = render(gaussians, cameras).alpha
    fall = (before - render(gaussians[~white], cameras).alpha).flatten(1)  # [C, SIZE^2]
    seen = torch.einsum("cij,nj->cni", cameras.viewmats[:, :3, :3], gaussians.means) + cameras.viewmats[:, None, :3, 3]
    pixels = torch.einsum("cij,cnj->cni", cameras.Ks, seen)
    pixels = (pixels[..., :2] / pixels[..., 2:]).floor()
    inside = (seen[..., 2] > 0) & (pixels >= 0).all(-1) & (pixels < SIZE_PX).all(-1)  # [C, N]
    columns, rows = torch.where(inside[..., None], pixels, torch.zeros_like(pixels)).long().unbind(-1)
    falls = fall.gather(1, rows * SIZE_PX + columns)
    return white & (inside & (falls > HIDING)).any(dim=0)
