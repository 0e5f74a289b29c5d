"""The density field of a set of Gaussians, on a grid: what the surface is taken from."""

import functools
import logging

import torch
from torch import Tensor

from cuda_ext import why_unavailable
from errors import UserError
from gaussians import Gaussians
from mesh_extract.coefficients import gaussian_3d_coeff
from mesh_extract.fields_cuda import extract_fields_cuda, move_to_gpu
from mesh_extract.fields_fused import extract_fields_fused
from mesh_extract.fields_gradients import differentiable_field, requires_gradient
from mesh_extract.fields_loops import extract_fields_loops
from mesh_extract.grid import GridSpec
from mesh_extract.support import check_finite, precision_factors, squared_radii
from profiling import profiled
from registry import lookup, register

__all__ = ["BACKENDS", "extract_fields", "gaussian_3d_coeff", "resolve_backend"]

logger = logging.getLogger(__name__)

# name -> (gaussians without gradient, grid) -> density [X, Y, Z], float32 or float64, on any device
BACKENDS = {}


@profiled
def extract_fields(gaussians: Gaussians, grid: GridSpec, backend: str = "auto") -> Tensor:
    """Sum the Gaussians' densities at every node of a grid.

    d(x) = sum_i opacities_i * exp(-0.5 * (x - means_i)^T covars_i^-1 (x - means_i)), a contribution below 1e-5 counting
    as 0, after DreamGaussian (arXiv:2309.16653), section 3.2, without its cut at 16^3 blocks: no result depends on a
    tiling.

    The field has gradients to means, quats, log_scales and logit_opacities where one of them requires a gradient and
    grad mode is on, after the voxeliser of R2-Gaussian (arXiv:2405.20693); the jump at the cut-off has none.

    Args:
        gaussians: means [N, 3] and scales [N, 3] in world units, opacities [N] in [0, 1]. N may be 0.
        grid: node positions, world units; `grid.slab(start, stop)` for some planes of it.
        backend: "cpu" (Python loops, the reference), "numba" (splats into boxes), "cuda" (tiles on a GPU), and the
            article's steps on the way there: "cuda-coeff" (the loops, with a kernel for the coefficients) and
            "cuda-fused" (one thread a node over all Gaussians). "auto" takes "cuda" where the Gaussians are on a GPU
            that can run kernels, else "numba". Those of a GPU move the Gaussians there, and the field back.
    Returns:
        Density [X, Y, Z] on the device of `means`, float64 where they are, else float32.
    Raises:
        UserError: an unknown backend; parameters that are not finite; too little memory.
        BackendUnavailable: a backend of a GPU, and no device, driver or compiler; the message says which.
    """
    compute = lookup(BACKENDS, backend, "mesh.backend")
    try:
        if torch.is_grad_enabled() and requires_gradient(gaussians):
            return differentiable_field(compute, gaussians, grid)
        dtype = torch.float64 if gaussians.means.dtype == torch.float64 else torch.float32
        return compute(gaussians, grid).to(device=gaussians.means.device, dtype=dtype)
    except torch.OutOfMemoryError as error:
        nodes = " x ".join(map(str, grid.shape))
        raise UserError(
            f"a density field of {nodes} nodes for {len(gaussians)} Gaussians needs more memory than the GPU has; "
            "try a smaller mesh.resolution, or slabs of the grid"
        ) from error


def resolve_backend(backend: str, device: torch.device | None = None) -> str:
    """The backend that runs for Gaussians on `device` (None: the CPU): "auto" stands for the fastest that is there."""
    if backend != "auto":
        return backend
    return "cuda" if device is not None and device.type == "cuda" and _runs_kernels(device) else "numba"


@functools.cache
def _runs_kernels(device: torch.device) -> bool:
    reason = why_unavailable(device)
    if reason is not None:
        logger.warning("extract_fields: the Gaussians are on %s, but backend cuda cannot run: %s", device, reason)
    return reason is None


@register(BACKENDS, "auto")
def extract_fields_auto(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The fastest backend that is there."""
    name = resolve_backend("auto", gaussians.means.device)
    logger.info("extract_fields: backend auto takes %s", name)
    return BACKENDS[name](gaussians, grid)


@register(BACKENDS, "cpu")
def extract_fields_cpu(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """Reference: Python loops over blocks of nodes, in torch, on the CPU."""
    return extract_fields_loops(_checked(gaussians).to("cpu"), grid)


@register(BACKENDS, "numba")
def extract_fields_numba(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """Every Gaussian walks the grid rows inside its ellipsoid; x-planes in parallel, each in the Gaussians' order."""
    from mesh_extract.fields_numba import splat_into_planes  # the JIT compiler is slow to import

    gaussians = _checked(gaussians).to("cpu").double()
    opacities = gaussians.opacities
    radii_squared = squared_radii(opacities)
    kept = radii_squared >= 0
    gaussians, opacities, radii_squared = gaussians[kept], opacities[kept], radii_squared[kept]
    # From here on in node units: 0 is the first node, 1 the distance of two nodes. A slab counts from the whole grid's
    # first node, so that it rounds as the whole does.
    nodes = (gaussians.means - gaussians.means.new_tensor(grid.lower)) / grid.voxel_size
    factors = precision_factors(gaussians.quats, gaussians.scales) * grid.voxel_size  # [N, 6]
    packed = torch.cat([nodes, factors, radii_squared[:, None], opacities[:, None]], dim=1)
    density = torch.zeros(grid.shape, dtype=torch.float32)
    if len(packed):
        splat_into_planes(packed.contiguous().numpy(), density.numpy(), grid.first_x)
    return density


@register(BACKENDS, "cuda-coeff")
def extract_fields_coeff(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The article's first step: the Python loops, on a GPU, with one kernel for the coefficients."""
    return extract_fields_loops(move_to_gpu(_checked(gaussians), "cuda-coeff"), grid)


@register(BACKENDS, "cuda-fused")
def _fused(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The article's second step: one thread a node over all Gaussians."""
    return extract_fields_fused(move_to_gpu(_checked(gaussians), "cuda-fused"), grid)


@register(BACKENDS, "cuda")
def _tiled(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """Tiles of nodes with lists of the Gaussians that reach them; checks its parameters on the GPU, as it goes."""
    return extract_fields_cuda(move_to_gpu(gaussians, "cuda"), grid)


def _checked(gaussians: Gaussians) -> Gaussians:
    """Finite parameters, in float64 where the means are, else in float32."""
    check_finite(gaussians)
    return gaussians.detach().to(torch.float64 if gaussians.means.dtype == torch.float64 else torch.float32)
