# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Signed distances of primitives and of an object, for CPU and GPU alike (see single_precision.py).

Formulas after Inigo Quilez, "Distance functions" (iquilezles.org/articles/distfunctions): ellipsoids are bounds of
first order, the rest exact, so a sphere tracer needs a step factor a little below one. All in the object frame.
"""

import math

import numpy as np

from procedural.layout import *


def clamp(x, low, high):
    """x limited to [low, high]."""
    return min(max(x, low), high)


def length2(x, y):
    """Length of a vector of two."""
    return math.sqrt(x * x + y * y)


def length3(x, y, z):
    """Length of a vector of three."""
    return math.sqrt(x * x + y * y + z * z)


def ellipsoid_distance(x, y, z, a, b, c):
    """Ellipsoid of half axes a, b, c."""
    ux, uy, uz = x / a, y / b, z / c
    k1 = length3(ux / a, uy / b, uz / c)
    if k1 < 0.001:
        return -min(a, min(b, c))
    k0 = length3(ux, uy, uz)
    return k0 * (k0 - 1.0) / k1


def box_distance(x, y, z, a, b, c, r):
    """Box of half sides a, b, c, its edges rounded by r."""
    qx, qy, qz = abs(x) - a + r, abs(y) - b + r, abs(z) - c + r
    outside = length3(max(qx, 0.0), max(qy, 0.0), max(qz, 0.0))
    return outside + min(max(qx, max(qy, qz)), 0.0) - r


def round_cone_distance(x, y, z, r1, r2, h):
    """Hull of a ball r1 at the origin and a ball r2 at (0, h, 0)."""
    b = (r1 - r2) / h
    a = math.sqrt(max(1.0 - b * b, 0.0))
    qx = length2(x, z)
    k = a * y - b * qx
    if k < 0.0:
        return length2(qx, y) - r1
    if k > a * h:
        return length2(qx, y - h) - r2
    return qx * a + y * b - r1


def capped_cone_distance(x, y, z, h, r1, r2, r):
    """Cone cut at y = -h (radius r1) and y = h (radius r2), edges rounded by r (inside those sizes)."""
    h, r1, r2 = h - r, max(r1 - r, 0.0), max(r2 - r, 0.0)
    qx = length2(x, z)
    k2x, k2y = r2 - r1, 2.0 * h
    rim = r1 if y < 0.0 else r2
    cax, cay = qx - min(qx, rim), abs(y) - h
    t = clamp(((r2 - qx) * k2x + (h - y) * k2y) / (k2x * k2x + k2y * k2y), 0.0, 1.0)
    cbx, cby = qx - r2 + k2x * t, y - h + k2y * t
    sign = -1.0 if (cbx < 0.0 and cay < 0.0) else 1.0
    return sign * math.sqrt(min(cax * cax + cay * cay, cbx * cbx + cby * cby)) - r


def dome_distance(x, y, z, a, b, c, shell):
    """Upper half (y > 0) of an ellipsoid; shell > 0: hollow, open below, walls that thick."""
    d = ellipsoid_distance(x, y, z, a, b, c)
    if shell > 0.0:
        d = max(d, -d - shell)
    return max(d, -y)


def roof_distance(x, y, z, a, b, c):
    """Prism: base 2a wide along x at y = 0, ridge at y = b along z, 2c long."""
    n = length2(a, b)
    slope = (abs(x) * b + (y - b) * a) / n
    return max(max(slope, -y), abs(z) - c)


def arc_distance(x, y, z, radius, tube, sine, cosine):
    """Bent tube: part of a ring in the local xy plane about +y, half opening angle given by its sine and cosine."""
    x = abs(x)
    along = x * sine + y * cosine if cosine * x > sine * y else length2(x, y)
    return math.sqrt(max(x * x + y * y + z * z + radius * radius - 2.0 * radius * along, 0.0)) - tube


def belt_distance(x, y, z, width, height, long, r):
    """Outline of a belt about wheels (half height, half length, in local yz), 2 width wide, edges rounded by r."""
    flat = length2(max(abs(z) - long + height, 0.0), y) - height + r
    across = abs(x) - width + r
    return min(max(flat, across), 0.0) + length2(max(flat, 0.0), max(across, 0.0)) - r


def local_distance(P, i, x, y, z):
    """Distance of the local point to primitive i, ribs included."""
    kind = P[i, TYPE]
    a, b, c, e = P[i, DIM], P[i, DIM + 1], P[i, DIM + 2], P[i, DIM + 3]
    if kind < 1.5:
        d = ellipsoid_distance(x, y, z, a, b, c)
    elif kind < 2.5:
        d = box_distance(x, y, z, a, b, c, e)
    elif kind < 3.5:
        d = round_cone_distance(x, y, z, a, b, c)
    elif kind < 4.5:
        d = capped_cone_distance(x, y, z, a, b, c, e)
    elif kind < 5.5:
        d = length2(length2(x, z) - a, y) - b
    elif kind < 6.5:
        d = dome_distance(x, y, z, a, b, c, e)
    elif kind < 7.5:
        d = roof_distance(x, y, z, a, b, c)
    elif kind < 8.5:
        d = arc_distance(x, y, z, a, b, c, e)
    else:
        d = belt_distance(x, y, z, a, b, c, e)
    height = P[i, RIB_HEIGHT]
    if height > 0.0:
        if d > 3.0 * height:
            return d - height
        ribs = P[i, RIBS]
        if ribs > 0.0:
            radial = length2(x, z)
            wave = math.cos(ribs * math.atan2(z, x)) * radial / (radial + 4.0 * height)
        else:
            wave = math.cos(ribs * (y + z))
        return 0.7 * (d - height * wave)  # 0.7: ribs are as steep as the surface, see the step factor
    return d


def fold(P, i, x, y, z):
    """Move an object-frame point to where the first copy of primitive i sees it."""
    mirror = P[i, MIRROR]
    if mirror == 1.0 or mirror == 3.0:
        x = abs(x)
    if mirror >= 2.0:
        z = abs(z)
    n = P[i, REPEAT]
    if n > 1.5:
        sector = 6.2831853 / n
        phase = P[i, STEP]
        angle = math.atan2(x, z) - phase
        angle -= sector * np.float32(math.floor(angle / sector + 0.5))
        angle += phase
        radial = length2(x, z)
        x, z = radial * math.sin(angle), radial * math.cos(angle)
    elif n < -1.5:
        step, last = P[i, STEP], -n - 1.0
        axis = P[i, AXIS]
        along = x - P[i, CX]
        if axis > 1.5:
            along = z - P[i, CZ]
        elif axis > 0.5:
            along = y - P[i, CY]
        copy = clamp(np.float32(math.floor(along / step + 0.5 * last + 0.5)), 0.0, last)
        shift = step * (copy - 0.5 * last)
        if axis > 1.5:
            z -= shift
        elif axis > 0.5:
            y -= shift
        else:
            x -= shift
    return x, y, z


def to_local(P, i, x, y, z):
    """Folded object-frame point to the primitive's own frame."""
    x, y, z = x - P[i, CX], y - P[i, CY], z - P[i, CZ]
    return (
        P[i, ROT] * x + P[i, ROT + 1] * y + P[i, ROT + 2] * z,
        P[i, ROT + 3] * x + P[i, ROT + 4] * y + P[i, ROT + 5] * z,
        P[i, ROT + 6] * x + P[i, ROT + 7] * y + P[i, ROT + 8] * z,
    )


