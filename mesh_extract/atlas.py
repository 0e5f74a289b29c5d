"""A simple UV atlas that always succeeds: charts seen along the six axes, packed on shelves.

After the box mapping that lightmappers fall back to: faces that look along one axis and hang together form a chart and
are projected along that axis. A chart that folds over itself is cut where it does, down to single faces.
"""

import numpy as np
from numba import njit
from scipy.sparse import coo_matrix, csr_matrix
from scipy.sparse.csgraph import connected_components

from mesh_extract.mesh import Mesh

_AXES = np.array([[1, 0, 0], [-1, 0, 0], [0, 1, 0], [0, -1, 0], [0, 0, 1], [0, 0, -1]], np.float64)
_SMOOTHING_STEPS = 3  # of the normals that choose a face's axis: fewer, larger charts on a noisy surface
_CUTTING_ROUNDS = 6  # in which faces that lie over others become charts of their own; then they are cut singly
_OBLIQUE = 0.15  # least cosine between a face's normal and its chart's axis; below, the face takes its own best axis


def simple_atlas(mesh: Mesh, size: int, padding: int) -> tuple[np.ndarray, np.ndarray]:
    """Lay the faces of `mesh` (F >= 1) into the unit square.

    Args:
        size: side in texels of the texture; padding: texels left free around a chart, fewer where the charts are so
            many that they would fill the picture.
    Returns:
        (uvs [T, 2] float32 in [0, 1], uv_faces [F, 3] int32)
    """
    axes = _choose_axes(mesh)
    charts = _connected(mesh, axes)
    flat = _project(mesh, axes)  # [F, 3 corners, 2]
    for round_index in range(_CUTTING_ROUNDS):
        placed = _pack(flat, charts, size, padding)
        on_top = find_overlaps(placed * size, size)[0]
        if not on_top.any():
            break
        if round_index < _CUTTING_ROUNDS - 2:
            charts = _connected(mesh, charts * 2 + on_top)
        else:
            charts = np.where(on_top, charts.max() + 1 + np.arange(len(charts)), charts)
            charts = np.unique(charts, return_inverse=True)[1]
    else:
        placed = _pack(flat, charts, size, padding)
    return _share_corners(mesh, charts, placed)


def _choose_axes(mesh: Mesh) -> np.ndarray:
    """For every face the index of the axis in _AXES that it is projected along [F]."""
    scaled = mesh.face_normals
    lengths = np.linalg.norm(scaled, axis=1, keepdims=True)
    normals = scaled / np.where(lengths > 0, lengths, 1.0)
    neighbours = _adjacency(mesh)
    smooth = scaled / max(lengths.mean(), np.finfo(float).tiny)
    for _ in range(_SMOOTHING_STEPS):
        smooth = smooth + neighbours @ smooth
    axes = np.argmax(smooth @ _AXES.T, axis=1)
    own = np.argmax(normals @ _AXES.T, axis=1)
    facing = np.take_along_axis(normals @ _AXES.T, axes[:, None], axis=1)[:, 0]
    return np.where((facing < _OBLIQUE) & (lengths[:, 0] > 0), own, axes)


def _adjacency(mesh: Mesh) -> csr_matrix:
    """Which faces share an edge [F, F], entries 1; around an edge of many faces neighbours form a chain."""
    count = len(mesh.faces)
    edges = np.sort(mesh.directed_edges(), axis=1).astype(np.int64)
    keys = edges[:, 0] * len(mesh.vertices) + edges[:, 1]
    order = np.argsort(keys, kind="stable")
    same = keys[order][1:] == keys[order][:-1]
    first, second = order[:-1][same] % count, order[1:][same] % count
    rows, columns = np.concatenate([first, second]), np.concatenate([second, first])
    return coo_matrix((np.ones(len(rows)), (rows, columns)), shape=(count, count)).tocsr()


def _connected(mesh: Mesh, labels: np.ndarray) -> np.ndarray:
    """Charts [F]: faces of one label that hang together by edges, numbered from 0."""
    graph = _adjacency(mesh).tocoo()
    same = labels[graph.row] == labels[graph.col]
    cut = coo_matrix((graph.data[same], (graph.row[same], graph.col[same])), shape=graph.shape)
    return connected_components(cut, directed=False)[1]


