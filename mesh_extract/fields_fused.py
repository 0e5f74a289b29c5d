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
    boxes, records = pack(gaussians.double(), grid)
    module = load_module("extract_fields_fused", density.device, **KERNEL_CONSTANTS)
    blocks = -(-grid.node_count // _BLOCK)
    module.launch(
        "extract_fields_fused", blocks, _BLOCK, boxes, records, len(gaussians), grid.first_x, *grid.shape, density
    )
    return density


def pack(gaussians: Gaussians, grid: GridSpec) -> tuple[Tensor, Tensor]:
    """Boxes [N, 8] and records [N, 12] of float64 Gaussians as the kernel reads them, float32, node units."""
    opacities = gaussians.opacities
    radii_squared = squared_radii(opacities)
    means = (gaussians.means - gaussians.means.new_tensor(grid.lower)) / grid.voxel_size
    half = half_extents(gaussians.quats, gaussians.scales, radii_squared) / grid.voxel_size
    half = torch.where(radii_squared[:, None] >= 0, half * (1 + 1e-6) + 1e-3, -1.0)
    factors = precision_factors(gaussians.quats, gaussians.scales) * (grid.voxel_size * _EXPONENT)
    centres = means.float()
    rest = means - centres.round()
    empty = means.new_zeros(len(means), 1)
    boxes = torch.cat([centres, empty, half, empty], dim=1)
    records = torch.cat([factors, opacities.log2()[:, None], empty, rest, empty], dim=1)
    return boxes.float().contiguous(), records.float().contiguous()
