"""CUDA kernels, compiled at run time: pip and a driver are all they need.

    module = load_module("extract_fields", device, CUTOFF=1e-5)        # kernels/extract_fields.cu, for this device
    module.launch("gaussian_coefficients", grid, block, points, means, count)

Whether a machine can run them, and what is missing where it cannot: `python -m cuda_ext`, `why_unavailable()`.
"""

from cuda_ext.availability import require_device, why_unavailable
from cuda_ext.compile import ARCHITECTURES, compile_kernels, kernel_names
from cuda_ext.launch import KernelModule, check_tensor, load_module

__all__ = [
    "ARCHITECTURES",
    "KernelModule",
    "check_tensor",
    "compile_kernels",
    "kernel_names",
    "load_module",
    "require_device",
    "why_unavailable",
]
