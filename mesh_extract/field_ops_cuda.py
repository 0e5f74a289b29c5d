"""Operations on the nodes of a grid on the GPU: cuda_ext/kernels/field_ops.cu."""

import math

import numpy as np
import torch
from torch import Tensor

from cuda_ext import load_module
from errors import UserError

_THREADS = 256
FAR = 1 << 30  # squared distance where nothing is marked; leaves room to add to it


def blur(values: Tensor, kernel: np.ndarray, axes: tuple[int, ...]) -> Tensor:
    """Convolve along some axes with a symmetric kernel, given from the middle outwards [radius + 1], float64."""
    entry = "blur_axis_double" if values.dtype == torch.float64 else "blur_axis"
    module, weights = load_module("field_ops", values.device), torch.from_numpy(kernel.copy()).to(values.device)
    values = values.detach().contiguous()
    for axis in axes:
        blurred = torch.empty_like(values)
        length, inner = _axis(values.shape, axis)
        module.launch(
            entry, _blocks(values), _THREADS,
            values, weights, len(kernel) - 1, length, inner, values.numel(), blurred,
        )  # fmt: skip
        values = blurred
    return values


def squared_distances(marked: Tensor) -> Tensor:
    """As morphology.squared_distances."""
    module, marked = load_module("field_ops", marked.device), marked.contiguous()
    squared = torch.empty(marked.shape, dtype=torch.int32, device=marked.device)
    last = marked.ndim - 1
    line = _axis(marked.shape, last)
    module.launch("distance_in_lines", _blocks(marked), _THREADS, marked, FAR, *line, marked.numel(), squared)
    for axis in range(last - 1, -1, -1):
        further = torch.empty_like(squared)
        line = _axis(marked.shape, axis)
        module.launch("distance_across_lines", _blocks(marked), _THREADS, squared, *line, marked.numel(), further)
        squared = further
    return squared


def parts_with(mask: Tensor, seeds: Tensor, corners: bool) -> Tensor:
    """As morphology.parts_with."""
    count, device = mask.numel(), mask.device
    if count >= 2**31:
        raise UserError(f"a grid of {' x '.join(map(str, mask.shape))} nodes: expected fewer than 2^31 on a GPU")
    module, mask, seeds = load_module("field_ops", device), mask.contiguous(), seeds.contiguous()
    parents = torch.empty(mask.shape, dtype=torch.int32, device=device)
    held, reached = torch.zeros_like(mask), torch.empty_like(mask)
    module.launch("start_parts", _blocks(mask), _THREADS, mask, mask.shape[2], count, parents)
    module.launch("join_parts", _blocks(mask), _THREADS, mask, *mask.shape, int(corners), count, parents)
    module.launch("mark_parts", _blocks(mask), _THREADS, seeds, count, parents, held)
    module.launch("spread_parts", _blocks(mask), _THREADS, held, count, parents, reached)
    return reached


def _blocks(values: Tensor) -> int:
    return -(-values.numel() // _THREADS)


def _axis(shape: torch.Size, axis: int) -> tuple[int, int]:
    """Number of elements along an axis, and their distance in memory."""
    return shape[axis], math.prod(shape[axis + 1 :])
