"""Back-projection and the nearest marked texel on the GPU: cuda_ext/kernels/bake.cu."""

import torch
from torch import Tensor

from cuda_ext import load_module

_THREADS = 128


def backproject(
    positions: Tensor, normals: Tensor, cameras: tuple[Tensor, Tensor, Tensor], pictures: Tensor, confidence: Tensor,
    depth: Tensor, sharpness: float, least_cosine: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """Colours [T, 3] and weights [T]; `cameras`: viewmats [C, 4, 4], intrinsics [C, 3, 3] and centres [C, 3]."""
    count, (views, height, width) = len(positions), depth.shape
    colors = torch.empty((count, 3), device=depth.device)
    weights = torch.empty(count, device=depth.device)
    load_module("bake", depth.device).launch(
        "backproject", -(-count // _THREADS), _THREADS,
        positions, normals, *cameras, pictures, confidence, depth,
        count, views, width, height, float(sharpness), least_cosine, colors, weights,
    )  # fmt: skip
    return colors, weights


def nearest_marked(marked: Tensor) -> Tensor:
    """For every pixel of `marked` [H, W] (bool) the index of the nearest marked one, of several the first; int64."""
    height, width = marked.shape
    module, grid = load_module("bake", marked.device), (-(-width // _THREADS), height)
    rows = torch.empty((height, width), dtype=torch.int32, device=marked.device)
    nearest = torch.empty((height, width), dtype=torch.int64, device=marked.device)
    module.launch("nearest_in_columns", grid, _THREADS, marked, width, height, rows)
    module.launch("nearest_of_columns", grid, _THREADS, rows, width, height, nearest)
    return nearest
