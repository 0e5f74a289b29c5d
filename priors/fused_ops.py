"""What stands between the matrix products of a diffusion network, in one or two passes over half-precision values.

PyTorch takes a pass, and a kernel's latency, for every bias, activation and sum, and its GroupNorm copies a
channels_last picture to the other layout, from which the next convolution copies it back. Each function here computes
by our kernels where its input is half precision on a GPU, and as PyTorch does elsewhere.
"""

from __future__ import annotations

import functools

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from cuda_ext import KernelModule, load_module, why_unavailable

_VECTOR = 8  # values a thread reads at once
_THREADS = 256  # a block, about
_BLOCKS = 1056  # that keep the largest GPU busy: eight on each of 132 multiprocessors
_MOST_CHANNELS = 4096  # of the kernels' shared memory


def group_norm(x: Tensor, norm: nn.GroupNorm, silu: bool = False, shift: Tensor | None = None) -> Tensor:
    """norm(x + shift), then SiLU if asked for; pictures x [N, C, H, W], shift [N, C]."""
    fits = norm.weight.dtype == x.dtype and x.shape[1] % _VECTOR == 0 and x.shape[1] <= _MOST_CHANNELS
    if fits and _has_kernels(x):
        return _group_norm(x.contiguous(memory_format=torch.channels_last), norm, silu, shift)
    if shift is not None:
        x = x + shift[:, :, None, None]
    x = F.group_norm(x, norm.num_groups, norm.weight, norm.bias, norm.eps)
    return F.silu(x) if silu else x


def add_biased(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    """a + b + bias of pictures [N, C, H, W], bias [C]."""
    alike = a.shape == b.shape and a.dtype == b.dtype == bias.dtype and a.shape[1] % _VECTOR == 0
    if alike and _has_kernels(a):
        return _add_biased(*(t.contiguous(memory_format=torch.channels_last) for t in (a, b)), bias)
    return a + b + bias[:, None, None]


def geglu(x: Tensor) -> Tensor:
    """[..., 2 C] -> [..., C]: the first half times GELU of the second."""
    if x.shape[-1] % (2 * _VECTOR) == 0 and _has_kernels(x) and x.is_contiguous():
        return _geglu(x)
    value, gate = x.chunk(2, dim=-1)
    return value * F.gelu(gate)


def _has_kernels(x: Tensor) -> bool:
    half = x.dtype in (torch.float16, torch.bfloat16)
    if torch.compiler.is_compiling():  # its own kernels take more together
        return False
    return half and x.numel() > 0 and x.device.type == "cuda" and _available(x.device)


@functools.cache
def _available(device: torch.device) -> bool:
    return why_unavailable(device) is None


def _module(name: str, x: Tensor) -> KernelModule:
    return load_module(name, x.device, BFLOAT=int(x.dtype == torch.bfloat16))


def _group_norm(x: Tensor, norm: nn.GroupNorm, silu: bool, shift: Tensor | None) -> Tensor:
    pictures, channels, height, width = x.shape
    pixels, groups = height * width, norm.num_groups
    vectors = channels // _VECTOR
    threads = -(-max(1, _THREADS // vectors) * vectors // 32) * 32  # whole warps
    rows = threads // vectors  # pixels that a block reads at once
    slabs = max(1, min(-(-pixels // (4 * rows)), _BLOCKS // pictures))
    slab = -(-pixels // slabs)
    slabs = -(-pixels // slab)
    out = torch.empty_like(x, memory_format=torch.channels_last)
    moments = torch.empty(pictures, slabs, groups, 3, device=x.device)
    x, result = x.permute(0, 2, 3, 1), out.permute(0, 2, 3, 1)
    shift = None if shift is None else shift.to(x.dtype).contiguous()
    module = _module("group_norm", x)
    module.launch(
        "group_norm_moments", (slabs, pictures), threads, x, shift, pixels, channels, groups, slab, moments,
        shared_bytes=rows * channels * 8,
    )  # fmt: skip
    module.launch(
        "group_norm_apply", (slabs, pictures), threads, x, shift, moments, norm.weight, norm.bias, pixels, channels,
        groups, slab, float(norm.eps), int(silu), result, shared_bytes=groups * 8,
    )  # fmt: skip
    return out


def _add_biased(a: Tensor, b: Tensor, bias: Tensor) -> Tensor:
    out = torch.empty_like(a, memory_format=torch.channels_last)
    vectors = a.numel() // _VECTOR
    tensors = (a.permute(0, 2, 3, 1), b.permute(0, 2, 3, 1), bias)
    _module("network_ops", a).launch(
        "add_biased", -(-vectors // _THREADS), _THREADS, *tensors, vectors, a.shape[1], out.permute(0, 2, 3, 1)
    )
    return out


def _geglu(x: Tensor) -> Tensor:
    channels = x.shape[-1] // 2
    out = x.new_empty(*x.shape[:-1], channels)
    vectors = out.numel() // _VECTOR
    _module("network_ops", x).launch("geglu", -(-vectors // _THREADS), _THREADS, x, vectors, channels, out)
    return out
