"""The density field of a set of Gaussians, on a grid: what the surface is taken from."""

import logging

import torch
from torch import Tensor

from errors import UserError
from gaussians import Gaussians
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, check_finite, half_extents, precision_factors, squared_radii
from registry import lookup, register

logger = logging.getLogger(__name__)

# name -> (gaussians, grid) -> density [X, Y, Z]
BACKENDS = {}

# Nodes along a side of the blocks that the loops of backend "cpu" walk over; any value gives the same field.
# 8: 7 s, 16: 12 s, 4: 16 s on a shell of 20,000 Gaussians at 128^3, 2 cores.
BLOCK_SIZE = 8
_PAIRS_AT_ONCE = 1 << 22  # node-Gaussian pairs evaluated in one call: bounds the memory, about 130 MB


def extract_fields(gaussians: Gaussians, grid: GridSpec, backend: str = "auto") -> Tensor:
    """Sum the Gaussians' densities at every node of a grid.

    d(x) = sum_i opacities_i * exp(-0.5 * (x - means_i)^T covars_i^-1 (x - means_i)), a contribution below 1e-5 counting
    as 0, after DreamGaussian (arXiv:2309.16653), section 3.2, without its cut at 16^3 blocks: no result depends on a
    tiling.

    Args:
        gaussians: means [N, 3] and scales [N, 3] in world units, opacities [N] in [0, 1]. N may be 0.
        grid: node positions, world units.
        backend: "cpu" (Python loops, the reference) or "numba" (splats into boxes); "auto" takes the fastest.
    Returns:
        Density [X, Y, Z] on the device of `means`, float64 where they are, else float32. Carries no gradient.
    Raises:
        UserError: an unknown backend; parameters that are not finite.
    """
    compute = lookup(BACKENDS, backend, "mesh.backend")
    check_finite(gaussians)
    dtype = torch.float64 if gaussians.means.dtype == torch.float64 else torch.float32
    device = gaussians.means.device
    with torch.no_grad():
        return compute(gaussians.detach().to(dtype), grid).to(device=device, dtype=dtype)


def resolve_backend(backend: str) -> str:
    """The backend that runs where `backend` is asked for: "auto" stands for the fastest that is there."""
    return "numba" if backend == "auto" else backend


def gaussian_3d_coeff(points: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """exp(-q / 2) of every Gaussian at every point.

    Args:
        points: [P, 3], world units.
        means: [G, 3], world units.
        factors: [G, 6] triangular factors of the inverse covariances, as from `precision_factors`.
    Returns:
        [P, G], dtype of `points`.
    """
    for name, value, width in (("points", points, 3), ("means", means, 3), ("factors", factors, 6)):
        if value.ndim != 2 or value.shape[1] != width:
            raise UserError(f"{name} must be [*, {width}], got {list(value.shape)}")
    dx, dy, dz = (points[:, None, axis] - means[None, :, axis] for axis in range(3))  # [P, G] each
    l0, l1, l2, l3, l4, l5 = factors.unbind(-1)
    # In place from here on: three products and two sums a pair are what this costs, not the memory of each.
    q = (dz.mul_(l5).addcmul_(dy, l4).addcmul_(dx, l3)).square_()
    q.add_((dy.mul_(l2).addcmul_(dx, l1)).square_())
    q.add_((dx.mul_(l0)).square_())
    return q.mul_(-0.5).exp_()


@register(BACKENDS, "auto")
def extract_fields_auto(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The fastest backend that is there."""
    name = resolve_backend("auto")
    logger.info("extract_fields: backend auto takes %s", name)
    return BACKENDS[name](gaussians, grid)


@register(BACKENDS, "cpu")
def extract_fields_loops(gaussians: Gaussians, grid: GridSpec, block_size: int = BLOCK_SIZE) -> Tensor:
    """Reference: Python loops over blocks of nodes; each block asks all Gaussians whose support box meets it."""
    means, scales, opacities = gaussians.means, gaussians.scales, gaussians.opacities
    density = means.new_zeros(grid.shape)
    radii_squared = squared_radii(opacities)
    factors = precision_factors(gaussians.quats, scales).to(means.dtype)
    half = half_extents(gaussians.quats, scales, radii_squared) * (1 + 1e-5) + 1e-6 * grid.voxel_size
    lower, upper = means - half, means + half
    contributes = radii_squared >= 0
    x, y, z = (torch.from_numpy(axis).to(means) for axis in grid.axes())
    for x0 in range(0, len(x), block_size):
        block_x = x[x0 : x0 + block_size]
        in_x = contributes & (lower[:, 0] <= block_x[-1]) & (upper[:, 0] >= block_x[0])
        for y0 in range(0, len(y), block_size):
            block_y = y[y0 : y0 + block_size]
            in_y = (in_x & (lower[:, 1] <= block_y[-1]) & (upper[:, 1] >= block_y[0])).nonzero()[:, 0]
            if not len(in_y):
                continue
            for z0 in range(0, len(z), block_size):
                block_z = z[z0 : z0 + block_size]
                near = in_y[(lower[in_y, 2] <= block_z[-1]) & (upper[in_y, 2] >= block_z[0])]
                if not len(near):
                    continue
                nodes = torch.cartesian_prod(block_x, block_y, block_z)  # [P, 3]
                total = means.new_zeros(len(nodes), dtype=torch.float64)
                for part in near.split(max(1, _PAIRS_AT_ONCE // len(nodes))):
                    values = gaussian_3d_coeff(nodes, means[part], factors[part]).mul_(opacities[part])  # [P, G]
                    torch.nn.functional.threshold_(values, CUTOFF, 0.0)
                    total += values.sum(dim=1)
                density[x0 : x0 + block_size, y0 : y0 + block_size, z0 : z0 + block_size] = total.reshape(
                    len(block_x), len(block_y), len(block_z)
                )
    return density


@register(BACKENDS, "numba")
def extract_fields_numba(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """Every Gaussian walks the grid rows inside its ellipsoid; x-planes in parallel, each in the Gaussians' order."""
    from mesh_extract.fields_numba import splat_into_planes  # the JIT compiler is slow to import

    gaussians = gaussians.to("cpu").double()
    opacities = gaussians.opacities
    radii_squared = squared_radii(opacities)
    kept = radii_squared >= 0
    gaussians, opacities, radii_squared = gaussians[kept], opacities[kept], radii_squared[kept]
    # From here on in node units: 0 is the first node, 1 the distance of two nodes.
    factors = precision_factors(gaussians.quats, gaussians.scales) * grid.voxel_size  # [N, 6]
    packed = torch.cat([grid.to_nodes(gaussians.means), factors, radii_squared[:, None], opacities[:, None]], dim=1)
    density = torch.zeros(grid.shape, dtype=torch.float32)
    if len(packed):
        splat_into_planes(packed.contiguous().numpy(), density.numpy())
    return density
