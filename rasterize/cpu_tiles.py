"""Steps 4 to 6 of `rasterize.definition` and their gradients on the CPU: tiles of 16 x 16 pixels.

A job is one tile of one camera; jobs write to places of their own and sums run in a fixed order, so that the result
does not depend on the timing of threads. Within a tile Gaussians are the outer and pixels the inner loop, over one
flat buffer, branch-free: that is what LLVM turns into vector code. Compiled with float32 arithmetic throughout: every
constant is a float32 of its own, since a Python number would make the loop float64, at half the speed.
Constants of the definition come as arguments, since numba's cache would not see them change elsewhere.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, prange, types
from numba.extending import intrinsic

TILE = 16  # pixels a side
_PIXELS = TILE * TILE
GRADIENTS = 10  # of a Gaussian in a tile: position 2, conic 3, depth, colour 3, opacity

_ONE, _HALF, _TWO, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(2.0), np.float32(0.0)
_LOG2E = np.float32(math.log2(math.e))
_LOWEST = np.float32(-64.0)  # 2^-64 is below any threshold, and far from denormal numbers
# 2^f on [-1/2, 1/2], least largest relative error (7.5e-8, about half a unit in the last place).
_P0, _P1, _P2 = np.float32(1.0000001192092896), np.float32(0.6931469440460205), np.float32(0.24022120237350464)
_P3, _P4, _P5 = np.float32(0.05550713092088699), np.float32(0.009675540961325169), np.float32(0.001327647129073739)

_CONTRACT = {"contract", "nsz"}  # fused multiply-adds
_REASSOCIATE = {"contract", "nsz", "reassoc"}  # and sums over pixels in vector lanes
_CHUNK = 128  # Gaussians a job where jobs are Gaussians


@intrinsic
def _float_from_bits(typingctx, bits):
    """The float32 whose bits are those of an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@njit(cache=True, error_model="numpy", fastmath=_CONTRACT)
def exp2_negative(x):
    """2^x in float32 for x <= 0, relative error below 2e-7; x below -64 counts as -64."""
    x = x if x > _LOWEST else _LOWEST
    whole = np.int32(x - _HALF)  # truncation rounds x to the nearest integer, since x <= 0
    f = x - np.float32(whole)
    series = _P0 + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * _P5))))
    return series * _float_from_bits((whole + np.int32(127)) << np.int32(23))


@njit(cache=True, error_model="numpy", fastmath=_CONTRACT)
def _unclamped_alpha(dx, dy, xx, xy, yy, opacity):
    """opacity exp(-q / 2); the conic comes multiplied by -log2(e) / 2, its xy by -log2(e)."""
    exponent = dx * (xx * dx + xy * dy) + yy * (dy * dy)
    # Rounding can lift the form of a needle above zero.
    return opacity * exp2_negative(exponent if exponent < _ZERO else _ZERO)


# ---------------------------------------------------------------------------------------------------------- binning


@njit(cache=True, parallel=True, error_model="numpy")
def bin_gaussians(means2d, depths, extents, radii, width, height):
    """Lists of the Gaussians that reach each tile, front to back.

    Returns:
        tile_starts [C * tiles + 1]: where each tile's list begins in `members`; members [I]: indices of Gaussians;
        starts [C * N + 1]: where each Gaussian's tiles begin in `places`; places [I]: positions in `members`.
    """
    cameras, n = radii.shape
    columns, rows = (width + TILE - 1) // TILE, (height + TILE - 1) // TILE
    tiles = columns * rows
    tile_starts = np.zeros(cameras * tiles + 1, np.int64)
    starts = np.zeros(cameras * n + 1, np.int64)
    boxes = np.empty((cameras, n, 4), np.int32)
    for c in prange(cameras):
        _count_tiles(
            means2d[c], extents[c], radii[c], width, height, boxes[c],
            tile_starts[1 + c * tiles : 1 + (c + 1) * tiles], starts[1 + c * n : 1 + (c + 1) * n],
        )  # fmt: skip
    for i in range(cameras * tiles):
        tile_starts[i + 1] += tile_starts[i]
    for i in range(cameras * n):
        starts[i + 1] += starts[i]
    members = np.empty(starts[cameras * n], np.int32)
    places = np.empty(starts[cameras * n], np.int64)
    for c in prange(cameras):
        _enter_tiles(
            depths[c], radii[c], boxes[c], columns, tile_starts[c * tiles : (c + 1) * tiles].copy(),
            starts[c * n : (c + 1) * n], members, places,
        )  # fmt: skip
    return tile_starts, members, starts, places


