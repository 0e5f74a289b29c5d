"""Colours for what no view has seen: over the surface from what was seen, and in the texture around the charts."""

import numpy as np
import torch
from numba import njit
from scipy.sparse import coo_matrix, diags
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree
from torch import Tensor

from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster_numba import in_threads


def spread_over_surface(
    mesh: Mesh, colors: np.ndarray, weights: np.ndarray, points: np.ndarray, point_colors: np.ndarray
) -> np.ndarray:
    """Colours [V, 3] at all vertices from those that are known.

    Unknown vertices take the harmonic interpolation of the known ones around them: each is the mean of its
    neighbours. Parts of the mesh without any known vertex take the colour of the nearest of `points` (grey if none).

    Args:
        colors [V, 3], weights [V]: known where the weight is positive.
        points [N, 3], point_colors [N, 3].
    """
    known = weights > 0
    colors = np.where(known[:, None], colors, 0.0).astype(np.float64)
    if known.all():
        return colors
    count = len(mesh.vertices)
    edges = mesh.directed_edges()
    ends = np.concatenate([edges, edges[:, ::-1]])
    graph = coo_matrix((np.ones(len(ends)), (ends[:, 0], ends[:, 1])), shape=(count, count)).tocsr()
    part_count, parts = connected_components(graph, directed=False)
    part_known = np.bincount(parts, known, part_count) > 0
    lost = ~part_known[parts]
    if lost.any():
        colors[lost] = _nearest_colors(mesh.vertices[lost], points, point_colors)
        known = known | lost
    unknown = np.flatnonzero(~known)
    if len(unknown):
        rows = graph[unknown]
        degree = np.asarray(rows.sum(axis=1)).ravel()
        laplacian = diags(degree) - rows[:, unknown]
        solved = splu(laplacian.tocsc()).solve(rows[:, np.flatnonzero(known)] @ colors[known])
        colors[unknown] = solved
    return colors


def _nearest_colors(positions: np.ndarray, points: np.ndarray, point_colors: np.ndarray) -> np.ndarray:
    """Colour of the nearest point to each position; grey where there are no points."""
    if len(points) == 0:
        return np.full((len(positions), 3), 0.5)
    return point_colors[cKDTree(points).query(positions)[1]]


def nearest_texels(valid: Tensor) -> Tensor:
    """For every texel of a picture the number (in row-major order among the valid ones) of the nearest valid texel.

    Args:
        valid: [H, W] bool, at least one true.
    Returns:
        [H, W] int64
    """
    numbers = valid.reshape(-1).cumsum(0) - 1
    return numbers[nearest_marked(valid)]


def nearest_marked(marked: Tensor) -> Tensor:
    """For every pixel of `marked` [H, W] (bool) the index in the picture of the nearest marked pixel.

    Of several at one distance it is the first by row, then by column. -1 where nothing is marked.
    """
    if marked.device.type != "cpu":
        from mesh_extract import backproject_cuda

        return backproject_cuda.nearest_marked(marked.contiguous())
    height = len(marked)
    rows = _nearest_in_columns(marked.numpy())
    nearest = np.empty(marked.shape, np.int64)
    bands = min(height, 4 * torch.get_num_threads())
    edges = [round(height * k / bands) for k in range(bands + 1)]
    in_threads(lambda k: _nearest_of_columns(rows, edges[k], edges[k + 1], nearest), bands)
    return torch.from_numpy(nearest)


@njit(cache=True, nogil=True)
def _nearest_in_columns(marked):
    """The row [H, W] of the nearest marked pixel in the same column, the upper of two; -1 where there is none."""
    height, width = marked.shape
    rows = np.full((height, width), -1, np.int32)
    for y in range(height):
        for x in range(width):
            if marked[y, x]:
                rows[y, x] = y
            elif y > 0:
                rows[y, x] = rows[y - 1, x]
    for y in range(height - 2, -1, -1):
        for x in range(width):
            below = rows[y + 1, x]
            if below > y and (rows[y, x] < 0 or below - y < y - rows[y, x]):
                rows[y, x] = below
    return rows


@njit(cache=True, nogil=True)
def _nearest_of_columns(rows, first, last, nearest):
    """Fill the rows first ... last - 1 of `nearest`, from what lies nearest in each column."""
    width = rows.shape[1]
    for y in range(first, last):
        for x in range(width):
            best, found = np.int64(1) << 62, np.int64(-1)
            d = 0
            while d * d <= best and (x - d >= 0 or x + d < width):
                for column in (x - d, x + d):
                    if column < 0 or column >= width or rows[y, column] < 0:
                        continue
                    rise = rows[y, column] - y
                    distance = d * d + rise * rise
                    index = np.int64(rows[y, column]) * width + column
                    if distance < best or (distance == best and index < found):
                        best, found = distance, index
                d += 1
            nearest[y, x] = found
