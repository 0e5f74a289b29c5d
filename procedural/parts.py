# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Building blocks of the families: random numbers, palettes and primitives.

Plain Python on lists: building an object takes about 0.1 ms, and compiling the families with numba took minutes.
Every function takes the workspace `w` of the object being built. Palette rows: 0 main, 1 second, 2 accent, 3 dark,
4 light, 5 natural, 6 black, 7 white.
"""

import math
import random

from procedural.layout import *

_EMPTY = [0.0] * PRIMITIVE_SLOTS


class Workspace:
    """An object being built: random stream, rows of primitives, palette of 8 colours, material row."""

    def __init__(self, seed: int, stream: int) -> None:
        # random.Random's random() is one of the few generators whose stream Python promises never to change.
        self.random = random.Random(seed * 64 + stream).random
        self.rows: list[list[float]] = []
        self.palette = [[0.5, 0.5, 0.5] for _ in range(8)]
        self.material = [0.0] * MATERIAL_SLOTS


def uniform(w, low, high):
    """Uniform float in [low, high)."""
    return low + (high - low) * w.random()


def chance(w, p):
    """True with probability p."""
    return uniform(w, 0.0, 1.0) < p


def pick(w, n):
    """Uniform integer in [0, n)."""
    return min(int(uniform(w, 0.0, 1.0) * n), n - 1)


def normal(w, sigma):
    """Normal deviate of zero mean."""
    radius = math.sqrt(-2.0 * math.log(1.0 - uniform(w, 0.0, 1.0)))
    return sigma * radius * math.cos(2.0 * math.pi * uniform(w, 0.0, 1.0))


def side(w):
    """-1 or 1."""
    return 1.0 if chance(w, 0.5) else -1.0


def set_hsv(palette, i, h, s, v):
    """Palette row i from hue (wrapped), saturation and value (clamped)."""
    h = (h - math.floor(h)) * 6.0
    s, v = min(max(s, 0.0), 1.0), min(max(v, 0.0), 1.0)
    for channel in range(3):
        k = (5.0 - 2.0 * channel + h) % 6.0
        palette[i][channel] = v - v * s * max(0.0, min(min(k, 4.0 - k), 1.0))


def part(w, kind, x, y, z, a, b, c, e, smooth, colour):
    """Add a primitive (sizes a, b, c, e: sdf_code.local_distance) of a palette colour; returns its row.

    Rows past MAX_PRIMITIVES are dropped when the object is stored.
    """
    r = _EMPTY.copy()
    r[TYPE] = kind
    r[CX], r[CY], r[CZ] = x, y, z
    r[ROT] = r[ROT + 4] = r[ROT + 8] = 1.0
    r[DIM], r[DIM + 1], r[DIM + 2], r[DIM + 3] = a, b, c, e
    r[SMOOTH] = smooth
    r[GLOSS] = 1.0
    r[COLOUR : COLOUR + 3] = r[COLOUR2 : COLOUR2 + 3] = w.palette[colour]
    w.rows.append(r)
    return len(w.rows) - 1


def ball(w, x, y, z, r, smooth, colour):
    """Ball of radius r."""
    return part(w, ELLIPSOID, x, y, z, r, r, r, 0.0, smooth, colour)


def egg(w, x, y, z, a, b, c, smooth, colour):
    """Ellipsoid of half axes a, b, c."""
    return part(w, ELLIPSOID, x, y, z, a, b, c, 0.0, smooth, colour)


def box(w, x, y, z, a, b, c, r, colour):
    """Box of half sides a, b, c with edges rounded by r."""
    return part(w, BOX, x, y, z, a, b, c, min(r, 0.95 * min(a, min(b, c))), 0.0, colour)


def cone(w, x, y, z, h, r1, r2, r, colour):
    """Cone cut at both ends: half height h, radius r1 below and r2 above, edges rounded by r."""
    return part(w, CAPPED_CONE, x, y, z, h, r1, r2, min(r, 0.95 * min(h, max(r1, r2))), 0.0, colour)


def torus(w, x, y, z, major, minor, colour):
    """Ring about the y axis."""
    return part(w, TORUS, x, y, z, major, minor, 0.0, 0.0, 0.0, colour)


def dome(w, x, y, z, a, b, c, shell, colour):
    """Upper half of an ellipsoid, hollow from below for shell > 0."""
    return part(w, DOME, x, y, z, a, b, c, shell, 0.0, colour)


def arc(w, x, y, z, radius, tube, half_angle_deg, colour):
    """Bent tube about the local +y in the local xy plane."""
    angle = half_angle_deg * math.pi / 180.0
    return part(w, ARC, x, y, z, radius, tube, math.sin(angle), math.cos(angle), 0.0, colour)


def belt(w, x, y, z, a, b, c, r, colour):
    """Belt of half width a (x), half height b and half length c (z), edges rounded by r."""
    return part(w, BELT, x, y, z, a, b, max(c, b), min(r, 0.9 * min(a, b)), 0.0, colour)


def choose(w, *options):
    """One of the options."""
    return options[pick(w, len(options))]


def aim(w, i, dx, dy, dz):
    """Turn primitive i so that its local y axis points along (dx, dy, dz)."""
    r = w.rows[i]
    n = math.sqrt(dx * dx + dy * dy + dz * dz)
    dx, dy, dz = dx / n, dy / n, dz / n
    if abs(dz) < 0.9:
        ax, ay, az = -dz * dx, -dz * dy, 1.0 - dz * dz  # the part of z across d: local z stays near z
    else:
        ax, ay, az = -dy * dx, 1.0 - dy * dy, -dy * dz
    m = math.sqrt(ax * ax + ay * ay + az * az)
    ax, ay, az = ax / m, ay / m, az / m
    r[ROT], r[ROT + 1], r[ROT + 2] = dy * az - dz * ay, dz * ax - dx * az, dx * ay - dy * ax
    r[ROT + 3], r[ROT + 4], r[ROT + 5] = dx, dy, dz
    r[ROT + 6], r[ROT + 7], r[ROT + 8] = ax, ay, az


def limb(w, x0, y0, z0, x1, y1, z1, r0, r1, smooth, colour):
    """Round cone from point 0 (radius r0) to point 1 (radius r1)."""
    h = math.sqrt((x1 - x0) ** 2 + (y1 - y0) ** 2 + (z1 - z0) ** 2) + 1e-6
    # A ball that swallows the other has no cone: keep the radii apart by less than the length.
    r1 = min(max(r1, r0 - 0.95 * h), r0 + 0.95 * h)
    i = part(w, ROUND_CONE, x0, y0, z0, r0, r1, h, 0.0, smooth, colour)
    aim(w, i, x1 - x0, y1 - y0, z1 - z0)
    return i


def turn(w, i, yaw_deg, pitch_deg, roll_deg):
    """Turn primitive i about its centre: roll about z, pitch about x (+: front down), yaw about y (+: to +x)."""
    r = w.rows[i]
    a, b, c = yaw_deg * math.pi / 180.0, pitch_deg * math.pi / 180.0, roll_deg * math.pi / 180.0
    sa, ca, sb, cb, sc, cc = math.sin(a), math.cos(a), math.sin(b), math.cos(b), math.sin(c), math.cos(c)
    # Rows: images of the local axes under Ry Rx Rz.
    r[ROT], r[ROT + 1], r[ROT + 2] = ca * cc + sa * sb * sc, cb * sc, -sa * cc + ca * sb * sc
    r[ROT + 3], r[ROT + 4], r[ROT + 5] = -ca * sc + sa * sb * cc, cb * cc, sa * sc + ca * sb * cc
    r[ROT + 6], r[ROT + 7], r[ROT + 8] = sa * cb, -sb, ca * cb


def operation(w, i, op, smooth):
    """Make primitive i a SUBTRACT or PAINT."""
    w.rows[i][OP] = op
    w.rows[i][SMOOTH] = smooth


def blend(w, i, smooth):
    """Let primitive i melt into those before it."""
    w.rows[i][SMOOTH] = smooth


def mirror(w, i, planes):
    """Also show primitive i across x = 0 (1), z = 0 (2) or both (3)."""
    w.rows[i][MIRROR] = planes


def ring(w, i, n):
    """Repeat primitive i n times about the y axis."""
    r = w.rows[i]
    r[REPEAT] = n if n > 1 else 0
    r[STEP] = math.atan2(r[CX], r[CZ])


def row(w, i, n, step, axis):
    """Repeat primitive i n times along an axis (0 x, 1 y, 2 z), about its centre."""
    r = w.rows[i]
    r[REPEAT] = -n if n > 1 else 0
    r[STEP], r[AXIS] = step, axis


def texture(w, i, kind, frequency, amount, colour2):
    """Give primitive i a texture whose second colour is a palette row."""
    r = w.rows[i]
    r[TEXTURE], r[TEXTURE_FREQUENCY], r[TEXTURE_AMOUNT] = kind, frequency, amount
    r[COLOUR2 : COLOUR2 + 3] = w.palette[colour2]
    r[TEXTURE_SEED] = pick(w, 100000)


def same_texture(w, i, j):
    """Give primitive i the colours and texture of primitive j."""
    r = w.rows[i]
    r[TEXTURE : COLOUR2 + 3] = w.rows[j][TEXTURE : COLOUR2 + 3]
    r[TEXTURE_SEED] = w.rows[j][TEXTURE_SEED]


def tint(w, i, r, g, b):
    """Give primitive i a colour that is not of the palette."""
    r = w.rows[i]
    r[COLOUR], r[COLOUR + 1], r[COLOUR + 2] = r, g, b
    r[COLOUR2], r[COLOUR2 + 1], r[COLOUR2 + 2] = r, g, b


def shine(w, i, gloss):
    """Set the gloss factor of primitive i."""
    w.rows[i][GLOSS] = gloss


def ribs(w, i, n, height):
    """n > 0: n ribs about local y; n < 0: ribs of angular frequency |n| along local y + z."""
    w.rows[i][RIBS], w.rows[i][RIB_HEIGHT] = n, height


def size_of(w, i):
    """A typical size of primitive i, for texture frequencies."""
    r = w.rows[i]
    if r[TYPE] == ROUND_CONE:
        return 0.5 * (r[DIM] + r[DIM + 2])
    return max(r[DIM], 0.7 * r[DIM + 1])


def random_texture(w, i, p):
    """With probability p, one of the seven plain textures on primitive i, scaled to it."""
    if not chance(w, p):
        return
    size = size_of(w, i) + 1e-3
    kind = 1 + pick(w, 7)
    second = (1, 2, 3, 4)[pick(w, 4)]
    if kind == STRIPES:
        texture(w, i, kind, uniform(w, 5.0, 16.0) / size, uniform(w, -0.4, 0.5), second)
    elif kind == DOTS:
        texture(w, i, kind, uniform(w, 1.5, 4.0) / size, uniform(w, 0.25, 0.45), second)
    elif kind == CHECKER:
        texture(w, i, kind, uniform(w, 1.5, 4.5) / size, 0.0, second)
    elif kind == NOISE:
        texture(w, i, kind, uniform(w, 1.5, 5.0) / size, uniform(w, 0.4, 0.65), second)
    elif kind == GRADIENT:
        texture(w, i, kind, uniform(w, 0.3, 0.6) / size, 0.0, second)
    elif kind == TWO_TONE:
        texture(w, i, kind, 1.0, uniform(w, -0.4, 0.4) * size, second)
    else:
        texture(w, i, kind, uniform(w, 2.0, 6.0) / size, 0.0, second)


def eyes(w, x, y, z, r, mode):
    """A pair of eyes at (+-x, y, z), facing +z: 0 black beads, 1 white with pupils."""
    if mode == 0:
        i = ball(w, x, y, z, r, 0.0, 6)
        mirror(w, i, 1)
        shine(w, i, 2.0)
        return
    i = ball(w, x, y, z, r, 0.0, 7)
    mirror(w, i, 1)
    i = ball(w, x * 0.96, y, z + 0.62 * r, 0.55 * r, 0.0, 6)
    mirror(w, i, 1)
    shine(w, i, 2.0)