@njit(cache=True, error_model="numpy")
def _count_tiles(means2d, extents, radii, width, height, boxes, tile_counts, counts):
    """Box of tiles (first and last column, first and last row) of every Gaussian; how many a tile, a Gaussian."""
    columns = (width + TILE - 1) // TILE
    for g in range(len(radii)):
        if radii[g] == 0:
            continue
        x0, x1 = _pixel_range(means2d[g, 0], extents[g, 0], 0, width)
        y0, y1 = _pixel_range(means2d[g, 1], extents[g, 1], 0, height)
        if x0 >= x1 or y0 >= y1:  # between pixel centres
            boxes[g, 0], boxes[g, 1], boxes[g, 2], boxes[g, 3] = 0, -1, 0, -1
            continue
        boxes[g, 0], boxes[g, 1], boxes[g, 2], boxes[g, 3] = x0 // TILE, (x1 - 1) // TILE, y0 // TILE, (y1 - 1) // TILE
        counts[g] = (boxes[g, 1] - boxes[g, 0] + 1) * (boxes[g, 3] - boxes[g, 2] + 1)
        for row in range(boxes[g, 2], boxes[g, 3] + 1):
            for column in range(boxes[g, 0], boxes[g, 1] + 1):
                tile_counts[row * columns + column] += 1


@njit(cache=True, error_model="numpy")
def _pixel_range(position, extent, first, last):
    """Pixels first <= i < last whose centres lie within `extent` of `position`, from - to; a little generous."""
    # Single rounding errors at large coordinates must not lose a pixel; the exact test is alpha's.
    extent = extent * 1.0001 + 0.001
    low = math.ceil(max(position - extent - 0.5, first - 1.0))
    high = math.floor(min(position + extent - 0.5, last + 0.0)) + 1
    return max(int(low), first), min(int(high), last)


@njit(cache=True, error_model="numpy")
def _enter_tiles(depths, radii, boxes, columns, cursors, starts, members, places):
    """Write one camera's Gaussians into their tiles' lists in the order of depth."""
    for g in _depth_order(depths, radii):
        place = starts[g]
        for row in range(boxes[g, 2], boxes[g, 3] + 1):
            for column in range(boxes[g, 0], boxes[g, 1] + 1):
                tile = row * columns + column
                members[cursors[tile]] = g
                places[place] = cursors[tile]
                place += 1
                cursors[tile] += 1


@njit(cache=True, error_model="numpy")
def _depth_order(depths, radii):
    """Visible Gaussians by depth, ties by index: a radix sort of the bits, which order positive floats."""
    order = np.empty(len(radii), np.int32)
    count = 0
    for g in range(len(radii)):
        if radii[g] > 0:
            order[count] = g
            count += 1
    order = order[:count]
    keys, other = depths.view(np.uint32), np.empty(count, np.int32)
    cursors = np.empty(2048, np.int64)
    for shift in (0, 11, 22):
        cursors[:] = 0
        for g in order:
            cursors[(keys[g] >> np.uint32(shift)) & np.uint32(2047)] += 1
        total = 0
        for digit in range(2048):
            size = cursors[digit]
            cursors[digit] = total
            total += size
        for g in order:
            digit = (keys[g] >> np.uint32(shift)) & np.uint32(2047)
            other[cursors[digit]] = g
            cursors[digit] += 1
        order, other = other, order
    return order


