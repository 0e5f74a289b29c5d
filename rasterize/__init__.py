"""Rasterisers of 3D Gaussians. Each draws what `rasterize.definition` says; they differ in speed alone.

A rasteriser is a function (gaussians, cameras, background [C, 3]) -> Rendered.
"""

from rasterize import cpu, cuda, reference

RASTERIZERS = {"reference": reference.rasterize, "cpu": cpu.rasterize, "cuda": cuda.rasterize}
