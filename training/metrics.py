"""Picture metrics of the evaluation; pictures [..., C, H, W] in [0, 1]."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor


def psnr(a: Tensor, b: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB of each picture, [N, C, H, W] -> [N]; equal pictures give 100."""
    return -10 * (a - b).square().mean((1, 2, 3)).clamp(min=1e-10).log10()


def ssim(a: Tensor, b: Tensor) -> Tensor:
    """Structural similarity (Wang et al. 2004: 11 x 11 Gaussian of 1.5 px, K = .01, .03), [N, C, H, W] -> [N]."""
    steps = torch.arange(11, device=a.device, dtype=a.dtype) - 5
    window = (-0.5 * (steps / 1.5).square()).exp()
    window = window / window.sum()
    channels = a.shape[1]

    def blur(x: Tensor) -> Tensor:
        x = F.conv2d(x, window.view(1, 1, 11, 1).expand(channels, 1, 11, 1), groups=channels)
        return F.conv2d(x, window.view(1, 1, 1, 11).expand(channels, 1, 1, 11), groups=channels)

    mean_a, mean_b = blur(a), blur(b)
    var_a, var_b = blur(a * a) - mean_a**2, blur(b * b) - mean_b**2
    cov = blur(a * b) - mean_a * mean_b
    c1, c2 = 0.01**2, 0.03**2
    score = (2 * mean_a * mean_b + c1) * (2 * cov + c2) / ((mean_a**2 + mean_b**2 + c1) * (var_a + var_b + c2))
    return score.mean((1, 2, 3))


def coverage_iou(a: Tensor, b: Tensor) -> Tensor:
    """Intersection over union of coverages [N, H, W] cut at one half -> [N]; two empty ones give 1."""
    a, b = a > 0.5, b > 0.5
    union = (a | b).sum((1, 2))
    return torch.where(union > 0, (a & b).sum((1, 2)) / union.clamp(min=1), 1.0)
