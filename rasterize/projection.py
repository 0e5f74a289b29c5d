"""Gaussians as a camera sees them, in torch: steps 1 to 3 of `rasterize.definition`, for any dtype and device."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from cameras import Cameras
from gaussians import SH_C0, Gaussians, rotation_matrices
from rasterize.definition import ALPHA_MIN, EPS2D, FOV_MARGIN, MEAN_MAX, NEAR, SCALE_MAX

SH_C1 = 0.4886025119029199  # sqrt(3 / (4 pi))
SH_C2 = (1.0925484305920792, 0.31539156525252005, 0.5462742152960396)
SH_C3 = (0.5900435899266435, 2.890611442640554, 0.4570457994644658, 0.3731763325901154, 1.445305721320277)


@dataclass
class Projected:
    """N Gaussians in C images.

    means2d [C, N, 2] in pixels; conics [C, N, 3], the inverse of the covariance in pixels, factorised as a, b, c with
    q = a (dx + b dy)^2 + c dy^2: the usual xx, xy, yy lose a needle's q to cancellation in float32; depths [C, N];
    colors [C, N, 3]; opacities [N]; extents [C, N, 2], half the sides of the box outside of which alpha is below
    ALPHA_MIN; radii [C, N] int32, 0 where culled.
    """

    means2d: Tensor
    conics: Tensor
    depths: Tensor
    colors: Tensor
    opacities: Tensor
    extents: Tensor
    radii: Tensor


def project(gaussians: Gaussians, cameras: Cameras) -> Projected:
    """Project every Gaussian into every camera; what is culled gets radius 0, finite values and no gradient."""
    finite = _finite_parameters(gaussians)
    # Replaced before anything is computed from them: a masked result would still send 0 * inf = NaN backwards.
    safe = gaussians.map(lambda value: value.where(finite.reshape(-1, *[1] * (value.ndim - 1)), value.new_zeros(())))

    rotations, translations = cameras.viewmats[:, :3, :3], cameras.viewmats[:, :3, 3]
    points = torch.einsum("cij,nj->cni", rotations, safe.means) + translations[:, None]  # [C, N, 3], camera axes
    in_front = finite & (points[..., 2] > NEAR)
    points = points.where(in_front[..., None], points.new_tensor([0.0, 0.0, 1.0]))
    means2d, jacobians = _perspective(points, cameras)
    variances, conics = _covariances(jacobians @ rotations[:, None], rotation_matrices(safe.quats), safe.scales)

    opacities = safe.opacities
    reach = 2 * torch.log((opacities.detach() / ALPHA_MIN).clamp_min(1.0))  # the q at which alpha = ALPHA_MIN [N]
    extents = (reach[None, :, None] * variances.detach()).sqrt()  # [C, N, 2]
    size = extents.new_tensor([cameras.width, cameras.height])
    touches = ((means2d + extents > 0) & (means2d - extents < size)).all(dim=-1)
    visible = in_front & touches & (opacities >= ALPHA_MIN)
    radii = torch.where(visible, extents.amax(dim=-1).clamp(1, 2**30).ceil(), 0).to(torch.int32)

    directions = torch.nn.functional.normalize(safe.means - cameras.centers[:, None], dim=-1)  # [C, N, 3]
    colors = sh_colors(directions, safe.sh0, safe.shN)
    return Projected(means2d, conics, points[..., 2], colors, opacities, extents, radii)


def sh_colors(directions: Tensor, sh0: Tensor, shN: Tensor) -> Tensor:
    """Colours [..., N, 3] of spherical harmonics sh0 [N, 1, 3], shN [N, K - 1, 3] seen along unit `directions`."""
    coefficients = torch.cat([sh0, shN], dim=1)  # [N, K, 3]
    basis = sh_basis(directions, coefficients.shape[1])  # [..., N, K]
    return (0.5 + torch.einsum("...nk,nkc->...nc", basis, coefficients)).clamp_min(0.0)


def sh_basis(directions: Tensor, count: int) -> Tensor:
    """The first `count` (1, 4, 9 or 16) real spherical harmonics, in the order and signs of splat .ply files."""
    x, y, z = directions.unbind(-1)
    xx, yy, zz = x * x, y * y, z * z
    basis = [torch.full_like(x, SH_C0), -SH_C1 * y, SH_C1 * z, -SH_C1 * x]
    if count > 4:
        basis += [
            SH_C2[0] * x * y, -SH_C2[0] * y * z, SH_C2[1] * (2 * zz - xx - yy), -SH_C2[0] * x * z,
            SH_C2[2] * (xx - yy),
        ]  # fmt: skip
    if count > 9:
        basis += [
            -SH_C3[0] * y * (3 * xx - yy), SH_C3[1] * x * y * z, -SH_C3[2] * y * (4 * zz - xx - yy),
            SH_C3[3] * z * (2 * zz - 3 * xx - 3 * yy), -SH_C3[2] * x * (4 * zz - xx - yy),
            SH_C3[4] * z * (xx - yy), -SH_C3[0] * x * (xx - 3 * yy),
        ]  # fmt: skip
    return torch.stack(basis[:count], dim=-1)


def _finite_parameters(gaussians: Gaussians) -> Tensor:
    """Whether a Gaussian's parameters are finite and within the bounds of the definition [N]."""
    parameters = gaussians.detach().tensors().values()
    flat = [value.reshape(len(gaussians), math.prod(value.shape[1:])) for value in parameters]
    finite = torch.cat(flat, dim=1).isfinite().all(dim=1)
    bounded = (gaussians.means.detach().abs() <= MEAN_MAX) & (gaussians.scales.detach() <= SCALE_MAX)
    return finite & bounded.all(dim=1)


