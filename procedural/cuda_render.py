# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Rendering on a CUDA device with numba-cuda: the same device code as on the CPU, one block a tile.

numba-cuda is not a requirement of the project (only training uses it), so this module is imported when device="cuda".
Tensors are passed through __cuda_array_interface__; kernels run on torch's current stream.
"""

import numpy as np
import torch

if not hasattr(np, "row_stack"):  # numba-cuda overloads it on import; numpy 2.5 has dropped the alias
    np.row_stack = np.vstack  # noqa: NPY201
from numba import cuda, float32, int32

from procedural.cpu_render import TILE
from procedural.layout import *
from procedural.single_precision import build_device_code

DEVICE = build_device_code(cuda.jit(device=True, fastmath=True))
_shade_ray, _tile_bit, _to_byte = DEVICE.shade_ray, DEVICE.tile_bit, DEVICE.to_byte
_THREADS = TILE * TILE
_EDGE_THREADS = 128
_HALF, _ONE, _ZERO = np.float32(0.5), np.float32(1.0), np.float32(0.0)


@cuda.jit(fastmath=True)
def render_centres(primitives, materials, cameras, out, near, masks, half_size, inverse_focal, tile, near_limit):
    """One ray a pixel; one block a tile of TILE x TILE pixels. Arguments as in cpu_render.render_centres."""
    P = cuda.shared.array((MAX_PRIMITIVES, PRIMITIVE_SLOTS), float32)
    material = cuda.shared.array(MATERIAL_SLOTS, float32)
    camera = cuda.shared.array(12, float32)
    bits = cuda.shared.array(1, int32)
    v_count, size, tiles = out.shape[1], out.shape[2], masks.shape[2]
    job, thread = cuda.blockIdx.x, cuda.threadIdx.x
    tx, ty = job % tiles, job // tiles % tiles
    view = job // (tiles * tiles)
    v, m = view % v_count, view // v_count
    for k in range(thread, MAX_PRIMITIVES * PRIMITIVE_SLOTS, _THREADS):
        P[k // PRIMITIVE_SLOTS, k % PRIMITIVE_SLOTS] = primitives[m, k // PRIMITIVE_SLOTS, k % PRIMITIVE_SLOTS]
    if thread < MATERIAL_SLOTS:
        material[thread] = materials[m, thread]
    if thread < 12:
        camera[thread] = cameras[m, v, thread]
    if thread == 0:
        bits[0] = 0
    cuda.syncthreads()
    if thread < int(material[COUNT]):
        x0, y0 = float32(tx * TILE), float32(ty * TILE)
        if _tile_bit(P, material, camera, thread, x0, y0, tile, half_size, inverse_focal):
            cuda.atomic.or_(bits, 0, int32(1 << thread))
    cuda.syncthreads()
    mask = int(bits[0])
    if thread == 0:
        masks[m, v, ty, tx] = mask
    x, y = tx * TILE + thread % TILE, ty * TILE + thread // TILE
    if x >= size or y >= size:
        return
    r, g, b, cover, nearest = _ONE, _ONE, _ONE, _ZERO, _ONE
    if mask != 0:
        px, py = float32(x) + _HALF, float32(y) + _HALF
        r, g, b, cover, nearest = _shade_ray(P, material, camera, mask, px, py, half_size, inverse_focal)
    out[m, v, y, x, 0] = _to_byte(r)
    out[m, v, y, x, 1] = _to_byte(g)
    out[m, v, y, x, 2] = _to_byte(b)
    out[m, v, y, x, 3] = _to_byte(cover)
    near[m, v, y, x] = 1 if nearest < near_limit and cover == _ZERO else 0


@cuda.jit(fastmath=True)
def render_edges(primitives, materials, cameras, out, edges, masks, half_size, inverse_focal, samples, step):
    """Sample the listed pixels again; one thread a pixel. Arguments as in cpu_render.render_edges."""
    e = cuda.grid(1)
    if e >= edges.shape[0]:
        return
    v_count, size = out.shape[1], out.shape[2]
    index = edges[e]
    x, y = index % size, index // size % size
    v, m = index // (size * size) % v_count, index // (size * size * v_count)
    mask = int(masks[m, v, y // TILE, x // TILE])
    P, material, camera = primitives[m], materials[m], cameras[m, v]
    r_sum, g_sum, b_sum, cover_sum = _ZERO, _ZERO, _ZERO, _ZERO
    for sample in range(samples * samples):
        px = float32(x) + (float32(sample % samples) + _HALF) * step
        py = float32(y) + (float32(sample // samples) + _HALF) * step
        r, g, b, cover, _ = _shade_ray(P, material, camera, mask, px, py, half_size, inverse_focal)
        r_sum, g_sum, b_sum, cover_sum = r_sum + r, g_sum + g, b_sum + b, cover_sum + cover
    share = _ONE / float32(samples * samples)
    out[m, v, y, x, 0] = _to_byte(r_sum * share)
    out[m, v, y, x, 1] = _to_byte(g_sum * share)
    out[m, v, y, x, 2] = _to_byte(b_sum * share)
    out[m, v, y, x, 3] = _to_byte(cover_sum * share)


def launch_centres(primitives, materials, cameras, out, near, masks, *scalars) -> None:
    """Launch render_centres over all tiles of CUDA tensors."""
    blocks = masks.numel()
    render_centres[blocks, _THREADS, _stream(out)](
        *map(_view, (primitives, materials, cameras, out, near, masks)), *scalars
    )


def launch_edges(primitives, materials, cameras, out, edges, masks, *scalars) -> None:
    """Launch render_edges over the listed pixels of CUDA tensors."""
    blocks = (len(edges) + _EDGE_THREADS - 1) // _EDGE_THREADS
    render_edges[blocks, _EDGE_THREADS, _stream(out)](
        *map(_view, (primitives, materials, cameras, out, edges, masks)), *scalars
    )


def _stream(tensor: torch.Tensor):
    """numba's handle of torch's current stream; the simulator (tensors on the CPU) has but one."""
    if not tensor.is_cuda:
        return 0
    return cuda.external_stream(torch.cuda.current_stream(tensor.device).cuda_stream)


def _view(tensor: torch.Tensor):
    """numba's view of a tensor, without a copy (as_cuda_array with sync=False: one stream orders all)."""
    if not tensor.is_cuda:
        return tensor.numpy()
    return cuda.as_cuda_array(tensor, sync=False)
