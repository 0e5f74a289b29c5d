"""What is inside: a field whose surface is the one outer skin of the object, without hollows behind it.

Fitted Gaussians lie near the visible surface. Deeper down the density often falls under the threshold again, and the
plain isosurface has a second wall inside, joined to the first where the splats leave pinholes.
"""

import numpy as np
import torch
from torch import Tensor

from errors import UserError

# A gap of radius r is a leak, up to _LEAK_FACTOR * seal_voxels, where a ball of _HOLLOW_FACTOR * r fits behind it.
_LEAK_FACTOR = 4
_HOLLOW_FACTOR = 3


def smooth_field(density: Tensor, sigma_voxels: float = 0.7) -> Tensor:
    """`density` [X, Y, Z] blurred by a Gaussian of `sigma_voxels`: evens out the bumps of single splats; 0 copies."""
    from scipy.ndimage import gaussian_filter

    if sigma_voxels < 0:
        raise UserError(f"mesh.smooth={sigma_voxels} must not be negative")
    if sigma_voxels == 0:
        return density.clone()
    field = density.detach().cpu().numpy()
    return torch.from_numpy(gaussian_filter(field, sigma_voxels, mode="constant", truncate=3.0)).to(density)


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
        A new field; filled nodes hold 2 iso - density, above the threshold by what they were below it.
    """
    from scipy.ndimage import distance_transform_edt

    if seal_voxels < 0:
        raise UserError(f"mesh.seal={seal_voxels} must not be negative")
    field = density.detach().cpu().numpy()
    largest_radius = _LEAK_FACTOR * seal_voxels
    inside = field >= iso
    if not inside.any():
        return density.clone()
    # Only the box around the inside, with room for the largest ball: where the grid ends at it, that is outside too.
    box = []
    for axis in range(3):
        occupied = np.flatnonzero(inside.any(axis=tuple(other for other in range(3) if other != axis)))
        box.append(slice(occupied[0], occupied[-1] + 1))
    box, margin = tuple(box), largest_radius + 2
    solid = np.pad(inside[box], margin)
    solid |= _unreached(~solid)
    if seal_voxels:
        room = distance_transform_edt(~solid)  # to the nearest inside node, in voxels
        radii = [*range(1, seal_voxels), *range(seal_voxels, largest_radius + 1, seal_voxels)]
        for radius in radii:
            if radius >= room.max():
                break
            wanted = radius if radius <= seal_voxels else _HOLLOW_FACTOR * radius
            cores = _unreached(room > radius)
            if not (room[cores] >= wanted).any():
                continue
            hollow = _holding(cores, room >= wanted)
            reached = distance_transform_edt(~((room > radius) & ~cores)) <= radius
            solid |= _holding(~solid & ~reached, hollow)
            solid |= _unreached(~solid)
            room = distance_transform_edt(~solid)
    inner = slice(margin, -margin)
    filled = np.zeros_like(inside)
    filled[box] = solid[inner, inner, inner]
    filled &= ~inside
    return torch.from_numpy(np.where(filled, 2 * iso - field, field).astype(field.dtype)).to(density.device)


def _unreached(free: np.ndarray) -> np.ndarray:
    """Nodes of `free` that no path over neighbours in `free` joins to the corner of the (padded) array."""
    from scipy.ndimage import label

    labels, _ = label(free)
    return free & (labels != labels[0, 0, 0])


def _holding(mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """The parts of `mask`, joined by faces, edges or corners, that hold a node of `seeds`."""
    from scipy.ndimage import label

    labels, count = label(mask, structure=np.ones((3, 3, 3)))
    held = np.zeros(count + 1, dtype=bool)
    held[labels[seeds & mask]] = True
    held[0] = False
    return held[labels]
