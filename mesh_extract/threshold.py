"""The density threshold at which the mesh covers what the Gaussians cover."""

import logging
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras, orbit_cameras
from errors import UserError
from gaussians import Gaussians
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface import check_surface
from mesh_extract.rig import draw_coverage

logger = logging.getLogger(__name__)

# Thresholds that are tried, as many as are listed below, evenly spaced in the logarithm.
LOWEST, HIGHEST = 0.02, 2.0
_CANDIDATES = 93  # 5 % apart
# Views that look from everywhere: a ring, one above, one below, and the two ends of the axis nearly.
_AZIMUTHS_DEG = (0, 60, 120, 180, 240, 300, 30, 150, 270, 90, 210, 330)
_ELEVATIONS_DEG = (0, 0, 0, 0, 0, 0, 35, 35, 35, -35, -35, -35)
# Drawn large, since the rasteriser widens every Gaussian by 0.3 px^2; every other pixel of a row and column is enough.
_SIZE_PX = 320
_EVERY_PX = 2
_STEP_VOXELS = 0.75
# The object is drawn inside a ball of this radius around the origin, which RADIUS and the field of view just hold.
_BALL = 0.8


def auto_threshold(
    gaussians: Gaussians,
    density: Tensor,
    grid: GridSpec,
    render_alpha: Callable[[Gaussians, Cameras], Tensor] | None = None,
) -> float:
    """The threshold whose silhouettes match the coverage of the rendered Gaussians best.

    From each of 12 views around the grid's middle, a pixel lies in the silhouette of {density >= iso} where the largest
    density along its ray is at least iso: one march gives the silhouettes of every threshold. Of thresholds from 0.02
    to 2 the one with the least sum((silhouette - alpha)^2) over all pixels is taken: it neither fattens nor thins,
    since a pixel is better inside if alpha > 0.5.

    Args:
        gaussians: what to match, world units.
        density: [X, Y, Z], their field on `grid` (smoothed, if the mesh is to be made from that).
        grid: the grid of `density`.
        render_alpha: draws coverage [C, H, W] in [0, 1]; None: gs_renderer.render.
    Raises:
        UserError: the field is not finite or has no surface, or the Gaussians draw nothing.
    """
    field = density.detach().cpu().numpy().astype(np.float32)
    if field.max() <= 0:
        raise UserError("mesh.iso=auto: the density is 0 everywhere: the Gaussians are too transparent or too small")
    check_surface(field, np.nextafter(np.float32(0), np.float32(1)))
    highest = min(HIGHEST, float(field.max()))
    lowest = min(LOWEST, 0.5 * highest)
    candidates = np.geomspace(lowest, highest, _CANDIDATES)[:-1]

    cameras = orbit_cameras(_AZIMUTHS_DEG, _ELEVATIONS_DEG, width=_SIZE_PX, height=_SIZE_PX)
    centre = (np.asarray(grid.lower) + np.asarray(grid.upper)) / 2
    zoom = _BALL / (np.linalg.norm(np.asarray(grid.upper) - np.asarray(grid.lower)) / 2)
    drawn = (render_alpha or draw_coverage)(_moved(gaussians, centre, zoom), cameras)
    alphas = drawn.detach().cpu().double().numpy()
    if alphas.sum() < 1.0:
        raise UserError(
            f"mesh.iso=auto: the Gaussians draw next to nothing (the largest density is {field.max():.3g}); "
            f"mesh.iso={field.max() / 2:.2g} would give a surface"
        )
    inside, covered = np.zeros(len(candidates)), np.zeros(len(candidates))
    for index in range(len(cameras)):
        largest = _largest_along_rays(field, grid, centre, zoom, cameras[index], candidates[-1])
        counts = _inside(largest, alphas[index, ::_EVERY_PX, ::_EVERY_PX].reshape(-1), candidates)
        inside += counts[0]
        covered += counts[1]
    # (1 - alpha)^2 inside and alpha^2 outside: but for a constant, the sum of 1 - 2 alpha inside.
    best = int(np.argmin(inside - 2 * covered))
    iso = float(candidates[best])
    overlap = covered[best] / (inside[best] + alphas[:, ::_EVERY_PX, ::_EVERY_PX].sum() - covered[best])
    logger.info("silhouettes match best at a density of %.3g: they overlap to %.1f %%", iso, 100 * overlap)
    if overlap < 0.5:
        logger.warning("no threshold matches the splats: the best overlap of the silhouettes is %.0f %%", 100 * overlap)
    return iso


def _moved(gaussians: Gaussians, centre: np.ndarray, zoom: float) -> Gaussians:
    """The Gaussians with `centre` moved to the origin, then scaled by `zoom`: any scene, seen by the same cameras."""
    moved = gaussians.detach().to("cpu").double()
    moved = Gaussians(**{
        **moved.tensors(),
        "means": (moved.means - torch.from_numpy(centre)) * zoom,
        "log_scales": moved.log_scales + float(np.log(zoom)),
    })  # fmt: skip
    return moved.to(torch.float32)


def _largest_along_rays(
    field: np.ndarray, grid: GridSpec, centre: np.ndarray, zoom: float, camera: Cameras, enough: float
) -> np.ndarray:
    """The largest value of `field` along the rays of one camera, of every other pixel of every other row [P]."""
    from mesh_extract.silhouette_numba import largest_along_rays

    view = camera.viewmats[0].double().numpy()
    intrinsics = camera.Ks[0].double().numpy()
    rows, columns = np.mgrid[0 : camera.height : _EVERY_PX, 0 : camera.width : _EVERY_PX] + 0.5
    directions = np.stack([columns, rows, np.ones_like(rows)], axis=-1).reshape(-1, 3) @ np.linalg.inv(intrinsics).T
    directions = directions @ view[:3, :3]  # camera to world
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    origin = grid.to_nodes(camera.centers[0].double().numpy() / zoom + centre)
    largest = np.zeros(len(directions), dtype=np.float32)
    largest_along_rays(field, origin, np.ascontiguousarray(directions), _STEP_VOXELS, enough, largest)
    return largest


def _inside(largest: np.ndarray, alpha: np.ndarray, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Number of the pixels in {largest >= iso}, and their sum of `alpha`, for every iso of `candidates`."""
    order = np.argsort(largest, kind="stable")
    # Sum of the alphas from each place of the sorted list to its end.
    covered = np.append(np.cumsum(alpha[order][::-1])[::-1], 0.0)
    first = np.searchsorted(largest[order], candidates, side="left")
    return len(largest) - first, covered[first]
