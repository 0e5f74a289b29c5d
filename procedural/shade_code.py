# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Tracing and shading of one ray, and the culling of primitives for a tile, for CPU and GPU alike."""

import math

import numpy as np

from procedural.layout import *
from procedural.sdf_code import clamp, fold, length3, local_distance, object_distance, smooth_min, to_local
from procedural.texture_code import cloud_noise, mix, texture_share


def ball_meets_cone(x, y, z, radius, dx, dy, dz, sine, cosine):
    """Whether a ball at (x, y, z) from the apex meets the cone about the unit direction d."""
    along = x * dx + y * dy + z * dz
    across = math.sqrt(max(x * x + y * y + z * z - along * along, 0.0))
    return across * cosine - along * sine <= radius


def primitive_meets_cone(P, material, i, ox, oy, oz, dx, dy, dz, sine, cosine):
    """Whether any copy of primitive i, with its blending width, meets the cone from o about d."""
    radius = P[i, BOUND + 3] + 1.5 * P[i, SMOOTH] + 2.0 * material[BUMP_HEIGHT]
    mirror, n = P[i, MIRROR], P[i, REPEAT]
    mirror_x = 2 if (mirror == 1.0 or mirror == 3.0) else 1
    mirror_z = 2 if mirror >= 2.0 else 1
    copies = 1
    if n > 1.5 or n < -1.5:
        copies = int(abs(n) + 0.5)
    for copy in range(copies):
        bx, by, bz = P[i, BOUND], P[i, BOUND + 1], P[i, BOUND + 2]
        if n > 1.5:
            angle = 6.2831853 / n * np.float32(copy)
            s, c = math.sin(angle), math.cos(angle)
            bx, bz = c * bx + s * bz, c * bz - s * bx
        elif n < -1.5:
            shift = P[i, STEP] * (np.float32(copy) - 0.5 * (-n - 1.0))
            if P[i, AXIS] > 1.5:
                bz += shift
            elif P[i, AXIS] > 0.5:
                by += shift
            else:
                bx += shift
        for side in range(4):
            if (side & 1) >= mirror_x or (side >> 1) >= mirror_z:
                continue
            sx = -bx if side & 1 else bx
            sz = -bz if side >> 1 else bz
            if ball_meets_cone(sx - ox, by - oy, sz - oz, radius, dx, dy, dz, sine, cosine):
                return True
    return False


def ray_direction(camera, px, py, half_size, inverse_focal):
    """Unit direction through pixel position (px, py); camera holds origin, right, down, forward (12 numbers)."""
    u, v = (px - half_size) * inverse_focal, (py - half_size) * inverse_focal
    x = camera[9] + u * camera[3] + v * camera[6]
    y = camera[10] + u * camera[4] + v * camera[7]
    z = camera[11] + u * camera[5] + v * camera[8]
    inverse = 1.0 / length3(x, y, z)
    return x * inverse, y * inverse, z * inverse


def object_origin(camera, material):
    """Camera position in the object frame."""
    inverse = 1.0 / material[SCALE]
    return (
        camera[0] * inverse + material[CENTRE],
        camera[1] * inverse + material[CENTRE + 1],
        camera[2] * inverse + material[CENTRE + 2],
    )


def slab(o, d, low, high, t0, t1):
    """Cut the ray's interval [t0, t1] by low <= o + t d <= high."""
    if abs(d) < 1.0e-7:
        if o < low or o > high:
            t1 = -1.0
        return t0, t1
    a, b = (low - o) / d, (high - o) / d
    return max(t0, min(a, b)), min(t1, max(a, b))


def trace(P, material, mask, ox, oy, oz, dx, dy, dz, pixel):
    """First hit of a ray in the object frame.

    Args:
        pixel: half a pixel's angle (rad); the ray stops when the surface is nearer than a small part of it.
    Returns:
        (t, near): t < 0 for a miss; near, the least distance over t that the ray met: below `pixel` or so, the
        surface touches the pixel although its centre's ray misses.
    """
    margin = material[MARGIN]
    t, end = 0.0, 1.0e6
    t, end = slab(ox - material[CENTRE], dx, -material[HALF_BOX] - margin, material[HALF_BOX] + margin, t, end)
    t, end = slab(
        oy - material[CENTRE + 1], dy, -material[HALF_BOX + 1] - margin, material[HALF_BOX + 1] + margin, t, end
    )
    t, end = slab(
        oz - material[CENTRE + 2], dz, -material[HALF_BOX + 2] - margin, material[HALF_BOX + 2] + margin, t, end
    )
    near = 1.0
    if t > end:
        return -1.0, near
    hit_angle = 0.1 * pixel
    d = 0.0
    for _ in range(72):
        d = object_distance(P, material, mask, ox + t * dx, oy + t * dy, oz + t * dz)
        near = min(near, d / t)
        if d < hit_angle * t:
            return t, near
        t += 0.9 * d
        if t > end:
            return -1.0, near
    if d < 8.0 * hit_angle * t:
        return t, near
    return -1.0, near


