# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Box and reach of an object from its primitives: how it is centred and scaled, and bounds for culling."""

import math

import numpy as np
from numba import njit, prange

from procedural.layout import *

# A point at distance R from the origin shows at most R / sqrt(4 - R^2) off the axis of a camera of radius 2; 0.80 makes
# that 0.436, and the frame of fovy 49.1 ends at 0.457: nothing is ever cropped, with 2.9 pixels to spare of 128.
REACH_LIMIT = 0.80


@njit(cache=True)
def support(P, i, x, y, z):
    """Farthest local point of primitive i along the local direction (x, y, z)."""
    kind = P[i, TYPE]
    a, b, c, e = P[i, DIM], P[i, DIM + 1], P[i, DIM + 2], P[i, DIM + 3]
    n = math.sqrt(x * x + y * y + z * z) + 1e-12
    x, y, z = x / n, y / n, z / n
    across = math.sqrt(x * x + z * z) + 1e-12
    grow = P[i, RIB_HEIGHT]
    if kind == ELLIPSOID or (kind == DOME and y >= 0.0):
        m = math.sqrt((a * x) ** 2 + (b * y) ** 2 + (c * z) ** 2) + 1e-12
        px, py, pz = a * a * x / m, b * b * y / m, c * c * z / m
    elif kind == DOME:
        m = math.sqrt((a * x) ** 2 + (c * z) ** 2) + 1e-12
        px, py, pz = a * a * x / m, 0.0, c * c * z / m
    elif kind == BOX:
        px, py, pz = math.copysign(a - e, x) + e * x, math.copysign(b - e, y) + e * y, math.copysign(c - e, z) + e * z
    elif kind == ROUND_CONE:
        if a >= c * y + b:
            px, py, pz = a * x, a * y, a * z
        else:
            px, py, pz = b * x, c + b * y, b * z
    elif kind == CAPPED_CONE:
        low, high = max(b - e, 0.0), max(c - e, 0.0)
        h = a - e
        if low * across - h * y > high * across + h * y:
            high, h = low, -h
        px, py, pz = high * x / across + e * x, h + e * y, high * z / across + e * z
    elif kind == TORUS:
        px, py, pz = a * x / across + b * x, b * y, a * z / across + b * z
    elif kind == ROOF:
        px, py, pz = 0.0, b, math.copysign(c, z)
        if a * abs(x) > b * y:
            px, py = math.copysign(a, x), 0.0
    elif kind == BELT:
        m = math.sqrt(y * y + z * z) + 1e-12
        round_off = b - e
        px = math.copysign(a - e, x) + e * x
        py = round_off * y / m + e * y
        pz = math.copysign(c - b, z) + round_off * z / m + e * z
    else:  # ARC: nearest direction of the ring within its opening
        half = math.atan2(c, e)
        angle = min(max(math.atan2(x, y), -half), half)
        px, py, pz = a * math.sin(angle) + b * x, a * math.cos(angle) + b * y, b * z
    return px + grow * x, py + grow * y, pz + grow * z


@njit(cache=True)
def copy_support(P, i, copy, flip_x, flip_z, x, y, z):
    """Farthest object-frame point of one copy of primitive i along (x, y, z)."""
    n = P[i, REPEAT]
    x, z = x * flip_x, z * flip_z
    s, c = 0.0, 1.0
    if n > 1.5:
        angle = 2.0 * math.pi / n * copy
        s, c = math.sin(angle), math.cos(angle)
        x, z = c * x - s * z, c * z + s * x
    lx = P[i, ROT] * x + P[i, ROT + 1] * y + P[i, ROT + 2] * z
    ly = P[i, ROT + 3] * x + P[i, ROT + 4] * y + P[i, ROT + 5] * z
    lz = P[i, ROT + 6] * x + P[i, ROT + 7] * y + P[i, ROT + 8] * z
    lx, ly, lz = support(P, i, lx, ly, lz)
    px = P[i, CX] + P[i, ROT] * lx + P[i, ROT + 3] * ly + P[i, ROT + 6] * lz
    py = P[i, CY] + P[i, ROT + 1] * lx + P[i, ROT + 4] * ly + P[i, ROT + 7] * lz
    pz = P[i, CZ] + P[i, ROT + 2] * lx + P[i, ROT + 5] * ly + P[i, ROT + 8] * lz
    if n > 1.5:
        px, pz = c * px + s * pz, c * pz - s * px
    elif n < -1.5:
        shift = P[i, STEP] * (copy - 0.5 * (-n - 1.0))
        if P[i, AXIS] == 0:
            px += shift
        elif P[i, AXIS] == 1:
            py += shift
        else:
            pz += shift
    return px * flip_x, py, pz * flip_z


