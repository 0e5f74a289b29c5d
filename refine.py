"""Texture refinement: the prior improves pictures of the textured mesh, and the texture follows them.

MicroDreamer's second stage (arXiv:2404.19525; main2.py of the official code): draw the mesh from all around, add
noise, denoise (`sir.target_views`), and fit the texture to the result and to the source picture.

| here               | official code                                                                   |
|--------------------|---------------------------------------------------------------------------------|
| ring               | 8 views at elevation 0, 45 degrees apart, from a random azimuth                 |
| level              | t = 181 of 1000 (strength 0.8 on 50 steps), 10 calls, guidance 2                |
| colours            | albedo, of the texels inside the charts; the gutters repeat them                |
| solver adam        | 30 steps of Adam, rate 0.2, on the inverse sigmoid of the albedo (refine_adam)  |
| solver backproject | not there: what the pictures differ by is carried back to the texels, part of it |

Carried back, a difference is smooth between the pixels of the pictures: detail of the texture that is finer stays.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cameras import Cameras
from config import RefineConfig
from mesh_extract.bake import SOLID_ALPHA, detail_shares, solid, surface_views, view_picture
from mesh_extract.mesh_raster import render_texture
from mesh_extract.texels import Texels, follow_views, texels_of
from mesh_extract.textured import TexturedMesh
from refine_adam import fit_adam, target
from sir import NoisePlan, target_views
from views import to_images

if TYPE_CHECKING:
    from priors.base import Prior

logger = logging.getLogger(__name__)

SAMPLES = 4  # a side of every pixel of what the prior is shown


def refine_texture(
    textured: TexturedMesh,
    prior: Prior,
    config: RefineConfig,
    generator: torch.Generator,
    reference: tuple[Tensor, Cameras] | None = None,
    elevation_deg: float = 0.0,
    device: torch.device | None = None,
) -> TexturedMesh:
    """The same mesh with a texture that the prior has gone over.

    Args:
        prior: its source is set.
        generator: on the CPU.
        reference: the source picture [H, W, 4] (straight RGB and alpha, in [0, 1]) and its one camera; None: there is
            none, or it is no view of this mesh.
        elevation_deg: of the views, unless `config` says another.
        device: where to work; None: on the CPU.
    """
    device = torch.device("cpu") if device is None else device
    elevation_deg = elevation_deg if config.elevation is None else config.elevation
    size = textured.texture.shape[0]
    texels = texels_of(textured.mesh, textured.uvs, textured.uv_faces, size, device)
    if texels is None:
        return textured
    colours = torch.from_numpy(textured.texture).to(device)[texels.valid].float() / 255.0  # [T, 3]
    for number in range(config.rounds):
        cameras = ring(prior, config.views, elevation_deg, generator)
        rgb, alpha = improved_views(textured, colours[texels.nearest], prior, cameras, config, generator, device)
        fitted = SOLVERS[config.solver](texels, colours, cameras, rgb, alpha, reference, config)
        change = float((fitted - colours).square().mean().sqrt())
        logger.info("texture refinement %d of %d: changed by %.4f (rms)", number + 1, config.rounds, change)
        colours = fitted
    return texels.textured(colours)


def ring(prior: Prior, count: int, elevation_deg: float, generator: torch.Generator) -> Cameras:
    """Evenly spaced cameras of one elevation, from a random azimuth; what the prior denoises jointly lies together."""
    group = prior.group_size if count % prior.group_size == 0 else 1
    groups = count // group
    first = torch.rand(1, generator=generator, dtype=torch.float64) * 360.0
    azimuths = first + 360.0 / count * (torch.arange(groups)[:, None] + groups * torch.arange(group)[None, :])
    return prior.orbit(azimuths.reshape(-1), torch.full((count,), elevation_deg, dtype=torch.float64))


def noise_plan(level: float, steps: int) -> NoisePlan:
    """Noise added up to `level`, no inversion, `steps` even steps down."""
    return NoisePlan((level,), (*(level * ((steps - i) / steps) for i in range(steps)), 0.0))


def improved_views(
    textured: TexturedMesh,
    texture: Tensor,
    prior: Prior,
    cameras: Cameras,
    config: RefineConfig,
    generator: torch.Generator,
    device: torch.device,
) -> tuple[Tensor, Tensor | None]:
    """Pictures of the mesh, gone over by the prior: rgb [C, H, W, 3], and coverage [C, H, W] where it is known."""
    drawn = render_texture(
        textured.mesh, textured.uvs, textured.uv_faces, texture, cameras, supersample=SAMPLES, device=device
    )
    images = target_views(
        prior,
        to_images(drawn.rgb, drawn.alpha, prior.channels),
        cameras,
        noise_plan(config.level, config.denoise_steps),
        guidance=config.guidance,
        generator=generator,
    )
    return images[:, :3].permute(0, 2, 3, 1), images[:, 3] if images.shape[1] == 4 else None


def _backproject(
    texels: Texels,
    colours: Tensor,
    cameras: Cameras,
    rgb: Tensor,
    alpha: Tensor | None,
    reference: tuple[Tensor, Cameras] | None,
    config: RefineConfig,
) -> Tensor:
    """Colours [T, 3] that follow the prior's views and the source picture, which counts by the size of its pixels."""
    confidence = rgb.isfinite().all(dim=-1).float()
    if alpha is not None:  # the pictures are over white
        confidence = confidence * solid(alpha)
        rgb = (rgb - (1.0 - alpha[..., None])) / alpha.clamp_min(SOLID_ALPHA[0])[..., None]
    views = [surface_views(texels.mesh, cameras, rgb.nan_to_num(0.0, 0.0, 0.0), confidence)]
    if reference is None:
        return follow_views(texels, colours, views, config.pull)
    source = view_picture(texels.mesh, *reference, colours.device)
    shares = [1.0, (reference[1].width / cameras.width) ** 2]
    followed = follow_views(texels, colours, [*views, source], config.pull, shares)
    # Where the texture has its detail from the picture, the prior's coarser pictures would only blur it.
    alone = follow_views(texels, colours, [source], config.pull / shares[1])
    return followed + detail_shares(texels, source)[:, None] * (alone - followed)


def _adam(
    texels: Texels,
    colours: Tensor,
    cameras: Cameras,
    rgb: Tensor,
    alpha: Tensor | None,
    reference: tuple[Tensor, Cameras] | None,
    config: RefineConfig,
) -> Tensor:
    """The same by the official fit."""
    targets = [target(texels, cameras, rgb, alpha)]
    if reference is not None:
        picture = reference[0].to(colours.device, torch.float32)[None]
        over_white = picture[..., :3] * picture[..., 3:] + 1.0 - picture[..., 3:]
        targets.append(target(texels, reference[1], over_white, picture[..., 3]))
    return fit_adam(colours, targets, config.steps, config.rate)


SOLVERS = {"backproject": _backproject, "adam": _adam}
