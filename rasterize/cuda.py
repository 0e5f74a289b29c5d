"""The CUDA rasteriser: our kernels behind torch's autograd, all cameras in one launch each, float32, deterministic."""

import torch
from torch import Tensor

from cameras import Cameras
from errors import UserError
from gaussians import Gaussians
from rasterize.cuda_buffers import LANES_A_GAUSSIAN, SUMS, Buffers, make_buffers, wait_for_entries
from rasterize.definition import Rendered

_THREADS = 256  # of kernels with a thread a Gaussian in an image
_BACKWARD_THREADS = 128  # of project_backward
_OUT_OF_MEMORY = "the GPU has no memory left to render {}: render fewer or smaller images at once"


def rasterize(gaussians: Gaussians, cameras: Cameras, background: Tensor) -> Rendered:
    """Render C images of N Gaussians; see `rasterize.definition`.

    Other dtypes than float32 are computed in float32 and returned in their own. Equal inputs give equal bits, forward
    and backward: nothing is summed in an order that depends on timing.

    Args:
        gaussians: on a CUDA device, which need not be the current one.
        background: [C, 3].
    Raises:
        UserError: the GPU's memory does not hold it.
        BackendUnavailable: the Gaussians are not on a GPU, or kernels cannot run there.
    """
    dtype, device = gaussians.means.dtype, gaussians.means.device
    parameters = [_float32(value) for value in gaussians.tensors().values()]
    viewmats, Ks = _float32(cameras.viewmats.detach()), _float32(cameras.Ks.detach())
    c, n, width, height = len(cameras), len(gaussians), cameras.width, cameras.height
    try:
        buffers = make_buffers(device, c, n, width, height, 1 + gaussians.shN.shape[1])
        means2d, packed, radii = _Project.apply(*parameters, viewmats, Ks, buffers)
        rgb, alpha, depth = _Draw.apply(means2d, packed, *_background(background), buffers)
    except torch.OutOfMemoryError as error:
        raise UserError(_OUT_OF_MEMORY.format(f"{c} images of {n} Gaussians")) from error
    if dtype != torch.float32:
        rgb, alpha, depth = rgb.to(dtype), alpha.to(dtype), depth.to(dtype)
    return Rendered(rgb, alpha, depth, means2d, radii)


def _float32(tensor: Tensor) -> Tensor:
    """The tensor itself where it already is what the kernels read."""
    return tensor.to(torch.float32).contiguous()


def _background(background: Tensor) -> tuple[Tensor, int]:
    """Colours, and how many numbers lie between those of two images: 0 for one colour."""
    background = background.detach()
    if len(background) and background.stride(0) == 0:
        return _float32(background[0]), 0
    return _float32(background), 3