# ---------------------------------------------------------------------------------------------------------- drawing


@njit(cache=True, parallel=True, error_model="numpy")
def draw_forward(
    tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
    rgb, alpha, depth, transmittances, last_members,
):  # fmt: skip
    """Fill the last five arrays; last_members [C, H, W] counts from the start of the tile's list, -1 for none."""
    for job in prange(len(tile_starts) - 1):
        _draw_tile(
            job, tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
            rgb, alpha, depth, transmittances, last_members,
        )  # fmt: skip


@njit(cache=True, error_model="numpy", fastmath=_CONTRACT)
def _draw_tile(
    job, tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
    rgb, alpha, depth, transmittances, last_members,
):  # fmt: skip
    height, width = alpha.shape[1:]
    c, x0, y0 = _tile_corner(job, width, height)
    columns, rows = min(TILE, width - x0), min(TILE, height - y0)
    alpha_min, alpha_max, transmittance_min = thresholds[0], thresholds[1], thresholds[2]
    # Planes of one buffer at constant offsets, so that the compiler can tell them apart: x, y, transmittance
    # (negative: ended), red, green, blue, depth, last member.
    pixels = np.zeros(8 * _PIXELS, np.float32)
    for i in range(_PIXELS):
        x, y = i % TILE, i // TILE
        pixels[i], pixels[_PIXELS + i] = x, y
        pixels[2 * _PIXELS + i] = 1.0 if x < columns and y < rows else -1.0
        pixels[7 * _PIXELS + i] = -1.0
    first = tile_starts[job]
    for k in range(first, tile_starts[job + 1]):
        g = members[k]
        mean_x, mean_y = means2d[c, g, 0] - np.float32(x0) - _HALF, means2d[c, g, 1] - np.float32(y0) - _HALF
        xx, xy, yy = -_HALF * _LOG2E * conics[c, g, 0], -_LOG2E * conics[c, g, 1], -_HALF * _LOG2E * conics[c, g, 2]
        opacity, red, green, blue = opacities[g], colors[c, g, 0], colors[c, g, 1], colors[c, g, 2]
        z, member = depths[c, g], np.float32(k - first)
        from_row, to_row = _pixel_range(means2d[c, g, 1] - np.float32(y0), extents[c, g, 1], 0, rows)
        for i in range(np.uint64(TILE * from_row), np.uint64(TILE * to_row)):
            dx, dy = pixels[i] - mean_x, pixels[_PIXELS + i] - mean_y
            unclamped = _unclamped_alpha(dx, dy, xx, xy, yy, opacity)
            drawn = unclamped if unclamped < alpha_max else alpha_max
            before = pixels[2 * _PIXELS + i]
            after = before - before * drawn
            reached = unclamped >= alpha_min
            kept = reached & (after >= transmittance_min)
            weight = before * drawn if kept else _ZERO
            ended = -abs(before) if reached else before
            pixels[2 * _PIXELS + i] = after if kept else ended
            pixels[3 * _PIXELS + i] += weight * red
            pixels[4 * _PIXELS + i] += weight * green
            pixels[5 * _PIXELS + i] += weight * blue
            pixels[6 * _PIXELS + i] += weight * z
            pixels[7 * _PIXELS + i] = member if kept else pixels[7 * _PIXELS + i]
        if (k - first) % 16 == 15 and _all_ended(pixels):
            break
    for y in range(rows):
        for x in range(columns):
            i = TILE * y + x
            transmittance = abs(pixels[2 * _PIXELS + i])
            for channel in range(3):
                color = pixels[(3 + channel) * _PIXELS + i] + transmittance * backgrounds[c, channel]
                rgb[c, y0 + y, x0 + x, channel] = color
            alpha[c, y0 + y, x0 + x] = _ONE - transmittance
            depth[c, y0 + y, x0 + x] = pixels[6 * _PIXELS + i]
            transmittances[c, y0 + y, x0 + x] = transmittance
            last_members[c, y0 + y, x0 + x] = np.int32(pixels[7 * _PIXELS + i])


