"""A mesh with a texture: what baking makes, exporters write and previews draw."""

from dataclasses import dataclass

import numpy as np

from mesh_extract.mesh import Mesh


@dataclass(frozen=True)
class TexturedMesh:
    """A triangle mesh with an albedo picture.

    mesh: geometry in world units. uvs [T, 2] in [0, 1], float32: u to the right, v up, so that the picture's first row
    lies at v = 1 and texel (column x, row y) of a picture [H, W] has its centre at ((x + 0.5) / W, 1 - (y + 0.5) / H).
    uv_faces [F, 3], int32: for every corner of every face an index into `uvs`. texture [H, W, 3], uint8, sRGB.
    """

    mesh: Mesh
    uvs: np.ndarray
    uv_faces: np.ndarray
    texture: np.ndarray

    def __post_init__(self) -> None:
        if self.uv_faces.shape != self.mesh.faces.shape:
            raise ValueError(f"uv_faces must be {list(self.mesh.faces.shape)}, got {list(self.uv_faces.shape)}")
        if self.uvs.ndim != 2 or self.uvs.shape[1] != 2:
            raise ValueError(f"uvs must be [T, 2], got {list(self.uvs.shape)}")
        if self.texture.ndim != 3 or self.texture.shape[2] != 3 or self.texture.dtype != np.uint8:
            raise ValueError(f"texture must be [H, W, 3] uint8, got {list(self.texture.shape)} {self.texture.dtype}")

    def vertex_colors(self) -> np.ndarray:
        """The texture at the vertices, uint8 [V, 3]: the mean over a vertex's places in the atlas; unused ones grey."""
        corner_colors = sample_texture(self.texture, self.uvs)[self.uv_faces.reshape(-1)]  # [3 F, 3]
        corners = self.mesh.faces.reshape(-1)
        count = np.bincount(corners, minlength=len(self.mesh.vertices))
        sums = [np.bincount(corners, corner_colors[:, k], len(self.mesh.vertices)) for k in range(3)]
        means = np.where(count[:, None] > 0, np.stack(sums, axis=1) / np.maximum(count, 1)[:, None], 0.5)
        return to_uint8(means)

    def split_vertices(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """One vertex for every pair (vertex, uv), as GPU formats need.

        Returns:
            (vertex_index [P], uv_index [P], faces [F, 3] that index the pairs); pairs in order of vertex, then uv.
        """
        pairs = np.stack([self.mesh.faces.reshape(-1), self.uv_faces.reshape(-1)], axis=1)
        unique, inverse = np.unique(pairs, axis=0, return_inverse=True)
        return unique[:, 0], unique[:, 1], inverse.reshape(-1, 3).astype(np.int32)


def sample_texture(texture: np.ndarray, uvs: np.ndarray) -> np.ndarray:
    """Bilinear values [T, 3] in [0, 1] of a texture [H, W, 3] (uint8) at uvs [T, 2], clamped at the border."""
    height, width = texture.shape[:2]
    x = np.clip(uvs[:, 0] * width - 0.5, 0, width - 1)
    y = np.clip((1.0 - uvs[:, 1]) * height - 0.5, 0, height - 1)
    x0, y0 = np.floor(x).astype(np.int64), np.floor(y).astype(np.int64)
    x1, y1 = np.minimum(x0 + 1, width - 1), np.minimum(y0 + 1, height - 1)
    fx, fy = (x - x0)[:, None], (y - y0)[:, None]
    upper = texture[y0, x0] * (1 - fx) + texture[y0, x1] * fx
    lower = texture[y1, x0] * (1 - fx) + texture[y1, x1] * fx
    return (upper * (1 - fy) + lower * fy) / 255.0


def to_uint8(values: np.ndarray) -> np.ndarray:
    """[0, 1] to 0 ... 255, rounded."""
    return (np.clip(values, 0.0, 1.0) * 255.0 + 0.5).astype(np.uint8)
