"""From the raw isosurface to a mesh worth keeping: no floaters, hollows, empty faces or bumps; fewer faces; normals."""

import logging
from dataclasses import asdict, dataclass, field, replace

import numpy as np
from scipy.sparse import coo_matrix

from errors import UserError
from mesh_extract.mesh import Mesh
from mesh_extract.repair import repair
from profiling import profiled

logger = logging.getLogger(__name__)

# Taubin's two factors, with a pass band of 0.1: the second undoes the shrinking of the first (Taubin 1995).
_TAUBIN_SHRINK = 0.5
_TAUBIN_GROW = -0.5 / (1 - 0.1 * 0.5)
# How eagerly the decimator collapses edges, tried in turn: the gentler ones reach fewer counts but break fewer meshes.
_AGGRESSIVENESS = (7, 4)
# A decimated mesh counts as broken when its volume is off by more than this share, or its surface on average by more
# than this share of an edge.
_VOLUME_CHANGE = 0.05
_SURFACE_SHIFT = 0.04


@dataclass
class DroppedPart:
    """A part that was not kept: faces; size, its bounding diagonal as a share of the largest part's; and why."""

    faces: int
    size: float
    volume: float
    reason: str  # "floater" or "cavity"


@dataclass
class CleanupReport:
    """What clean_mesh found, changed and dropped, and what the mesh is at the end."""

    faces_found: int
    parts_found: int
    faces: int = 0
    parts: int = 0
    dropped: list[DroppedPart] = field(default_factory=list)
    turned_parts: int = 0  # parts that were wound inward
    repaired: bool = False  # whether faces or vertices were changed to close the mesh
    decimation: str = "not asked for"
    closed: bool = False
    euler_number: int = 0
    volume: float = 0.0  # world units^3
    area: float = 0.0  # world units^2

    def to_dict(self) -> dict:
        return asdict(self)


@profiled
def clean_mesh(
    mesh: Mesh, faces: int = 0, floaters: float = 0.1, smooth_iterations: int = 0, keep_cavities: bool = False
) -> tuple[Mesh, CleanupReport]:
    """Remove what nobody wants, and end with a closed mesh, wound outward, with normals.

    Args:
        mesh: any triangle mesh; borders are closed by fans.
        faces: faces to decimate to; 0 keeps all. Kept higher where that would break the mesh.
        floaters: parts with a bounding diagonal below this share of the largest part's are dropped. The largest always
            stays, whatever its number of faces. The default drops a stray splat (a ball of 0.04 beside an object of
            1.2) and groups of them (0.09 was the largest in eight fits) and keeps a ball of an eighth of the object.
        smooth_iterations: of Taubin smoothing, before decimation.
        keep_cavities: keep inner walls, which enclose a hollow inside another part.
    Returns:
        The mesh, float32, and what was done.
    Raises:
        UserError: no face has an area.
    """
    if not 0 <= floaters < 1:
        raise UserError(f"mesh.floaters={floaters} must be in [0, 1)")
    report = CleanupReport(faces_found=len(mesh.faces), parts_found=mesh.components()[0])
    mesh = _repair(Mesh(mesh.vertices, mesh.faces), report)
    if not len(mesh.faces):
        raise UserError(f"the mesh of {report.faces_found} faces has no face with an area")
    mesh = _turn_outward(mesh, report, keep_cavities)
    mesh = _drop_floaters(mesh, floaters, report)
    if smooth_iterations:
        mesh = taubin_smooth(mesh, smooth_iterations)
    if faces and len(mesh.faces) > faces:
        mesh, report.decimation = decimate(mesh, faces)
    # Rounding to float32 comes before the last check: it is what gets exported.
    mesh = _repair(replace(mesh, vertices=mesh.vertices.astype(np.float32)), report)
    mesh = replace(mesh, vertex_normals=vertex_normals(mesh))

    report.faces, report.parts = len(mesh.faces), mesh.components()[0]
    report.closed, report.euler_number = mesh.is_closed(), mesh.euler_number()
    report.volume, report.area = mesh.volume, mesh.area
    if not report.closed:
        logger.warning("the mesh is not closed: some faces could not be repaired")
    return mesh, report


def _repair(mesh: Mesh, report: CleanupReport) -> Mesh:
    repaired = repair(mesh)
    report.repaired |= repaired is not mesh
    return repaired


