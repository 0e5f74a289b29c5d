"""Texture refinement: the prior improves pictures of the textured mesh, and the texture follows them.

MicroDreamer's second stage (arXiv:2404.19525; main2.py of the official code): draw the mesh from all around, add
noise, denoise (`sir.target_views`), and fit the texture to the result and to the source picture.

| here                 | official code                                                                |
|----------------------|------------------------------------------------------------------------------|
| ring                 | 8 views at elevation 0, 45 degrees apart, from a random azimuth              |
| level                | t = 181 of 1000 (strength 0.8 on 50 steps), 10 calls, guidance 2             |
| colours              | albedo, of the texels inside the charts; the gutters repeat them             |
| fit_adam             | 30 steps of Adam, rate 0.2, on the inverse sigmoid of the albedo             |
| fit_least_squares    | not there: the same squared error, with a pull towards the texture as it was |

A pixel's colour is linear in the texture: the mean over samples of bilinear mixtures of texels (`texel_map`). Where the
official code takes a mip map of a picture at twice the prior's size, a pixel here averages over its area, at the
prior's size: detail of the texture finer than the prior's pixels stays as it is.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cameras import Cameras
from config import RefineConfig
from mesh_extract.fill import nearest_texels
from mesh_extract.mesh_raster import rasterize_mesh, rasterize_uvs, render_texture
from mesh_extract.textured import TexturedMesh
from sir import NoisePlan, target_views
from sparse_matrix import SparseMatrix
from views import to_images

if TYPE_CHECKING:
    from priors.base import Prior

logger = logging.getLogger(__name__)

SAMPLES = 4  # a side of every pixel: 16 samples touch nearly every texel that a pixel shows
LEAST_COSINE = 0.2  # surface seen more obliquely than 78 degrees is left to other views
SOLID_ALPHA = 0.95  # a target's coverage below which its pixel may show background
ADAM_BETAS, ADAM_EPSILON = (0.9, 0.999), 1e-15


@dataclass(frozen=True)
class TexelMap:
    """Which texels make up which pixels.

    matrix [P, T]: rows sum to 1; transposed [T, P]. pixels [P]: flat indices into pictures [C, H, W].
    """

    matrix: SparseMatrix
    transposed: SparseMatrix
    pixels: Tensor


@dataclass(frozen=True)
class Target:
    """What the pixels of a map should look like: colours [P, 3]."""

    texels: TexelMap
    colours: Tensor


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
    face_ids, _ = rasterize_uvs(textured.uvs, textured.uv_faces, size, device)
    valid = face_ids >= 0 if isinstance(face_ids, Tensor) else torch.from_numpy(face_ids >= 0)
    if not bool(valid.any()):  # no face reaches a texel's centre
        return textured
    nearest = nearest_texels(valid).to(device)
    colours = torch.from_numpy(textured.texture).to(device)[valid.to(device)].float() / 255.0  # [T, 3]
    for number in range(config.rounds):
        cameras = ring(prior, config.views, elevation_deg, generator)
        rgb, alpha = improved_views(textured, colours[nearest], prior, cameras, config, generator, device)
        targets = [_target(textured, nearest, cameras, rgb, alpha)]
        if reference is not None:
            picture = reference[0].to(device, torch.float32)[None]
            over_white = picture[..., :3] * picture[..., 3:] + 1.0 - picture[..., 3:]
            targets.append(_target(textured, nearest, reference[1], over_white, picture[..., 3]))
        fitted = SOLVERS[config.solver](colours, targets, config)
        change = float((fitted - colours).square().mean().sqrt())
        logger.info("texture refinement %d of %d: changed by %.4f (rms)", number + 1, config.rounds, change)
        colours = fitted
    texture = (colours[nearest] * 255.0 + 0.5).to(torch.uint8)
    return TexturedMesh(textured.mesh, textured.uvs, textured.uv_faces, texture.cpu().numpy())


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


def _target(textured: TexturedMesh, nearest: Tensor, cameras: Cameras, rgb: Tensor, alpha: Tensor | None) -> Target:
    """The pixels of pictures [C, H, W, 3] that show the mesh and nothing else."""
    usable = rgb.isfinite().all(dim=-1)
    if alpha is not None:
        usable &= alpha > SOLID_ALPHA
    texels = texel_map(textured, nearest, cameras, usable)
    return Target(texels, rgb.reshape(-1, 3)[texels.pixels])


def texel_map(textured: TexturedMesh, nearest: Tensor, cameras: Cameras, usable: Tensor) -> TexelMap:
    """The texels behind every pixel that the mesh covers wholly and not too obliquely.

    Args:
        nearest: for every texel [H, W] the number of the nearest one inside a chart; on the device to work on.
        usable: pixels [C, H, W] that count.
    """
    device = nearest.device
    sample_cameras = cameras.resized(cameras.width * SAMPLES, cameras.height * SAMPLES)
    raster = rasterize_mesh(textured.mesh, sample_cameras, device=device)
    faces, shares = raster.face_ids.flatten(), raster.barycentrics.reshape(-1, 3)
    samples = (faces >= 0).nonzero()[:, 0]
    faces, shares = faces[samples].long(), shares[samples]

    # 1. pixels of which every sample lies on the mesh, facing the camera
    width = cameras.width * SAMPLES
    row, column = samples // width, samples % width  # rows of all pictures, one below the other
    pixel = row // SAMPLES * cameras.width + column // SAMPLES
    hits = torch.bincount(pixel, minlength=usable.numel())
    cosines = _cosines(textured, faces, shares, sample_cameras, row // sample_cameras.height)
    oblique = torch.bincount(pixel[cosines < LEAST_COSINE], minlength=usable.numel())
    good = usable.flatten() & (hits == SAMPLES**2) & (2 * oblique < SAMPLES**2)
    kept = good[pixel]
    pixel = (good.cumsum(0) - 1)[pixel[kept]]
    faces, shares = faces[kept], shares[kept]

    # 2. each sample mixes four texels
    uv_faces = torch.from_numpy(textured.uv_faces).to(device).long()
    uvs = (torch.from_numpy(textured.uvs).to(device)[uv_faces[faces]] * shares[..., None]).sum(dim=1)
    texels_high, texels_wide = nearest.shape
    x = (uvs[:, 0] * texels_wide - 0.5).clamp(0, texels_wide - 1)
    y = ((1.0 - uvs[:, 1]) * texels_high - 0.5).clamp(0, texels_high - 1)
    x0, y0 = x.long(), y.long()
    x1, y1 = (x0 + 1).clamp_max(texels_wide - 1), (y0 + 1).clamp_max(texels_high - 1)
    fx, fy = x - x0, y - y0
    texels = torch.cat([nearest[y0, x0], nearest[y0, x1], nearest[y1, x0], nearest[y1, x1]])
    weights = torch.cat([(1 - fy) * (1 - fx), (1 - fy) * fx, fy * (1 - fx), fy * fx]) / SAMPLES**2
    pixel = pixel.repeat(4)
    pixels, texel_count = good.nonzero()[:, 0], int(nearest.max()) + 1
    return TexelMap(
        SparseMatrix(pixel, texels, weights, (len(pixels), texel_count)),
        SparseMatrix(texels, pixel, weights, (texel_count, len(pixels))),
        pixels,
    )


def _cosines(textured: TexturedMesh, faces: Tensor, shares: Tensor, cameras: Cameras, view: Tensor) -> Tensor:
    """Between the normal of a face and the direction to the camera, at points on faces."""
    vertices = torch.from_numpy(textured.mesh.vertices).to(faces.device, torch.float32)
    corners = vertices[torch.from_numpy(textured.mesh.faces).to(faces.device).long()]  # [F, 3, 3]
    normals = normalize(torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), dim=-1)
    points = (corners[faces] * shares[..., None]).sum(dim=1)
    toward = normalize(cameras.centers.to(points)[view] - points, dim=-1)
    return (normals[faces] * toward).sum(dim=-1)


@torch.no_grad()
def fit_least_squares(colours: Tensor, targets: list[Target], config: RefineConfig) -> Tensor:
    """Colours c + d in [0, 1] with the least sum of |A (c + d) - target|^2 over all pixels, and pull |d|^2 over texels.

    Conjugate gradients (Hestenes and Stiefel 1952) on the normal equations, each colour by itself. Few steps: the
    first ones move what many pixels agree on.
    """

    def curvature(d: Tensor) -> Tensor:
        return sum((t.texels.transposed @ (t.texels.matrix @ d) for t in targets), config.pull * d)

    d = torch.zeros_like(colours)
    residual = sum((t.texels.transposed @ (t.colours - t.texels.matrix @ colours) for t in targets), d)
    direction, size = residual, residual.square().sum(dim=0)  # size [3]
    for _ in range(config.steps):
        bent = curvature(direction)
        length = size / (direction * bent).sum(dim=0).clamp_min(1e-30)
        d = d + length * direction
        residual = residual - length * bent
        before, size = size, residual.square().sum(dim=0)
        direction = residual + size / before.clamp_min(1e-30) * direction
    return (colours + d).clamp(0.0, 1.0)


@torch.no_grad()
def fit_adam(colours: Tensor, targets: list[Target], config: RefineConfig) -> Tensor:
    """The official fit: Adam (arXiv:1412.6980) on the mean squared errors of the views and of the picture."""
    logits = torch.logit(colours, eps=1e-3)
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(1, config.steps + 1):
        colours = torch.sigmoid(logits)
        slope = torch.zeros_like(colours)
        for target in targets:
            error = target.texels.matrix @ colours - target.colours
            slope = slope + target.texels.transposed @ (error * (2.0 / max(1, error.numel())))
        slope = slope * colours * (1.0 - colours)
        first = ADAM_BETAS[0] * first + (1 - ADAM_BETAS[0]) * slope
        second = ADAM_BETAS[1] * second + (1 - ADAM_BETAS[1]) * slope.square()
        mean, spread = first / (1 - ADAM_BETAS[0] ** step), (second / (1 - ADAM_BETAS[1] ** step)).sqrt()
        logits = logits - config.rate * mean / (spread + ADAM_EPSILON)
    return torch.sigmoid(logits)


SOLVERS = {"least_squares": fit_least_squares, "adam": fit_adam}
