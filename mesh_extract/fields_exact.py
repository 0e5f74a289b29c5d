"""The density field by its formula, in float64: what every backend is measured against, by tests and benchmarks."""

import torch
from torch import Tensor

from gaussians import Gaussians, rotation_matrices
from mesh_extract.grid import GridSpec

# How far a right field may be off with the same cut-off, less the slack: rounding, which grows with the density.
ABSOLUTE_ERROR, RELATIVE_ERROR = 2e-5, 2e-6
_PAIRS_AT_ONCE = 1 << 24  # of a node and a Gaussian: bounds the memory, about 700 MB


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


def exact_at(gaussians: Gaussians, grid: GridSpec, nodes: Tensor, cutoff: float = 0.0) -> tuple[Tensor, Tensor]:
    """As `extract_fields_exact`, at `nodes` [P, 3] of the grid alone, on the device of `means`: [P] each, float64."""
    gaussians = gaussians.detach().double()
    means, opacities = gaussians.means, gaussians.opacities
    whitening = rotation_matrices(gaussians.quats) / gaussians.scales[:, None, :]  # [N, 3, 3], |(x - mean) whitening|^2
    counted = nodes.to(means) + means.new_tensor(grid.first_node)
    positions = means.new_tensor(grid.lower) + counted * grid.voxel_size
    density, slack = means.new_zeros(len(nodes)), means.new_zeros(len(nodes))
    for start in range(0, len(nodes), max(1, _PAIRS_AT_ONCE // max(1, len(means)))):
        part = slice(start, start + max(1, _PAIRS_AT_ONCE // max(1, len(means))))
        q = positions.new_zeros(len(positions[part]), len(means))
        for axis in range(3):
            steps = [
                (positions[part, None, k] - means[None, :, k]).mul_(whitening[:, k, axis]) for k in range(3)
            ]  # [P, N] each
            q += (steps[0] + steps[1] + steps[2]).square_()
        values = q.mul_(-0.5).exp_().mul_(opacities)
        if cutoff:
            slack[part] = (values * ((values / cutoff - 1).abs() < 0.01)).sum(dim=1)
            torch.nn.functional.threshold_(values, cutoff, 0.0)
        density[part] = values.sum(dim=1)
    return density, slack


def nodes_near(means: Tensor, grid: GridSpec, count: int, generator: torch.Generator) -> Tensor:
    """`count` nodes of a grid [count, 3]: half of them anywhere, half near means of Gaussians [N, 3] on the CPU."""
    shape = torch.tensor(grid.shape)
    anywhere = (torch.rand(count - count // 2, 3, generator=generator) * shape).long()
    chosen = torch.randint(max(1, len(means)), (count // 2 if len(means) else 0,), generator=generator)
    near = grid.to_nodes(means[chosen].double()) + 2 * torch.randn(len(chosen), 3, generator=generator)
    return torch.cat([anywhere, near.round().long()]).clamp_min(0).minimum(shape - 1)