def surface_colour(P, material, mask, x, y, z):
    """Albedo and gloss (r, g, b, gloss) at an object-frame point of the surface: the primitives in order."""
    d, r, g, b, gloss = 1000.0, 0.5, 0.5, 0.5, 1.0
    count = int(material[COUNT])
    for i in range(count):
        if (mask >> i) & 1 == 0:
            continue
        px, py, pz = x, y, z
        if P[i, FOLDED] > 0.5:
            px, py, pz = fold(P, i, x, y, z)
        k, op = P[i, SMOOTH], P[i, OP]
        sphere = length3(px - P[i, BOUND], py - P[i, BOUND + 1], pz - P[i, BOUND + 2]) - P[i, BOUND + 3]
        if op < 0.5:
            if sphere > d + k:
                continue
        elif op < 1.5:
            if sphere > k - d:
                continue
        elif sphere > 0.0:
            continue
        lx, ly, lz = to_local(P, i, px, py, pz)
        e = local_distance(P, i, lx, ly, lz)
        share = 0.0
        if op < 0.5:
            share = clamp(0.5 + (d - e) / (0.4 * k + 0.002), 0.0, 1.0)
            d = smooth_min(d, e, k)
        elif op < 1.5:
            share = clamp(0.5 - (d + e) / (0.4 * k + 0.002), 0.0, 1.0)
            d = -smooth_min(-d, e, k)
        elif e < 0.0:
            share = 1.0
        if share > 0.0:
            cr, cg, cb = P[i, COLOUR], P[i, COLOUR + 1], P[i, COLOUR + 2]
            if P[i, TEXTURE] > 0.5:
                w = texture_share(P, i, lx, ly, lz)
                cr = mix(cr, P[i, COLOUR2], w)
                cg = mix(cg, P[i, COLOUR2 + 1], w)
                cb = mix(cb, P[i, COLOUR2 + 2], w)
            r, g, b = mix(r, cr, share), mix(g, cg, share), mix(b, cb, share)
            gloss = mix(gloss, P[i, GLOSS], share)
    return r, g, b, gloss


def normal_at(P, material, mask, x, y, z, h):
    """Outward unit normal by four differences at the corners of a tetrahedron of size h."""
    d0 = object_distance(P, material, mask, x + h, y - h, z - h)
    d1 = object_distance(P, material, mask, x - h, y - h, z + h)
    d2 = object_distance(P, material, mask, x - h, y + h, z - h)
    d3 = object_distance(P, material, mask, x + h, y + h, z + h)
    nx, ny, nz = d0 - d1 - d2 + d3, d2 + d3 - d0 - d1, d1 + d3 - d0 - d2
    inverse = 1.0 / max(length3(nx, ny, nz), 1.0e-12)
    return nx * inverse, ny * inverse, nz * inverse


def occlusion_at(P, material, x, y, z, nx, ny, nz):
    """Ambient occlusion in [0, 1] (0: open) from distances along the normal; all primitives count."""
    unit = 1.0 / material[SCALE]
    total, weight = 0.0, 1.0
    for step in range(4):
        h = unit * (0.02 + 0.055 * np.float32(step))
        d = object_distance(P, material, 0xFFFFFF, x + nx * h, y + ny * h, z + nz * h)
        total += weight * max(h - d, 0.0)
        weight *= 0.7
    return clamp(total * 3.0 / unit, 0.0, 1.0)


def shadow_at(P, material, x, y, z, lx, ly, lz):
    """Share of the light that is cut off, soft (Quilez, "Soft shadows in raymarched SDFs")."""
    unit = 1.0 / material[SCALE]
    t, open_share = 0.04 * unit, 1.0
    for _ in range(16):
        d = object_distance(P, material, 0xFFFFFF, x + lx * t, y + ly * t, z + lz * t)
        open_share = min(open_share, 0.5 + 4.0 * d / t)
        if open_share <= 0.0 or t > 1.6 * unit:
            break
        t += clamp(d, 0.03 * unit, 0.2 * unit)
    return 1.0 - clamp(open_share, 0.0, 1.0)


