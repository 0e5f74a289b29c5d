"""Measures of pictures and surfaces, each one plain function of arrays.

Pictures are [..., H, W, C] torch tensors in [0, 1] (as `gs_renderer.render` returns them); the leading dimensions are
kept, so one call measures a whole batch. A prior's [B, C, H, W] goes through `.movedim(-3, -1)` first.
"""

import math

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

MSE_FLOOR = 1e-10  # equal pictures count as 100 dB, so that a mean over pictures stays finite
SSIM_WINDOW = 11
SSIM_SIGMA = 1.5
IOU_THRESHOLD = 0.5
FSCORE_DISTANCE = 0.05  # world units: 1/16 of the half side of a typical object
SURFACE_POINTS = 20_000


def psnr(pictures: Tensor, truth: Tensor) -> Tensor:
    """Peak signal-to-noise ratio in dB, 10 log10(1 / MSE), of each picture.

    Args:
        pictures, truth: [..., H, W, C] in [0, 1], shapes that broadcast.
    Returns:
        [...] float32 or float64 as the inputs; 100 dB at most.
    """
    error = (pictures - truth).square().mean(dim=(-3, -2, -1))
    return -10 * torch.log10(error.clamp_min(MSE_FLOOR))


def ssim(pictures: Tensor, truth: Tensor) -> Tensor:
    """Structural similarity of each picture.

    Wang, Bovik, Sheikh and Simoncelli, "Image quality assessment: from error visibility to structural similarity",
    IEEE TIP 13(4), 2004: Gaussian window 11 x 11 with sigma 1.5, K1 = 0.01, K2 = 0.03, range 1, population variances;
    the mean over the channels and over the pixels whose window lies wholly inside the picture.

    Args:
        pictures, truth: [..., H, W, C] in [0, 1], shapes that broadcast; H and W at least 11.
    Returns:
        [...] in [-1, 1].
    Raises:
        ValueError: a picture is smaller than the window.
    """
    pictures, truth = torch.broadcast_tensors(pictures, truth)
    *batch, height, width, channels = pictures.shape
    if min(height, width) < SSIM_WINDOW:
        raise ValueError(f"pictures must be at least {SSIM_WINDOW} pixels high and wide, got {height} x {width}")
    # float64: E[x^2] - E[x]^2 cancels where a picture is flat, and most of these pictures is flat white.
    x, y = (p.double().movedim(-1, -3).reshape(-1, 1, height, width) for p in (pictures, truth))
    mean_x, mean_y = _window_mean(x), _window_mean(y)
    variance_x = _window_mean(x * x) - mean_x * mean_x
    variance_y = _window_mean(y * y) - mean_y * mean_y
    covariance = _window_mean(x * y) - mean_x * mean_y
    c1, c2 = 0.01**2, 0.03**2
    luminance = (2 * mean_x * mean_y + c1) / (mean_x * mean_x + mean_y * mean_y + c1)
    structure = (2 * covariance + c2) / (variance_x + variance_y + c2)
    return (luminance * structure).mean(dim=(1, 2, 3)).reshape(*batch, channels).mean(-1).to(pictures.dtype)


def _window_mean(x: Tensor) -> Tensor:
    """Gaussian-weighted means [M, 1, H - 10, W - 10] of [M, 1, H, W], the window applied along each axis in turn."""
    offsets = torch.arange(SSIM_WINDOW, dtype=x.dtype, device=x.device) - SSIM_WINDOW // 2
    window = torch.exp(-0.5 * (offsets / SSIM_SIGMA) ** 2)
    window = window / window.sum()
    return F.conv2d(F.conv2d(x, window[None, None, :, None]), window[None, None, None, :])


def alpha_iou(alphas: Tensor, truth: Tensor, threshold: float = IOU_THRESHOLD) -> Tensor:
    """Intersection over union of the silhouettes alpha >= threshold, of each picture; two empty ones agree wholly.

    Args:
        alphas, truth: [..., H, W] in [0, 1], shapes that broadcast.
    Returns:
        [...] float32 in [0, 1].
    """
    inside, expected = alphas >= threshold, truth >= threshold
    union = (inside | expected).sum(dim=(-2, -1))
    intersection = (inside & expected).sum(dim=(-2, -1))
    return torch.where(union > 0, intersection / union.clamp_min(1), 1.0).float()


def sample_surface(vertices: np.ndarray, faces: np.ndarray, count: int, seed: int) -> np.ndarray:
    """Points spread evenly over a surface [count, 3], float64.

    A mesh without area gives one point, the origin: no surface must cost more than a wrong one, and an infinite
    distance would hide every other object of a mean.
    """
    rng = np.random.default_rng(seed)
    corners = np.asarray(vertices, dtype=np.float64)[np.asarray(faces, dtype=np.int64).reshape(-1, 3)]  # [F, 3, 3]
    first, second = corners[:, 1] - corners[:, 0], corners[:, 2] - corners[:, 0]
    areas = np.linalg.norm(np.cross(first, second), axis=1) / 2
    total = areas.sum()
    if not total > 0:
        return np.zeros((1, 3))
    chosen = rng.choice(len(areas), size=count, p=areas / total)
    # A uniform point of the parallelogram; points of the far half are turned back into the triangle.
    u, v = rng.random((2, count, 1))
    far = u + v > 1
    u, v = np.where(far, 1 - u, u), np.where(far, 1 - v, v)
    return corners[chosen, 0] + u * first[chosen] + v * second[chosen]


def chamfer_and_fscore(
    points: np.ndarray, truth: np.ndarray, distance: float = FSCORE_DISTANCE
) -> tuple[float, float]:
    """Distance between two sampled surfaces, and how much of them lies together.

    Chamfer distance: half the sum of the two mean distances to the nearest point of the other set (not squared).
    F-score (Knapitsch et al. 2017, "Tanks and Temples"): harmonic mean of the share of `points` within `distance` of
    the truth and of the share of the truth within `distance` of `points`.

    Args:
        points [N, 3], truth [M, 3]: points on the surfaces, world units; N, M > 0.
        distance: world units.
    Returns:
        Chamfer distance in world units, F-score in [0, 1].
    """
    from scipy.spatial import cKDTree

    to_truth, _ = cKDTree(truth).query(points)
    to_points, _ = cKDTree(points).query(truth)
    chamfer = 0.5 * (to_truth.mean() + to_points.mean())
    precision, recall = (to_truth <= distance).mean(), (to_points <= distance).mean()
    fscore = 2 * precision * recall / (precision + recall) if precision + recall > 0 else 0.0
    assert math.isfinite(chamfer)
    return float(chamfer), float(fscore)
