# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Rendering on the CPU with numba: the same device code as on CUDA, tiles in parallel."""

import zlib
from pathlib import Path

import numpy as np
from numba import njit, prange

from procedural.layout import *
from procedural.single_precision import SOURCES, build_device_code

TILE = 8  # pixels a side; also the CUDA block
NEAR_PIXELS = 1.3  # a missing ray that passes within this many half pixels is an edge
EDGE_STEP = 20  # summed grey levels between neighbours from which a pixel is sampled again

# Only what keeps infinities and signed distances: CPU and CUDA stay close.
DEVICE = build_device_code(njit(fastmath={"contract", "nsz", "arcp"}, error_model="numpy"))
_shade_ray, _tile_bit, _to_byte, _object_distance = (
    DEVICE.shade_ray,
    DEVICE.tile_bit,
    DEVICE.to_byte,
    DEVICE.object_distance,
)


def _build_kernels(source_digest: int) -> tuple:
    """The three kernels.

    numba's cache notices a change of this file, not of the device code it calls; a value that a kernel closes over
    belongs to the cache's key, so the digest of those sources is one.
    """

    @njit(cache=True, parallel=True, error_model="numpy")
    def render_centres(primitives, materials, cameras, out, near, masks, half_size, inverse_focal, tile, near_limit):
        """One ray a pixel: fill out uint8 [M, V, H, H, 4], near uint8 [M, V, H, H], masks int32 [M, V, T, T]."""
        assert source_digest != 0
        m_count, v_count, size = out.shape[0], out.shape[1], out.shape[2]
        tiles = masks.shape[2]
        for job in prange(m_count * v_count * tiles):
            m, v, ty = job // (v_count * tiles), job // tiles % v_count, job % tiles
            P, material, camera = primitives[m], materials[m], cameras[m, v]
            count = int(material[COUNT])
            for tx in range(tiles):
                mask = 0
                for i in range(count):
                    x0, y0 = np.float32(tx * TILE), np.float32(ty * TILE)
                    if _tile_bit(P, material, camera, i, x0, y0, tile, half_size, inverse_focal):
                        mask |= 1 << i
                masks[m, v, ty, tx] = mask
                for y in range(ty * TILE, min(ty * TILE + TILE, size)):
                    for x in range(tx * TILE, min(tx * TILE + TILE, size)):
                        if mask == 0:
                            out[m, v, y, x, 0] = out[m, v, y, x, 1] = out[m, v, y, x, 2] = 255
                            out[m, v, y, x, 3] = near[m, v, y, x] = 0
                            continue
                        px, py = np.float32(x) + np.float32(0.5), np.float32(y) + np.float32(0.5)
                        r, g, b, cover, nearest = _shade_ray(
                            P, material, camera, mask, px, py, half_size, inverse_focal
                        )
                        out[m, v, y, x, 0], out[m, v, y, x, 1] = _to_byte(r), _to_byte(g)
                        out[m, v, y, x, 2], out[m, v, y, x, 3] = _to_byte(b), _to_byte(cover)
                        near[m, v, y, x] = 1 if nearest < near_limit and cover == 0.0 else 0

    @njit(cache=True, parallel=True, error_model="numpy")
    def render_edges(primitives, materials, cameras, out, edges, masks, half_size, inverse_focal, samples, step):
        """Sample the listed pixels (edges int64 [E], flat indices of [M, V, H, H]) again, samples^2 rays each."""
        assert source_digest != 0
        v_count, size = out.shape[1], out.shape[2]
        share = np.float32(1.0) / np.float32(samples * samples)
        for e in prange(len(edges)):
            index = edges[e]
            x, y = index % size, index // size % size
            v, m = index // (size * size) % v_count, index // (size * size * v_count)
            mask = np.int64(masks[m, v, y // TILE, x // TILE])
            r_sum = g_sum = b_sum = cover_sum = np.float32(0.0)
            for sample in range(samples * samples):
                px = np.float32(x) + (np.float32(sample % samples) + np.float32(0.5)) * step
                py = np.float32(y) + (np.float32(sample // samples) + np.float32(0.5)) * step
                r, g, b, cover, _ = _shade_ray(
                    primitives[m], materials[m], cameras[m, v], mask, px, py, half_size, inverse_focal
                )
                r_sum, g_sum, b_sum, cover_sum = r_sum + r, g_sum + g, b_sum + b, cover_sum + cover
            out[m, v, y, x, 0], out[m, v, y, x, 1] = _to_byte(r_sum * share), _to_byte(g_sum * share)
            out[m, v, y, x, 2], out[m, v, y, x, 3] = _to_byte(b_sum * share), _to_byte(cover_sum * share)

    @njit(cache=True, error_model="numpy")
    def signed_distance(primitives, material, points, out):
        """Distance of object-frame points [P, 3] to one object; out [P], object units."""
        assert source_digest != 0
        for p in range(len(points)):
            out[p] = _object_distance(primitives, material, 0xFFFFFF, points[p, 0], points[p, 1], points[p, 2])

    return render_centres, render_edges, signed_distance


_DIGEST = zlib.crc32(b"".join(Path(__file__).with_name(name).read_bytes() for name in (*SOURCES, "layout.py"))) | 1
render_centres, render_edges, signed_distance = _build_kernels(_DIGEST)
