"""Steps 4 to 6 of `rasterize.definition` and their gradients on the CPU: tiles of 16 x 16 pixels.

Kernels work on the jobs `first` to `last`, a job being one tile of one camera. Jobs write to places of their own and
sums run in a fixed order, so that the result does not depend on the timing of threads.

Within a tile Gaussians are the outer and pixels the inner loop, over one flat buffer, branch-free: that is what LLVM
turns into vector code. It does so only if the buffer's planes lie at constant offsets (it has to see that they do not
overlap), indices are unsigned (numba wraps negative ones around) and every constant is a float32 (a Python number would
make the loop float64). Constants of the definition come as arguments, since numba's cache would not see them change.
"""

import math

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

TILE = 16  # pixels a side
GRADIENTS = 10  # of a Gaussian in a tile: position 2, conic 3, depth, colour 3, opacity

_PIXELS = TILE * TILE
# Planes of a tile's buffer: column, row; transmittance; index of the last Gaussian drawn, from the start of the tile's
# list, -1 for none; red, green, blue and depth, or their gradients; the gradient of alpha; the loss of what is behind.
_X, _Y, _T, _LAST, _RED, _GREEN, _BLUE, _DEPTH, _COVERAGE, _BEHIND = (np.uint64(k * _PIXELS) for k in range(10))

_ONE, _HALF, _ZERO = np.float32(1.0), np.float32(0.5), np.float32(0.0)
_LOG2E = np.float32(math.log2(math.e))
_LOWEST = np.float32(-64.0)  # 2^-64 is below any threshold, and far from denormal numbers
# 2^f on [-1/2, 1/2], least largest relative error (7.5e-8, about half a unit in the last place).
_P0, _P1, _P2 = np.float32(1.0000001192092896), np.float32(0.6931469440460205), np.float32(0.24022120237350464)
_P3, _P4, _P5 = np.float32(0.05550713092088699), np.float32(0.009675540961325169), np.float32(0.001327647129073739)

_CONTRACT = {"contract", "nsz"}  # fused multiply-adds
_REASSOCIATE = {"contract", "nsz", "reassoc"}  # and sums over pixels in vector lanes
# Compiled into the kernels that call it, hence no cache and no way in from Python.
_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True, fastmath=_CONTRACT)


@intrinsic
def _float_from_bits(typingctx, bits):
    """The float32 whose bits are those of an int32."""

    def generate(context, builder, signature, arguments):
        return builder.bitcast(arguments[0], ir.FloatType())

    return types.float32(types.int32), generate


@_inner
def exp2_negative(x):
    """2^x in float32 for x <= 0, relative error below 2.5e-7; x below -64 counts as -64."""
    x = x if x > _LOWEST else _LOWEST
    whole = np.int32(x - _HALF)  # truncation rounds x to the nearest integer, since x <= 0
    f = x - np.float32(whole)
    series = _P0 + f * (_P1 + f * (_P2 + f * (_P3 + f * (_P4 + f * _P5))))
    return series * _float_from_bits((whole + np.int32(127)) << np.int32(23))


@_inner
def _unclamped_alpha(u, dy, xx, yy, opacity):
    """opacity exp(-q / 2), u = dx + slope dy; the conic comes multiplied by -log2(e) / 2."""
    return opacity * exp2_negative(xx * (u * u) + yy * (dy * dy))


