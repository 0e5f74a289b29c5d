"""The density field with one thread a node over all Gaussians: the host's part of kernels/extract_fields_fused.cu."""

import math

import torch
from torch import Tensor

from cuda_ext import load_module
from gaussians import Gaussians
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, half_extents, precision_factors, squared_radii

_BLOCK = 256  # threads
KERNEL_CONSTANTS = {"CUTOFF": CUTOFF, "BLOCK": _BLOCK}
_EXPONENT = math.sqrt(0.5 / math.log(2))  # exp(-q / 2) = 2^-(this sqrt(q))^2


def extract_fields_fused(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The field [X, Y, Z], float32, on the device of `means`."""
    density = gaussians.means.new_empty(grid.shape, dtype=torch.float32)
    packed = pack(gaussians.double(), grid)
    module = load_module("extract_fields_fused", density.device, **KERNEL_CONSTANTS)
    blocks = -(-grid.node_count // _BLOCK)
    module.launch("extract_fields_fused", blocks, _BLOCK, *packed, len(gaussians), grid.first_x, *grid.shape, density)
    return density


def pack(gaussians: Gaussians, grid: GridSpec) -> tuple[Tensor, Tensor, Tensor]:
    """Boxes along x and y [N, 4], along z [N, 2], and records [N, 12] of float64 Gaussians, float32, node units."""
    opacities = gaussians.opacities
    radii_squared = squared_radii(opacities)
    means = (gaussians.means - gaussians.means.new_tensor(grid.lower)) / grid.voxel_size
    half = half_extents(gaussians.quats, gaussians.scales, radii_squared) / grid.voxel_size
    half = torch.where(radii_squared[:, None] >= 0, half * (1 + 1e-6) + 1e-3, -1.0)
    factors = precision_factors(gaussians.quats, gaussians.scales) * (grid.voxel_size * _EXPONENT)
    centres = means.float()
    rest = means - centres.round()
    empty = means.new_zeros(len(means), 1)
    boxes_xy = torch.cat([centres[:, :2], half[:, :2]], dim=1)
    boxes_z = torch.cat([centres[:, 2:], half[:, 2:]], dim=1)
    records = torch.cat([factors, opacities.log2()[:, None], empty, rest, empty], dim=1)
    return boxes_xy.float().contiguous(), boxes_z.float().contiguous(), records.float().contiguous()
