"""The article's comparisons of CPU and GPU, with what each was measured to do: the same scene, grid and definition.

"CPU" is the CPU here: torch on the CPU's cores, or numba. Times are medians after a first call that is not counted,
on the GPU by CUDA events, everything included that the call does.
"""

import statistics
from dataclasses import dataclass

import torch
from torch import Tensor

from cuda_ext import require_device
from mesh_extract.coefficients import gaussian_3d_coeff
from mesh_extract.fields import extract_fields
from mesh_extract.fields_exact import exact_at, nodes_near
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, precision_factors
from scenes import shell
from timing import call_times_ms

_CHECKED_NODES = 4096  # compared with float64


@dataclass(frozen=True)
class CpuGpuComparison:
    """One operation on both: medians in milliseconds, and errors as largest absolute differences."""

    what: str
    gpu: str  # name of the device
    cpu_ms: float
    gpu_ms: float
    max_difference: float  # of the two results
    cpu_error: float  # against float64, at nodes that both were asked for
    gpu_error: float

    @property
    def ratio(self) -> float:
        """How many times faster the GPU was."""
        return self.cpu_ms / self.gpu_ms

    def __str__(self) -> str:
        return (
            f"{self.what}: CPU {self.cpu_ms:.3f} ms, {self.gpu} {self.gpu_ms:.4f} ms, {self.ratio:.1f}x; "
            f"difference {self.max_difference:.1e}, against float64 {self.cpu_error:.1e} and {self.gpu_error:.1e}"
        )


def compare_gaussian_cpu_to_gpu(
    points: int = 512, gaussians: int = 2000, seed: int = 0, repeats: int = 20, device: str | torch.device = "cuda"
) -> CpuGpuComparison:
    """`gaussian_3d_coeff` on a block of 512 points and 2,000 Gaussians, as the loops over a field call it.

    Raises:
        BackendUnavailable: no GPU, driver or compiler.
    """
    device = torch.device(device)
    require_device(device, "compare_gaussian_cpu_to_gpu")
    generator = torch.Generator().manual_seed(seed)
    scene = shell(gaussians, generator)
    arguments = (
        2 * torch.rand(points, 3, generator=generator) - 1,
        scene.means,
        precision_factors(scene.quats, scene.scales).float(),
    )
    exact = gaussian_3d_coeff(*(value.double() for value in arguments))
    on_gpu = [value.to(device) for value in arguments]
    cpu, gpu = gaussian_3d_coeff(*arguments), gaussian_3d_coeff(*on_gpu).cpu()
    return CpuGpuComparison(
        f"gaussian_3d_coeff, {points} points x {gaussians} Gaussians",
        torch.cuda.get_device_name(device),
        statistics.median(call_times_ms(lambda: gaussian_3d_coeff(*arguments), torch.device("cpu"), repeats)),
        statistics.median(call_times_ms(lambda: gaussian_3d_coeff(*on_gpu), device, repeats)),
        _largest(cpu - gpu),
        _largest(cpu - exact),
        _largest(gpu - exact),
    )


def compare_extract_fields_cpu_to_gpu(
    gaussians: int = 5000,
    resolution: int = 64,
    cpu_backend: str = "cpu",
    gpu_backend: str = "cuda",
    seed: int = 0,
    repeats: int = 5,
    device: str | torch.device = "cuda",
) -> CpuGpuComparison:
    """`extract_fields` of a shell of Gaussians, from Gaussians on each device to the field on that device.

    The errors against float64 are with the same cut-off, less contributions within 1 % of it, which rounding may put
    on either side.

    Raises:
        BackendUnavailable: no GPU, driver or compiler.
    """
    device = torch.device(device)
    require_device(device, "compare_extract_fields_cpu_to_gpu")
    generator = torch.Generator().manual_seed(seed)
    scene, grid = shell(gaussians, generator), GridSpec.cube(-1, 1, resolution)
    on_gpu = scene.to(device)
    nodes = nodes_near(scene.means, grid, _CHECKED_NODES, generator)
    exact, slack = exact_at(scene, grid, nodes, CUTOFF)
    cpu, gpu = extract_fields(scene, grid, cpu_backend), extract_fields(on_gpu, grid, gpu_backend).cpu()
    x, y, z = nodes.unbind(-1)
    errors = [float(((field[x, y, z] - exact).abs() - slack).clamp_min(0).max()) for field in (cpu, gpu)]
    return CpuGpuComparison(
        f"extract_fields, {gaussians} Gaussians, {resolution}^3 nodes, {cpu_backend} and {gpu_backend}",
        torch.cuda.get_device_name(device),
        statistics.median(call_times_ms(lambda: extract_fields(scene, grid, cpu_backend), torch.device("cpu"), 1)),
        statistics.median(call_times_ms(lambda: extract_fields(on_gpu, grid, gpu_backend), device, repeats)),
        _largest(cpu - gpu),
        *errors,
    )


def _largest(difference: Tensor) -> float:
    return float(difference.abs().max())
