"""The loops of `auto_threshold` and `carve`: the largest density along rays, the least coverage over views."""

import math

import numpy as np
from numba import njit, prange


@njit(
    "void(float32[:,:,::1], float64[::1], float64[:,::1], float64, float64, float32[::1])",
    parallel=True,
    cache=True,
    error_model="numpy",
)
def largest_along_rays(density, origin, directions, step, enough, largest):
    """Fill `largest` [P] with the maximum of the trilinear field along each ray.

    density [X, Y, Z]; origin [3], directions [P, 3] in node units, directions of length one; step: distance of samples
    in voxels; a ray ends early where it meets `enough`.
    """
    size_x, size_y, size_z = density.shape
    ends = np.array([size_x - 1.0, size_y - 1.0, size_z - 1.0])
    for p in prange(directions.shape[0]):
        enter, leave = 0.0, np.inf
        for axis in range(3):
            slope = directions[p, axis]
            if abs(slope) < 1e-12:
                if origin[axis] < 0.0 or origin[axis] > ends[axis]:
                    leave = -1.0
                continue
            a, b = -origin[axis] / slope, (ends[axis] - origin[axis]) / slope
            enter, leave = max(enter, min(a, b)), min(leave, max(a, b))
        best = 0.0
        t = enter
        while t < leave and best < enough:
            x, y, z = (
                origin[0] + t * directions[p, 0],
                origin[1] + t * directions[p, 1],
                origin[2] + t * directions[p, 2],
            )
            # The last cell serves its far face as well.
            i = min(max(int(math.floor(x)), 0), size_x - 2)
            j = min(max(int(math.floor(y)), 0), size_y - 2)
            k = min(max(int(math.floor(z)), 0), size_z - 2)
            u, v, w = x - i, y - j, z - k
            near = (
                (density[i, j, k] * (1.0 - w) + density[i, j, k + 1] * w) * (1.0 - v)
                + (density[i, j + 1, k] * (1.0 - w) + density[i, j + 1, k + 1] * w) * v
            )  # fmt: skip
            far = (
                (density[i + 1, j, k] * (1.0 - w) + density[i + 1, j, k + 1] * w) * (1.0 - v)
                + (density[i + 1, j + 1, k] * (1.0 - w) + density[i + 1, j + 1, k + 1] * w) * v
            )  # fmt: skip
            best = max(best, near * (1.0 - u) + far * u)
            t += step
        largest[p] = best


@njit(
    "void(float64[:,::1], float64[:,:,::1], float64[:,:,::1], float32[:,:,::1], float32[::1])",
    parallel=True,
    cache=True,
    error_model="numpy",
)
def least_coverage(positions, viewmats, intrinsics, alphas, least):
    """Lower `least` [P] to the smallest coverage that a view shows, bilinearly, where it sees a position.

    positions [P, 3] in world units; viewmats [C, 4, 4]; intrinsics [C, 3, 3] in pixels; alphas [C, H, W]. A view in
    which a position lies beside the picture's outermost pixel centres says nothing about it.
    """
    height, width = alphas.shape[1], alphas.shape[2]
    for p in prange(positions.shape[0]):
        px, py, pz = positions[p, 0], positions[p, 1], positions[p, 2]
        smallest = least[p]
        for c in range(viewmats.shape[0]):
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
            i, j = int(x), int(y)
            u, v = x - i, y - j
            above = alphas[c, j, i] * (1.0 - u) + alphas[c, j, i + 1] * u
            below = alphas[c, j + 1, i] * (1.0 - u) + alphas[c, j + 1, i + 1] * u
            smallest = min(smallest, above * (1.0 - v) + below * v)
        least[p] = smallest
