"""Texture baking: the albedo picture of a mesh from what its Gaussians look like.

The Gaussians are drawn from views all around; each texel takes the blend of the views that see it straightest. Then
iterative back-projection (M. Irani, S. Peleg, "Improving resolution by image registration", 1991) makes the picture
unbiased: draw the textured mesh in the same views, carry what differs back to the texels, add it, repeat.
"""

import logging
import math
from dataclasses import replace

import numpy as np
import torch
from scipy.ndimage import distance_transform_edt, gaussian_filter, maximum_filter, minimum_filter
from scipy.sparse import coo_matrix
from torch import Tensor

from cameras import Cameras
from config import TextureConfig
from gaussians import Gaussians
from gs_renderer import render
from mesh_extract.backproject import SurfaceViews, backproject
from mesh_extract.cleanup import with_normals
from mesh_extract.fill import nearest_texels, spread_over_surface
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_mesh, rasterize_uvs, render_texture
from mesh_extract.rig import cameras_around, view_weights
from mesh_extract.textured import TexturedMesh, to_uint8
from mesh_extract.uv import unwrap

logger = logging.getLogger(__name__)

GUTTER_PX = 4  # texels around each chart that belong to it alone
SHARPNESS = 1.0  # exponent of the viewing angle's cosine; 1 weighs by area in a picture: least squares over pixels
SOLID_ALPHA = (0.5, 0.95)  # below, a pixel is mostly background and tells no colour; above, it counts in full
EDGE_PX, EDGE_STEP_PX = 5, 16.0  # a window in which the depth spans more than a slope of 70 degrees is an outline
EDGE_CONFIDENCE = 0.05  # there; not 0, since thin parts are all outline
SEEN_WEIGHT = 0.02  # weight at which a texel is half what was seen, half what its surroundings look like
STEP_WEIGHT = 0.1  # weight at which a texel takes half of a correction: what one outline says alone stays small
# The source picture is taken apart into broad colours and detail (multi-band blending, Burt and Adelson 1983). Broad
# colours stay half those of all views and fade over a wider range: no seam, and shading hardly turns with the object.
BROAD_SIGMA = 0.03  # standard deviation of the blur that parts the two, as a share of the picture
BROAD_SHARE, BROAD_COSINES = 0.5, (0.3, 1.0)
DETAIL_COSINES = (0.35, 0.7)  # at which detail begins to count, and counts in full: seen obliquely it smears
SAFE_SHARES = (0.004, 0.012)  # distance from outlines, as a share of the picture, at which both begin and count in full
NORMAL_ROUNDS = 10  # of averaging over neighbours: bumps must not tear holes into what the picture shows


def bake_texture(
    mesh: Mesh,
    gaussians: Gaussians,
    config: TextureConfig,
    reference: tuple[Tensor, Cameras] | None = None,
    elevation_deg: float = 0.0,
) -> TexturedMesh:
    """Unwrap a mesh and paint it with the look of the Gaussians it was made from.

    Args:
        mesh: closed or not, world units.
        gaussians: drawn in float32; those with a value that is not finite are left out.
        reference: the source picture [H, W, 4] (straight RGB and alpha, in [0, 1]) and its one camera: what it sees
            keeps its detail, unless `config.reference` is false.
        elevation_deg: of the picture's camera; the Gaussians count as they look from about there.
    Raises:
        ValueError: `reference` does not fit, or a vertex is not finite.
    """
    mesh = with_normals(mesh)
    gaussians = _finite(gaussians.detach().to(torch.float32))
    uvs, uv_faces = unwrap(mesh, config.size, GUTTER_PX, config.unwrap)
    views = view_gaussians(mesh, gaussians, cameras_around(mesh.vertices, config.render_size, elevation_deg))
    views = replace(views, confidence=views.confidence * view_weights()[:, None, None])
    source = view_picture(mesh, *reference) if reference is not None and config.reference else None
    points, point_colors = _numpy(gaussians.means), _numpy(gaussians.rgb)
    return paint(mesh, uvs, uv_faces, views, config, source, points, point_colors)


