"""Shapes made of the nodes of a grid: how far they are, and which parts of them hang together."""

import numpy as np
import torch
from numba import njit, prange
from torch import Tensor

from mesh_extract import field_ops_cuda
from mesh_extract.field_ops_cuda import FAR


def squared_distances(marked: Tensor) -> Tensor:
    """Squared distance, in nodes, of every node to the nearest marked one; 2^30 and more where nothing is marked.

    Args:
        marked: [X, Y, Z] bool.
    Returns:
        [X, Y, Z] int32, exact.
    """
    if marked.device.type != "cpu":
        return field_ops_cuda.squared_distances(marked)
    squared = np.empty(marked.shape, np.int32)
    _distances_along_z(marked.contiguous().numpy(), squared)
    # Planes [lines, length, inner] in which a line's neighbours lie side by side in memory.
    _distances_along_middle(squared)
    _distances_along_middle(squared.reshape(1, squared.shape[0], -1))
    return torch.from_numpy(squared)


def parts_with(mask: Tensor, seeds: Tensor, corners: bool = False) -> Tensor:
    """The parts of `mask` that hold a node of `seeds`, both [X, Y, Z] bool.

    Args:
        corners: whether nodes that share an edge or a corner hang together, or only those that share a face.
    """
    if mask.device.type != "cpu":
        return field_ops_cuda.parts_with(mask, seeds, corners)
    from scipy.ndimage import label

    labels, count = label(mask.numpy(), structure=np.ones((3, 3, 3)) if corners else None)
    held = np.zeros(count + 1, dtype=bool)
    held[labels[(seeds & mask).numpy()]] = True
    return torch.from_numpy(held[labels])


@njit(parallel=True, cache=True)
def _distances_along_z(marked, squared):
    """Squared distance along the last axis to the nearest marked node of [X, Y, Z]."""
    size_x, size_y, size_z = marked.shape
    for x in prange(size_x):
        for y in range(size_y):
            since = np.int64(1) << 15
            for z in range(size_z):
                since = 0 if marked[x, y, z] else since + 1
                squared[x, y, z] = min(since * since, FAR)
            since = np.int64(1) << 15
            for z in range(size_z - 1, -1, -1):
                since = 0 if marked[x, y, z] else since + 1
                squared[x, y, z] = min(since * since, np.int64(squared[x, y, z]))


_STRIP = 64  # lines side by side, so that memory is read in order


@njit(parallel=True, cache=True)
def _distances_along_middle(squared):
    """Add the middle axis of [outer, length, inner] to squared distances along others, in place.

    The lower envelope of the parabolas squared[v] + (u - v)^2 (P. Felzenszwalb, D. Huttenlocher, "Distance transforms
    of sampled functions", 2012), in whole numbers.
    """
    outer, length, inner = squared.shape
    strips = (inner + _STRIP - 1) // _STRIP
    for job in prange(outer * strips):
        plane, first = job // strips, job % strips * _STRIP
        last = min(first + _STRIP, inner)
        lines = squared[plane, :, first:last].copy()
        lowest = np.empty(length, np.int64)  # the parabolas of the envelope
        start = np.empty(length, np.int64)  # where each begins to be the lowest
        for line in range(last - first):
            count = 0
            for v in range(length):
                height = np.int64(lines[v, line])
                begin = 0
                while count:
                    other = lowest[count - 1]
                    # The first u at which v's parabola is strictly below the other's.
                    gain = height + v * v - np.int64(lines[other, line]) - other * other
                    begin = gain // (2 * (v - other)) + 1
                    if begin > start[count - 1]:
                        break
                    count -= 1
                    begin = 0
                if begin < length:
                    lowest[count] = v
                    start[count] = begin
                    count += 1
            k = 0
            for u in range(length):
                while k + 1 < count and start[k + 1] <= u:
                    k += 1
                way = u - lowest[k]
                squared[plane, u, first + line] = min(np.int64(lines[lowest[k], line]) + way * way, FAR)
