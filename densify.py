"""More Gaussians where the picture asks for them, fewer where they do nothing; and the size of the first ones.

After 3D Gaussian splatting (arXiv:2308.04079), section 5, with two differences: the gradients of all views count, and a
cloned pair shares the opacity of the one that it replaces.
"""

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from gaussians import Gaussians, concatenate, rotation_matrices
from profiling import profiled

SPLIT_SHRINK = 1.6  # the paper's phi, by which the halves of a split Gaussian are smaller
SMALLEST_SCALE = 1e-4  # world units; coincident points would otherwise start with none


class GradientStatistics:
    """How hard each Gaussian's projected centre is pulled, averaged over all views and steps that saw it."""

    def __init__(self, count: int, device: torch.device) -> None:
        self.total = torch.zeros(count, device=device)
        self.seen = torch.zeros(count, device=device)

    @torch.no_grad()
    def add(self, means2d_grad: Tensor, radii: Tensor, width: int, height: int) -> None:
        """Take in one step.

        Args:
            means2d_grad: gradient of the sum of the views' losses with respect to the centres in pixels [C, N, 2].
            radii: extents in pixels [C, N] (or [C, N, 2]); 0 where a view does not show the Gaussian.
        """
        # Half the image is one unit: the threshold then does not depend on the size of the picture.
        pull = means2d_grad * means2d_grad.new_tensor([width / 2, height / 2])
        visible = (radii > 0) if radii.dim() == 2 else (radii > 0).all(-1)
        norms = torch.where(visible, pull.norm(dim=-1), torch.zeros_like(pull[..., 0]))
        self.total += torch.nan_to_num(norms, nan=0.0, posinf=0.0).sum(0)
        self.seen += visible.sum(0)

    def mean(self) -> Tensor:
        """[N]; 0 for a Gaussian that was never seen."""
        return self.total / self.seen.clamp_min(1.0)

    def select(self, kept: Tensor) -> None:
        """Go on with the Gaussians `kept` (indices) alone."""
        self.total, self.seen = self.total[kept], self.seen[kept]


@dataclass(frozen=True)
class Edit:
    """A changed set: the first len(kept) of `gaussians` carry on those of index kept[i], the rest are new."""

    gaussians: Gaussians
    kept: Tensor


@profiled
def initial_scales(points: Tensor) -> Tensor:
    """Root mean square distance of each point [N, 3] to its 3 nearest neighbours [N]; finite for any points."""
    from scipy.spatial import cKDTree

    n = points.shape[0]
    neighbours = min(3, n - 1)
    if neighbours <= 0:
        return points.new_full((n,), 0.05)
    positions = points.detach().cpu().double().numpy()
    distances, _ = cKDTree(positions).query(positions, k=neighbours + 1)
    scales = np.sqrt((distances[:, 1:] ** 2).mean(axis=1))
    return torch.from_numpy(scales).to(points).clamp_min(SMALLEST_SCALE)


@profiled
@torch.no_grad()
def grow(
    gaussians: Gaussians,
    pull: Tensor,
    generator: torch.Generator,
    *,
    threshold: float,
    split_scale: float,
    max_count: int,
) -> Edit:
    """Clone the small and split the large among the Gaussians that are pulled harder than `threshold`.

    Args:
        pull: mean gradients [N] of GradientStatistics.
        split_scale: largest standard deviation above which a Gaussian is split, world units.
        max_count: no more Gaussians than this; the hardest pulled go first.
    """
    n = len(gaussians)
    wanted = pull > threshold
    room = max(0, max_count - n)
    if int(wanted.sum()) > room:
        order = torch.argsort(pull, descending=True, stable=True)
        wanted = wanted & torch.zeros_like(wanted).index_fill_(0, order[:room], True)
    large = gaussians.scales.amax(dim=1) > split_scale
    cloned, split = (wanted & ~large).nonzero()[:, 0], (wanted & large).nonzero()[:, 0]

    # 1 - (1 - o')^2 = o: two on one spot cover what the one did, so that a clone does not change the picture.
    logits = gaussians.logit_opacities.clone()
    shared = 1 - (1 - gaussians.opacities[cloned].clamp_max(1 - 1e-6)).sqrt()
    logits[cloned] = torch.logit(shared, eps=1e-6)
    base = Gaussians(**{**gaussians.tensors(), "logit_opacities": logits})

    kept = (~(wanted & large)).nonzero()[:, 0]
    halves = torch.cat([split, split])
    children = base[halves]
    children.means = children.means + _sample_offsets(children, generator)
    children.log_scales = children.log_scales - float(np.log(SPLIT_SHRINK))
    twins = base[cloned]
    # On the very same spot the two would take the same steps for ever.
    twins.means = twins.means + 0.3 * _sample_offsets(twins, generator)
    return Edit(concatenate([base[kept], twins, children]), kept)


def _sample_offsets(gaussians: Gaussians, generator: torch.Generator) -> Tensor:
    """A displacement drawn from each Gaussian [N, 3]."""
    normal = torch.randn(len(gaussians), 3, generator=generator).to(gaussians.means)
    local = normal * gaussians.scales
    return (rotation_matrices(gaussians.quats) @ local[:, :, None])[:, :, 0]


def is_finite(gaussians: Gaussians) -> Tensor:
    """Gaussians [N] all of whose parameters are finite."""
    finite = torch.ones(len(gaussians), dtype=torch.bool, device=gaussians.means.device)
    for value in gaussians.tensors().values():
        if value.numel():
            finite &= value.detach().reshape(len(finite), -1).isfinite().all(dim=1)
    return finite


@torch.no_grad()
def worth_keeping(gaussians: Gaussians, min_opacity: float, max_scale: float) -> Tensor:
    """Gaussians [N] that are finite, can be seen and are not too large."""
    seen = (gaussians.opacities >= min_opacity) & (gaussians.scales.amax(dim=1) <= max_scale)
    return is_finite(gaussians) & seen


@torch.no_grad()
def bound_shapes(gaussians: Gaussians, max_scale: float, max_ratio: float) -> None:
    """Clip in place: no standard deviation above max_scale, none below the largest of its Gaussian / max_ratio."""
    gaussians.log_scales.clamp_(max=float(np.log(max_scale)))
    longest = gaussians.log_scales.amax(dim=1, keepdim=True)
    torch.maximum(gaussians.log_scales, longest - float(np.log(max_ratio)), out=gaussians.log_scales)
