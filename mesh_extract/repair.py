"""Topological repair of triangle meshes: what makes a mesh closed, and two-sided at every edge and vertex."""

from dataclasses import replace

import numpy as np
from scipy.sparse import coo_matrix
from scipy.sparse.csgraph import connected_components

from mesh_extract.mesh import Mesh

# A face counts as having no area below this share of (bounding diagonal)^2: float32 cannot tell its normal.
_NO_AREA = 1e-14
# Copies of a vertex that several sheets shared move apart by this share of the way to their neighbours, so that
# programs which merge equal positions do not join them again.
_APART = 0.01
# The middle of a doubled edge moves by this share of the way to the corners across, off the line of the other edge.
_ASIDE = 0.1


def weld(mesh: Mesh) -> Mesh:
    """Vertices at equal positions made one (in order of first use); attributes are dropped."""
    order = np.lexsort(mesh.vertices.T)
    ordered = mesh.vertices[order]
    fresh = np.ones(len(order), dtype=bool)
    fresh[1:] = (ordered[1:] != ordered[:-1]).any(axis=1)
    group = np.empty(len(order), dtype=np.int64)
    group[order] = np.cumsum(fresh) - 1
    first = np.full(int(fresh.sum()), len(order))
    np.minimum.at(first, group, np.arange(len(order)))
    representative = first[group]  # [V]
    return Mesh(mesh.vertices, representative[mesh.faces]).select_faces(slice(None))


def remove_degenerate(mesh: Mesh) -> Mesh:
    """Faces without area removed, and pairs of faces that lie back to back, without opening a closed mesh.

    A face without area is removed by merging the ends of its shortest edge, which closes the gap that it leaves.
    """
    faces, vertices = mesh.faces, mesh.vertices
    if not len(faces):
        return mesh
    for _ in range(10):
        faces = _cancel_duplicates(faces[_distinct_corners(faces)])
        current = Mesh(vertices, faces)
        flat = np.flatnonzero(np.linalg.norm(current.face_normals, axis=1) / 2 <= _NO_AREA * _diagonal(vertices) ** 2)
        if not len(flat):
            break
        corners = vertices[faces[flat]].astype(np.float64)
        lengths = np.linalg.norm(corners - np.roll(corners, -1, axis=1), axis=2)  # edge k: corner k to k + 1
        shortest = lengths.argmin(axis=1)
        rows = np.arange(len(flat))
        a, b = faces[flat][rows, shortest], faces[flat][rows, (shortest + 1) % 3]
        _, group = connected_components(_graph(a, b, len(vertices)), directed=False)
        first = np.full(group.max() + 1, len(vertices))
        np.minimum.at(first, group, np.arange(len(vertices)))
        faces = first[group][faces].astype(np.int32)
    else:
        faces = _cancel_duplicates(faces[_distinct_corners(faces)])
    return mesh if len(faces) == len(mesh.faces) else replace(mesh, faces=faces).select_faces(slice(None))


def split_nonmanifold(mesh: Mesh) -> Mesh:
    """Vertices shared by several sheets doubled, so that every edge has two faces and every vertex one fan.

    Faces on both sides of an edge are paired in opposite directions; corners at a vertex stay together only where
    paired edges join them. An edge walked equally often both ways ends up closed.
    """
    count = len(mesh.faces)
    first, second, _ = _paired_edges(mesh)
    # Half-edge h starts at corner h of the flattened faces and ends at the corner after it in the same face.
    following = np.arange(3 * count).reshape(count, 3)[:, [1, 2, 0]].reshape(-1)
    joined_a = np.concatenate([first, following[first]])
    joined_b = np.concatenate([following[second], second])
    _, fan = connected_components(_graph(joined_a, joined_b, 3 * count), directed=False)
    corner_vertex = mesh.faces.reshape(-1).astype(np.int64)
    fans, index = np.unique(corner_vertex * (3 * count) + fan, return_index=True)
    source = corner_vertex[index]  # the old vertex of each new one
    if len(source) == len(np.unique(corner_vertex)):
        return mesh
    faces = np.searchsorted(fans, corner_vertex * (3 * count) + fan).reshape(count, 3)
    vertices = mesh.vertices[source].astype(np.float64)
    copies = np.bincount(source, minlength=len(mesh.vertices))[source] > 1
    centres = _neighbour_means(vertices, faces)
    vertices[copies] += _APART * (centres[copies] - vertices[copies])
    return Mesh(vertices.astype(mesh.vertices.dtype), faces)


