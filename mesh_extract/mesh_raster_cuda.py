"""The mesh rasteriser on the GPU: cuda_ext/kernels/mesh_raster.cu, the same bits as mesh_raster_numba.py.

A launch draws as many pictures as their z-buffers fit into _BUFFER_BYTES, all of them with the default settings.
"""

import torch
from torch import Tensor

from cuda_ext import KernelModule, load_module
from mesh_extract.mesh_raster_numba import NEAR

_BUFFER_BYTES = 1 << 28
_WARPS, _THREADS = 8, 256  # of a block: one warp a face, one thread a pixel


def rasterize(screen: Tensor, faces: Tensor, width: int, height: int, cull: bool) -> tuple[Tensor, Tensor, Tensor]:
    """As mesh_raster_numba.rasterize."""
    count, device = len(screen), screen.device
    module = load_module("mesh_raster", device)
    face_ids = torch.empty((count, height, width), dtype=torch.int32, device=device)
    barycentrics = torch.empty((count, height, width, 3), device=device)
    depth = torch.empty((count, height, width), device=device)
    for part in _parts(count, width * height):
        nearest = _fill(module, screen[part], faces, width, height, cull)
        module.launch(
            "interpolate_faces", -(-nearest.numel() // _THREADS), _THREADS,
            screen[part], faces, nearest, screen.shape[1], width, height, nearest.numel(),
            face_ids[part], barycentrics[part], depth[part],
        )  # fmt: skip
    return face_ids, barycentrics, depth


def shade(
    screen: Tensor, faces: Tensor, width: int, height: int, scale: int, cull: bool, uv_faces: Tensor, uvs: Tensor,
    texture: Tensor, background: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """As mesh_raster_numba.shade."""
    count, device = len(screen), screen.device
    module = load_module("mesh_raster", device)
    texture_height, texture_width, _ = texture.shape
    rgb = torch.empty((count, height, width, 3), device=device)
    alpha = torch.empty((count, height, width), device=device)
    depth = torch.empty((count, height, width), device=device)
    for part in _parts(count, width * height * scale**2):
        nearest = _fill(module, screen[part], faces, width * scale, height * scale, cull)
        pixels = alpha[part].numel()
        module.launch(
            "shade_pixels", -(-pixels // _THREADS), _THREADS,
            screen[part], faces, nearest, screen.shape[1], width, height, scale, pixels,
            uv_faces, uvs, texture, texture_width, texture_height, background,
            rgb[part], alpha[part], depth[part],
        )  # fmt: skip
    return rgb, alpha, depth


def _fill(module: KernelModule, screen: Tensor, faces: Tensor, width: int, height: int, cull: bool) -> Tensor:
    """The z-buffer: the key of the nearest face at every pixel [C, H, W], 0 where there is none."""
    nearest = torch.zeros((len(screen), height, width), dtype=torch.int64, device=screen.device)
    module.launch(
        "fill_faces", (-(-len(faces) // _WARPS), len(screen)), 32 * _WARPS,
        screen, faces, screen.shape[1], len(faces), width, height, NEAR, int(cull), nearest,
    )  # fmt: skip
    return nearest


def _parts(count: int, pixels: int) -> list[slice]:
    """The pictures, some at a time."""
    step = max(1, min(_BUFFER_BYTES // (8 * pixels), 65535))
    return [slice(start, start + step) for start in range(0, count, step)]
