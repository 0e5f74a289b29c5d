"""The CPU rasteriser: numba kernels behind torch's autograd, all cameras in one call, float32, deterministic."""

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from gaussians import Gaussians
from rasterize import cpu_binning, cpu_projection, cpu_tiles
from rasterize.definition import (
    ALPHA_MAX,
    ALPHA_MIN,
    EPS2D,
    FOV_MARGIN,
    MEAN_MAX,
    NEAR,
    SCALE_MAX,
    TRANSMITTANCE_MIN,
    Rendered,
)
from rasterize.jobs import run_jobs

# Constants are compiled in, and numba's cache cannot see one change in another file: hence a copy in each.
assert cpu_binning.TILE == cpu_tiles.TILE
_LIMITS = np.array([EPS2D, NEAR, ALPHA_MIN, FOV_MARGIN, MEAN_MAX, SCALE_MAX])
_THRESHOLDS = np.array([ALPHA_MIN, ALPHA_MAX, TRANSMITTANCE_MIN], np.float32)


def rasterize(gaussians: Gaussians, cameras: Cameras, background: Tensor) -> Rendered:
    """Render C images of N Gaussians; see `rasterize.definition`.

    Other dtypes than float32 are computed in float32 and returned in their own. Equal inputs give equal bits, forward
    and backward, whatever the number of threads.

    Args:
        background: [C, 3].
    """
    assert len(gaussians) < 2**24  # a tile's list is counted in float32
    dtype = gaussians.means.dtype
    views = _array(cameras.viewmats), _array(cameras.Ks)
    parameters = [value.float() for value in gaussians.tensors().values()]
    *projected, extents, radii = _Project.apply(*parameters, *views, cameras.width, cameras.height)
    rgb, alpha, depth = _Draw.apply(*projected, extents, radii, _array(background), cameras.width, cameras.height)
    return Rendered(rgb.to(dtype), alpha.to(dtype), depth.to(dtype), projected[0], radii)


def _array(tensor: Tensor) -> np.ndarray:
    """The tensor as a contiguous float32 array, the one type that the kernels are compiled for."""
    return np.ascontiguousarray(tensor.detach().numpy(), dtype=np.float32)


class _Project(torch.autograd.Function):
    """Parameters of the Gaussians -> means2d, conics, depths, colors, opacities, extents, radii (see `Projected`)."""

    @staticmethod
    def forward(ctx, means, quats, log_scales, logit_opacities, sh0, shN, viewmats, Ks, width, height):
        inputs = [_array(t) for t in (means, quats, log_scales, logit_opacities, sh0, shN)]
        c, n = len(viewmats), len(means)
        shapes = (c, n, 2), (c, n, 3), (c, n), (c, n, 3), (n,), (c, n, 2)
        outputs = [torch.empty(shape) for shape in shapes] + [torch.empty(c, n, dtype=torch.int32)]
        arrays = [t.numpy() for t in outputs]
        kernel_inputs = *inputs, viewmats, Ks, width, height, _LIMITS
        run_jobs(cpu_projection.project_forward, n, *kernel_inputs, *arrays)
        ctx.mark_non_differentiable(*outputs[5:])
        ctx.kernel_inputs = kernel_inputs
        ctx.seen = arrays[1], arrays[3], arrays[6]  # conics, colors, radii
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        inputs = ctx.kernel_inputs[:6]
        outputs = [torch.empty(x.shape) for x in inputs]
        arrays = [t.numpy() for t in outputs]
        gradients = [_array(gradient) for gradient in gradients[:5]]
        run_jobs(cpu_projection.project_backward, len(inputs[0]), *ctx.kernel_inputs, *ctx.seen, *gradients, *arrays)
        return *outputs, None, None, None, None


class _Draw(torch.autograd.Function):
    """Projected Gaussians and backgrounds [C, 3] -> rgb, alpha, depth."""

    @staticmethod
    def forward(ctx, means2d, conics, depths, colors, opacities, extents, radii, backgrounds, width, height):
        means2d, conics, depths, colors, opacities, extents = (
            _array(t) for t in (means2d, conics, depths, colors, opacities, extents)
        )
        tile_starts, members, *ctx.sources, boxes = _bin(means2d, depths, extents, radii.numpy(), width, height)
        kernel_inputs = (
            tile_starts, members, means2d, conics, depths, colors, opacities, boxes, backgrounds, _THRESHOLDS,
        )  # fmt: skip
        c = len(depths)
        images = torch.empty(c, height, width, 3), torch.empty(c, height, width), torch.empty(c, height, width)
        transmittances = np.empty((c, height, width), np.float32)
        last_members = np.empty((c, height, width), np.float32)
        arrays = *(t.numpy() for t in images), transmittances, last_members
        run_jobs(cpu_tiles.draw_forward, len(tile_starts) - 1, *kernel_inputs, *arrays)
        ctx.kernel_inputs, ctx.ends = kernel_inputs, (transmittances, last_members)
        return images

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g_rgb, g_alpha, g_depth):
        tile_starts, members, depths = ctx.kernel_inputs[0], ctx.kernel_inputs[1], ctx.kernel_inputs[4]
        partial = np.empty((len(members), cpu_tiles.GRADIENTS), np.float32)
        gradients = _array(g_rgb), _array(g_alpha), _array(g_depth)
        run_jobs(cpu_tiles.draw_backward, len(tile_starts) - 1, *ctx.kernel_inputs, *ctx.ends, *gradients, partial)
        c, n = depths.shape
        outputs = [torch.empty(shape) for shape in ((c, n, 2), (c, n, 3), (c, n), (c, n, 3), (n,))]
        run_jobs(cpu_binning.sum_gradients, n, partial, *ctx.sources, *(t.numpy() for t in outputs))
        return *outputs, None, None, None, None, None


def _bin(means2d, depths, extents, radii, width: int, height: int) -> tuple[np.ndarray, ...]:
    """Lists of Gaussians a tile, front to back.

    Returns:
        tile_starts [C * tiles + 1]: where each tile's list begins in members [I]; starts, counts [C, N]: where the
        positions in `members` of each Gaussian begin in places [I], and how many there are; boxes [C, N, 4] in pixels.
    """
    c, n = radii.shape
    tiles = -(-width // cpu_tiles.TILE) * -(-height // cpu_tiles.TILE)
    boxes = np.empty((c, n, 4), np.int32)
    tile_counts, counts = np.empty((c, tiles), np.int64), np.empty((c, n), np.int64)
    run_jobs(cpu_binning.count_tiles, c, means2d, extents, radii, width, height, boxes, tile_counts, counts)
    tile_starts = np.concatenate([[0], np.cumsum(tile_counts)])
    starts = (np.cumsum(counts) - counts.reshape(-1)).reshape(c, n)
    members, places = np.empty(tile_starts[-1], np.int32), np.empty(tile_starts[-1], np.int64)
    cursors = tile_starts[:-1].reshape(c, tiles).copy()
    run_jobs(cpu_binning.enter_tiles, c, depths, radii, boxes, width, cursors, starts, members, places)
    return tile_starts, members, starts, counts, places, boxes