def _perspective(points: Tensor, cameras: Cameras) -> tuple[Tensor, Tensor]:
    """Pixel positions [C, N, 2] of camera-space points, and the Jacobians [C, N, 2, 3] there."""
    focals = torch.stack([cameras.Ks[:, 0, 0], cameras.Ks[:, 1, 1]], dim=-1)[:, None]  # [C, 1, 2]
    centres = cameras.Ks[:, None, :2, 2]
    z = points[..., 2:]
    slopes = points[..., :2] / z  # [C, N, 2]
    size = slopes.new_tensor([cameras.width, cameras.height])
    margin = FOV_MARGIN * 0.5 * size / focals
    clamped = torch.minimum(torch.maximum(slopes, -centres / focals - margin), (size - centres) / focals + margin)
    diagonal = torch.diag_embed((focals / z).expand_as(slopes))
    return focals * slopes + centres, torch.cat([diagonal, (-focals * clamped / z)[..., None]], dim=-1)


def _covariances(linear: Tensor, rotations: Tensor, scales: Tensor) -> tuple[Tensor, Tensor]:
    """Variances along x and y [C, N, 2] and factorised conics [C, N, 3] from world-to-pixel maps [C, N, 2, 3]."""
    axes = linear @ rotations  # [C, N, 2, 3], images of the local axes
    spread = axes * scales[:, None, :]
    var_x, var_y = spread.square().sum(dim=-1).unbind(-1)
    cov_xy = spread.prod(dim=-2).sum(dim=-1)
    minors = torch.linalg.cross(axes[..., 0, :], axes[..., 1, :], dim=-1)  # of the axis pairs 12, 20, 01
    areas = minors * scales.roll(-1, dims=-1) * scales.roll(-2, dims=-1)
    determinant = areas.square().sum(dim=-1) + EPS2D * (var_x + var_y) + EPS2D**2
    var_x, var_y = var_x + EPS2D, var_y + EPS2D
    conics = torch.stack([var_y / determinant, -cov_xy / var_y, 1 / var_y], dim=-1)
    return torch.stack([var_x, var_y], dim=-1), conics