def _parts(mesh: Mesh) -> tuple[int, np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Number of parts, each face's part [F], and by part: signed volumes, lower and upper corners of their boxes."""
    count, labels = mesh.components()
    volumes = np.bincount(labels, weights=mesh.face_volumes(), minlength=count)
    corners = mesh.corners
    order = np.argsort(labels, kind="stable")
    first = np.searchsorted(labels[order], np.arange(count))  # no part is empty
    boxes = [
        extreme.reduceat(extreme(extreme(corners[:, 0], corners[:, 1]), corners[:, 2])[order], first, axis=0)
        for extreme in (np.minimum, np.maximum)
    ]
    return count, labels, volumes, *boxes


def _turn_outward(mesh: Mesh, report: CleanupReport, keep_cavities: bool) -> Mesh:
    """Every part wound outward; parts wound inward that lie inside another are hollows, dropped unless kept."""
    if mesh.volume < 0:
        mesh = mesh.flipped()
        report.turned_parts = mesh.components()[0]
    count, labels, volumes, lower, upper = _parts(mesh)
    cavity, turn = np.zeros(count, dtype=bool), np.zeros(count, dtype=bool)
    for part in np.flatnonzero(volumes < 0):
        around = (lower < lower[part]).all(axis=1) & (upper > upper[part]).all(axis=1) & (volumes > -volumes[part])
        vertex = mesh.faces[labels == part][0, 0]
        enclosed = any(_encloses(mesh, labels == other, vertex) for other in np.flatnonzero(around))
        cavity[part], turn[part] = enclosed, not enclosed
    if turn.any():
        faces = np.where(turn[labels][:, None], mesh.faces[:, ::-1], mesh.faces)
        mesh = replace(mesh, faces=faces)
        report.turned_parts += int(turn.sum())
    if cavity.any() and not keep_cavities:
        _report_dropped(report, "cavity", cavity, labels, volumes, lower, upper)
        mesh = mesh.select_faces(~cavity[labels])
    return mesh


def _encloses(mesh: Mesh, faces: np.ndarray, vertex: int) -> bool:
    """Whether the closed part made of `faces` (mask) winds around a vertex of another part."""
    # Generalised winding number: the solid angle of every face, van Oosterom and Strackee 1983.
    a, b, c = np.moveaxis(mesh.vertices[mesh.faces[faces]].astype(np.float64) - mesh.vertices[vertex], 1, 0)
    la, lb, lc = (np.linalg.norm(v, axis=1) for v in (a, b, c))
    numerator = np.einsum("fi,fi->f", a, np.cross(b, c))
    dots = [np.einsum("fi,fi->f", u, v) for u, v in ((a, b), (b, c), (c, a))]
    denominator = la * lb * lc + dots[0] * lc + dots[1] * la + dots[2] * lb
    return float(np.arctan2(numerator, denominator).sum()) > np.pi  # half of the full 4 pi, halved


def _drop_floaters(mesh: Mesh, floaters: float, report: CleanupReport) -> Mesh:
    count, labels, volumes, lower, upper = _parts(mesh)
    sizes = np.linalg.norm(upper - lower, axis=1)
    small = sizes < floaters * sizes.max()
    if not small.any():
        return mesh
    _report_dropped(report, "floater", small, labels, volumes, lower, upper)
    return mesh.select_faces(~small[labels])


def _report_dropped(report, reason, dropped, labels, volumes, lower, upper) -> None:
    sizes = np.linalg.norm(upper - lower, axis=1)
    face_counts = np.bincount(labels, minlength=len(dropped))
    parts = [
        DroppedPart(int(face_counts[part]), float(sizes[part] / sizes.max()), float(volumes[part]), reason)
        for part in np.flatnonzero(dropped)
    ]
    report.dropped.extend(parts)
    logger.info(
        "dropped %d %s part(s) of %d, %d faces, the largest %.1f %% of the object's size",
        len(parts), reason, len(dropped), sum(p.faces for p in parts), 100 * max(p.size for p in parts),
    )  # fmt: skip


def taubin_smooth(mesh: Mesh, iterations: int) -> Mesh:
    """Vertices moved towards their neighbours' mean and back out (Taubin 1995): bumps go, the volume stays."""
    edges = mesh.directed_edges()
    count = len(mesh.vertices)
    adjacency = coo_matrix((np.ones(len(edges)), (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()
    degree = np.maximum(np.asarray(adjacency.sum(axis=1)), 1.0)  # [V, 1]
    vertices = mesh.vertices.astype(np.float64)
    for _ in range(iterations):
        for factor in (_TAUBIN_SHRINK, _TAUBIN_GROW):
            vertices = vertices + factor * (adjacency @ vertices / degree - vertices)
    return Mesh(vertices.astype(mesh.vertices.dtype), mesh.faces)


def decimate(mesh: Mesh, faces: int) -> tuple[Mesh, str]:
    """At most about `faces` faces by quadric edge collapse, and how it went; closed if `mesh` is.

    A result that cannot be closed again, has lost a part or changed the volume by more than 5 % (or the surface by 4 %
    of an edge) is not taken: gentler settings follow, then twice as many faces, and in the end the mesh as it was.
    """
    import fast_simplification

    if faces < 4:
        raise UserError(f"mesh.faces={faces} must be 0 or at least 4, the faces of a tetrahedron")
    parts, _ = mesh.components()
    found, closed, area = len(mesh.faces), mesh.is_closed(), mesh.area
    target = faces
    while target < found:
        # Flat faces cut off curves: by a share of edge^2 / radius; allowed is what that takes from bumpy objects.
        edge = np.sqrt(4 / np.sqrt(3) * area / target)
        allowed = max(_VOLUME_CHANGE * abs(mesh.volume), _SURFACE_SHIFT * edge * area)
        for aggressiveness in _AGGRESSIVENESS:
            points, triangles = fast_simplification.simplify(
                mesh.vertices.astype(np.float64), mesh.faces, target_count=target, agg=aggressiveness
            )[:2]
            if not len(triangles):
                continue
            candidate = _largest_parts(repair(Mesh(np.asarray(points), np.asarray(triangles))), parts)
            if (
                candidate.is_closed() >= closed
                and candidate.components()[0] == parts
                and len(candidate.faces) <= 1.1 * target
                and abs(candidate.volume - mesh.volume) <= allowed
            ):
                return candidate, f"{found} to {len(candidate.faces)} faces"
        target *= 2
    logger.warning("decimation from %d to %d faces would break the mesh; it is kept as it was", found, faces)
    return mesh, f"kept at {found} faces: {faces} would break the mesh"


def _largest_parts(mesh: Mesh, wanted: int) -> Mesh:
    """The `wanted` parts of largest volume: threads that the decimator pinched off leave crumbs."""
    count, labels, volumes, _, _ = _parts(mesh)
    if count <= wanted:
        return mesh
    kept = np.zeros(count, dtype=bool)
    kept[np.argsort(-np.abs(volumes), kind="stable")[:wanted]] = True
    return mesh.select_faces(kept[labels])


def vertex_normals(mesh: Mesh) -> np.ndarray:
    """Unit normals [V, 3], float32: face normals weighted by the angle at the vertex (Thuermer and Wuethrich 1998)."""
    corners = mesh.corners
    edges = np.roll(corners, -1, axis=1) - corners  # edge k: corner k to k + 1
    edges /= np.maximum(np.linalg.norm(edges, axis=2, keepdims=True), 1e-300)
    cosines = -np.einsum("fki,fki->fk", edges, np.roll(edges, 1, axis=1))
    angles = np.arccos(np.clip(cosines, -1.0, 1.0))  # [F, 3]
    normals = mesh.face_normals
    normals /= np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), 1e-300)
    flat = mesh.faces.reshape(-1)
    weighted = (normals[:, None, :] * angles[:, :, None]).reshape(-1, 3)
    summed = np.stack([np.bincount(flat, weights=w, minlength=len(mesh.vertices)) for w in weighted.T], axis=1)
    lengths = np.linalg.norm(summed, axis=1, keepdims=True)
    # Where the faces cancel out (a fold) any direction is as good; files want one of length 1.
    return np.where(lengths > 1e-12, summed / np.maximum(lengths, 1e-300), [0.0, 0.0, 1.0]).astype(np.float32)


def with_normals(mesh: Mesh) -> Mesh:
    """The mesh with float32 vertices and unit vertex normals, its own where it has them."""
    normals = vertex_normals(mesh) if mesh.vertex_normals is None else mesh.vertex_normals
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    normals = np.where(lengths > 0, normals / np.where(lengths > 0, lengths, 1.0), (0.0, 1.0, 0.0))
    return Mesh(mesh.vertices.astype(np.float32), mesh.faces, normals.astype(np.float32))
