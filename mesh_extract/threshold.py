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
from mesh_extract.silhouettes import largest_along_rays
from profiling import profiled

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
_FIXED_ONE = 2.0**32  # 1 in the fixed-point sums of coverage
# The object is drawn inside a ball of this radius around the origin, which RADIUS and the field of view just hold.
_BALL = 0.8


@profiled
def auto_threshold(
    gaussians: Gaussians,
    density: Tensor,
    grid: GridSpec,
    render_alpha: Callable[[Gaussians, Cameras], Tensor] | None = None,
    pixel: float = 0.0,
) -> float:
    """The threshold whose silhouettes match the coverage of the rendered Gaussians best.

    From each of 12 views around the grid's middle, a pixel lies in the silhouette of {density >= iso} where the largest
    density along its ray is at least iso: one march gives the silhouettes of every threshold. Of thresholds from 0.02
    to 2 the one with the least sum((silhouette - alpha)^2) over all pixels is taken: it neither fattens nor thins,
    since a pixel is better inside if alpha > 0.5.

    Args:
        gaussians: what to match, world units.
        density: [X, Y, Z], their field on `grid` (smoothed, if the mesh is to be made from that); the work is done on
            its device.
        grid: the grid of `density`.
        render_alpha: draws coverage [C, H, W] in [0, 1]; None: gs_renderer.render.
        pixel: side, in world units, of the pixels that the Gaussians were fitted in; 0: not known.
    Raises:
        UserError: the field is not finite or has no surface, or the Gaussians draw nothing.
    """
    field = density.detach().float().contiguous()
    peak = float(field.max())
    if peak <= 0:
        raise UserError("mesh.iso=auto: the density is 0 everywhere: the Gaussians are too transparent or too small")
    if not torch.isfinite(field).all():
        check_surface(field.cpu().numpy(), peak)  # says how many values are not
    highest = min(HIGHEST, peak)
    lowest = min(LOWEST, 0.5 * highest)
    candidates = np.geomspace(lowest, highest, _CANDIDATES)[:-1]

    cameras = orbit_cameras(_AZIMUTHS_DEG, _ELEVATIONS_DEG, width=_SIZE_PX, height=_SIZE_PX)
    centre = (np.asarray(grid.lower) + np.asarray(grid.upper)) / 2
    zoom = _BALL / (np.linalg.norm(np.asarray(grid.upper) - np.asarray(grid.lower)) / 2)
    moved = _moved(gaussians, centre, zoom)
    drawn = draw_coverage(moved, cameras, pixel * zoom) if render_alpha is None else render_alpha(moved, cameras)
    alphas = drawn.detach().to(field.device).double()
    if alphas.sum() < 1.0:
        raise UserError(
            f"mesh.iso=auto: the Gaussians draw next to nothing (the largest density is {peak:.3g}); "
            f"mesh.iso={peak / 2:.2g} would give a surface"
        )
    alphas = alphas[:, ::_EVERY_PX, ::_EVERY_PX].flatten(1)  # [C, P]
    rays = pixel_rays(cameras, grid, field.device, _EVERY_PX, centre, zoom)
    largest = largest_along_rays(field, *rays, _STEP_VOXELS, float(candidates[-1]))  # [C, P]
    inside, covered, total = _inside(largest, alphas, candidates)
    # (1 - alpha)^2 inside and alpha^2 outside: but for a constant, the sum of 1 - 2 alpha inside.
    best = int(np.argmin(inside - 2 * covered))
    iso = float(candidates[best])
    overlap = covered[best] / (inside[best] + total - covered[best])
    logger.info("silhouettes match best at a density of %.3g: they overlap to %.1f %%", iso, 100 * overlap)
    if overlap < 0.5:
        logger.warning("no threshold matches the splats: the best overlap of the silhouettes is %.0f %%", 100 * overlap)
    return iso


def _moved(gaussians: Gaussians, centre: np.ndarray, zoom: float) -> Gaussians:
    """The Gaussians with `centre` moved to the origin, then scaled by `zoom`: any scene, seen by the same cameras."""
    moved = gaussians.detach().double()
    moved = Gaussians(**{
        **moved.tensors(),
        "means": (moved.means - moved.means.new_tensor(centre)) * zoom,
        "log_scales": moved.log_scales + float(np.log(zoom)),
    })  # fmt: skip
    return moved.to(torch.float32)


def pixel_rays(
    cameras: Cameras, grid: GridSpec, device: torch.device, every: int = 1, centre: np.ndarray | float = 0.0,
    zoom: float = 1.0,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Rays through the centres of pixels, as `largest_along_rays` takes them.

    Args:
        every: so many pixels and rows on; 1: through all.
        centre, zoom: the cameras see the world moved by -centre, then scaled by zoom.
    Returns:
        Origins [C, 3] and directions [C, P, 3] in node units, float64.
    """
    views, intrinsics = cameras.viewmats.double(), cameras.Ks.double()
    # Pixel to world, up to the length: directions are turned, not moved.
    matrices = (torch.linalg.inv(intrinsics).transpose(1, 2) @ views[:, :3, :3]).to(device)[:, :, None]  # [C, 3, 1, 3]
    rows, columns = (
        torch.arange(0, size, every, dtype=torch.float64, device=device) + 0.5
        for size in (cameras.height, cameras.width)
    )
    rows, columns = rows[:, None].expand(-1, len(columns)).reshape(-1, 1), columns.repeat(len(rows))[:, None]  # [P, 1]
    directions = matrices[:, 0] * columns + matrices[:, 1] * rows + matrices[:, 2]
    x, y, z = directions.unbind(2)
    directions = directions / (x * x + y * y + z * z).sqrt()[..., None]
    origins = grid.to_nodes(cameras.centers.double().numpy() / zoom + centre)
    return torch.from_numpy(origins).to(device), directions.contiguous()


def _inside(largest: Tensor, alphas: Tensor, candidates: np.ndarray) -> tuple[np.ndarray, np.ndarray, float]:
    """Number of the pixels in {largest >= iso} and their sum of `alphas` for every iso of `candidates`; sum of all."""
    thresholds = torch.from_numpy(candidates).to(largest.device)
    passed = torch.searchsorted(thresholds, largest.double().flatten(), right=True)  # thresholds that a pixel reaches
    # Whole numbers: the same sums in whatever order a GPU's threads come.
    values = torch.stack([torch.ones_like(passed), (alphas.flatten() * _FIXED_ONE).round().long()], dim=1)
    sums = torch.zeros((len(candidates) + 1, 2), dtype=torch.int64, device=largest.device)
    sums = sums.index_add_(0, passed, values).cpu().numpy()
    inside, covered = sums[::-1].cumsum(axis=0)[::-1].T  # of the pixels that reach so many or more
    return inside[1:], covered[1:] / _FIXED_ONE, float(covered[0] / _FIXED_ONE)
