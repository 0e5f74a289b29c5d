"""Views that need no renderer, for the tests of the training: a ball whose colours tell the azimuth."""

import math

import torch
from torch import Tensor

from training.pool import VIEWS


def render_balls(seeds: Tensor, size: int, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """As `training.pool.RenderChunk`: a ball, red where it faces world +z, green towards +x, blue by seed."""
    count = len(seeds)
    view = torch.arange(VIEWS)
    azimuths = (view * 45.0 + 7.0 * (seeds[:, None] % 5)) % 360
    elevations = (5.0 * (view % 3)).expand(count, VIEWS)
    steps = (torch.arange(size) + 0.5) / size * 2 - 1
    y, x = torch.meshgrid(-steps, steps, indexing="ij")
    radius = 0.6
    z = (radius**2 - x**2 - y**2).clamp(min=0).sqrt()  # towards the camera
    a = azimuths[:, :, None, None] * math.pi / 180
    red = 0.5 + 0.5 * (z * a.cos() - x * a.sin()) / radius  # world z of the surface
    green = 0.5 + 0.5 * (z * a.sin() + x * a.cos()) / radius  # world x
    blue = ((seeds % 4) / 4)[:, None, None, None].expand_as(red)
    coverage = (z > 0).float().expand(count, VIEWS, size, size)[..., None]
    colour = torch.stack([red, green, blue], -1)
    rgba = torch.cat([colour * coverage + 1 - coverage, coverage], -1)
    return (rgba * 255).round().to(torch.uint8).to(device), azimuths.to(device), elevations.to(device)
