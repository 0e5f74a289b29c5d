"""What each Gaussian is to a density field: its place, shape and reach, in float64 and without determinants."""

import math

import numpy as np
import torch
from torch import Tensor

from errors import UserError
from gaussians import Gaussians, rotation_matrices

# A contribution o exp(-q / 2) below this is dropped: part of the field's definition, the same in every backend.
CUTOFF = 1e-5
# Standard deviations below this (world units) count as this, so that 1 / scale and its square stay finite.
SMALLEST_SCALE = 1e-12


def check_finite(gaussians: Gaussians) -> None:
    """Raise a UserError that names the first parameter with NaN or infinite values (opacity logits may be infinite)."""
    for name in ("means", "quats", "log_scales", "logit_opacities"):
        value = getattr(gaussians, name)
        bad = value.isnan() if name == "logit_opacities" else ~value.isfinite()
        if bad.any():
            raise UserError(f"gaussians.{name} holds {int(bad.sum())} values that are not finite")


def precision_factors(quats: Tensor, scales: Tensor) -> Tensor:
    """Triangular factors of the inverse covariances.

    With W = diag(1 / scales) R^T the inverse covariance is W^T W. Gram-Schmidt on W's columns from the last to the
    first, W = Q L, leaves L lower triangular with L^T L = W^T W. So
    q(d) = (l0 dx)^2 + (l1 dx + l2 dy)^2 + (l3 dx + l4 dy + l5 dz)^2,
    which never squares a condition number: a splat a million times wider than it is thick keeps its shape.

    Args:
        quats: [N, 4] w, x, y, z of any length; zero counts as identity.
        scales: standard deviations [N, 3], world units.
    Returns:
        L's lower triangle by rows [N, 6], l0, l2, l5 > 0, float64.
    """
    rotations = rotation_matrices(quats.double())
    whitening = rotations.transpose(1, 2) / scales.double().clamp_min(SMALLEST_SCALE)[:, :, None]  # [N, 3, 3]
    x, y, z = whitening.unbind(-1)  # columns [N, 3]
    l5 = z.norm(dim=-1)
    unit = z / l5[:, None]
    l4, l3 = (unit * y).sum(-1), (unit * x).sum(-1)
    y, x = y - l4[:, None] * unit, x - l3[:, None] * unit
    l2 = y.norm(dim=-1).clamp_min(1e-300)
    unit = y / l2[:, None]
    l1 = (unit * x).sum(-1)
    # |det L| = prod(1 / scales): steadier than the norm of what is left of x when that is nearly nothing.
    l0 = (1.0 / scales.double().clamp_min(SMALLEST_SCALE)).prod(dim=-1) / (l2 * l5)
    return torch.stack([l0, l1, l2, l3, l4, l5], dim=-1)


def squared_radii(opacities: Tensor, cutoff: float = CUTOFF) -> Tensor:
    """The q at which opacities [N] exp(-q / 2) falls to `cutoff` [N]; negative where it never reaches it."""
    return 2.0 * (opacities.clamp_min(torch.finfo(opacities.dtype).tiny).log() - math.log(cutoff))


def half_extents(quats: Tensor, scales: Tensor, radii_squared: Tensor) -> Tensor:
    """Half sides [N, 3] of the axis-aligned boxes around the ellipsoids q(d) <= radii_squared [N]; 0 for negative."""
    deviations = torch.einsum("nij,nj->ni", rotation_matrices(quats) ** 2, scales**2).sqrt()
    return deviations * radii_squared.clamp_min(0.0).sqrt()[:, None]


def support_boxes(gaussians: Gaussians, level: float) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Boxes around the regions where each Gaussian alone is at least `level`: lower, upper [N, 3]; opacities [N]."""
    check_finite(gaussians)
    moved = gaussians.detach().to("cpu").double()
    opacities = moved.opacities
    half = half_extents(moved.quats, moved.scales, squared_radii(opacities, level))
    return (moved.means - half).numpy(), (moved.means + half).numpy(), opacities.numpy()