def paint(
    mesh: Mesh,
    uvs: np.ndarray,
    uv_faces: np.ndarray,
    views: SurfaceViews,
    config: TextureConfig,
    source: SurfaceViews | None = None,
    points: np.ndarray | None = None,
    point_colors: np.ndarray | None = None,
) -> TexturedMesh:
    """Texture an unwrapped mesh from pictures of it; `points` [N, 3] colour the parts that no picture shows."""
    size = config.size
    face_ids, barycentrics = rasterize_uvs(uvs, uv_faces, size)
    valid = face_ids >= 0
    if not valid.any():  # no face reaches a texel's centre
        return TexturedMesh(mesh, uvs, uv_faces, np.full((size, size, 3), 128, np.uint8))
    corners, barycentrics = mesh.faces[face_ids[valid]], barycentrics[valid]  # [T, 3], [T, 3]
    positions = _interpolate(mesh.vertices, corners, barycentrics)
    normals = _unit(_interpolate(mesh.vertex_normals, corners, barycentrics))
    nearest = nearest_texels(valid)

    colors, weights = backproject(positions, normals, views, SHARPNESS)
    if points is None or point_colors is None:
        points, point_colors = np.zeros((0, 3)), np.zeros((0, 3))
    vertex_colors = _vertex_means(mesh, corners, barycentrics, colors, weights)
    spread = spread_over_surface(mesh, *vertex_colors, points, point_colors)
    colors += SEEN_WEIGHT / (weights + SEEN_WEIGHT)[:, None] * (_interpolate(spread, corners, barycentrics) - colors)
    for number in range(config.passes):
        residual, rms = _residual(mesh, uvs, uv_faces, colors[nearest], views)
        logger.debug("texture pass %d: rms difference %.4f", number + 1, rms)
        step, weights = backproject(positions, normals, residual, SHARPNESS)
        colors += (weights / (weights + STEP_WEIGHT))[:, None] * step
        np.clip(colors, 0.0, 1.0, out=colors)
    if source is not None:
        residual, _ = _residual(mesh, uvs, uv_faces, colors[nearest], source)
        normals = _unit(_interpolate(_broad_normals(mesh), corners, barycentrics))
        broad, _ = backproject(positions, normals, _blurred(residual), 1.0)
        seen, weights = backproject(positions, normals, source, 1.0)  # weights: cosine times confidence
        share = BROAD_SHARE * _ramp(weights, *BROAD_COSINES)[:, None]
        colors += share * broad + _ramp(weights, *DETAIL_COSINES)[:, None] * (seen - colors - broad)
        np.clip(colors, 0.0, 1.0, out=colors)
    assert np.isfinite(colors).all()
    return TexturedMesh(mesh, uvs, uv_faces, to_uint8(colors)[nearest])


@torch.no_grad()
def view_gaussians(mesh: Mesh, gaussians: Gaussians, cameras: Cameras) -> SurfaceViews:
    """Draw the Gaussians: their own colours, freed of the background, which half-covered pixels would mix in."""
    drawn = render(gaussians, cameras.to(gaussians.means.device), background=(0.0, 0.0, 0.0))
    premultiplied, alpha = _numpy(drawn.rgb), _numpy(drawn.alpha)
    confidence = _ramp(alpha, *SOLID_ALPHA)
    colors = premultiplied / np.maximum(alpha, SOLID_ALPHA[0])[..., None]
    finite = np.isfinite(colors).all(axis=-1) & np.isfinite(confidence)
    if not finite.all():
        logger.warning("%d pixels of the Gaussians' views are not finite; left out", np.count_nonzero(~finite))
        colors[~finite], confidence[~finite] = 0.0, 0.0
    depth = rasterize_mesh(mesh, cameras).depth
    confidence[_outlines(depth, cameras)] *= np.float32(EDGE_CONFIDENCE)
    return SurfaceViews(cameras, np.clip(colors, 0.0, 1.0), confidence, depth)


def view_picture(mesh: Mesh, rgba: Tensor, camera: Cameras) -> SurfaceViews:
    """The source picture as a view; near outlines, where cut-outs and the mesh err, it does not count."""
    if rgba.shape != (camera.height, camera.width, 4) or len(camera) != 1:
        expected = f"[{camera.height}, {camera.width}, 4] with one camera"
        raise ValueError(f"reference must be {expected}, got {list(rgba.shape)} with {len(camera)}")
    picture = _numpy(rgba)
    colors = np.ascontiguousarray(picture[None, ..., :3])
    depth = rasterize_mesh(mesh, camera).depth
    safe = (picture[..., 3] >= SOLID_ALPHA[1]) & (depth[0] > 0) & ~_outlines(depth, camera)[0]
    distance = distance_transform_edt(np.pad(safe, 1))[1:-1, 1:-1] / camera.width
    return SurfaceViews(camera, colors, _ramp(distance, *SAFE_SHARES)[None], depth)


