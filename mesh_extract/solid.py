"""What is inside: a field whose surface is the one outer skin of the object, without hollows behind it.

Fitted Gaussians lie near the visible surface. Deeper down the density often falls under the threshold again, and the
plain isosurface has a second wall inside, joined to the first where the splats leave pinholes.
"""

import torch
from torch import Tensor
from torch.nn.functional import pad

from errors import UserError
from mesh_extract.blur import gaussian_blur
from mesh_extract.morphology import parts_with, squared_distances
from profiling import profiled

# A gap of radius r is a leak, up to _LEAK_FACTOR * seal_voxels, where a ball of _HOLLOW_FACTOR * r fits behind it.
_LEAK_FACTOR = 4
_HOLLOW_FACTOR = 3
BLUR_TRUNCATE = 3.0  # standard deviations after which the blur ends


@profiled
def smooth_field(density: Tensor, sigma_voxels: float = 0.7) -> Tensor:
    """`density` [X, Y, Z] blurred by a Gaussian of `sigma_voxels`: evens out the bumps of single splats; 0 copies."""
    if sigma_voxels < 0:
        raise UserError(f"mesh.smooth={sigma_voxels} must not be negative")
    if sigma_voxels == 0:
        return density.clone()
    return gaussian_blur(density.detach(), sigma_voxels, (0, 1, 2), BLUR_TRUNCATE)


@profiled
def fill_cavities(density: Tensor, iso: float, seal_voxels: int = 0) -> Tensor:
    """Raise the density in hollows that are shut off from the outside, so that no surface is made there.

    A node is inside where density >= iso. The outside is what a ball of radius r, rolled in from the border, reaches
    among the other nodes; what it cannot reach is a hollow, if somewhere a ball of radius r fits into it.

    - r = 0: hollows that are wholly shut off, always filled.
    - r up to seal_voxels: hollows behind pinholes about 2 r wide, filled together with their pinholes.
    - r = 2, 3 and 4 seal_voxels: only hollows into which a ball of 3 r fits. So a large inside behind a small gap is a
      leak, while cups and bowls, as wide at the opening as inside, stay open. Dents that lead nowhere stay as well.

    Args:
        density: [X, Y, Z].
        iso: threshold, as for extract_mesh.
        seal_voxels: see above; 0 fills only what is wholly shut off.
    Returns:
        A new field on the device of `density`, where the work is done; filled nodes hold 2 iso - density, above the
        threshold by what they were below it.
    """
    if seal_voxels < 0:
        raise UserError(f"mesh.seal={seal_voxels} must not be negative")
    density = density.detach()
    largest_radius = _LEAK_FACTOR * seal_voxels
    inside = density >= iso
    # Only the box around the inside, with room for the largest ball: where the grid ends at it, that is outside too.
    occupied = [inside.any(dim=first).any(dim=second).nonzero() for first, second in ((1, 1), (0, 1), (0, 0))]
    if not len(occupied[0]):
        return density.clone()
    box, margin = tuple(slice(int(along[0]), int(along[-1]) + 1) for along in occupied), largest_radius + 2
    solid = pad(inside[box], [margin] * 6)
    solid |= _unreached(~solid)
    if seal_voxels:
        room = squared_distances(solid)  # to the nearest inside node
        radii = [*range(1, seal_voxels), *range(seal_voxels, largest_radius + 1, seal_voxels)]
        for radius in radii:
            wanted = radius if radius <= seal_voxels else _HOLLOW_FACTOR * radius
            cores = _unreached(room > radius**2)
            wide = cores & (room >= wanted**2)
            if not wide.any():
                continue
            hollow = parts_with(cores, wide, corners=True)
            reached = squared_distances((room > radius**2) & ~cores) <= radius**2
            solid |= parts_with(~solid & ~reached, hollow, corners=True)
            solid |= _unreached(~solid)
            room = squared_distances(solid)
    filled = torch.zeros_like(inside)
    filled[box] = solid[(slice(margin, -margin),) * 3]
    return torch.where(filled & ~inside, 2 * iso - density, density)


def _unreached(free: Tensor) -> Tensor:
    """Nodes of `free` that no path over neighbours in `free` joins to the corner of the (padded) grid."""
    corner = torch.zeros_like(free)
    corner[0, 0, 0] = True
    return free & ~parts_with(free, corner)
