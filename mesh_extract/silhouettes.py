"""What `auto_threshold` and `carve` ask of a field and of pictures: the loops, on the device of what they are given."""

import numpy as np
import torch
from torch import Tensor


def largest_along_rays(density: Tensor, origins: Tensor, directions: Tensor, step: float, enough: float) -> Tensor:
    """The maximum of the trilinear field along each ray.

    Args:
        density: [X, Y, Z] float32.
        origins [C, 3], directions [C, P, 3]: in node units, float64, directions of length one; P rays from each origin.
        step: distance of samples in voxels.
        enough: a ray ends early where it meets this.
    Returns:
        [C, P] float32
    """
    if density.device.type != "cpu":
        from mesh_extract import silhouette_cuda

        return silhouette_cuda.largest_along_rays(density, origins, directions, step, enough)
    from mesh_extract import silhouette_numba  # the JIT compiler is slow to import

    largest = torch.zeros(directions.shape[:2])
    for origin, rays, found in zip(origins.numpy(), directions.numpy(), largest.numpy(), strict=True):
        silhouette_numba.largest_along_rays(density.numpy(), origin, rays, step, enough, found)
    return largest


def least_coverage(positions: Tensor, viewmats: Tensor, intrinsics: Tensor, alphas: Tensor) -> Tensor:
    """The smallest coverage that a view shows, bilinearly, where it sees a position; 1 where none sees it.

    Args:
        positions [P, 3] in world units, viewmats [C, 4, 4], intrinsics [C, 3, 3] in pixels: float64.
        alphas: [C, H, W] float32. A view in which a position lies beside the picture's outermost pixel centres says
            nothing about it.
    Returns:
        [P] float32
    """
    if alphas.device.type != "cpu":
        from mesh_extract import silhouette_cuda

        return silhouette_cuda.least_coverage(positions, viewmats, intrinsics, alphas)
    from mesh_extract import silhouette_numba

    least = np.ones(len(positions), np.float32)
    silhouette_numba.least_coverage(positions.numpy(), viewmats.numpy(), intrinsics.numpy(), alphas.numpy(), least)
    return torch.from_numpy(least)
