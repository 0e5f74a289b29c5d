"""What is inside: a field whose surface is the one outer skin of the object, without hollows behind it.

Fitted Gaussians lie near the visible surface. Deeper down the density often falls under the threshold again, and the
plain isosurface has a second wall inside, joined to the first where the splats leave pinholes.
"""

import numpy as np
import torch
from torch import Tensor

from errors import UserError


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

    A node is inside where density >= iso; a hollow is a set of other nodes, joined by faces, that does not reach the
    grid's border. With seal_voxels = r > 0 the outside may not pass gaps that a ball of about r voxels does not pass:
    hollows behind pinholes up to about 2 r voxels wide are filled as well, and so are the pinholes. Wider openings, as
    that of a cup, stay open, and dents in the skin that lead nowhere stay as they are.

    Args:
        density: [X, Y, Z].
        iso: threshold, as for extract_mesh.
        seal_voxels: r; 0 fills only what is wholly shut off.
    Returns:
        A new field; filled nodes hold 2 iso - density, above the threshold by what they were below it.
    """
    if seal_voxels < 0:
        raise UserError(f"mesh.seal={seal_voxels} must not be negative")
    field = density.detach().cpu().numpy()
    # The border stands for the outside, also where the object touches the end of the grid.
    inside = np.pad(field >= iso, seal_voxels + 1)
    hollow = _shut_off(inside)
    if seal_voxels:
        shut = _erode(_dilate(inside, seal_voxels), seal_voxels)  # morphological closing
        behind = _shut_off(shut) & ~inside
        # What the closing added counts where it borders on such a hollow: those are its pinholes.
        hollow |= behind | (_reached(shut & ~inside, _dilate(behind, 1)) if behind.any() else False)
        hollow |= _shut_off(inside | hollow)  # corners that the closing had cut off
    margin = slice(seal_voxels + 1, -(seal_voxels + 1))
    hollow = hollow[margin, margin, margin]
    return torch.from_numpy(np.where(hollow, 2 * iso - field, field).astype(field.dtype)).to(density.device)


def _shut_off(inside: np.ndarray) -> np.ndarray:
    """Nodes outside `inside` that no path over neighbouring nodes joins to the corner of the (padded) array."""
    from scipy.ndimage import label

    labels, _ = label(~inside)
    return ~inside & (labels != labels[0, 0, 0])


def _reached(mask: np.ndarray, seeds: np.ndarray) -> np.ndarray:
    """The parts of `mask`, joined by faces, edges or corners, that hold a node of `seeds`."""
    from scipy.ndimage import label

    labels, count = label(mask, structure=np.ones((3, 3, 3)))
    touched = np.zeros(count + 1, dtype=bool)
    touched[labels[seeds]] = True
    touched[0] = False
    return touched[labels]


def _dilate(mask: np.ndarray, radius: int) -> np.ndarray:
    """`mask` grown by about a ball: steps to the 6 and to the 26 neighbours in turn."""
    grown = mask.copy()
    for step in range(radius):
        source = grown.copy()
        for axis in range(3):
            if step % 2:  # growing what has grown along the other axes reaches the 26 neighbours
                source = grown.copy()
            ahead, behind = [slice(None)] * 3, [slice(None)] * 3
            ahead[axis], behind[axis] = slice(1, None), slice(None, -1)
            grown[tuple(ahead)] |= source[tuple(behind)]
            grown[tuple(behind)] |= source[tuple(ahead)]
    return grown


def _erode(mask: np.ndarray, radius: int) -> np.ndarray:
    """The opposite of _dilate: the outside grown by the same steps; nodes beyond the array count as inside."""
    return ~_dilate(~mask, radius)
