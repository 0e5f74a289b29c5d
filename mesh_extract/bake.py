"""Texture baking: the albedo picture of a mesh from what its Gaussians look like.

The Gaussians are drawn from views all around; each texel takes the blend of the views that see it straightest. Then
iterative back-projection (M. Irani, S. Peleg, "Improving resolution by image registration", 1991) makes the picture
unbiased: draw the textured mesh in the same views, carry what differs back to the texels, add it, repeat.

Everything that goes over pixels and texels runs on the device of the Gaussians; what goes over the mesh's few thousand
vertices (its atlas, normals, the colours of unseen parts) on the CPU.
"""

import logging
import math
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import torch
from scipy.sparse import coo_matrix
from torch import Tensor
from torch.nn.functional import max_pool2d

from cameras import Cameras
from config import TextureConfig
from gaussians import Gaussians
from gs_renderer import render
from mesh_extract.backproject import SurfaceViews, backproject
from mesh_extract.blur import gaussian_blur
from mesh_extract.cleanup import with_normals
from mesh_extract.fill import nearest_marked, spread_over_surface
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_mesh
from mesh_extract.rig import as_fitted, cameras_around, view_weights
from mesh_extract.texels import SHARPNESS, Texels, follow_views, interpolate, texels_of, unit
from mesh_extract.textured import TexturedMesh
from mesh_extract.uv import unwrap
from profiling import profiled

logger = logging.getLogger(__name__)

GUTTER_PX = 4  # texels around each chart that belong to it alone
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
_FIXED_ONE = 2.0**32  # 1 in the fixed-point sums over texels: 8192^2 texels of weight 20 fit into 63 bits


@profiled
def bake_texture(
    mesh: Mesh,
    gaussians: Gaussians,
    config: TextureConfig,
    reference: tuple[Tensor, Cameras] | None = None,
    elevation_deg: float = 0.0,
    pixel: float = 0.0,
) -> TexturedMesh:
    """Unwrap a mesh and paint it with the look of the Gaussians it was made from.

    Args:
        mesh: closed or not, world units.
        gaussians: drawn in float32, on their device, where the texture is made too; those with a value that is not
            finite are left out.
        reference: the source picture [H, W, 4] (straight RGB and alpha, in [0, 1]) and its one camera: what it sees
            keeps its detail, unless `config.reference` is false.
        elevation_deg: of the picture's camera; the Gaussians count as they look from about there.
        pixel: side, in world units, of the pixels that the Gaussians were fitted in: as wide as there they are drawn;
            0: not known.
    Raises:
        ValueError: `reference` does not fit, or a vertex is not finite.
    """
    mesh = with_normals(mesh)
    gaussians = _finite(gaussians.detach().to(torch.float32))
    with ThreadPoolExecutor(max_workers=1) as pool:  # unwrapping has a process of its own: draw meanwhile
        atlas = pool.submit(unwrap, mesh, config.size, GUTTER_PX, config.unwrap)
        cameras = cameras_around(mesh.vertices, config.render_size, elevation_deg)
        views = view_gaussians(mesh, gaussians, cameras, pixel)
        weights = torch.from_numpy(view_weights()).to(views.device)
        views = replace(views, confidence=views.confidence * weights[:, None, None])
        source = None
        if reference is not None and config.reference:
            source = view_picture(mesh, *reference, gaussians.means.device)
        uvs, uv_faces = atlas.result()
    points, point_colors = gaussians.means.cpu().numpy(), gaussians.rgb.cpu().numpy()
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
    size, device = config.size, views.device
    texels = texels_of(mesh, uvs, uv_faces, size, device)
    if texels is None:
        return TexturedMesh(mesh, uvs, uv_faces, np.full((size, size, 3), 128, np.uint8))
    colors, weights = backproject(texels.positions, texels.normals, views, SHARPNESS)
    if points is None or point_colors is None:
        points, point_colors = np.zeros((0, 3)), np.zeros((0, 3))
    corners, barycentrics = texels.corners, texels.barycentrics
    vertex_colors = _vertex_means(len(mesh.vertices), corners, barycentrics, colors, weights)
    spread = spread_over_surface(mesh, *vertex_colors, points, point_colors)
    unseen = (SEEN_WEIGHT / (weights + SEEN_WEIGHT))[:, None]
    colors = colors + unseen * (interpolate(spread, corners, barycentrics) - colors)
    for number in range(config.passes):
        if logger.isEnabledFor(logging.DEBUG):
            logger.debug("texture pass %d: rms difference %.4f", number + 1, _rms(texels.residual(colors, views)))
        colors = follow_views(texels, colors, [views], STEP_WEIGHT)
    if source is not None:
        colors = follow_source(texels, colors, source)
    return texels.textured(colors)


