"""The plain rasteriser: every Gaussian at every pixel, in torch. Slow, any dtype and device; the others must match it.

Steps 4 to 6 of `rasterize.definition`.
"""

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from cameras import Cameras
from gaussians import Gaussians
from rasterize.definition import ALPHA_MAX, ALPHA_MIN, TRANSMITTANCE_MIN, Rendered
from rasterize.projection import project

_PAIRS = 2**22  # pixels times Gaussians in flight: 32 MiB an intermediate tensor in float64


def rasterize(gaussians: Gaussians, cameras: Cameras, background: Tensor, cutoffs: bool = True) -> Rendered:
    """Render C images of N Gaussians; differentiable, memory bounded by chunks of rows.

    Args:
        background: [C, 3].
        cutoffs: False leaves out ALPHA_MAX, ALPHA_MIN and TRANSMITTANCE_MIN, which makes the result a smooth function
            of the parameters, for numerical gradients.
    """
    seen = project(gaussians, cameras)
    images = []  # [H, W, 5] a camera
    rows_at_once = max(1, _PAIRS // max(1, cameras.width * len(gaussians)))
    for c in range(len(cameras)):
        visible = torch.nonzero(seen.radii[c])[:, 0]
        order = visible[torch.argsort(seen.depths[c, visible].detach().float(), stable=True)]
        depths = seen.depths[c, :, None]
        features = torch.cat([seen.colors[c], torch.ones_like(depths), depths], dim=-1)  # [N, 5]
        inputs = seen.means2d[c, order], seen.conics[c, order], seen.opacities[order], features[order]
        rows = torch.arange(cameras.height, device=features.device).split(rows_at_once)
        # Recomputed in the backward pass: kept, the pairs of a whole image would fill the memory.
        parts = [checkpoint(_draw_rows, *inputs, r, cameras.width, cutoffs, use_reentrant=False) for r in rows]
        images.append(torch.cat(parts))
    image = torch.stack(images) if images else seen.means2d.new_zeros(0, cameras.height, cameras.width, 5)
    rgb, alpha, depth = image[..., :3], image[..., 3], image[..., 4]
    rgb = rgb + (1 - alpha)[..., None] * background[:, None, None, :]
    return Rendered(rgb, alpha, depth, seen.means2d, seen.radii)


def _draw_rows(
    means2d: Tensor, conics: Tensor, opacities: Tensor, features: Tensor, rows: Tensor, width: int, cutoffs: bool
) -> Tensor:
    """Weighted sums of features [N, F] in some rows of one image, [R, W, F]; Gaussians come front to back."""
    y, x = torch.meshgrid(rows + 0.5, torch.arange(width, device=rows.device) + 0.5, indexing="ij")
    offsets = torch.stack([x, y], dim=-1).to(means2d.dtype)[:, :, None] - means2d  # [R, W, N, 2]
    dx, dy = offsets.unbind(-1)
    a, b, c = conics.unbind(-1)
    alphas = opacities * torch.exp(-0.5 * (a * (dx + b * dy).square() + c * dy.square()))  # [R, W, N]
    if cutoffs:
        alphas = alphas.where(alphas >= ALPHA_MIN, alphas.new_zeros(())).clamp_max(ALPHA_MAX)
    transmittances = torch.cumprod(1 - alphas, dim=-1)  # behind each Gaussian
    before = torch.cat([torch.ones_like(transmittances[..., :1]), transmittances[..., :-1]], dim=-1)
    weights = alphas * before[..., : alphas.shape[-1]]
    if cutoffs:  # transmittances only fall, so that everything behind the end is left out too
        weights = weights.where(transmittances >= TRANSMITTANCE_MIN, weights.new_zeros(()))
    return weights @ features
