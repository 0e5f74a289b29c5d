"""The sums over nodes behind the density field's gradients, on the CPU. What they are: fields_gradients.py."""

import math

import numpy as np
from numba import njit, prange


@njit("void(float64[:,::1], float64[:,:,::1], int64, float64[:,::1])", parallel=True, cache=True, error_model="numpy")
def sum_over_supports(packed: np.ndarray, weights: np.ndarray, first_x: int, sums: np.ndarray) -> None:
    """Fill the sums of N Gaussians, each over the nodes of its own support in their order, on whatever thread.

    Args:
        packed: [N, 20] node units: mean (3), triangular precision factors (6), whitening by rows (9), q at the cut-off
            (negative: no support), opacity.
        weights: [X, Y, Z] gradient at the nodes.
        first_x: x of their first plane.
        sums: [N, 10] out: of g v, g v y (3), g v y y^T (xx, xy, xz, yy, yz, zz).
    """
    size_x, size_y, size_z = weights.shape
    for g in prange(packed.shape[0]):
        reach_squared = packed[g, 18]
        if reach_squared < 0.0:
            continue
        mean_x, mean_y, mean_z = packed[g, 0] - first_x, packed[g, 1], packed[g, 2]
        l0, l1, l2, l3, l4, l5 = packed[g, 3], packed[g, 4], packed[g, 5], packed[g, 6], packed[g, 7], packed[g, 8]
        w00, w01, w02, w10, w11, w12 = (
            packed[g, 9], packed[g, 10], packed[g, 11], packed[g, 12], packed[g, 13], packed[g, 14]
        )  # fmt: skip
        w20, w21, w22, opacity = packed[g, 15], packed[g, 16], packed[g, 17], packed[g, 19]
        s, sx, sy, sz, sxx, sxy, sxz, syy, syz, szz = 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0
        # q >= (l0 dx)^2, with equality for some y and z: the ellipsoid reaches this far and no farther.
        half_x = math.sqrt(reach_squared) / l0
        first_i = max(math.ceil(max(mean_x - half_x, 0.0)), 0)
        last_i = math.floor(min(mean_x + half_x, size_x - 1.0))
        for i in range(first_i, last_i + 1):
            dx = i - mean_x
            left_x = reach_squared - (l0 * dx) * (l0 * dx)
            if left_x < 0.0:
                continue
            middle = mean_y - l1 * dx / l2
            reach = math.sqrt(left_x) / l2
            first_j = max(math.ceil(max(middle - reach, 0.0)), 0)
            last_j = math.floor(min(middle + reach, size_y - 1.0))
            for j in range(first_j, last_j + 1):
                dy = j - mean_y
                t = l1 * dx + l2 * dy
                left_y = left_x - t * t
                if left_y < 0.0:
                    continue
                reach_z = math.sqrt(left_y) / l5
                middle_z = mean_z - (l3 * dx + l4 * dy) / l5
                first_k = max(math.ceil(max(middle_z - reach_z, 0.0)), 0)
                last_k = math.floor(min(middle_z + reach_z, size_z - 1.0))
                for k in range(first_k, last_k + 1):
                    dz = k - mean_z
                    a = w00 * dx + w01 * dy + w02 * dz
                    b = w10 * dx + w11 * dy + w12 * dz
                    c = w20 * dx + w21 * dy + w22 * dz
                    v = weights[i, j, k] * opacity * math.exp(-0.5 * (a * a + b * b + c * c))
                    s += v
                    sx += v * a
                    sy += v * b
                    sz += v * c
                    sxx += v * a * a
                    sxy += v * a * b
                    sxz += v * a * c
                    syy += v * b * b
                    syz += v * b * c
                    szz += v * c * c
        sums[g, 0], sums[g, 1], sums[g, 2], sums[g, 3], sums[g, 4] = s, sx, sy, sz, sxx
        sums[g, 5], sums[g, 6], sums[g, 7], sums[g, 8], sums[g, 9] = sxy, sxz, syy, syz, szz