class _Project(torch.autograd.Function):
    """Parameters of the Gaussians -> means2d [C, N, 2], packed [C, N, 8] (conic, opacity, depth, colour), radii."""

    @staticmethod
    def forward(ctx, means, quats, log_scales, logits, sh0, shN, viewmats, Ks, buffers: Buffers):
        b = buffers
        means2d = torch.empty(b.c, b.n, 2, device=b.device)
        packed = torch.empty(b.c, b.n, 8, device=b.device)
        radii = torch.empty(b.c, b.n, dtype=torch.int32, device=b.device)
        b.project.launch(
            "project_forward", max(1, -(-b.c * b.n // _THREADS)), _THREADS,
            means, quats, log_scales, logits, sh0, shN, viewmats, Ks, b.c, b.n, b.width, b.height, b.columns, b.rows,
            means2d, packed, radii, b.spans, b.counters, b.tile_begins, b.waiter.address,
            int(b.waiter.keeps_largest),
        )  # fmt: skip
        b.waiter.record()
        ctx.mark_non_differentiable(radii)
        ctx.set_materialize_grads(False)
        ctx.save_for_backward(means, quats, log_scales, logits, sh0, shN)
        ctx.kept = viewmats, Ks, packed.detach(), radii
        ctx.buffers = buffers
        return means2d, packed, radii

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, g_means2d, g_packed, _):
        if g_means2d is None and g_packed is None:
            return (None,) * 9
        b = ctx.buffers
        means, quats, log_scales, logits, sh0, shN = ctx.saved_tensors
        viewmats, Ks, packed, radii = ctx.kept
        g_means2d, g_packed = (None if g is None else g.contiguous() for g in (g_means2d, g_packed))
        try:
            outputs = [torch.empty_like(value) for value in (means, quats, log_scales, logits, sh0, shN)]
        except torch.OutOfMemoryError as error:
            raise UserError(_OUT_OF_MEMORY.format(f"gradients of {b.n} Gaussians")) from error
        b.project.launch(
            "project_backward", -(-b.n * LANES_A_GAUSSIAN // _BACKWARD_THREADS), _BACKWARD_THREADS,
            means, quats, log_scales, logits, shN, viewmats, Ks, b.c, b.n, b.width, b.height,
            packed, radii, g_means2d, g_packed, *outputs,
        )  # fmt: skip
        return *outputs, None, None, None


class _Draw(torch.autograd.Function):
    """Projected Gaussians and backgrounds -> rgb, alpha, depth."""

    @staticmethod
    def forward(ctx, means2d, packed, background, background_stride: int, buffers: Buffers):
        b = buffers
        shape = b.c, b.height, b.width
        rgb = torch.empty(*shape, 3, device=b.device)
        alpha, depth, transmittances = (torch.empty(shape, device=b.device) for _ in range(3))
        last_entries = torch.empty(shape, dtype=torch.int32, device=b.device)
        while True:
            b.keys = torch.empty(b.capacity, dtype=torch.int64, device=b.device)
            b.bins.launch(
                "fill_tiles", -(-b.c * b.n // _THREADS), _THREADS,
                b.spans, packed, b.c, b.n, b.columns, b.rows, b.tile_begins, b.counters[-b.tiles :], b.capacity, b.keys,
            )  # fmt: skip
            b.bins.launch("sort_tiles", b.tiles, 256, b.tile_begins, b.capacity, b.keys)
            b.draw.launch(
                "draw_forward", b.tiles, 32,
                b.tile_begins, b.capacity, b.keys, means2d, packed, background, background_stride,
                b.n, b.width, b.height, b.columns, b.rows, rgb, alpha, depth, transmittances, last_entries,
            )  # fmt: skip
            if wait_for_entries(b):
                break
        ctx.set_materialize_grads(False)
        ctx.kept = means2d.detach(), packed.detach(), background, background_stride, transmittances, last_entries
        ctx.buffers = buffers
        return rgb, alpha, depth

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, *gradients):
        b = ctx.buffers
        means2d, packed, background, background_stride, transmittances, last_entries = ctx.kept
        gradients = [None if g is None else g.contiguous() for g in gradients]
        try:
            partial = torch.empty(b.room, SUMS, device=b.device)
            g_means2d, g_packed = torch.empty_like(means2d), torch.empty_like(packed)
        except torch.OutOfMemoryError as error:
            raise UserError(_OUT_OF_MEMORY.format(f"gradients of {b.c} images of {b.n} Gaussians")) from error
        b.draw.launch(
            "draw_backward", b.tiles, 32,
            b.tile_begins, b.room, b.keys, b.spans, means2d, packed, background, background_stride,
            b.n, b.width, b.height, b.columns, b.rows, transmittances, last_entries, *gradients, partial,
        )  # fmt: skip
        b.draw.launch(
            "sum_gradients", -(-b.c * b.n * (SUMS // 2) // _THREADS), _THREADS,
            partial, b.spans, packed, b.c * b.n, b.room, g_means2d, g_packed,
        )  # fmt: skip
        return g_means2d, g_packed, None, None, None
