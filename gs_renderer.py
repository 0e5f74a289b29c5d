"""Rendering of 3D Gaussians: the front door."""

import functools
import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from cameras import Cameras
from cuda_ext import why_unavailable
from errors import BackendUnavailable
from gaussians import Gaussians
from profiling import profiled
from rasterize import RASTERIZERS
from rasterize.definition import Rendered
from registry import lookup

__all__ = ["Cameras", "Gaussians", "Rendered", "render"]

logger = logging.getLogger(__name__)


@profiled
def render(
    gaussians: Gaussians,
    cameras: Cameras,
    background: Sequence[float] | Tensor = (1.0, 1.0, 1.0),
    backend: str = "auto",
) -> Rendered:
    """Render N Gaussians from C cameras in one call, differentiable with respect to all parameters of the Gaussians.

    The formulas, thresholds and what is culled: `rasterize/definition.py`, the same in every backend.

    Args:
        gaussians: world units; N may be 0. Parameters that are not finite are culled, never drawn.
        cameras: on the device of the Gaussians.
        background: one colour [3] for all images or one each [C, 3], in [0, 1]; gets no gradient.
        backend: "reference" (torch, any device and dtype, slow), "cpu" (numba, float32), "cuda" (our kernels,
            float32); "auto" takes the fastest that can run on the device.
    Returns:
        Rendered: rgb [C, H, W, 3], alpha and depth [C, H, W], means2d [C, N, 2], radii [C, N].
    Raises:
        ValueError: the shape of `background` or a device does not fit.
        BackendUnavailable: backend="cpu" or "cuda" and Gaussians on another device, or kernels cannot run there.
        UserError: the GPU's memory does not hold it.
    """
    device, dtype = gaussians.means.device, gaussians.means.dtype
    if cameras.viewmats.device != device:
        raise ValueError(f"cameras must be on the device of the Gaussians, {device}, got {cameras.viewmats.device}")
    if isinstance(background, tuple) and all(isinstance(value, int | float) for value in background):
        backgrounds = _constant(background, dtype, device)
    else:
        backgrounds = torch.as_tensor(background, dtype=dtype, device=device).detach()
    if backgrounds.shape not in ((3,), (len(cameras), 3)):
        raise ValueError(f"background must be [3] or [C, 3] = [{len(cameras)}, 3], got {list(backgrounds.shape)}")
    if backend == "auto":
        backend = _fastest(device)
    rasterize = lookup(RASTERIZERS, backend, "backend")
    if backend != "reference":
        if device.type != backend:
            place = "the CPU" if backend == "cpu" else "a CUDA device"
            raise BackendUnavailable(
                f"backend={backend!r} draws Gaussians that are on {place}, got Gaussians on {device}"
            )
        return rasterize(gaussians, cameras, backgrounds.expand(len(cameras), 3))  # they take float32 in any case
    return rasterize(gaussians, cameras.to(dtype), backgrounds.expand(len(cameras), 3))


@functools.cache  # one line in the log, not one a call
def _fastest(device: torch.device) -> str:
    """Name of the fastest rasteriser that can run on a device."""
    name = device.type if device.type in RASTERIZERS else "reference"
    if name == "cuda" and (missing := why_unavailable(device)) is not None:
        logger.warning("rendering with the slow rasteriser 'reference', since our kernels cannot run: %s", missing)
        return "reference"
    logger.info("rendering on %s with the rasteriser %r", device, name)
    return name


@functools.lru_cache(maxsize=64)  # a copy to a GPU waits for the GPU, at every call
def _constant(colour: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with torch.inference_mode(False):
        return torch.tensor(colour, dtype=dtype, device=device)
