"""The density field by its formula, in float64: what every backend is measured against, by tests and benchmarks."""

import torch
from torch import Tensor

from gaussians import Gaussians, rotation_matrices
from mesh_extract.grid import GridSpec


def extract_fields_exact(gaussians: Gaussians, grid: GridSpec, cutoff: float = 0.0) -> tuple[Tensor, Tensor]:
    """Density [X, Y, Z] in float64 from all Gaussians at every node, and a slack per node.

    A contribution below `cutoff` counts as 0. The slack [X, Y, Z] is the sum of those within 1 % of the cut-off, which
    rounding may put on either side.
    """
    gaussians = gaussians.detach().double()
    rotations, scales, opacities = rotation_matrices(gaussians.quats), gaussians.scales, gaussians.opacities
    axes = [torch.from_numpy(axis) for axis in grid.axes()]
    density, slack = torch.zeros(grid.shape, dtype=torch.float64), torch.zeros(grid.shape, dtype=torch.float64)
    for i in range(len(gaussians)):
        # What lies beyond 9 standard deviations of the widest axis contributes less than 3e-18.
        reach = 9 * scales[i].max()
        box = tuple(
            slice(int(torch.searchsorted(axis, mean - reach)), int(torch.searchsorted(axis, mean + reach)))
            for axis, mean in zip(axes, gaussians.means[i], strict=True)
        )
        near = [axis[span] - mean for axis, span, mean in zip(axes, box, gaussians.means[i], strict=True)]
        offsets = torch.stack(torch.meshgrid(*near, indexing="ij"), dim=-1)  # x - mean
        q = ((offsets @ rotations[i]) / scales[i]).square().sum(dim=-1)  # |diag(1 / s) R^T (x - mean)|^2
        values = opacities[i] * torch.exp(-0.5 * q)
        if cutoff:
            slack[box] += values * ((values / cutoff - 1).abs() < 0.01)
            values = torch.where(values >= cutoff, values, 0.0)
        density[box] += values
    return density, slack