def _residual(
    mesh: Mesh, uvs: np.ndarray, uv_faces: np.ndarray, texture: np.ndarray, views: SurfaceViews
) -> tuple[SurfaceViews, float]:
    """What the views show minus what the textured mesh shows in them, and its root mean square where both are solid."""
    drawn = render_texture(mesh, uvs, uv_faces, texture, views.cameras, background=(0.0, 0.0, 0.0))
    covered = drawn.alpha.numpy() >= 1.0  # a pixel on the outline mixes in the background
    confidence = np.where(covered, views.confidence, np.float32(0.0))
    difference = views.colors - drawn.rgb.numpy()
    weight = max(float(confidence.sum(dtype=np.float64)), 1e-12)
    rms = math.sqrt(float((confidence[..., None] * difference**2).sum(dtype=np.float64)) / (3 * weight))
    return SurfaceViews(views.cameras, difference, confidence, views.depth), rms


def _blurred(view: SurfaceViews) -> SurfaceViews:
    """One view with colours blurred over the pixels that count."""
    sigma = BROAD_SIGMA * view.cameras.width
    weights = view.confidence[0]
    total = gaussian_filter(weights, sigma, mode="constant")
    blurred = gaussian_filter(view.colors[0] * weights[..., None], (sigma, sigma, 0), mode="constant")
    blurred /= np.maximum(total, np.float32(1e-6))[..., None]
    return replace(view, colors=np.ascontiguousarray(blurred[None]))


def _outlines(depth: np.ndarray, cameras: Cameras) -> np.ndarray:
    """Pixels near a jump of the depth [C, H, W] or the object's border, where soft splats show what lies behind."""
    window = (1, EDGE_PX, EDGE_PX)
    span = maximum_filter(depth, window) - minimum_filter(depth, window)
    focal = cameras.Ks[:, 0, 0].cpu().numpy()[:, None, None]
    return span > EDGE_STEP_PX * depth / focal


def _broad_normals(mesh: Mesh) -> np.ndarray:
    """Vertex normals [V, 3] averaged over neighbours again and again."""
    edges, count = mesh.directed_edges(), len(mesh.vertices)
    around = coo_matrix((np.ones(len(edges), np.float32), (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()
    normals = mesh.vertex_normals
    for _ in range(NORMAL_ROUNDS):
        normals = _unit(normals + around @ normals)
    return normals


def _unit(vectors: np.ndarray) -> np.ndarray:
    """Vectors [T, 3] of length one."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), np.float32(1e-12))


def _vertex_means(
    mesh: Mesh, corners: np.ndarray, barycentrics: np.ndarray, colors: np.ndarray, weights: np.ndarray
) -> tuple[np.ndarray, np.ndarray]:
    """Mean colours [V, 3] of the texels around each vertex that were seen, and their weights [V], 0 if none was."""
    shares = (barycentrics * np.where(weights > SEEN_WEIGHT, weights, 0.0)[:, None]).reshape(-1)
    index, count = corners.reshape(-1), len(mesh.vertices)
    totals = np.bincount(index, shares, count)
    sums = [np.bincount(index, shares * np.repeat(colors[:, k], 3), count) for k in range(3)]
    return np.stack(sums, axis=1) / np.where(totals > 0, totals, 1.0)[:, None], totals


def _interpolate(values: np.ndarray, corners: np.ndarray, barycentrics: np.ndarray) -> np.ndarray:
    """Values [V, 3] at points given by corner indices [T, 3] and barycentrics [T, 3]; float32 [T, 3]."""
    values = values.astype(np.float32)
    result = values[corners[:, 0]] * barycentrics[:, :1]
    result += values[corners[:, 1]] * barycentrics[:, 1:2]
    result += values[corners[:, 2]] * barycentrics[:, 2:]
    return result


def _ramp(values: np.ndarray, low: float, high: float) -> np.ndarray:
    """0 at `low`, 1 at `high`, smooth between; float32."""
    t = np.clip((values - low) / (high - low), 0.0, 1.0)
    return (t * t * (3.0 - 2.0 * t)).astype(np.float32)


def _finite(gaussians: Gaussians) -> Gaussians:
    """The Gaussians all of whose values are finite."""
    if len(gaussians) == 0:
        return gaussians
    checks = [torch.isfinite(value.reshape(len(gaussians), -1)).all(dim=1) for value in gaussians.tensors().values()]
    finite = torch.stack(checks).all(dim=0)
    if finite.all():
        return gaussians
    logger.warning("%d Gaussians with values that are not finite are left out of the texture", int((~finite).sum()))
    return gaussians[finite]


def _numpy(tensor: Tensor) -> np.ndarray:
    """Contiguous float32 on the CPU."""
    return np.ascontiguousarray(tensor.detach().cpu().float().numpy())
