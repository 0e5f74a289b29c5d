# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Procedural textures: each gives the share of a primitive's second colour at a local point."""

import math

import numpy as np

from procedural.layout import *
from procedural.sdf_code import clamp, length2, length3


def hash3(ix, iy, iz, seed):
    """Pseudo-random float in [0, 1) of a lattice point, equal on CPU and GPU (integers only)."""
    h = (ix * 73856093) ^ (iy * 19349663) ^ (iz * 83492791) ^ (seed * 39916801)
    h &= 0xFFFFFFFF
    h = ((h ^ (h >> 15)) * 0x2C1B3C6D) & 0xFFFFFFFF
    h = ((h ^ (h >> 12)) * 0x297A2D39) & 0xFFFFFFFF
    h ^= h >> 15
    return np.float32(h & 0xFFFFFF) * 5.9604645e-08


def smoothstep(low, high, x):
    """0 below low, 1 above high, a cubic between."""
    t = clamp((x - low) / (high - low), 0.0, 1.0)
    return t * t * (3.0 - 2.0 * t)


def mix(a, b, t):
    """Linear blend."""
    return a + (b - a) * t


def value_noise(x, y, z, seed):
    """Smooth noise in [0, 1], one lattice cell a unit."""
    ix, iy, iz = int(math.floor(x)), int(math.floor(y)), int(math.floor(z))
    fx, fy, fz = x - np.float32(ix), y - np.float32(iy), z - np.float32(iz)
    fx, fy, fz = fx * fx * (3.0 - 2.0 * fx), fy * fy * (3.0 - 2.0 * fy), fz * fz * (3.0 - 2.0 * fz)
    low = mix(
        mix(hash3(ix, iy, iz, seed), hash3(ix + 1, iy, iz, seed), fx),
        mix(hash3(ix, iy + 1, iz, seed), hash3(ix + 1, iy + 1, iz, seed), fx),
        fy,
    )
    high = mix(
        mix(hash3(ix, iy, iz + 1, seed), hash3(ix + 1, iy, iz + 1, seed), fx),
        mix(hash3(ix, iy + 1, iz + 1, seed), hash3(ix + 1, iy + 1, iz + 1, seed), fx),
        fy,
    )
    return mix(low, high, fz)


def cloud_noise(x, y, z, seed):
    """Three octaves of value noise, in [0, 1]."""
    n = 0.55 * value_noise(x, y, z, seed)
    n += 0.3 * value_noise(2.1 * x, 2.1 * y, 2.1 * z, seed + 1)
    return n + 0.15 * value_noise(4.3 * x, 4.3 * y, 4.3 * z, seed + 2)


def spots(x, y, z, size, jitter, seed):
    """1 inside balls, one a lattice cell; jitter moves them and varies their size."""
    ix, iy, iz = int(math.floor(x)), int(math.floor(y)), int(math.floor(z))
    cx = np.float32(ix) + 0.5 + jitter * (hash3(ix, iy, iz, seed) - 0.5)
    cy = np.float32(iy) + 0.5 + jitter * (hash3(ix, iy, iz, seed + 1) - 0.5)
    cz = np.float32(iz) + 0.5 + jitter * (hash3(ix, iy, iz, seed + 2) - 0.5)
    radius = size * (1.0 - jitter * hash3(ix, iy, iz, seed + 3))
    return 1.0 if length3(x - cx, y - cy, z - cz) < radius else 0.0


def letters(x, y, z, seed):
    """Letter-like marks of 3 x 5 dots on the side that faces +z, mirrored halves in half of them."""
    if z < 0.0:
        return 0.0
    cell, row = int(math.floor(x)), int(math.floor(y * 0.7))
    u, v = (x - np.float32(cell)) * 4.0 - 0.5, (y * 0.7 - np.float32(row)) * 6.5 - 0.75
    if u < 0.0 or u >= 3.0 or v < 0.0 or v >= 5.0:
        return 0.0
    iu, iv = int(u), int(v)
    if hash3(cell, row, 7, seed) < 0.5 and iu == 2:
        iu = 0
    return 1.0 if hash3(cell * 3 + iu, row * 5 + iv, 11, seed) < 0.6 else 0.0


def texture_share(P, i, x, y, z):
    """Share of COLOUR2 in [0, 1] at the local point, by the primitive's TEXTURE."""
    kind, f, amount = P[i, TEXTURE], P[i, TEXTURE_FREQUENCY], P[i, TEXTURE_AMOUNT]
    seed = int(P[i, TEXTURE_SEED])
    share = 0.0
    if kind < 1.5:  # stripes
        share = 1.0 if math.sin(f * y) > amount else 0.0
    elif kind < 2.5:  # dots
        share = spots(f * x, f * y, f * z, amount, 0.0, seed)
    elif kind < 3.5:  # checker
        parity = int(math.floor(f * x)) + int(math.floor(f * y)) + int(math.floor(f * z))
        share = 1.0 if parity & 1 else 0.0
    elif kind < 4.5:  # noise
        share = smoothstep(amount - 0.05, amount + 0.05, value_noise(f * x, f * y, f * z, seed))
    elif kind < 5.5:  # gradient
        share = clamp(0.5 + f * y, 0.0, 1.0)
    elif kind < 6.5:  # two-tone
        share = 1.0 if y < amount else 0.0
    elif kind < 7.5:  # marble
        share = 0.5 + 0.5 * math.sin(f * (x + y) + 6.0 * cloud_noise(0.6 * f * x, 0.6 * f * y, 0.6 * f * z, seed))
    elif kind < 8.5:  # wood: rings about the axis, stretched along y
        wobble = cloud_noise(2.0 * x, 0.5 * y, 2.0 * z, seed)
        ring = 0.5 + 0.5 * math.sin(f * (length2(x, z) + 0.6 * wobble) + 2.0 * y)
        share = clamp(0.75 * ring + amount * (value_noise(3.0 * f * x, 0.4 * f * y, 3.0 * f * z, seed) - 0.5), 0.0, 1.0)
    elif kind < 9.5:  # spots of several sizes
        share = max(
            spots(f * x, f * y, f * z, amount, 0.6, seed),
            spots(1.9 * f * x, 1.9 * f * y, 1.9 * f * z, 0.8 * amount, 0.6, seed + 5),
        )
    elif kind < 10.5:  # clouds
        share = smoothstep(0.25, 0.75, cloud_noise(f * x, f * y, f * z, seed)) * amount
    elif kind < 11.5:  # rays about local y
        share = 1.0 if math.sin(f * math.atan2(z, x)) > amount else 0.0
    elif kind < 12.5:
        share = letters(f * x, f * y, z, seed)
    elif kind < 13.5:  # plaid
        share = 0.5 * (1.0 if math.sin(f * x) > amount else 0.0) + 0.5 * (1.0 if math.sin(f * y) > amount else 0.0)
    elif kind < 14.5:  # worn: scratches and chips
        n = cloud_noise(f * x, f * y, f * z, seed)
        share = smoothstep(amount, amount + 0.05, n) * (
            0.4 + 0.6 * value_noise(5.0 * f * x, 5.0 * f * y, 5.0 * f * z, seed)
        )
    else:  # fur: fine streaks along y
        share = amount * value_noise(
            4.0 * f * x, f * y + 2.0 * value_noise(f * x, f * y, f * z, seed), 4.0 * f * z, seed
        )
    return share