@njit(cache=True, error_model="numpy")
def _tile_corner(job, width, height):
    """Camera and first column and row of a job."""
    columns, rows = (width + TILE - 1) // TILE, (height + TILE - 1) // TILE
    tile = job % (columns * rows)
    return job // (columns * rows), TILE * (tile % columns), TILE * (tile // columns)


@njit(cache=True, error_model="numpy")
def _all_ended(pixels):
    live = 0
    for i in range(2 * _PIXELS, 3 * _PIXELS):
        live += pixels[i] > _ZERO
    return live == 0


@njit(cache=True, parallel=True, error_model="numpy")
def draw_backward(
    tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
    transmittances, last_members, g_rgb, g_alpha, g_depth, out,
):  # fmt: skip
    """Fill `out` [I, GRADIENTS]: the gradients of every entry of `members`, of its tile alone."""
    for job in prange(len(tile_starts) - 1):
        _draw_tile_gradients(
            job, tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
            transmittances, last_members, g_rgb, g_alpha, g_depth, out,
        )  # fmt: skip


@njit(cache=True, error_model="numpy", fastmath=_REASSOCIATE)
def _draw_tile_gradients(
    job, tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, thresholds,
    transmittances, last_members, g_rgb, g_alpha, g_depth, out,
):  # fmt: skip
    height, width = transmittances.shape[1:]
    c, x0, y0 = _tile_corner(job, width, height)
    columns, rows = min(TILE, width - x0), min(TILE, height - y0)
    alpha_min, alpha_max = thresholds[0], thresholds[1]
    # Planes: x, y, transmittance in front of what is behind, loss of what is behind (sum of weight times value),
    # gradients of red, green, blue, depth and alpha, last member.
    pixels = np.zeros(10 * _PIXELS, np.float32)
    end = -1
    for i in range(_PIXELS):
        x, y = i % TILE, i // TILE
        pixels[i], pixels[_PIXELS + i] = x, y
        pixels[2 * _PIXELS + i], pixels[9 * _PIXELS + i] = 1.0, -1.0
        if x < columns and y < rows:
            pixels[2 * _PIXELS + i] = transmittances[c, y0 + y, x0 + x]
            of_alpha = g_alpha[c, y0 + y, x0 + x]
            for channel in range(3):
                pixels[(4 + channel) * _PIXELS + i] = g_rgb[c, y0 + y, x0 + x, channel]
                of_alpha -= g_rgb[c, y0 + y, x0 + x, channel] * backgrounds[c, channel]
            pixels[7 * _PIXELS + i], pixels[8 * _PIXELS + i] = g_depth[c, y0 + y, x0 + x], of_alpha
            pixels[9 * _PIXELS + i] = last_members[c, y0 + y, x0 + x]
            end = max(end, last_members[c, y0 + y, x0 + x])
    first = tile_starts[job]
    for k in range(first + end + 1, tile_starts[job + 1]):
        out[k] = _ZERO
    for k in range(first + end, first - 1, -1):
        g = members[k]
        mean_x, mean_y = means2d[c, g, 0] - np.float32(x0) - _HALF, means2d[c, g, 1] - np.float32(y0) - _HALF
        xx, xy, yy = -_HALF * _LOG2E * conics[c, g, 0], -_LOG2E * conics[c, g, 1], -_HALF * _LOG2E * conics[c, g, 2]
        opacity, red, green, blue = opacities[g], colors[c, g, 0], colors[c, g, 1], colors[c, g, 2]
        z, member = depths[c, g], np.float32(k - first)
        from_row, to_row = _pixel_range(means2d[c, g, 1] - np.float32(y0), extents[c, g, 1], 0, rows)
        # Sums over pixels of v, v dx, v dy, v dx dx, v dx dy, v dy dy with v = alpha times the gradient of alpha,
        # and of weight times the gradients of red, green, blue and depth.
        s, sx, sy, sxx, sxy, syy = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
        s_red, s_green, s_blue, s_depth = _ZERO, _ZERO, _ZERO, _ZERO
        for i in range(np.uint64(TILE * from_row), np.uint64(TILE * to_row)):
            dx, dy = pixels[i] - mean_x, pixels[_PIXELS + i] - mean_y
            unclamped = _unclamped_alpha(dx, dy, xx, xy, yy, opacity)
            kept = (unclamped >= alpha_min) & (pixels[9 * _PIXELS + i] >= member)
            drawn = unclamped if unclamped < alpha_max else alpha_max
            drawn = drawn if kept else _ZERO
            inverse = _ONE / (_ONE - drawn)
            before = pixels[2 * _PIXELS + i] * inverse
            weight = before * drawn
            g_red, g_green, g_blue = pixels[4 * _PIXELS + i], pixels[5 * _PIXELS + i], pixels[6 * _PIXELS + i]
            g_z, g_coverage, behind = pixels[7 * _PIXELS + i], pixels[8 * _PIXELS + i], pixels[3 * _PIXELS + i]
            value = red * g_red + green * g_green + blue * g_blue + z * g_z + g_coverage
            v = drawn * (before * value - behind * inverse) if unclamped <= alpha_max else _ZERO
            pixels[2 * _PIXELS + i] = before
            pixels[3 * _PIXELS + i] = behind + weight * value
            s += v
            sx += v * dx
            sy += v * dy
            sxx += v * dx * dx
            sxy += v * dx * dy
            syy += v * dy * dy
            s_red += weight * g_red
            s_green += weight * g_green
            s_blue += weight * g_blue
            s_depth += weight * g_z
        a, b, d = conics[c, g, 0], conics[c, g, 1], conics[c, g, 2]
        out[k, 0], out[k, 1] = a * sx + b * sy, b * sx + d * sy
        out[k, 2], out[k, 3], out[k, 4] = -_HALF * sxx, -sxy, -_HALF * syy
        out[k, 5], out[k, 6], out[k, 7], out[k, 8] = s_depth, s_red, s_green, s_blue
        out[k, 9] = s / opacity