@_inner
def _tile_corner(job, width, height):
    """Camera, first column and first row of a job."""
    columns, rows = (width + TILE - 1) // TILE, (height + TILE - 1) // TILE
    tile = job % (columns * rows)
    return job // (columns * rows), TILE * (tile % columns), TILE * (tile // columns)


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_CONTRACT)
def draw_forward(
    first, last, tile_starts, members, means2d, conics, depths, colors, opacities, boxes, backgrounds, thresholds,
    rgb, alpha, depth, transmittances, last_members,
):  # fmt: skip
    """Fill the last five arrays, rgb [C, H, W, 3], the others [C, H, W]; last_members as the plane of that name."""
    height, width = alpha.shape[1:]
    alpha_min, alpha_max, transmittance_min = thresholds[0], thresholds[1], thresholds[2]
    pixels = np.empty(8 * _PIXELS, np.float32)
    for i in range(_PIXELS):
        pixels[i], pixels[_PIXELS + i] = i % TILE, i // TILE
    for job in range(first, last):
        c, x0, y0 = _tile_corner(job, width, height)
        columns, rows = min(TILE, width - x0), min(TILE, height - y0)
        pixels[2 * _PIXELS :] = 0.0
        for y in range(TILE):
            for x in range(TILE):
                # A negative transmittance marks a pixel that has ended; those outside of the image never begin.
                pixels[2 * _PIXELS + TILE * y + x] = 1.0 if x < columns and y < rows else -1.0
                pixels[3 * _PIXELS + TILE * y + x] = -1.0
        begin = tile_starts[job]
        for k in range(begin, tile_starts[job + 1]):
            g = members[k]
            mean_x, mean_y = means2d[c, g, 0] - np.float32(x0) - _HALF, means2d[c, g, 1] - np.float32(y0) - _HALF
            xx, slope, yy = -_HALF * _LOG2E * conics[c, g, 0], conics[c, g, 1], -_HALF * _LOG2E * conics[c, g, 2]
            opacity, red, green, blue = opacities[g], colors[c, g, 0], colors[c, g, 1], colors[c, g, 2]
            z, member = depths[c, g], np.float32(k - begin)
            from_row, to_row = max(boxes[c, g, 2] - y0, 0), min(boxes[c, g, 3] - y0, rows)
            for i in range(np.uint64(TILE * from_row), np.uint64(TILE * to_row)):
                dx, dy = pixels[_X + i] - mean_x, pixels[_Y + i] - mean_y
                u = dx + slope * dy
                unclamped = _unclamped_alpha(u, dy, xx, yy, opacity)
                drawn = unclamped if unclamped < alpha_max else alpha_max
                before = pixels[_T + i]
                after = before - before * drawn
                reached = unclamped >= alpha_min
                kept = reached & (after >= transmittance_min)
                weight = before * drawn if kept else _ZERO
                ended = -abs(before) if reached else before
                pixels[_T + i] = after if kept else ended
                pixels[_LAST + i] = member if kept else pixels[_LAST + i]
                pixels[_RED + i] += weight * red
                pixels[_GREEN + i] += weight * green
                pixels[_BLUE + i] += weight * blue
                pixels[_DEPTH + i] += weight * z
            if (k - begin) % 16 == 15 and pixels[2 * _PIXELS : 3 * _PIXELS].max() < _ZERO:
                break
        for y in range(rows):
            for x in range(columns):
                i = TILE * y + x
                transmittance = abs(pixels[2 * _PIXELS + i])
                for channel in range(3):
                    color = pixels[(4 + channel) * _PIXELS + i] + transmittance * backgrounds[c, channel]
                    rgb[c, y0 + y, x0 + x, channel] = color
                alpha[c, y0 + y, x0 + x] = _ONE - transmittance
                depth[c, y0 + y, x0 + x] = pixels[7 * _PIXELS + i]
                transmittances[c, y0 + y, x0 + x] = transmittance
                last_members[c, y0 + y, x0 + x] = pixels[3 * _PIXELS + i]