def smooth_min(a, b, k):
    """Polynomial smooth minimum of support k."""
    if k <= 0.0:
        return min(a, b)
    h = max(k - abs(a - b), 0.0)
    return min(a, b) - h * h * 0.25 / k


def bump(material, x, y, z):
    """Displacement of the surface by the material's bumps, object units."""
    f = material[BUMP_FREQUENCY]
    wave = (
        math.sin(f * x + 1.3 * math.sin(f * 0.6 * y)) * math.sin(f * y + 0.7) * math.sin(f * z + math.sin(f * 0.5 * x))
    )
    return material[BUMP_HEIGHT] * wave


def object_distance(P, material, mask, x, y, z):
    """Distance of an object-frame point to the object; bit i of `mask` unset leaves primitive i out.

    A primitive whose bounding sphere is too far to matter is skipped; one that is far but the nearest so far counts
    by its sphere, a lower bound.
    """
    d = 1000.0
    count = int(material[COUNT])
    for i in range(count):
        if (mask >> i) & 1 == 0:
            continue
        op = P[i, OP]
        if op > 1.5:
            continue
        px, py, pz = x, y, z
        if P[i, FOLDED] > 0.5:
            px, py, pz = fold(P, i, x, y, z)
        k = P[i, SMOOTH]
        sphere = length3(px - P[i, BOUND], py - P[i, BOUND + 1], pz - P[i, BOUND + 2]) - P[i, BOUND + 3]
        if op < 0.5:
            if sphere > d + k:
                continue
            if sphere > 0.15 + 2.0 * k:
                d = min(d, sphere)
                continue
            lx, ly, lz = to_local(P, i, px, py, pz)
            d = smooth_min(d, local_distance(P, i, lx, ly, lz), k)
        else:
            if sphere > k - d:
                continue
            lx, ly, lz = to_local(P, i, px, py, pz)
            d = -smooth_min(-d, local_distance(P, i, lx, ly, lz), k)
    if material[BUMP_HEIGHT] > 0.0:
        if d < 3.0 * material[BUMP_HEIGHT]:
            d = 0.8 * (d - bump(material, x, y, z))
        else:
            d -= material[BUMP_HEIGHT]
    return d
