"""The density field by tiles of nodes: the host's part of kernels/extract_fields.cu."""

import torch
from torch import Tensor

from cuda_ext import require_device
from gaussians import Gaussians
from mesh_extract.fields_fused import extract_fields_fused
from mesh_extract.grid import GridSpec


def move_to_gpu(gaussians: Gaussians, backend: str) -> Gaussians:
    """The Gaussians on their GPU, or on the current one; BackendUnavailable, with what is missing, if there is none."""
    device = gaussians.means.device
    if device.type != "cuda":
        device = torch.device("cuda")
        require_device(device, f"mesh.backend={backend}")
    return gaussians.detach().to(device)


def extract_fields_cuda(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The field [X, Y, Z], float32, on the device of `means`."""
    return extract_fields_fused(gaussians, grid)