@njit(cache=True, parallel=True, error_model="numpy")
def sum_gradients(partial, starts, places, g_means2d, g_conics, g_depths, g_colors, g_opacities):
    """Fill the last five arrays: each Gaussian's gradients summed over its tiles in a fixed order."""
    n = len(g_opacities)
    for job in prange((n + _CHUNK - 1) // _CHUNK):
        _sum_gradients(
            job * _CHUNK, min(n, (job + 1) * _CHUNK), partial, starts, places,
            g_means2d, g_conics, g_depths, g_colors, g_opacities,
        )  # fmt: skip


@njit(cache=True, error_model="numpy")
def _sum_gradients(first, last, partial, starts, places, g_means2d, g_conics, g_depths, g_colors, g_opacities):
    cameras, n = g_depths.shape
    sums = np.empty(GRADIENTS, np.float32)
    for g in range(first, last):
        g_opacities[g] = 0.0
        for c in range(cameras):
            sums[:] = 0.0
            for j in range(starts[c * n + g], starts[c * n + g + 1]):
                for k in range(GRADIENTS):
                    sums[k] += partial[places[j], k]
            g_means2d[c, g, 0], g_means2d[c, g, 1] = sums[0], sums[1]
            g_conics[c, g, 0], g_conics[c, g, 1], g_conics[c, g, 2] = sums[2], sums[3], sums[4]
            g_depths[c, g] = sums[5]
            g_colors[c, g, 0], g_colors[c, g, 1], g_colors[c, g, 2] = sums[6], sums[7], sums[8]
            g_opacities[g] += sums[9]
