"""The CPU rasteriser: numba kernels behind torch's autograd, all cameras in one call, float32, deterministic."""

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras
from gaussians import Gaussians
from rasterize import cpu_projection, cpu_tiles
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

_LIMITS = np.array([EPS2D, NEAR, ALPHA_MIN, FOV_MARGIN, MEAN_MAX, SCALE_MAX])
_THRESHOLDS = np.array([ALPHA_MIN, ALPHA_MAX, TRANSMITTANCE_MIN], np.float32)


def rasterize(gaussians: Gaussians, cameras: Cameras, background: Tensor) -> Rendered:
    """Render C images of N Gaussians; see `rasterize.definition`.

    Other dtypes than float32 are computed in float32 and returned in their own. Equal inputs give equal bits, forward
    and backward, whatever the number of threads.

    Args:
        background: [C, 3].
    """
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
        cpu_projection.project_forward(*inputs, viewmats, Ks, width, height, _LIMITS, *arrays)
        ctx.mark_non_differentiable(*outputs[5:])
        ctx.kernel_inputs = *inputs, viewmats, Ks, width, height, _LIMITS
        ctx.seen = arrays[1], arrays[3], arrays[6]  # conics, colors, radii
        return tuple(outputs)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        inputs = ctx.kernel_inputs[:6]
        outputs = [torch.empty(x.shape) for x in inputs]
        arrays = [t.numpy() for t in outputs]
        cpu_projection.project_backward(*ctx.kernel_inputs, *ctx.seen, *map(_array, gradients[:5]), *arrays)
        return *outputs, None, None, None, None


class _Draw(torch.autograd.Function):
    """Projected Gaussians and backgrounds [C, 3] -> rgb, alpha, depth."""

    @staticmethod
    def forward(ctx, means2d, conics, depths, colors, opacities, extents, radii, backgrounds, width, height):
        means2d, conics, depths, colors, opacities, extents = (
            _array(t) for t in (means2d, conics, depths, colors, opacities, extents)
        )
        tile_starts, members, starts, places = cpu_tiles.bin_gaussians(
            means2d, depths, extents, radii.numpy(), width, height
        )
        kernel_inputs = (
            tile_starts, members, means2d, conics, depths, colors, opacities, extents, backgrounds, _THRESHOLDS,
        )  # fmt: skip
        c = len(depths)
        images = torch.empty(c, height, width, 3), torch.empty(c, height, width), torch.empty(c, height, width)
        transmittances = np.empty((c, height, width), np.float32)
        last_members = np.empty((c, height, width), np.int32)
        cpu_tiles.draw_forward(*kernel_inputs, *(t.numpy() for t in images), transmittances, last_members)
        ctx.kernel_inputs, ctx.ends, ctx.places = kernel_inputs, (transmittances, last_members), (starts, places)
        return images

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g_rgb, g_alpha, g_depth):
        members, depths, opacities = ctx.kernel_inputs[1], ctx.kernel_inputs[4], ctx.kernel_inputs[6]
        partial = np.empty((len(members), cpu_tiles.GRADIENTS), np.float32)
        cpu_tiles.draw_backward(*ctx.kernel_inputs, *ctx.ends, *map(_array, (g_rgb, g_alpha, g_depth)), partial)
        c, n = depths.shape
        outputs = [torch.empty(shape) for shape in ((c, n, 2), (c, n, 3), (c, n), (c, n, 3), opacities.shape)]
        cpu_tiles.sum_gradients(partial, *ctx.places, *(t.numpy() for t in outputs))
        return *outputs, None, None, None, None, None
