"""Rendering of 3D Gaussians: the front door."""

import functools
import logging
from collections.abc import Sequence

import torch
from torch import Tensor

from cameras import Cameras
from errors import BackendUnavailable
from gaussians import Gaussians
from rasterize import RASTERIZERS
from rasterize.definition import Rendered
from registry import lookup

__all__ = ["Cameras", "Gaussians", "Rendered", "render"]

logger = logging.getLogger(__name__)


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
        backend: "reference" (torch, any device and dtype, slow), "cpu" (numba, float32); "auto" takes the fastest
            for the device.
    Returns:
        Rendered: rgb [C, H, W, 3], alpha and depth [C, H, W], means2d [C, N, 2], radii [C, N].
    Raises:
        ValueError: the shape of `background` or a device does not fit.
        BackendUnavailable: backend="cpu" and Gaussians on another device.
    """
    device, dtype = gaussians.means.device, gaussians.means.dtype
    if cameras.viewmats.device != device:
        raise ValueError(f"cameras must be on the device of the Gaussians, {device}, got {cameras.viewmats.device}")
    backgrounds = torch.as_tensor(background, dtype=dtype, device=device).detach()
    if backgrounds.shape not in ((3,), (len(cameras), 3)):
        raise ValueError(f"background must be [3] or [C, 3] = [{len(cameras)}, 3], got {list(backgrounds.shape)}")
    if backend == "auto":
        backend = _fastest(device.type)
    rasterize = lookup(RASTERIZERS, backend, "backend")
    if backend == "cpu" and device.type != "cpu":
        raise BackendUnavailable(f"backend='cpu' draws Gaussians that are on the CPU, got Gaussians on {device}")
    return rasterize(gaussians, cameras.to(dtype), backgrounds.expand(len(cameras), 3))


@functools.cache  # one line in the log, not one a call
def _fastest(device_type: str) -> str:
    """Name of the fastest rasteriser for a type of device."""
    name = device_type if device_type in RASTERIZERS else "reference"
    logger.info("rendering on %s with the rasteriser %r", device_type, name)
    return name
