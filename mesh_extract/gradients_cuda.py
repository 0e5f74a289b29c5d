"""Gradients of the density field on a GPU: the host's part of kernels/extract_fields_backward.cu."""

import torch
from torch import Tensor

from cuda_ext import load_module
from mesh_extract.fields_cuda import KERNEL_CONSTANTS, as_kernels_read, grid_doubles
from mesh_extract.grid import GridSpec

_THREADS = 128


def field_gradients_on_gpu(parameters: tuple[Tensor, ...], grid: GridSpec, gradient: Tensor) -> tuple[Tensor, ...]:
    """Gradients to means, quats, log_scales and logit_opacities, float32, of a loss with `gradient` at the nodes."""
    parameters = [as_kernels_read(value) for value in parameters]
    gradients = tuple(torch.empty_like(value) for value in parameters)
    module = load_module("extract_fields_backward", gradient.device, **KERNEL_CONSTANTS)
    module.launch(
        "extract_fields_backward", len(parameters[0]), _THREADS,
        *parameters, *grid_doubles(grid), grid.first_x, *grid.shape, as_kernels_read(gradient), *gradients,
    )  # fmt: skip
    return gradients
