"""Rasterisers of 3D Gaussians. Each draws what `rasterize.definition` says; they differ in speed alone.

A rasteriser is a function (gaussians, cameras, background [C, 3]) -> Rendered.
"""

from torch import Tensor

from cameras import Cameras
from gaussians import Gaussians
from rasterize import cuda, reference
from rasterize.definition import Rendered


def _on_cpu(gaussians: Gaussians, cameras: Cameras, background: Tensor) -> Rendered:
    from rasterize import cpu  # the JIT compiler is slow to import, and a GPU does without it

    return cpu.rasterize(gaussians, cameras, background)


RASTERIZERS = {"reference": reference.rasterize, "cpu": _on_cpu, "cuda": cuda.rasterize}
