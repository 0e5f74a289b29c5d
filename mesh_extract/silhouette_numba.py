"""The loop of `auto_threshold`: the largest density that each pixel's ray meets."""

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
