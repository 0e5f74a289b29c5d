"""The loops of `extract_fields(backend="numba")`. Reference: fields_loops.py."""

import math

import numba
import numpy as np
from numba import njit, prange

from mesh_extract.support import CUTOFF

_LANES = 16  # nodes of a row evaluated together: an AVX-512 register of float32, or two of AVX2
_LOG2_CUTOFF = np.float32(math.log2(CUTOFF))
_LOG2_E = 1.4426950408889634
# 2^f on [-0.5, 0.5]: Taylor coefficients ln(2)^k / k!, k = 0..6; relative error 1.2e-7, the rounding of float32.
_C0, _C1, _C2, _C3, _C4, _C5, _C6 = (np.float32(math.log(2) ** k / math.factorial(k)) for k in range(7))


@njit(
    "void(float64[:,::1], int64, int64, float32[:,:,::1])",
    parallel=True,
    cache=True,
    error_model="numpy",
    fastmath={"nsz", "contract", "reassoc"},
)
def _splat_into_planes(packed, first_x, size_z, density):
    """As `splat_into_planes`, into rows that are padded to whole groups of lanes."""
    count = packed.shape[0]
    size_x, size_y, _ = density.shape
    for i in prange(size_x):
        for g in range(count):
            dx = (first_x + i) - packed[g, 0]
            l0 = packed[g, 3]
            # What q leaves for the other two terms once dx is given; negative: the plane misses the ellipsoid.
            left_x = packed[g, 9] - (l0 * dx) * (l0 * dx)
            if left_x < 0.0:
                continue
            l1, l2, l3, l4, l5 = packed[g, 4], packed[g, 5], packed[g, 6], packed[g, 7], packed[g, 8]
            # log2 of the value at q = 0 and, below, of the value on the row's nearest point.
            log2_peak = math.log2(packed[g, 10])
            reach = math.sqrt(left_x) / l2
            middle = packed[g, 1] - l1 * dx / l2
            first_y = max(math.ceil(max(middle - reach, 0.0)), 0)
            last_y = math.floor(min(middle + reach, size_y - 1.0))
            used_x = packed[g, 9] - left_x
            # The row's exponent is -(slope (k - row_middle))^2 in powers of 2.
            slope = np.float32(l5 * math.sqrt(0.5 * _LOG2_E))
            for j in range(first_y, last_y + 1):
                dy = j - packed[g, 1]
                t = l1 * dx + l2 * dy
                left_y = left_x - t * t
                if left_y < 0.0:
                    continue
                reach_z = math.sqrt(left_y) / l5
                middle_z = packed[g, 2] - (l3 * dx + l4 * dy) / l5
                first_z = math.ceil(max(middle_z - reach_z, 0.0))
                last_z = math.floor(min(middle_z + reach_z, size_z - 1.0))
                if last_z < first_z:
                    continue
                # From here on float32, which holds what is counted from the node nearest to the row's middle: there the
                # values are largest, and their exponents and so their errors smallest.
                row_peak = np.float32(log2_peak - 0.5 * _LOG2_E * (used_x + t * t))
                # Whole groups of lanes: rows are short (12 nodes), and a rest would be walked one node at a time. The
                # count must not be known to the compiler, or it unrolls instead of vectorising.
                first_z -= first_z % _LANES
                length = (last_z - first_z) // _LANES * _LANES + _LANES
                nearest = math.floor(middle_z + 0.5)
                rest = np.float32((nearest - middle_z) * slope)
                offset = np.float32(nearest - first_z)
                row = density[i, j, first_z : first_z + length]
                for k in range(length):
                    u = rest + slope * (np.float32(k) - offset)
                    y = row_peak - u * u
                    bounded = max(y, np.float32(-100.0))  # lanes beyond the cut-off must not overflow the shift
                    whole = np.int32(bounded - np.float32(0.5))  # truncation towards 0: rounds, as y <= 0
                    f = bounded - np.float32(whole)
                    p = _C5 + f * _C6
                    p = _C4 + f * p
                    p = _C3 + f * p
                    p = _C2 + f * p
                    p = _C1 + f * p
                    p = _C0 + f * p
                    power = np.int32((whole + np.int32(127)) << np.int32(23)).view(np.float32)
                    row[k] += p * power if y >= _LOG2_CUTOFF else np.float32(0.0)


def splat_into_planes(packed: np.ndarray, density: np.ndarray, first_x: int = 0) -> None:
    """Add N Gaussians to a field, in place.

    Every plane of constant x adds them in their order, whatever thread it runs on, so the result is the same bytes
    for any number of threads. Within the plane the triangular factors give each ellipsoid's exact range of y, and
    in each row the exact range of z: no node outside the cut-off is touched.

    Args:
        packed: [N, 11] float64 in node units: mean (3), precision factors (6), q at the cut-off, opacity.
        density: [X, Y, Z] float32.
        first_x: x of its first plane.
    """
    # Small chunks: the planes in the middle hold more Gaussians than those at the ends.
    size_x, size_y, size_z = density.shape
    padded = np.zeros((size_x, size_y, -(-size_z // _LANES) * _LANES), dtype=np.float32)
    with numba.parallel_chunksize(4):
        _splat_into_planes(packed, first_x, size_z, padded)
    density += padded[:, :, :size_z]
