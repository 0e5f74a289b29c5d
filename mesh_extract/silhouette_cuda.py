"""The loops of `auto_threshold` and `carve` on the GPU: cuda_ext/kernels/silhouette.cu."""

import numpy as np
import torch
from torch import Tensor

from cuda_ext import load_module

_THREADS = 128


def largest_along_rays(density: Tensor, origins: Tensor, directions: Tensor, step: float, enough: float) -> Tensor:
    """As silhouettes.largest_along_rays."""
    cameras, each, _ = directions.shape
    largest = torch.empty((cameras, each), device=density.device)
    load_module("silhouette", density.device).launch(
        "largest_along_rays", -(-cameras * each // _THREADS), _THREADS,
        density, *density.shape, origins, directions, cameras * each, each, np.float64(step), np.float64(enough),
        largest,
    )  # fmt: skip
    return largest


def least_coverage(positions: Tensor, viewmats: Tensor, intrinsics: Tensor, alphas: Tensor) -> Tensor:
    """As silhouettes.least_coverage."""
    least = torch.empty(len(positions), device=alphas.device)
    cameras, height, width = alphas.shape
    load_module("silhouette", alphas.device).launch(
        "least_coverage", -(-len(positions) // _THREADS), _THREADS,
        positions, viewmats, intrinsics, alphas, len(positions), cameras, width, height, least,
    )  # fmt: skip
    return least
