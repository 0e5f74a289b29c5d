"""Colours for what no view has seen: over the surface from what was seen, and in the texture around the charts."""

import numpy as np
from scipy.ndimage import distance_transform_edt
from scipy.sparse import coo_matrix, diags
from scipy.sparse.csgraph import connected_components
from scipy.sparse.linalg import splu
from scipy.spatial import cKDTree

from mesh_extract.mesh import Mesh


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


def nearest_texels(valid: np.ndarray) -> np.ndarray:
    """For every texel of a picture the number (in row-major order among the valid ones) of the nearest valid texel.

    Args:
        valid: [H, W] bool, at least one true.
    Returns:
        [H, W] int32
    """
    rows, columns = distance_transform_edt(~valid, return_distances=False, return_indices=True)
    numbers = np.cumsum(valid.reshape(-1), dtype=np.int32).reshape(valid.shape) - 1
    return numbers[rows, columns]
