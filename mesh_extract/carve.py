"""The surface cut to the silhouettes of the splats, after shape from silhouettes (Laurentini 1994, "visual hull").

One threshold cannot suit all of an object: where splats are dense, a low one fattens; where they are thin, a high one
leaves holes. So the threshold is low, and what stands out beyond the splats' own outlines is cut off.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from gaussians import Gaussians
from mesh_extract.grid import GridSpec
from mesh_extract.rig import cameras_around, draw_coverage
from mesh_extract.silhouettes import largest_along_rays, least_coverage
from mesh_extract.threshold import pixel_rays
from profiling import profiled

logger = logging.getLogger(__name__)

# The threshold before carving, as a share of the one whose silhouettes match best by themselves. Low enough to close
# thin places: on one of 46 held-out objects a share of 0.65 opened a hole that 0.58 did not. High enough to take part
# where the outline is too wide: their novel views were 0.01 dB nearer to the splats' with 0.5 than with 0.35, both at
# FITTED_LEVEL 0.58. The mean distance to the true surface of eight of them was 0.0218 with either.
LOOSE_SHARE = 0.5
# The coverage at which a silhouette ends. Below one half, since the least of 26 views errs towards less. The splats'
# pictures of seven held-out objects, cut to the mesh's outline, were at 22.28 dB with 0.33, 22.33 with 0.38 and 22.35
# with 0.43; the outlines held 0.996, 0.991 and 0.985 of the splats' area.
LEVEL = 0.4
# The same where the splats are drawn at least as wide as in their fit. On 64 held-out objects (v1, 32 to 95, fitted on
# a GPU) the meshes' novel views were below the splats' by 0.37 dB with 0.5, 0.32 with 0.54, 0.30 with 0.58 and with
# 0.62, and 0.34 with 0.66; by 0.31 with the level that matches the picture, 0.53 on average, and by 0.29 halfway
# between that and 0.62. The best level of each object would have given 0.20, but hardly goes with the matched one
# (correlation 0.10): splats hedge more where there is no picture than where there is. The matched one is kept for what
# other priors make, whose splats may be wider or thinner throughout.
FITTED_LEVEL = 0.62
_SIZE_PX = 256
# To match the picture: a picture of rays, distance of samples on them, and levels, which bound the matched one.
_MATCH_PX = 192
_STEP_VOXELS = 0.5
_LEVELS = (0.4, 0.475, 0.55, 0.625, 0.7, 0.775)


@profiled
def carve(
    density: Tensor,
    iso: float,
    grid: GridSpec,
    gaussians: Gaussians,
    elevation_deg: float = 0.0,
    render_alpha: Callable[[Gaussians, Cameras], Tensor] | None = None,
    pixel: float = 0.0,
    picture: tuple[Tensor, Cameras] | None = None,
) -> Tensor:
    """Lower the density wherever one of 26 views around sees past the Gaussians, so that no surface is left there.

    {result >= iso} is {density >= iso} less what projects to coverage below a level in any view; the result is
    min(density, iso * least coverage / level), so the surface crosses grid edges where the coverage does.

    Args:
        density: [X, Y, Z] on `grid`.
        iso: threshold, as for extract_mesh.
        gaussians: whose silhouettes to keep, world units.
        elevation_deg: of the picture's camera; most views are about as high.
        render_alpha: draws coverage [C, H, W] in [0, 1]; None: gs_renderer.render.
        pixel: side, in world units, of the pixels that the Gaussians were fitted in; 0: not known. The level is
            FITTED_LEVEL where it is known and LEVEL where not.
        picture: coverage [H, W] of the picture that was fitted, and its one camera: with `pixel`, the level is halfway
            between that and the one at which the surface covers as much of that view as the picture does.
    Returns:
        A new field on the device of `density`, where the work is done; a copy of `density` where Gaussians are so faint
        that nothing would remain.
    """
    found = _cut_whole(density.detach(), iso, grid, gaussians, elevation_deg, render_alpha, pixel, picture)
    return density.detach().clone() if found is None else found[1]


@dataclass
class Silhouettes:
    """What cameras see of the Gaussians: coverage `alphas` [C, H, W]; the outline is where it is `level`."""

    cameras: Cameras
    alphas: Tensor
    level: float


def silhouettes_of(
    density: Tensor,
    iso: float,
    grid: GridSpec,
    gaussians: Gaussians,
    elevation_deg: float = 0.0,
    pixel: float = 0.0,
    picture: tuple[Tensor, Cameras] | None = None,
) -> Silhouettes | None:
    """The silhouettes to which `carve` cuts this field; None where it leaves the field as it is."""
    found = _cut_whole(density.detach(), iso, grid, gaussians, elevation_deg, None, pixel, picture)
    return None if found is None else found[0]


def cut(density: Tensor, iso: float, grid: GridSpec, silhouettes: Silhouettes) -> Tensor:
    """`carve` of a slab to the silhouettes of the whole, the same at all nodes but those of a cut-off first or last
    plane, whose neighbours it does not know."""
    nodes, positions = _around_the_inside(density, iso, grid)
    if not len(nodes):
        return density
    return _lowered(density, iso, nodes, _least(positions, silhouettes, density.device), silhouettes.level)


def matched_level(
    density: Tensor, iso: float, grid: GridSpec, nodes: Tensor, least: Tensor, alpha: Tensor, camera: Cameras
) -> float:
    """The level at which the carved field covers as much of a view as its picture does.

    Splats that are too wide all around, or too thin, are so in the view of the picture as well, and there the truth is
    known. Of few levels the areas are taken, and between them interpolated.

    Args:
        nodes [P, 3], least [P]: where to lower the density, and the least coverage there.
        alpha: [H, W] of the picture; camera: its own.
    """
    rays = pixel_rays(camera.resized(_MATCH_PX, _MATCH_PX), grid, density.device)
    areas = []
    for level in _LEVELS:
        field = _lowered(density, iso, nodes, least, level).float().contiguous()
        areas.append(int((largest_along_rays(field, *rays, _STEP_VOXELS, iso) >= iso).sum()))
    wanted = float(alpha.double().mean()) * _MATCH_PX**2
    return float(np.interp(wanted, areas[::-1], _LEVELS[::-1]))  # a higher level covers less


def _cut_whole(
    density: Tensor,
    iso: float,
    grid: GridSpec,
    gaussians: Gaussians,
    elevation_deg: float,
    render_alpha: Callable[[Gaussians, Cameras], Tensor] | None,
    pixel: float,
    picture: tuple[Tensor, Cameras] | None,
) -> tuple[Silhouettes, Tensor] | None:
    """The silhouettes, and the field cut to them; None where nothing is inside or nothing would remain."""
    nodes, positions = _around_the_inside(density, iso, grid)
    if not len(nodes):
        return None
    silhouettes = _draw(positions, gaussians, elevation_deg, render_alpha, pixel)
    least = _least(positions, silhouettes, density.device)
    if picture is not None and pixel > 0:
        silhouettes.level = (silhouettes.level + matched_level(density, iso, grid, nodes, least, *picture)) / 2
        logger.info("outlines end at a coverage of %.2f", silhouettes.level)
    carved = _lowered(density, iso, nodes, least, silhouettes.level)
    if not (carved >= iso).any():
        logger.warning("the Gaussians are too faint to be cut to their silhouettes")
        return None
    return silhouettes, carved


def _around_the_inside(density: Tensor, iso: float, grid: GridSpec) -> tuple[Tensor, Tensor]:
    """Nodes inside or beside one that is [P, 3]: a surface lies between the two, both must know the coverage; and their
    positions, float64 [P, 3]."""
    nodes = _with_neighbours(density >= iso).nonzero()
    return nodes, grid.to_world(nodes.double()).contiguous()


def _draw(
    positions: Tensor,
    gaussians: Gaussians,
    elevation_deg: float,
    render_alpha: Callable[[Gaussians, Cameras], Tensor] | None,
    pixel: float,
) -> Silhouettes:
    """What 26 cameras around the positions see of the Gaussians."""
    cameras = cameras_around(positions, _SIZE_PX, elevation_deg)
    alphas = draw_coverage(gaussians, cameras, pixel) if render_alpha is None else render_alpha(gaussians, cameras)
    return Silhouettes(cameras, alphas.detach(), FITTED_LEVEL if pixel > 0 and render_alpha is None else LEVEL)


def _least(positions: Tensor, silhouettes: Silhouettes, device: torch.device) -> Tensor:
    """The smallest coverage at positions [P, 3] that a view of them shows [P]."""
    cameras = silhouettes.cameras
    matrices = (t.to(device).double().contiguous() for t in (cameras.viewmats, cameras.Ks))
    return least_coverage(positions, *matrices, silhouettes.alphas.to(device).float().contiguous())


def _lowered(density: Tensor, iso: float, nodes: Tensor, least: Tensor, level: float) -> Tensor:
    """A copy with min(density, iso * least / level) at `nodes`."""
    carved, at = density.clone(), nodes.unbind(1)
    carved[at] = torch.minimum(density[at], least * (iso / level))
    return carved


def _with_neighbours(mask: Tensor) -> Tensor:
    """The nodes of `mask` [X, Y, Z] and those that share a grid edge with one."""
    grown = mask.clone()
    for axis in range(3):
        length = mask.shape[axis] - 1
        grown.narrow(axis, 0, length).logical_or_(mask.narrow(axis, 1, length))
        grown.narrow(axis, 1, length).logical_or_(mask.narrow(axis, 0, length))
    return grown