def follow_source(texels: Texels, colors: Tensor, source: SurfaceViews) -> Tensor:
    """Colours [T, 3] with the source picture's detail where it sees the surface well, and half of its broad colours."""
    residual = texels.residual(colors, source)
    normals = unit(interpolate(_broad_normals(texels.mesh), texels.corners, texels.barycentrics))
    broad, _ = backproject(texels.positions, normals, _blurred(residual), 1.0)
    seen, weights = backproject(texels.positions, normals, source, 1.0)  # weights: cosine times confidence
    share = BROAD_SHARE * _ramp(weights, *BROAD_COSINES)[:, None]
    colors = colors + share * broad + _ramp(weights, *DETAIL_COSINES)[:, None] * (seen - colors - broad)
    return colors.clamp_(0.0, 1.0)


def detail_shares(texels: Texels, source: SurfaceViews) -> Tensor:
    """How far each texel has its detail from the source picture [T], in [0, 1], after `follow_source`."""
    normals = unit(interpolate(_broad_normals(texels.mesh), texels.corners, texels.barycentrics))
    return _ramp(backproject(texels.positions, normals, source, 1.0)[1], *DETAIL_COSINES)


@profiled
@torch.no_grad()
def view_gaussians(mesh: Mesh, gaussians: Gaussians, cameras: Cameras, pixel: float = 0.0) -> SurfaceViews:
    """Draw the Gaussians: their own colours, freed of the background, which half-covered pixels would mix in."""
    device = gaussians.means.device
    drawn = render(as_fitted(gaussians, cameras, pixel), cameras.to(device), background=(0.0, 0.0, 0.0))
    confidence = solid(drawn.alpha)
    colors = drawn.rgb / drawn.alpha.clamp_min(SOLID_ALPHA[0])[..., None]
    broken = ~(torch.isfinite(colors).all(dim=-1) & torch.isfinite(confidence))
    if broken.any():
        logger.warning("%d pixels of the Gaussians' views are not finite; left out", int(broken.sum()))
        colors, confidence = colors.masked_fill(broken[..., None], 0.0), confidence.masked_fill(broken, 0.0)
    return surface_views(mesh, cameras, colors, confidence)


def surface_views(mesh: Mesh, cameras: Cameras, colors: Tensor, confidence: Tensor) -> SurfaceViews:
    """Pictures of a mesh as views of it: they count little near outlines."""
    depth = rasterize_mesh(mesh, cameras, device=colors.device).depth
    confidence = torch.where(_outlines(depth, cameras), confidence * EDGE_CONFIDENCE, confidence)
    return SurfaceViews(cameras, colors.clamp(0.0, 1.0).contiguous(), confidence.contiguous(), depth)


def view_picture(mesh: Mesh, rgba: Tensor, camera: Cameras, device: torch.device) -> SurfaceViews:
    """The source picture as a view; near outlines, where cut-outs and the mesh err, it does not count."""
    if rgba.shape != (camera.height, camera.width, 4) or len(camera) != 1:
        expected = f"[{camera.height}, {camera.width}, 4] with one camera"
        raise ValueError(f"reference must be {expected}, got {list(rgba.shape)} with {len(camera)}")
    picture = rgba.detach().to(device).float()
    depth = rasterize_mesh(mesh, camera, device=device).depth
    safe = (picture[..., 3] >= SOLID_ALPHA[1]) & (depth[0] > 0) & ~_outlines(depth, camera)[0]
    confidence = _ramp(_distance_to_false(safe) / camera.width, *SAFE_SHARES)
    return SurfaceViews(camera, picture[None, ..., :3].contiguous(), confidence[None].contiguous(), depth)