def shade(P, material, mask, x, y, z, dx, dy, dz, pixel_size):
    """Colour (r, g, b) of the surface at an object-frame point seen along d; the light is fixed in the world."""
    nx, ny, nz = normal_at(P, material, mask, x, y, z, 0.5 * pixel_size)
    r, g, b, gloss = surface_colour(P, material, mask, x, y, z)
    seed = int(material[NOISE_SEED])
    wx = (x - material[CENTRE]) * material[SCALE]
    wy = (y - material[CENTRE + 1]) * material[SCALE]
    wz = (z - material[CENTRE + 2]) * material[SCALE]
    if material[ALBEDO_NOISE] > 0.0:
        f = material[ALBEDO_FREQUENCY]
        factor = 1.0 + 2.0 * material[ALBEDO_NOISE] * (cloud_noise(f * wx, f * wy, f * wz, seed) - 0.5)
        r, g, b = r * factor, g * factor, b * factor
    if material[ALBEDO_NOISE2] > 0.0:
        f = material[ALBEDO_FREQUENCY2]
        factor = 1.0 + 2.0 * material[ALBEDO_NOISE2] * (cloud_noise(f * wx, f * wy, f * wz, seed + 9) - 0.5)
        r, g, b = r * factor, g * factor, b * factor
    occlusion = material[OCCLUSION] * occlusion_at(P, material, x, y, z, nx, ny, nz)
    lx, ly, lz = material[LIGHT], material[LIGHT + 1], material[LIGHT + 2]
    wrap = material[WRAP]
    facing = max((nx * lx + ny * ly + nz * lz + wrap) / (1.0 + wrap), 0.0)
    lit = 1.0
    if material[SHADOW] > 0.0 and facing > 0.0:
        lit = 1.0 - material[SHADOW] * shadow_at(P, material, x + 0.01 * nx, y + 0.01 * ny, z + 0.01 * nz, lx, ly, lz)
    direct = material[DIRECT] * facing * lit * (1.0 - 0.4 * occlusion)
    ambient = material[AMBIENT] * (1.0 + material[HEMISPHERE] * (ny - 0.2)) * (1.0 - occlusion)
    r *= ambient + direct * material[LIGHT_COLOUR]
    g *= ambient + direct * material[LIGHT_COLOUR + 1]
    b *= ambient + direct * material[LIGHT_COLOUR + 2]
    if gloss * material[SPECULAR] > 0.0:
        hx, hy, hz = lx - dx, ly - dy, lz - dz
        inverse = 1.0 / max(length3(hx, hy, hz), 1.0e-6)
        cosine = max((nx * hx + ny * hy + nz * hz) * inverse, 1.0e-6)
        glint = gloss * lit * material[SPECULAR] * math.exp(material[SHININESS] * math.log(cosine))
        r, g, b = r + glint, g + glint, b + glint
    if gloss * material[REFLECTION] > 0.0:  # a bright sky above a dim floor, stronger at grazing angles
        along = dx * nx + dy * ny + dz * nz
        up = dy - 2.0 * along * ny
        fresnel = 1.0 - clamp(-along, 0.0, 1.0)
        fresnel = 0.15 + 0.85 * fresnel * fresnel * fresnel
        sky = clamp(0.5 + 1.2 * up, 0.0, 1.0)
        w = gloss * material[REFLECTION] * fresnel * (1.0 - 0.5 * occlusion)
        r, g, b = mix(r, sky, w), mix(g, sky, w), mix(b, sky, w)
    return clamp(r, 0.0, 1.0), clamp(g, 0.0, 1.0), clamp(b, 0.0, 1.0)


def shade_ray(P, material, camera, mask, px, py, half_size, inverse_focal):
    """Colour of the ray through pixel position (px, py): (r, g, b, coverage 0 or 1, near); white for a miss."""
    ox, oy, oz = object_origin(camera, material)
    dx, dy, dz = ray_direction(camera, px, py, half_size, inverse_focal)
    pixel = 0.5 * inverse_focal
    t, near = trace(P, material, mask, ox, oy, oz, dx, dy, dz, pixel)
    if t < 0.0:
        return 1.0, 1.0, 1.0, 0.0, near
    r, g, b = shade(P, material, mask, ox + t * dx, oy + t * dy, oz + t * dz, dx, dy, dz, 2.0 * pixel * t)
    return r, g, b, 1.0, near


def tile_bit(P, material, camera, i, x0, y0, tile, half_size, inverse_focal):
    """Whether primitive i can be seen in the tile whose first pixel is (x0, y0)."""
    ox, oy, oz = object_origin(camera, material)
    half = 0.5 * tile
    dx, dy, dz = ray_direction(camera, x0 + half, y0 + half, half_size, inverse_focal)
    # A cone about the tile's middle that holds its corners: angles only shrink away from the picture's middle.
    tangent = 1.4143 * (half + 0.5) * inverse_focal
    cosine = 1.0 / math.sqrt(1.0 + tangent * tangent)
    return primitive_meets_cone(P, material, i, ox, oy, oz, dx, dy, dz, tangent * cosine, cosine)


def to_byte(x):
    """[0, 1] to 0..255, rounded."""
    return int(clamp(x, 0.0, 1.0) * 255.0 + 0.5)
