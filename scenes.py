"""Made-up scenes of Gaussians for tests and benchmarks: equal seed, equal scene."""

import math

import torch
from torch import Tensor

from gaussians import Gaussians

SIGMA = 0.02  # median standard deviation, world units: what a fitted object of a few thousand Gaussians has
SIGMA_SPREAD = 0.5  # standard deviation of the logarithm of the standard deviations


def shell(n: int, generator: torch.Generator, sh_degree: int = 0) -> Gaussians:
    """N Gaussians on a bumpy shell in [-1, 1]^3 that resembles a fitted object.

    Standard deviations are log-normal about 0.02 (factor e^+-0.5) along each axis, orientations random, opacities
    in [0.3, 0.95], colours vary smoothly with the direction. float32.
    """
    directions = _unit_vectors(n, generator)
    x, y, z = directions.unbind(-1)
    radii = 0.7 + 0.12 * torch.sin(5 * x) * torch.cos(4 * y) + 0.08 * torch.sin(7 * z + 1)
    rgb = 0.5 + 0.4 * torch.sin(3 * directions + torch.tensor([0.0, 1.0, 2.0]))
    opacities = 0.3 + 0.65 * torch.rand(n, generator=generator)
    return _gaussians(directions * radii[:, None], opacities, rgb, generator, sh_degree)


def ball(n: int, generator: torch.Generator, sh_degree: int = 0) -> Gaussians:
    """N Gaussians spread evenly in a ball of radius 0.5: the dense start of a fit, slow to draw. float32."""
    radii = 0.5 * torch.rand(n, generator=generator) ** (1 / 3)
    means = _unit_vectors(n, generator) * radii[:, None]
    opacities = torch.full((n,), 0.1)
    rgb = torch.rand(n, 3, generator=generator)
    return _gaussians(means, opacities, rgb, generator, sh_degree)


def mixed(n: int, generator: torch.Generator, sh_degree: int = 0) -> Gaussians:
    """N Gaussians in [-0.8, 0.8]^3 from needles to blobs: standard deviations from 0.002 to 0.3. float32."""
    means = 1.6 * torch.rand(n, 3, generator=generator) - 0.8
    opacities = torch.rand(n, generator=generator)
    rgb = torch.rand(n, 3, generator=generator)
    gaussians = _gaussians(means, opacities, rgb, generator, sh_degree)
    low, high = math.log(0.002), math.log(0.3)
    gaussians.log_scales = low + (high - low) * torch.rand(n, 3, generator=generator)
    return gaussians


def _unit_vectors(n: int, generator: torch.Generator) -> Tensor:
    """Directions spread evenly over the sphere [N, 3]."""
    return torch.nn.functional.normalize(torch.randn(n, 3, generator=generator), dim=-1)


def _gaussians(means: Tensor, opacities: Tensor, rgb: Tensor, generator: torch.Generator, sh_degree: int) -> Gaussians:
    """Gaussians at `means` with random log-normal scales, random orientations and weak random view dependence."""
    n = means.shape[0]
    scales = SIGMA * torch.exp(SIGMA_SPREAD * torch.randn(n, 3, generator=generator))
    quats = torch.randn(n, 4, generator=generator)
    gaussians = Gaussians.create(means, scales, opacities, rgb, quats)
    gaussians.shN = 0.15 * torch.randn(n, (sh_degree + 1) ** 2 - 1, 3, generator=generator)
    return gaussians