def solid(alpha: Tensor) -> Tensor:
    """How much a pixel of this coverage tells of a colour: 0 if it is mostly background."""
    return _ramp(alpha, *SOLID_ALPHA)


def _rms(residual: SurfaceViews) -> float:
    """Root mean square of a residual, by its confidence."""
    weights = residual.confidence.double()
    return math.sqrt(float((weights[..., None] * residual.colors**2).sum() / (3 * weights.sum().clamp_min(1e-12))))


def _blurred(view: SurfaceViews) -> SurfaceViews:
    """One view with colours blurred over the pixels that count."""
    sigma = BROAD_SIGMA * view.cameras.width
    weights = view.confidence[0]
    weighted = torch.cat([view.colors[0] * weights[..., None], weights[..., None]], dim=-1)  # [H, W, 4]
    blurred = gaussian_blur(weighted, sigma, (0, 1), truncate=4.0)
    return replace(view, colors=(blurred[..., :3] / blurred[..., 3:].clamp_min(1e-6))[None].contiguous())


def _outlines(depth: Tensor, cameras: Cameras) -> Tensor:
    """Pixels near a jump of the depth [C, H, W] or the object's border, where soft splats show what lies behind."""
    largest, negated_least = (max_pool2d(values, EDGE_PX, 1, EDGE_PX // 2) for values in (depth, -depth))
    focal = cameras.Ks[:, 0, 0].to(depth.device)[:, None, None]
    return largest + negated_least > EDGE_STEP_PX * depth / focal


def _distance_to_false(mask: Tensor) -> Tensor:
    """Distance in pixels of every pixel of `mask` [H, W] to the nearest one where it is false, or beyond the border."""
    height, width = mask.shape
    beyond = torch.nn.functional.pad(~mask, (1, 1, 1, 1), value=True)
    nearest = nearest_marked(beyond)[1:-1, 1:-1]
    y, x = torch.arange(1, height + 1, device=mask.device), torch.arange(1, width + 1, device=mask.device)
    rows, columns = nearest // (width + 2) - y[:, None], nearest % (width + 2) - x
    return (rows * rows + columns * columns).double().sqrt()


def _broad_normals(mesh: Mesh) -> np.ndarray:
    """Vertex normals [V, 3] averaged over neighbours again and again."""
    edges, count = mesh.directed_edges(), len(mesh.vertices)
    around = coo_matrix((np.ones(len(edges), np.float32), (edges[:, 0], edges[:, 1])), shape=(count, count)).tocsr()
    normals = mesh.vertex_normals
    for _ in range(NORMAL_ROUNDS):
        normals = normals + around @ normals
        normals = normals / np.maximum(np.linalg.norm(normals, axis=1, keepdims=True), np.float32(1e-12))
    return normals


def _vertex_means(
    count: int, corners: Tensor, barycentrics: Tensor, colors: Tensor, weights: Tensor
) -> tuple[np.ndarray, np.ndarray]:
    """Mean colours [V, 3] of the texels around each vertex that were seen, and their weights [V], 0 if none was."""
    shares = barycentrics * torch.where(weights > SEEN_WEIGHT, weights, 0.0)[:, None]  # [T, 3 corners]
    values = torch.cat([shares[..., None] * colors[:, None], shares[..., None]], dim=-1).reshape(-1, 4)
    # Summed in fixed point: the same whatever the order, in which a GPU's threads come as they like.
    fixed = (values * _FIXED_ONE).round_().long()
    sums = torch.zeros((count, 4), dtype=torch.int64, device=colors.device)
    sums = sums.index_add_(0, corners.reshape(-1), fixed).double().cpu().numpy() / _FIXED_ONE
    return sums[:, :3] / np.where(sums[:, 3:] > 0, sums[:, 3:], 1.0), sums[:, 3]


def _ramp(values: Tensor, low: float, high: float) -> Tensor:
    """0 at `low`, 1 at `high`, smooth between; float32."""
    t = ((values - low) / (high - low)).clamp(0.0, 1.0)
    return (t * t * (3.0 - 2.0 * t)).float()


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