@njit(cache=True, nogil=True, error_model="numpy", fastmath=_REASSOCIATE)
def draw_backward(
    first, last, tile_starts, members, means2d, conics, depths, colors, opacities, boxes, backgrounds, thresholds,
    transmittances, last_members, g_rgb, g_alpha, g_depth, partial,
):  # fmt: skip
    """Fill `partial` [I, GRADIENTS]: the gradients of every entry of `members` within its tile.

    Runs back to front, from the transmittance at the end of each pixel, which is divided by 1 - alpha step by step.
    """
    height, width = transmittances.shape[1:]
    alpha_min, alpha_max = thresholds[0], thresholds[1]
    pixels = np.empty(10 * _PIXELS, np.float32)
    for i in range(_PIXELS):
        pixels[i], pixels[_PIXELS + i] = i % TILE, i // TILE
    for job in range(first, last):
        c, x0, y0 = _tile_corner(job, width, height)
        columns, rows = min(TILE, width - x0), min(TILE, height - y0)
        pixels[2 * _PIXELS : 3 * _PIXELS] = 1.0
        pixels[3 * _PIXELS : 4 * _PIXELS] = -1.0
        pixels[4 * _PIXELS :] = 0.0
        end = np.float32(-1.0)
        for y in range(rows):
            for x in range(columns):
                i = TILE * y + x
                pixels[2 * _PIXELS + i] = transmittances[c, y0 + y, x0 + x]
                pixels[3 * _PIXELS + i] = last_members[c, y0 + y, x0 + x]
                end = max(end, last_members[c, y0 + y, x0 + x])
                coverage = g_alpha[c, y0 + y, x0 + x]
                for channel in range(3):
                    pixels[(4 + channel) * _PIXELS + i] = g_rgb[c, y0 + y, x0 + x, channel]
                    coverage -= g_rgb[c, y0 + y, x0 + x, channel] * backgrounds[c, channel]
                pixels[7 * _PIXELS + i] = g_depth[c, y0 + y, x0 + x]
                pixels[8 * _PIXELS + i] = coverage
        begin = tile_starts[job]
        for k in range(begin + int(end) + 1, tile_starts[job + 1]):
            for j in range(GRADIENTS):
                partial[k, j] = _ZERO
        for k in range(begin + int(end), begin - 1, -1):
            g = members[k]
            mean_x, mean_y = means2d[c, g, 0] - np.float32(x0) - _HALF, means2d[c, g, 1] - np.float32(y0) - _HALF
            a, slope, d = conics[c, g, 0], conics[c, g, 1], conics[c, g, 2]
            xx, yy = -_HALF * _LOG2E * a, -_HALF * _LOG2E * d
            opacity, red, green, blue = opacities[g], colors[c, g, 0], colors[c, g, 1], colors[c, g, 2]
            z, member = depths[c, g], np.float32(k - begin)
            from_row, to_row = max(boxes[c, g, 2] - y0, 0), min(boxes[c, g, 3] - y0, rows)
            # Sums over pixels of v, v u, v dy, v u u, v u dy, v dy dy, with v = alpha times the gradient of alpha,
            # and of weight times the gradients of red, green, blue and depth.
            s, su, sy, suu, suy, syy = _ZERO, _ZERO, _ZERO, _ZERO, _ZERO, _ZERO
            s_red, s_green, s_blue, s_depth = _ZERO, _ZERO, _ZERO, _ZERO
            for i in range(np.uint64(TILE * from_row), np.uint64(TILE * to_row)):
                dx, dy = pixels[_X + i] - mean_x, pixels[_Y + i] - mean_y
                u = dx + slope * dy
                unclamped = _unclamped_alpha(u, dy, xx, yy, opacity)
                kept = (unclamped >= alpha_min) & (pixels[_LAST + i] >= member)
                drawn = unclamped if unclamped < alpha_max else alpha_max
                drawn = drawn if kept else _ZERO
                inverse = _ONE / (_ONE - drawn)
                before = pixels[_T + i] * inverse
                weight = before * drawn
                g_red, g_green, g_blue = pixels[_RED + i], pixels[_GREEN + i], pixels[_BLUE + i]
                g_z, behind = pixels[_DEPTH + i], pixels[_BEHIND + i]
                value = red * g_red + green * g_green + blue * g_blue + z * g_z + pixels[_COVERAGE + i]
                v = drawn * (before * value - behind * inverse) if unclamped <= alpha_max else _ZERO
                pixels[_T + i] = before
                pixels[_BEHIND + i] = behind + weight * value
                s += v
                su += v * u
                sy += v * dy
                suu += v * u * u
                suy += v * u * dy
                syy += v * dy * dy
                s_red += weight * g_red
                s_green += weight * g_green
                s_blue += weight * g_blue
                s_depth += weight * g_z
            partial[k, 0], partial[k, 1] = a * su, a * slope * su + d * sy
            partial[k, 2], partial[k, 3], partial[k, 4] = -_HALF * suu, -a * suy, -_HALF * syy
            partial[k, 5], partial[k, 6], partial[k, 7], partial[k, 8] = s_depth, s_red, s_green, s_blue
            partial[k, 9] = s / opacity