def _project(mesh: Mesh, axes: np.ndarray) -> np.ndarray:
    """Corners [F, 3, 2] seen along each face's axis, counter-clockwise where the face looks along it."""
    along = axes // 2
    right = np.where(along == 0, 1, 0)
    up = np.where(along == 2, 1, 2)
    corners = mesh.corners
    flat = np.stack(
        [np.take_along_axis(corners, index[:, None, None].repeat(3, axis=1), axis=2)[..., 0] for index in (right, up)],
        axis=2,
    )
    # Right-handed for +x (y, z) and +z (x, y); (x, z) is left-handed seen from +y; looking from behind flips each.
    mirrored = (along == 1) ^ (axes % 2 == 1)
    flat[mirrored, :, 0] *= -1.0
    return flat


def _pack(flat: np.ndarray, charts: np.ndarray, size: int, padding: int) -> np.ndarray:
    """Place each chart's rectangle on shelves as large as they fit the unit square; corners [F, 3, 2]."""
    count = charts.max() + 1
    lower = np.full((count, 2), np.inf)
    upper = np.full((count, 2), -np.inf)
    np.minimum.at(lower, charts, flat.min(axis=1))
    np.maximum.at(upper, charts, flat.max(axis=1))
    sides = upper - lower
    order = np.argsort(-sides[:, 1], kind="stable")
    margin = padding / size
    while 2 * margin * 2 * margin * count > 0.5:  # the gutters alone would take half of the picture
        margin /= 2
    largest = 1.0 / max(sides.max(), np.finfo(float).tiny)
    low, high = 0.0, (1.0 - 2 * margin) * largest
    for _ in range(24):
        middle = 0.5 * (low + high)
        if _shelves(sides[order] * middle + 2 * margin)[1] <= 1.0:
            low = middle
        else:
            high = middle
    corners, _ = _shelves(sides[order] * low + 2 * margin)
    places = np.empty_like(corners)
    places[order] = corners + margin
    placed = (flat - lower[charts][:, None]) * low + places[charts][:, None]
    return np.clip(placed, 0.0, 1.0)


@njit(cache=True, nogil=True)
def _shelves(sides):
    """Lower left corners [N, 2] of rectangles [N, 2], by falling height, in rows of width 1; and the height used."""
    corners = np.zeros((sides.shape[0], 2))
    x, y, shelf = 0.0, 0.0, 0.0
    for n in range(sides.shape[0]):
        if x + sides[n, 0] > 1.0 and x > 0.0:
            x, y, shelf = 0.0, y + shelf, 0.0
        corners[n, 0], corners[n, 1] = x, y
        x += sides[n, 0]
        shelf = max(shelf, sides[n, 1])
    return corners, y + shelf


def _share_corners(mesh: Mesh, charts: np.ndarray, placed: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Corners of one chart at one vertex become one uv."""
    keys = charts[:, None].astype(np.int64) * len(mesh.vertices) + mesh.faces  # [F, 3]
    _, first, inverse = np.unique(keys, return_index=True, return_inverse=True)
    return placed.reshape(-1, 2)[first].astype(np.float32), inverse.reshape(-1, 3).astype(np.int32)


@njit(cache=True, nogil=True)
def find_overlaps(corners, size):
    """Faces that lie over an earlier one at a texel's centre, and how many texels are covered once and more than once.

    Args:
        corners: [F, 3, 2] in texels, float64; size: side of the picture.
    Returns:
        (on_top [F] bool, covered, overlapping)
    """
    owner = np.full((size, size), -1, np.int32)
    on_top = np.zeros(corners.shape[0], np.bool_)
    covered, overlapping = 0, 0
    for f in range(corners.shape[0]):
        x0, y0 = corners[f, 0, 0], corners[f, 0, 1]
        x1, y1 = corners[f, 1, 0], corners[f, 1, 1]
        x2, y2 = corners[f, 2, 0], corners[f, 2, 1]
        area = (x1 - x0) * (y2 - y0) - (x2 - x0) * (y1 - y0)
        if area == 0.0:
            continue
        for y in range(max(0, int(min(y0, y1, y2) - 0.5)), min(size - 1, int(max(y0, y1, y2) - 0.5)) + 1):
            for x in range(max(0, int(min(x0, x1, x2) - 0.5)), min(size - 1, int(max(x0, x1, x2) - 0.5)) + 1):
                px, py = x + 0.5, y + 0.5
                b0 = ((x1 - px) * (y2 - py) - (x2 - px) * (y1 - py)) / area
                b1 = ((x2 - px) * (y0 - py) - (x0 - px) * (y2 - py)) / area
                b2 = 1.0 - b0 - b1
                # The border belongs to both neighbours: uvs are float32, so stay 1e-4 of the face inside it.
                if b0 > 1e-4 and b1 > 1e-4 and b2 > 1e-4:
                    if owner[y, x] >= 0:
                        on_top[f] = True
                        overlapping += 1
                    else:
                        owner[y, x] = f
                        covered += 1
    return on_top, covered, overlapping
