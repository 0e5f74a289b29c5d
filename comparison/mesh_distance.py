"""Distance between two surfaces: two-sided Hausdorff distance and mean, from points to the triangles themselves."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import cKDTree

from evaluation.metrics import sample_surface
from mesh_extract import Mesh

_FIRST_CANDIDATES = 8  # triangles by the distance of their centres, asked first
_PAIRS_AT_ONCE = 1 << 20  # bounds the memory: about 300 MB
MOST_VERTICES = 50_000  # of a mesh that are measured, evenly picked
SURFACE_POINTS = 20_000  # on its faces besides, at most two a face


@dataclass(frozen=True)
class MeshDistance:
    """World units. hausdorff: the largest distance of a point of either surface from the other; mean: of all of them.

    What is measured are vertices and points on the faces: the true Hausdorff distance is at least this.
    """

    hausdorff: float
    mean: float


def mesh_distance(a: Mesh, b: Mesh) -> MeshDistance:
    """Two-sided distance of two meshes that have faces."""
    there = distances_to_mesh(_points_on(a), b)
    back = distances_to_mesh(_points_on(b), a)
    return MeshDistance(float(max(there.max(), back.max())), float((there.mean() + back.mean()) / 2))


def distances_to_mesh(points: np.ndarray, mesh: Mesh) -> np.ndarray:
    """Distance of each point [P, 3] from the nearest triangle [P], float64.

    A triangle cannot be nearer than its centre less its radius. So the best of a few triangles with near centres bounds
    where the nearest can have its centre, and all of those are asked.
    """
    assert len(mesh.faces), "a mesh without faces is nowhere"
    corners = mesh.corners
    centres = corners.mean(axis=1)
    radii = np.linalg.norm(corners - centres[:, None], axis=2).max(axis=1)
    tree = cKDTree(centres)
    count = min(_FIRST_CANDIDATES, len(centres))
    _, first = tree.query(points, k=count)
    first = first.reshape(len(points), count)
    best = np.full(len(points), np.inf)
    for start in range(0, len(points), _PAIRS_AT_ONCE // count):
        chunk = slice(start, start + _PAIRS_AT_ONCE // count)
        pairs = np.repeat(points[chunk], count, axis=0), corners[first[chunk].reshape(-1)]
        best[chunk] = distance_to_triangles(*pairs).reshape(-1, count).min(axis=1)
    # A few large triangles must not widen the search for all: those above the middle are asked by classes of radii.
    classes = np.floor(np.log2(np.maximum(radii, max(float(np.median(radii)), 1e-300)))).astype(int)
    for level in np.unique(classes):
        members = np.flatnonzero(classes == level)
        tree, reach = cKDTree(centres[members]), radii[members].max()
        for start in range(0, len(points), 4096):
            chunk = np.arange(start, min(start + 4096, len(points)))
            near = tree.query_ball_point(points[chunk], best[chunk] + reach, workers=-1, return_sorted=False)
            owners = np.repeat(chunk, [len(found) for found in near])
            asked = members[np.concatenate([np.asarray(found, dtype=np.int64) for found in near])]
            for piece in range(0, len(owners), _PAIRS_AT_ONCE):
                these = slice(piece, piece + _PAIRS_AT_ONCE)
                found = distance_to_triangles(points[owners[these]], corners[asked[these]])
                np.minimum.at(best, owners[these], found)
    return best


def distance_to_triangles(points: np.ndarray, corners: np.ndarray) -> np.ndarray:
    """Distance of each point [P, 3] from its own triangle [P, 3 corners, 3], which may be a line or a point."""
    a, b, c = corners[:, 0], corners[:, 1], corners[:, 2]
    normal = np.cross(b - a, c - a)
    squared = np.einsum("pi,pi->p", normal, normal)
    flat = squared <= 0
    # Over the face: the foot of the perpendicular lies to the left of all three edges.
    inside = ~flat
    for start, end in ((a, b), (b, c), (c, a)):
        inside &= np.einsum("pi,pi->p", np.cross(end - start, points - start), normal) >= 0
    height = np.abs(np.einsum("pi,pi->p", points - a, normal)) / np.sqrt(np.where(flat, 1.0, squared))
    edges = np.minimum.reduce([_distance_to_segments(points, *ends) for ends in ((a, b), (b, c), (c, a))])
    return np.where(inside, height, edges)


def _distance_to_segments(points: np.ndarray, start: np.ndarray, end: np.ndarray) -> np.ndarray:
    along = end - start
    squared = np.einsum("pi,pi->p", along, along)
    share = np.einsum("pi,pi->p", points - start, along) / np.where(squared > 0, squared, 1.0)
    return np.linalg.norm(start + np.clip(share, 0, 1)[:, None] * along - points, axis=1)


def _points_on(mesh: Mesh) -> np.ndarray:
    """Vertices that faces use, all or evenly picked, and points spread over the faces [P, 3], float64."""
    used = np.unique(mesh.faces)
    picked = used[:: -(-len(used) // MOST_VERTICES)]
    spread = sample_surface(mesh.vertices, mesh.faces, min(SURFACE_POINTS, 2 * len(mesh.faces)), seed=0)
    return np.concatenate([mesh.vertices[picked].astype(np.float64), spread])