def split_double_edges(mesh: Mesh) -> Mesh:
    """Where two vertices are joined by several edges, all but one get a vertex in their middle.

    Each of those edges has its two faces, so the surface is sound, but index triples alone cannot tell them apart.
    """
    for _ in range(10):
        first, second, _ = _paired_edges(mesh)
        start, end = mesh.faces.reshape(-1)[first], mesh.faces[:, [1, 2, 0]].reshape(-1)[first]
        extra = np.flatnonzero(_occurrences(start.astype(np.int64) * len(mesh.vertices) + end))
        # One edge of a face at a time.
        touched, chosen = set(), []
        for pair in extra.tolist():
            pair_faces = {int(first[pair]) // 3, int(second[pair]) // 3}
            if len(pair_faces) == 2 and not pair_faces & touched:
                touched |= pair_faces
                chosen.append(pair)
        if not chosen:
            break
        vertices, new_faces = list(mesh.vertices), []
        for pair in chosen:
            middle = len(vertices)
            opposite = []
            for half in (int(first[pair]), int(second[pair])):
                a, b, c = np.roll(mesh.faces[half // 3], -(half % 3))
                new_faces += [(a, middle, c), (middle, b, c)]
                opposite.append(mesh.vertices[c])
            on_edge = (mesh.vertices[a] + mesh.vertices[b]) / 2
            vertices.append(on_edge + _ASIDE * (np.mean(opposite, axis=0) - on_edge))
        kept = np.delete(mesh.faces, sorted(touched), axis=0)
        mesh = Mesh(np.array(vertices, dtype=mesh.vertices.dtype), np.concatenate([kept, np.array(new_faces)]))
    return mesh


def fill_holes(mesh: Mesh) -> Mesh:
    """Every border closed by a fan of faces around its middle; borders must not touch (see split_nonmanifold)."""
    _, _, open_edges = _paired_edges(mesh)
    if not len(open_edges):
        return mesh
    flat = mesh.faces.reshape(-1)
    following = np.arange(3 * len(mesh.faces)).reshape(-1, 3)[:, [1, 2, 0]].reshape(-1)
    start, end = flat[open_edges], flat[following[open_edges]]
    after = dict(zip(end.tolist(), start.tolist(), strict=True))  # the fan walks the border backwards
    vertices, faces = list(mesh.vertices), list(mesh.faces)
    while after:
        loop = [next(iter(after))]
        while (step := after.pop(loop[-1], None)) is not None and step != loop[0]:
            loop.append(step)
        if len(loop) == 3:
            faces.append(np.array(loop, dtype=np.int32))
            continue
        middle = len(vertices)
        vertices.append(mesh.vertices[loop].mean(axis=0))
        faces.extend(np.array([a, b, middle], dtype=np.int32) for a, b in zip(loop, loop[1:] + loop[:1], strict=True))
    return Mesh(np.array(vertices), np.array(faces))


def repair(mesh: Mesh) -> Mesh:
    """`mesh` made closed and two-manifold; returned as it is where it is that already and no face lacks area."""
    mesh = remove_degenerate(mesh)
    if not len(mesh.faces):
        return mesh
    mesh = split_nonmanifold(mesh)
    if mesh.is_closed():
        return mesh
    if len(_paired_edges(mesh)[2]):  # open: perhaps only because equal positions have different indices
        mesh = split_nonmanifold(remove_degenerate(weld(mesh)))
        mesh = split_nonmanifold(fill_holes(mesh))
    return split_double_edges(mesh)


def _paired_edges(mesh: Mesh) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Half-edges (3 f + corner) that walk one edge in opposite directions, as two arrays; and those left single."""
    start = mesh.faces.reshape(-1).astype(np.int64)
    end = mesh.faces[:, [1, 2, 0]].reshape(-1).astype(np.int64)
    undirected = np.minimum(start, end) * len(mesh.vertices) + np.maximum(start, end)
    forward, backward = np.flatnonzero(start < end), np.flatnonzero(start > end)
    # Where an edge has more than two faces the i-th forward one meets the i-th backward one.
    ranks = [_occurrences(undirected[half]) for half in (forward, backward)]
    stride = 1 + max((int(rank.max()) for rank in ranks if len(rank)), default=0)
    keys = [undirected[half] * stride + rank for half, rank in zip((forward, backward), ranks, strict=True)]
    _, in_first, in_second = np.intersect1d(*keys, assume_unique=True, return_indices=True)
    first, second = forward[in_first], backward[in_second]
    single = np.ones(len(start), dtype=bool)
    single[first] = single[second] = False
    return first, second, np.flatnonzero(single)


def _occurrences(keys: np.ndarray) -> np.ndarray:
    """For each key, how many equal ones stand before it."""
    order = np.argsort(keys, kind="stable")
    ordered = keys[order]
    begins = np.r_[True, ordered[1:] != ordered[:-1]] if len(keys) else np.zeros(0, dtype=bool)
    position = np.arange(len(keys))
    rank = np.empty(len(keys), dtype=np.int64)
    rank[order] = position - np.maximum.accumulate(np.where(begins, position, 0))
    return rank


def _distinct_corners(faces: np.ndarray) -> np.ndarray:
    """Mask of the faces with three different vertices."""
    return (faces[:, 0] != faces[:, 1]) & (faces[:, 1] != faces[:, 2]) & (faces[:, 2] != faces[:, 0])


def _cancel_duplicates(faces: np.ndarray) -> np.ndarray:
    """One face of those with the same corners and direction; none where equally many face either way."""
    if not len(faces):
        return faces
    ordered = np.sort(faces, axis=1)
    # The direction: whether (smallest, next, largest) is the face's order or its reverse.
    at_smallest = faces.argmin(axis=1)
    after_smallest = faces[np.arange(len(faces)), (at_smallest + 1) % 3]
    direction = np.where(after_smallest == ordered[:, 1], 1, -1)
    order = np.lexsort(ordered.T)
    begins = np.r_[True, (ordered[order][1:] != ordered[order][:-1]).any(axis=1)]
    if begins.all():
        return faces
    group = np.empty(len(faces), dtype=np.int64)
    group[order] = np.cumsum(begins) - 1
    balance = np.bincount(group, weights=direction)
    wanted = np.sign(balance)[group]
    candidates = np.flatnonzero(direction == wanted)
    _, first = np.unique(group[candidates], return_index=True)
    return faces[np.sort(candidates[first])]


def _neighbour_means(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Mean of the other corners of each vertex's faces [V, 3]."""
    totals = vertices[faces].sum(axis=1)  # [F, 3]
    flat = faces.reshape(-1)
    degree = np.maximum(np.bincount(flat, minlength=len(vertices)), 1)
    sums = np.stack(
        [np.bincount(flat, weights=np.repeat(totals[:, axis], 3), minlength=len(vertices)) for axis in range(3)], axis=1
    )
    return (sums - vertices * degree[:, None]) / (2 * degree[:, None])


def _graph(a: np.ndarray, b: np.ndarray, count: int) -> coo_matrix:
    """Sparse matrix of the undirected edges a to b among `count` nodes."""
    return coo_matrix((np.ones(len(a), dtype=np.int32), (a, b)), shape=(count, count))


def _diagonal(vertices: np.ndarray) -> float:
    """Length of the bounding box's diagonal, never 0."""
    return max(float(np.linalg.norm(np.ptp(vertices.astype(np.float64), axis=0))), 1e-30)
