"""The texels of an unwrapped mesh as points on its surface, and how they come to look like pictures of it."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from mesh_extract.backproject import SurfaceViews, backproject
from mesh_extract.fill import nearest_texels
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_uvs, render_texture
from mesh_extract.textured import TexturedMesh

SHARPNESS = 1.0  # exponent of the viewing angle's cosine; 1 weighs by area in a picture: least squares over pixels


@dataclass(frozen=True)
class Texels:
    """The T texels inside the charts of an unwrapped mesh, on one device.

    positions, normals: [T, 3] float32, world units. corners [T, 3]: vertices of each one's face; barycentrics [T, 3].
    valid [H, W]: where the texels are; nearest [H, W]: of every place of the texture the number of the nearest texel.
    """

    mesh: Mesh
    uvs: np.ndarray
    uv_faces: np.ndarray
    valid: Tensor
    nearest: Tensor
    corners: Tensor
    barycentrics: Tensor
    positions: Tensor
    normals: Tensor

    def textured(self, colors: Tensor) -> TexturedMesh:
        """The mesh with these texels' colours [T, 3], in [0, 1]; gutters repeat them."""
        assert torch.isfinite(colors).all()
        texture = (colors * 255.0 + 0.5).to(torch.uint8)[self.nearest]
        return TexturedMesh(self.mesh, self.uvs, self.uv_faces, texture.cpu().numpy())

    def residual(self, colors: Tensor, views: SurfaceViews) -> SurfaceViews:
        """What the views show minus what the textured mesh shows in them; counts where the mesh is solid."""
        black = (0.0, 0.0, 0.0)
        drawn = render_texture(
            self.mesh, self.uvs, self.uv_faces, colors[self.nearest], views.cameras,
            background=black, device=views.device,
        )  # fmt: skip
        covered = drawn.alpha >= 1.0  # a pixel on the outline mixes in the background
        return replace(views, colors=views.colors - drawn.rgb, confidence=views.confidence * covered)


def texels_of(mesh: Mesh, uvs: np.ndarray, uv_faces: np.ndarray, size: int, device: torch.device) -> Texels | None:
    """The texels of a texture [size, size]; None where no face reaches a texel's centre."""
    face_ids, barycentrics = rasterize_uvs(uvs, uv_faces, size, device)
    valid = face_ids >= 0
    if not valid.any():
        return None
    corners = torch.from_numpy(mesh.faces).to(device)[face_ids[valid].long()].long()  # [T, 3]
    barycentrics = barycentrics[valid]  # [T, 3]
    positions = interpolate(mesh.vertices, corners, barycentrics)
    normals = unit(interpolate(mesh.vertex_normals, corners, barycentrics))
    return Texels(mesh, uvs, uv_faces, valid, nearest_texels(valid), corners, barycentrics, positions, normals)


def follow_views(
    texels: Texels, colors: Tensor, views: Sequence[SurfaceViews], pull: float, shares: Sequence[float] = (1.0,)
) -> Tensor:
    """Colours [T, 3] with what the views show and the textured mesh does not: one pass of iterative back-projection.

    Args:
        views: sets of pictures; `shares`: how much a view of each set counts.
        pull: weight of the colours as they are, against 1 of a view of share 1 that sees a texel straight.
    """
    total, step = torch.zeros_like(colors[:, 0]), torch.zeros_like(colors)
    for pictures, share in zip(views, shares, strict=True):
        found, weights = backproject(texels.positions, texels.normals, texels.residual(colors, pictures), SHARPNESS)
        total, step = total + share * weights, step + (share * weights)[:, None] * found
    return (colors + step / (total + pull).clamp_min(1e-12)[:, None]).clamp_(0.0, 1.0)


def interpolate(values: Tensor | np.ndarray, corners: Tensor, barycentrics: Tensor) -> Tensor:
    """Values [V, 3] at points given by corner indices [T, 3] and barycentrics [T, 3]; float32 [T, 3]."""
    values = torch.as_tensor(values, dtype=torch.float32, device=corners.device)
    parts = [values[corners[:, k]] * barycentrics[:, k : k + 1] for k in range(3)]
    return parts[0] + parts[1] + parts[2]


def unit(vectors: Tensor) -> Tensor:
    """Vectors [T, 3] of length one."""
    return vectors / (vectors * vectors).sum(dim=1, keepdim=True).sqrt().clamp_min(1e-12)
