"""The official fit of a texture to pictures (MicroDreamer's main2.py), on a linear map from texels to pixels.

A pixel's colour is linear in the texture: the mean over samples of bilinear mixtures of texels. Where the official code
takes a mip map of a picture at twice the prior's size, a pixel here averages over its area, at the prior's size.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import normalize

from cameras import Cameras
from mesh_extract.mesh_raster import rasterize_mesh
from mesh_extract.texels import Texels
from sparse_matrix import SparseMatrix

SAMPLES = 4  # a side of every pixel: 16 samples touch nearly every texel that a pixel shows
LEAST_COSINE = 0.2  # surface seen more obliquely than 78 degrees is left to other views
SOLID_ALPHA = 0.95  # a picture's coverage below which its pixel may show background
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


def target(texels: Texels, cameras: Cameras, rgb: Tensor, alpha: Tensor | None) -> Target:
    """The pixels of pictures [C, H, W, 3] that show the mesh and nothing else."""
    usable = rgb.isfinite().all(dim=-1)
    if alpha is not None:
        usable &= alpha > SOLID_ALPHA
    found = texel_map(texels, cameras, usable)
    return Target(found, rgb.reshape(-1, 3)[found.pixels])


def texel_map(surface: Texels, cameras: Cameras, usable: Tensor) -> TexelMap:
    """The texels behind every pixel that the mesh covers wholly and not too obliquely.

    Args:
        surface: the texels, on the device to work on.
        usable: pixels [C, H, W] that count.
    """
    nearest, device = surface.nearest, surface.positions.device
    sample_cameras = cameras.resized(cameras.width * SAMPLES, cameras.height * SAMPLES)
    raster = rasterize_mesh(surface.mesh, sample_cameras, device=device)
    faces, shares = raster.face_ids.flatten(), raster.barycentrics.reshape(-1, 3)
    samples = (faces >= 0).nonzero()[:, 0]
    faces, shares = faces[samples].long(), shares[samples]

    # 1. pixels of which every sample lies on the mesh, facing the camera
    width = cameras.width * SAMPLES
    row, column = samples // width, samples % width  # rows of all pictures, one below the other
    pixel = row // SAMPLES * cameras.width + column // SAMPLES
    hits = torch.bincount(pixel, minlength=usable.numel())
    cosines = _cosines(surface, faces, shares, sample_cameras, row // sample_cameras.height)
    oblique = torch.bincount(pixel[cosines < LEAST_COSINE], minlength=usable.numel())
    good = usable.flatten() & (hits == SAMPLES**2) & (2 * oblique < SAMPLES**2)
    kept = good[pixel]
    pixel = (good.cumsum(0) - 1)[pixel[kept]]
    faces, shares = faces[kept], shares[kept]

    # 2. each sample mixes four texels
    uv_faces = torch.from_numpy(surface.uv_faces).to(device).long()
    uvs = (torch.from_numpy(surface.uvs).to(device)[uv_faces[faces]] * shares[..., None]).sum(dim=1)
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


def _cosines(surface: Texels, faces: Tensor, shares: Tensor, cameras: Cameras, view: Tensor) -> Tensor:
    """Between the normal of a face and the direction to the camera, at points on faces."""
    vertices = torch.from_numpy(surface.mesh.vertices).to(faces.device, torch.float32)
    corners = vertices[torch.from_numpy(surface.mesh.faces).to(faces.device).long()]  # [F, 3, 3]
    normals = normalize(torch.linalg.cross(corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]), dim=-1)
    points = (corners[faces] * shares[..., None]).sum(dim=1)
    toward = normalize(cameras.centers.to(points)[view] - points, dim=-1)
    return (normals[faces] * toward).sum(dim=-1)


@torch.no_grad()
def fit_adam(colours: Tensor, targets: list[Target], steps: int, rate: float) -> Tensor:
    """The official fit: Adam (arXiv:1412.6980) on the mean squared errors of the views and of the picture."""
    logits = torch.logit(colours, eps=1e-3)
    first, second = torch.zeros_like(logits), torch.zeros_like(logits)
    for step in range(1, steps + 1):
        colours = torch.sigmoid(logits)
        slope = torch.zeros_like(colours)
        for target in targets:
            error = target.texels.matrix @ colours - target.colours
            slope = slope + target.texels.transposed @ (error * (2.0 / max(1, error.numel())))
        slope = slope * colours * (1.0 - colours)
        first = ADAM_BETAS[0] * first + (1 - ADAM_BETAS[0]) * slope
        second = ADAM_BETAS[1] * second + (1 - ADAM_BETAS[1]) * slope.square()
        mean, spread = first / (1 - ADAM_BETAS[0] ** step), (second / (1 - ADAM_BETAS[1] ** step)).sqrt()
        logits = logits - rate * mean / (spread + ADAM_EPSILON)
    return torch.sigmoid(logits)