@njit(cache=True)
def set_bounds(P, count):
    """Fill BOUND (sphere about the first copy) and FOLDED of every primitive."""
    for i in range(count):
        kind = P[i, TYPE]
        a, b, c = P[i, DIM], P[i, DIM + 1], P[i, DIM + 2]
        y = 0.0
        if kind == ELLIPSOID:
            r = max(a, max(b, c))
        elif kind == BOX:
            r = math.sqrt(a * a + b * b + c * c)
        elif kind == ROUND_CONE:
            y, r = 0.5 * (c + b - a), 0.5 * (a + b + c)
        elif kind == BELT:
            r = math.sqrt(a * a + max(b, c) ** 2)
        elif kind == CAPPED_CONE:
            r = math.sqrt(a * a + max(b, c) ** 2)
        elif kind == DOME:
            y, r = 0.5 * b, math.sqrt(max(a, c) ** 2 + 0.25 * b * b)
        elif kind == ROOF:
            y, r = 0.5 * b, math.sqrt(a * a + 0.25 * b * b + c * c)
        else:
            r = a + b
        P[i, BOUND] = P[i, CX] + P[i, ROT + 3] * y
        P[i, BOUND + 1] = P[i, CY] + P[i, ROT + 4] * y
        P[i, BOUND + 2] = P[i, CZ] + P[i, ROT + 5] * y
        P[i, BOUND + 3] = r + P[i, RIB_HEIGHT]
        P[i, FOLDED] = 1.0 if (P[i, MIRROR] != 0.0 or P[i, REPEAT] != 0.0) else 0.0


@njit(cache=True)
def extent(P, count, low, high):
    """Fill low [3] and high [3] with the box of all unions, exact but for blends and cuts."""
    low[:] = 1e9
    high[:] = -1e9
    for i in range(count):
        if P[i, OP] != UNION:
            continue
        copies = max(int(abs(P[i, REPEAT]) + 0.5), 1)
        for mx in range(2 if (P[i, MIRROR] == 1 or P[i, MIRROR] == 3) else 1):
            for mz in range(2 if P[i, MIRROR] >= 2 else 1):
                for copy in range(copies):
                    fx, fz = 1.0 - 2.0 * mx, 1.0 - 2.0 * mz
                    high[0] = max(high[0], copy_support(P, i, copy, fx, fz, 1.0, 0.0, 0.0)[0])
                    low[0] = min(low[0], copy_support(P, i, copy, fx, fz, -1.0, 0.0, 0.0)[0])
                    high[1] = max(high[1], copy_support(P, i, copy, fx, fz, 0.0, 1.0, 0.0)[1])
                    low[1] = min(low[1], copy_support(P, i, copy, fx, fz, 0.0, -1.0, 0.0)[1])
                    high[2] = max(high[2], copy_support(P, i, copy, fx, fz, 0.0, 0.0, 1.0)[2])
                    low[2] = min(low[2], copy_support(P, i, copy, fx, fz, 0.0, 0.0, -1.0)[2])


@njit(cache=True)
def reach(P, count, cx, cy, cz):
    """Distance from (cx, cy, cz) to the farthest point of the object.

    The farthest point of a convex body is the fixed point of "go to the support of the direction from the centre";
    two starts a copy, four steps each.
    """
    best = 0.0
    for i in range(count):
        if P[i, OP] != UNION:
            continue
        copies = max(int(abs(P[i, REPEAT]) + 0.5), 1)
        for mx in range(2 if (P[i, MIRROR] == 1 or P[i, MIRROR] == 3) else 1):
            for mz in range(2 if P[i, MIRROR] >= 2 else 1):
                for copy in range(copies):
                    for start in range(2):
                        fx, fz = 1.0 - 2.0 * mx, 1.0 - 2.0 * mz
                        sign = 0.05 if start == 0 else -0.05
                        dx, dy, dz = (
                            fx * P[i, CX] - cx + sign,
                            P[i, CY] - cy + 1.2 * sign,
                            fz * P[i, CZ] - cz + 0.8 * sign,
                        )
                        for _ in range(4):
                            px, py, pz = copy_support(P, i, copy, fx, fz, dx, dy, dz)
                            dx, dy, dz = px - cx, py - cy, pz - cz
                        best = max(best, math.sqrt(dx * dx + dy * dy + dz * dz))
    return best


@njit(cache=True)
def frame_object(P, count, material, size):
    """Fill bounds, CENTRE, SCALE and HALF_BOX: the box centred, scaled to `size` as the recipe says, never cropped."""
    low, high = np.empty(3), np.empty(3)
    set_bounds(P, count)
    extent(P, count, low, high)
    hx, hy, hz = 0.5 * (high[0] - low[0]), 0.5 * (high[1] - low[1]), 0.5 * (high[2] - low[2])
    for axis in range(3):
        material[CENTRE + axis] = 0.5 * (low[axis] + high[axis])
    material[HALF_BOX], material[HALF_BOX + 1], material[HALF_BOX + 2] = hx, hy, hz
    far = reach(P, count, material[CENTRE], material[CENTRE + 1], material[CENTRE + 2])
    # A blend of width k fills up by k / 4, several at one place by more: measured, up to 0.35 k beyond the parts.
    swell = 0.0
    for i in range(count):
        if P[i, OP] == UNION:
            swell = max(swell, 0.35 * P[i, SMOOTH])
    far += swell + material[BUMP_HEIGHT]
    scale = size / max(max(hx, hy), max(hz, 0.9 * math.sqrt(hx * hx + hz * hz)))
    material[SCALE] = min(scale, REACH_LIMIT / far)
    material[MARGIN] = swell + 1.5 * material[BUMP_HEIGHT] + 0.01 / material[SCALE]


@njit(cache=True, parallel=True)
def frame_objects(primitives, materials, sizes):
    """frame_object for a batch: primitives [M, P, K] and materials [M, L] are filled in place, sizes [M]."""
    for m in prange(len(sizes)):
        frame_object(primitives[m], int(materials[m, COUNT]), materials[m], sizes[m])
