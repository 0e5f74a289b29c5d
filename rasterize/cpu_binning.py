"""Which Gaussians reach which tile of 16 x 16 pixels, front to back; and sums back from tiles to Gaussians.

Kernels work on the jobs `first` to `last`: cameras, or Gaussians. See `rasterize.cpu_tiles`.
"""

import math

import numpy as np
from numba import njit

TILE = 16  # pixels a side; the drawing kernels have their own copy, asserted equal in cpu.py

_kernel = njit(cache=True, nogil=True, error_model="numpy")
# Compiled into the kernels that call it, hence no cache and no way in from Python.
_inner = njit(error_model="numpy", no_cpython_wrapper=True, no_cfunc_wrapper=True)


@_kernel
def count_tiles(first, last, means2d, extents, radii, width, height, boxes, tile_counts, counts):
    """Jobs are cameras. Fill the last three arrays.

    boxes [C, N, 4]: a Gaussian's pixels, first column, column behind the last, first row, row behind the last;
    tile_counts [C, tiles]: how many Gaussians reach a tile; counts [C, N]: how many tiles a Gaussian reaches.
    """
    columns = (width + TILE - 1) // TILE
    for c in range(first, last):
        tile_counts[c], counts[c], boxes[c] = 0, 0, 0
        for g in range(radii.shape[1]):
            if radii[c, g] == 0:
                continue
            x0, x1 = _pixel_range(means2d[c, g, 0], extents[c, g, 0], width)
            y0, y1 = _pixel_range(means2d[c, g, 1], extents[c, g, 1], height)
            if x0 >= x1 or y0 >= y1:  # between pixel centres
                continue
            boxes[c, g, 0], boxes[c, g, 1], boxes[c, g, 2], boxes[c, g, 3] = x0, x1, y0, y1
            for row in range(y0 // TILE, (y1 - 1) // TILE + 1):
                for column in range(x0 // TILE, (x1 - 1) // TILE + 1):
                    tile_counts[c, row * columns + column] += 1
                    counts[c, g] += 1


@_inner
def _pixel_range(position, extent, size):
    """Pixels from - to of 0 <= i < size whose centres lie within `extent` of `position`."""
    # A little generous: rounding must not lose a pixel, and the exact test is alpha's.
    extent = extent * 1.0001 + 0.001
    low = math.ceil(max(position - extent - 0.5, 0.0))
    high = math.floor(min(position + extent - 0.5, size - 1.0))
    return int(low), int(high) + 1


@_kernel
def enter_tiles(first, last, depths, radii, boxes, width, cursors, starts, members, places):
    """Jobs are cameras. Write each Gaussian into the lists of its tiles, in the order of depth.

    cursors [C, tiles]: where each tile's list begins in `members` [I] (used up); starts [C, N]: where each Gaussian's
    positions in `members` begin in `places` [I].
    """
    columns = (width + TILE - 1) // TILE
    for c in range(first, last):
        for g in _depth_order(depths[c], radii[c]):
            place = starts[c, g]
            x0, x1, y0, y1 = boxes[c, g, 0], boxes[c, g, 1], boxes[c, g, 2], boxes[c, g, 3]
            if x0 == x1:
                continue
            for row in range(y0 // TILE, (y1 - 1) // TILE + 1):
                for column in range(x0 // TILE, (x1 - 1) // TILE + 1):
                    position = cursors[c, row * columns + column]
                    members[position] = g
                    places[place] = position
                    cursors[c, row * columns + column] += 1
                    place += 1


@_inner
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


@_kernel
def sum_gradients(first, last, partial, starts, counts, places, g_means2d, g_conics, g_depths, g_colors, g_opacities):
    """Jobs are Gaussians. Fill the last five arrays: gradients [I, 10] summed over tiles in a fixed order."""
    zero = np.float32(0.0)
    for g in range(first, last):
        g_opacities[g] = zero
        for c in range(g_depths.shape[0]):
            # Ten variables, which stay in registers, rather than an array: an eighth of the time.
            s0, s1, s2, s3, s4, s5, s6, s7, s8, s9 = zero, zero, zero, zero, zero, zero, zero, zero, zero, zero
            for j in range(starts[c, g], starts[c, g] + counts[c, g]):
                p = partial[places[j]]
                s0, s1, s2, s3, s4 = s0 + p[0], s1 + p[1], s2 + p[2], s3 + p[3], s4 + p[4]
                s5, s6, s7, s8, s9 = s5 + p[5], s6 + p[6], s7 + p[7], s8 + p[8], s9 + p[9]
            g_means2d[c, g, 0], g_means2d[c, g, 1] = s0, s1
            g_conics[c, g, 0], g_conics[c, g, 1], g_conics[c, g, 2] = s2, s3, s4
            g_depths[c, g] = s5
            g_colors[c, g, 0], g_colors[c, g, 1], g_colors[c, g, 2] = s6, s7, s8
            g_opacities[g] += s9
