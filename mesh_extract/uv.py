"""UV unwrapping: every face gets its own place in the unit square, with room between the charts for gutters."""

import logging
import subprocess
import sys
from pathlib import Path

import numpy as np

from errors import UserError
from mesh_extract.atlas import find_overlaps, simple_atlas
from mesh_extract.cleanup import with_normals
from mesh_extract.mesh import Mesh
from profiling import profiled
from registry import lookup

logger = logging.getLogger(__name__)

_CHILD = Path(__file__).with_name("unwrap_child.py")
_OVERLAP_LIMIT = 1e-3  # share of texels in two faces at once above which an atlas is refused; smooth meshes measure 0
_COLLAPSED_LIMIT = 1e-2  # share of faces with an area in space and none in the atlas above which it is refused
# Of `smoothness`, below which charts are packed by their boxes, not their shapes: noise has a thousand charts, whose
# shapes take 1.9 s more and gain 7 % of the texels. Noise measures 0.874; objects 0.948 (bark, wheels) to 0.99.
_NOISE_BELOW = 0.92


class UnwrapFailed(UserError):
    """The unwrapper that was asked for gave no usable atlas; the message says why."""


@profiled
def unwrap(
    mesh: Mesh, size: int = 1024, padding: int = 4, method: str = "auto", time_limit_s: float | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """Lay all faces into the unit square, without overlaps.

    Args:
        mesh: finite vertices; degenerate faces are allowed and get a place without area.
        size: side in texels of the texture that `padding` is meant for.
        padding: texels left free around each chart at that size.
        method: a name in UNWRAPPERS; "auto" takes uvunwrap and, where that crashes, hangs or draws faces over each
            other, the simple atlas of this project, which always succeeds.
        time_limit_s: seconds until uvunwrap is given up; None: 20 and 1 for every 2000 faces, where 20,000 smooth ones
            take 0.5 and as many noisy ones 3.
    Returns:
        (uvs [T, 2] float32 in [0, 1], uv_faces [F, 3] int32); T may be smaller or larger than the number of vertices.
    Raises:
        ValueError: a vertex is not finite.
        UserError: an unknown method.
    """
    if not np.isfinite(mesh.vertices).all():
        raise ValueError("mesh.vertices must be finite")
    unwrapper = lookup(UNWRAPPERS, method, "texture.unwrap")
    if len(mesh.faces) == 0:
        return np.zeros((0, 2), np.float32), np.zeros((0, 3), np.int32)
    if time_limit_s is None:
        time_limit_s = 20.0 + len(mesh.faces) / 2000.0
    return unwrapper(mesh, size, padding, time_limit_s)


def unwrap_external(mesh: Mesh, size: int, padding: int, time_limit_s: float) -> tuple[np.ndarray, np.ndarray]:
    """uvunwrap (angle-bounded charts, shape packing) in a child process with a time limit.

    Raises:
        UnwrapFailed: it is not installed, crashed, took too long, or its atlas is not usable.
    """
    header = np.array([len(mesh.vertices), len(mesh.faces), size, padding], np.int64)
    message = header.tobytes() + mesh.vertices.astype(np.float32).tobytes() + mesh.faces.astype(np.uint32).tobytes()
    # -P keeps this folder off the child's search path. Not multiprocessing: spawn would import the whole app again.
    command = [sys.executable, "-P", str(_CHILD), "fast" if smoothness(mesh) < _NOISE_BELOW else "shape"]
    try:
        child = subprocess.run(command, input=message, capture_output=True, timeout=time_limit_s, check=False)
    except subprocess.TimeoutExpired as error:
        raise UnwrapFailed(f"uvunwrap took more than {time_limit_s:g} s") from error
    except OSError as error:
        raise UnwrapFailed(f"cannot start {sys.executable}: {error.strerror}") from error
    if child.returncode != 0 or len(child.stdout) < 32:
        lines = child.stderr.decode(errors="replace").strip().splitlines() or ["no message"]
        raise UnwrapFailed(f"uvunwrap ended with status {child.returncode}: {lines[-1]}")
    count, width, height, lowest_page = np.frombuffer(child.stdout, np.int64, 4)
    if len(child.stdout) != 32 + 8 * count + 12 * len(mesh.faces) or lowest_page < 0:
        raise UnwrapFailed("uvunwrap left faces without a place")
    uvs = np.frombuffer(child.stdout, np.float32, 2 * count, 32).reshape(-1, 2)
    uv_faces = np.frombuffer(child.stdout, np.uint32, 3 * len(mesh.faces), 32 + 8 * count).reshape(-1, 3)
    # Its coordinates fill width and height of its page alike; a square picture must not stretch them.
    uvs = uvs * (np.array([width, height], np.float32) / np.float32(max(width, height)))
    uv_faces = uv_faces.astype(np.int32)
    _check_atlas(mesh, uvs, uv_faces, size)
    return uvs, uv_faces


def _unwrap_auto(mesh: Mesh, size: int, padding: int, time_limit_s: float) -> tuple[np.ndarray, np.ndarray]:
    try:
        return unwrap_external(mesh, size, padding, time_limit_s)
    except UnwrapFailed as failure:
        logger.warning("%s; using the simple atlas, which has more seams", failure)
        return simple_atlas(mesh, size, padding)


UNWRAPPERS = {
    "auto": _unwrap_auto,
    "uvunwrap": unwrap_external,
    "simple": lambda mesh, size, padding, time_limit_s: simple_atlas(mesh, size, padding),
}


def smoothness(mesh: Mesh) -> float:
    """Mean cosine between the normals of faces and of their corners, weighted by area; 1: flat."""
    normals = mesh.face_normals  # of length twice the area
    area = float(np.linalg.norm(normals, axis=1).sum())
    if area == 0.0:
        return 1.0
    at_vertices = with_normals(mesh).vertex_normals[mesh.faces]  # [F, 3 corners, 3]
    return float(np.einsum("fc,fkc->", normals, at_vertices)) / (3 * area)


def overlap_share(uvs: np.ndarray, uv_faces: np.ndarray, size: int) -> float:
    """Share of the covered texel centres of a [size, size] picture that lie inside more than one face."""
    _, covered, overlapping = find_overlaps(uvs[uv_faces].astype(np.float64) * size, size)
    return overlapping / max(covered, 1)


def _check_atlas(mesh: Mesh, uvs: np.ndarray, uv_faces: np.ndarray, size: int) -> None:
    """Raise UnwrapFailed where an atlas would spoil the texture."""
    if uv_faces.max() >= len(uvs) or not np.isfinite(uvs).all() or uvs.min() < 0 or uvs.max() > 1:
        raise UnwrapFailed("uvunwrap gave places outside the picture")
    overlap = overlap_share(uvs, uv_faces, size)
    if overlap > _OVERLAP_LIMIT:
        raise UnwrapFailed(f"uvunwrap laid faces over each other in {overlap:.1%} of the texels")
    corners = uvs[uv_faces].astype(np.float64)
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    areas = np.abs(first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0])
    solid = np.linalg.norm(mesh.face_normals, axis=1) > 1e-6 * mesh.area / len(mesh.faces)
    collapsed = np.count_nonzero(solid & (areas < 1e-12)) / max(np.count_nonzero(solid), 1)
    if collapsed > _COLLAPSED_LIMIT:
        raise UnwrapFailed(f"uvunwrap gave {collapsed:.1%} of the faces no area")
