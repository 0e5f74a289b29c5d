"""Pictures of a surface carried back to points on it: what each texel looks like in the views that see it."""

from dataclasses import dataclass

import numpy as np
import torch
from numba import njit
from torch import Tensor

from cameras import Cameras
from mesh_extract.mesh_raster_numba import in_threads

LEAST_COSINE = 0.15  # views more oblique than 81 degrees say nothing about a texel
_CHUNK = 16384  # texels a job


@dataclass(frozen=True)
class SurfaceViews:
    """C pictures of one surface.

    cameras: C cameras. colors [C, H, W, 3] and confidence [C, H, W] in [0, 1], which weighs each pixel; depth
    [C, H, W]: the surface's own depth along z, 0 beside it. All float32, contiguous, on one device.
    """

    cameras: Cameras
    colors: Tensor
    confidence: Tensor
    depth: Tensor

    @property
    def device(self) -> torch.device:
        return self.colors.device


def backproject(positions: Tensor, normals: Tensor, views: SurfaceViews, sharpness: float) -> tuple[Tensor, Tensor]:
    """Weighted mean of the views' colours at points on the surface.

    A view counts with confidence * cosine^sharpness, the cosine between the normal and the direction to the camera,
    if the four pixels around the point's projection show the surface at the point's own depth: none nearer, which
    would be in front, none farther, whose colour would come from behind. The tolerance grows with the slope.

    Args:
        positions, normals: [T, 3] float32, world units, on the device of the views.
        sharpness: exponent; large lets the view that looks straightest at a point decide alone.
    Returns:
        (colors [T, 3], 0 where no view sees the point; weights [T], the sum over the views)
    """
    found = views.cameras
    cameras = tuple(t.detach().to(views.device).float().contiguous() for t in (found.viewmats, found.Ks, found.centers))
    pictures = views.colors, views.confidence, views.depth
    if views.device.type != "cpu":
        from mesh_extract import backproject_cuda

        return backproject_cuda.backproject(positions, normals, cameras, *pictures, sharpness, LEAST_COSINE)
    colors = np.zeros((len(positions), 3), np.float32)
    weights = np.zeros(len(positions), np.float32)
    fixed = [t.numpy() for t in (*cameras, *pictures)]
    positions, normals = positions.numpy(), normals.numpy()

    def work(job: int) -> None:
        part = slice(job * _CHUNK, (job + 1) * _CHUNK)
        _backproject(
            positions[part], normals[part], *fixed, float(sharpness), LEAST_COSINE, colors[part], weights[part]
        )

    in_threads(work, -(-len(positions) // _CHUNK))
    return torch.from_numpy(colors), torch.from_numpy(weights)


@njit(cache=True, nogil=True)
def _backproject(
    positions, normals, viewmats, intrinsics, centers, pictures, confidence, depth, sharpness, least_cosine,
    colors, weights,
):  # fmt: skip
    height, width = depth.shape[1], depth.shape[2]
    for t in range(positions.shape[0]):
        px, py, pz = positions[t, 0], positions[t, 1], positions[t, 2]
        red, green, blue, total = 0.0, 0.0, 0.0, 0.0
        for c in range(viewmats.shape[0]):
            tx, ty, tz = centers[c, 0] - px, centers[c, 1] - py, centers[c, 2] - pz
            cosine = normals[t, 0] * tx + normals[t, 1] * ty + normals[t, 2] * tz
            if cosine <= 0.0:
                continue
            cosine /= np.sqrt(tx * tx + ty * ty + tz * tz)
            if not cosine > least_cosine:
                continue
            view = viewmats[c]
            z = view[2, 0] * px + view[2, 1] * py + view[2, 2] * pz + view[2, 3]
            if z <= 0.0:
                continue
            x = view[0, 0] * px + view[0, 1] * py + view[0, 2] * pz + view[0, 3]
            y = view[1, 0] * px + view[1, 1] * py + view[1, 2] * pz + view[1, 3]
            x = intrinsics[c, 0, 0] * x / z + intrinsics[c, 0, 2] - 0.5
            y = intrinsics[c, 1, 1] * y / z + intrinsics[c, 1, 2] - 0.5
            if not (x >= 0.0 and y >= 0.0 and x < width - 1 and y < height - 1):
                continue
            x0, y0 = int(x), int(y)
            fx, fy = x - x0, y - y0
            slope = np.sqrt(max(1.0 - cosine * cosine, 0.0)) / cosine
            # A neighbour lies up to sqrt(2) pixels away on the slope; 1.5 pixels more for facets and curvature.
            tolerance = z / intrinsics[c, 0, 0] * (1.5 + 2.0 * slope)
            seen = True
            r, g, b, w = 0.0, 0.0, 0.0, 0.0
            for tap in range(4):
                column, row = x0 + (tap & 1), y0 + (tap >> 1)
                there = depth[c, row, column]
                if there == 0.0 or abs(there - z) > tolerance:
                    seen = False
                    break
                part = (fx if tap & 1 else 1.0 - fx) * (fy if tap >> 1 else 1.0 - fy) * confidence[c, row, column]
                r += part * pictures[c, row, column, 0]
                g += part * pictures[c, row, column, 1]
                b += part * pictures[c, row, column, 2]
                w += part
            if seen and w > 0.0:
                facing = cosine**sharpness
                red += facing * r
                green += facing * g
                blue += facing * b
                total += facing * w
        weights[t] = total
        if total > 0.0:
            colors[t, 0], colors[t, 1], colors[t, 2] = red / total, green / total, blue / total
