# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Rendering objects: `render_views`, the front door for CPU and CUDA."""

import math
from collections.abc import Callable

import numpy as np
import torch

from errors import BackendUnavailable, UserError
from procedural.families import Objects
from procedural.layout import *

_CHUNK_PIXELS = 1 << 28  # pixels a launch: bounds the scratch memory of edge finding to a few GB


def orbit_frames(azimuths_deg: np.ndarray, elevations_deg: np.ndarray, radius: float) -> np.ndarray:
    """Origin, right, down, forward of cameras that look at the origin, float32 [..., 12].

    Azimuth 0 is +z and grows towards +x, elevation is positive above; world y up.
    """
    a, e = np.radians(np.asarray(azimuths_deg, np.float64)), np.radians(np.asarray(elevations_deg, np.float64))
    sa, ca, se, ce = np.sin(a), np.cos(a), np.sin(e), np.cos(e)
    zero = np.zeros_like(a)
    origin = radius * np.stack([ce * sa, se, ce * ca], -1)
    right = np.stack([ca, zero, -sa], -1)
    down = np.stack([se * sa, -ce, se * ca], -1)
    forward = np.stack([-ce * sa, -se, -ce * ca], -1)
    return np.concatenate([origin, right, down, forward], -1).astype(np.float32)


def render_views(
    objects: Objects,
    azimuths_deg: np.ndarray,
    elevations_deg: np.ndarray,
    size: int = 128,
    device: str | torch.device = "cpu",
    supersample: int = 2,
    radius: float = 2.0,
    fovy_deg: float = 49.1,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Render V views of each of M objects by sphere tracing.

    One ray a pixel first; pixels whose neighbours differ, or whose ray just misses, are sampled again by
    supersample^2 rays. Lit by each object's own light, fixed in the world.

    Args:
        objects: M objects.
        azimuths_deg, elevations_deg: [M, V]; azimuth 0 is +z, growing towards +x; elevation positive above.
        size: pixels a side.
        device: "cpu" or a CUDA device.
        supersample: rays a side of a pixel at edges; 1 for one ray everywhere.
        radius: distance of the cameras from the origin.
        fovy_deg: opening angle of the picture.
        out: uint8 [M, V, size, size, 4] on `device`, filled in place (a pool's slice, say); made if left out.
    Returns:
        uint8 [M, V, size, size, 4]: straight RGB composited over white by coverage, and coverage.
    Raises:
        UserError: a shape does not fit.
        BackendUnavailable: device is CUDA without a device or numba-cuda.
    """
    device = torch.device(device)
    azimuths, elevations = np.asarray(azimuths_deg, np.float64), np.asarray(elevations_deg, np.float64)
    m = len(objects)
    if azimuths.ndim != 2 or len(azimuths) != m or azimuths.shape != elevations.shape:
        raise UserError(f"azimuths_deg and elevations_deg must be [{m}, V], got {azimuths.shape}, {elevations.shape}")
    views = azimuths.shape[1]
    shape = (m, views, size, size, 4)
    if out is None:
        out = torch.empty(shape, dtype=torch.uint8, device=device)
    if (
        tuple(out.shape) != shape
        or out.dtype != torch.uint8
        or not out.is_contiguous()
        or out.device.type != device.type
    ):
        raise UserError(f"out must be a contiguous uint8 {list(shape)} on {device}, got {out.dtype} {list(out.shape)}")
    yaw_deg = np.degrees(objects.materials[:, YAW].astype(np.float64))
    cameras = orbit_frames(azimuths - yaw_deg[:, None], elevations, radius)
    launch_centres, launch_edges = _launchers(device)
    half_size = np.float32(0.5 * size)
    inverse_focal = np.float32(math.tan(math.radians(0.5 * fovy_deg)) / (0.5 * size))
    from procedural.cpu_render import EDGE_STEP, NEAR_PIXELS, TILE

    tiles = (size + TILE - 1) // TILE
    near_limit = np.float32(NEAR_PIXELS * 0.5) * inverse_focal
    step = np.float32(1.0 / supersample)
    chunk = max(1, _CHUNK_PIXELS // max(views * size * size, 1))
    for first in range(0, m if views else 0, chunk):
        part = slice(first, min(first + chunk, m))
        primitives = torch.from_numpy(np.ascontiguousarray(objects.primitives[part])).to(device)
        materials = torch.from_numpy(np.ascontiguousarray(objects.materials[part])).to(device)
        frames = torch.from_numpy(cameras[part]).to(device)
        target = out[part]
        near = torch.empty(target.shape[:4], dtype=torch.uint8, device=device)
        masks = torch.empty((*target.shape[:2], tiles, tiles), dtype=torch.int32, device=device)
        rays = (half_size, inverse_focal)
        launch_centres(primitives, materials, frames, target, near, masks, *rays, np.float32(TILE), near_limit)
        if supersample > 1:
            edges = torch.nonzero(find_edges(target, near, EDGE_STEP).flatten()).flatten().contiguous()
            if len(edges):
                launch_edges(primitives, materials, frames, target, edges, masks, *rays, supersample, step)
    return out


def find_edges(image: torch.Tensor, near: torch.Tensor, step: int) -> torch.Tensor:
    """Pixels to sample again: bool [M, V, H, W], where the picture jumps by more than `step` or a ray just missed."""
    edges = near.bool()
    # Row by row of the four channels, in int16, so that no float copy of a large pool is made.
    for axis in (2, 3):
        length = image.shape[axis] - 1
        low, high = image.narrow(axis, 0, length), image.narrow(axis, 1, length)
        jump = torch.zeros(low.shape[:4], dtype=torch.int16, device=image.device)
        for channel in range(4):
            jump += (low[..., channel].to(torch.int16) - high[..., channel].to(torch.int16)).abs_()
        jump = jump > step
        edges.narrow(axis, 0, length).logical_or_(jump)
        edges.narrow(axis, 1, length).logical_or_(jump)
    return edges


def _launchers(device: torch.device) -> tuple[Callable, Callable]:
    """The two launch functions of a device."""
    if device.type == "cpu":
        from procedural import cpu_render

        def on_arrays(kernel: Callable) -> Callable:
            return lambda *args: kernel(*(a.numpy() if isinstance(a, torch.Tensor) else a for a in args))

        return on_arrays(cpu_render.render_centres), on_arrays(cpu_render.render_edges)
    if device.type != "cuda":
        raise UserError(f"device must be cpu or cuda, got {device}")
    if not torch.cuda.is_available():
        raise BackendUnavailable("device='cuda': torch finds no CUDA device")
    try:
        from procedural import cuda_render
    except ImportError as error:
        raise BackendUnavailable(f"device='cuda' needs the package numba-cuda: {error}") from error
    return cuda_render.launch_centres, cuda_render.launch_edges
