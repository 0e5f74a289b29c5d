"""Gradients of the density field to the Gaussians: the sums that a backend makes over nodes, and the chain rule.

With y = diag(1 / scales) R^T (x - mean) a contribution is v = opacity exp(-|y|^2 / 2), and a loss with gradient g at
the nodes needs, of each Gaussian, ten sums over the nodes of its support: of g v, of g v y and of g v y y^T. They are
of order 1 whatever its size and shape, so nothing is lost on the thin ones. The rest is a few products a Gaussian.
"""

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from devices import enough_memory
from gaussians import Gaussians, rotation_matrices
from mesh_extract.gradients_cuda import field_gradients_on_gpu
from mesh_extract.grid import GridSpec
from mesh_extract.support import SMALLEST_SCALE, precision_factors, squared_radii

_NAMES = ("means", "quats", "log_scales", "logit_opacities")


def requires_gradient(gaussians: Gaussians) -> bool:
    """Whether a parameter that the density depends on requires a gradient."""
    return any(getattr(gaussians, name).requires_grad for name in _NAMES)


def differentiable_field(compute, gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The field by a backend's function `compute`, as a node of autograd's graph."""
    return _DensityField.apply(*(getattr(gaussians, name) for name in _NAMES), gaussians.detach(), compute, grid)


class _DensityField(torch.autograd.Function):
    @staticmethod
    def forward(ctx, means, quats, log_scales, logit_opacities, gaussians, compute, grid):
        ctx.save_for_backward(means, quats, log_scales, logit_opacities)
        ctx.grid = grid
        dtype = torch.float64 if means.dtype == torch.float64 else torch.float32
        return compute(gaussians, grid).to(device=means.device, dtype=dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx, gradient):
        parameters = ctx.saved_tensors
        compute = field_gradients_on_gpu if gradient.is_cuda else field_gradients
        what, advice = f"the backward pass of {len(parameters[0])} Gaussians", "try fewer of them, or slabs of the grid"
        with enough_memory(what, gradient.device, advice):
            gradients = compute(parameters, ctx.grid, gradient)
        cast = (value.to(like.dtype) for value, like in zip(gradients, parameters, strict=True))
        return *cast, None, None, None


def field_gradients(parameters: tuple[Tensor, ...], grid: GridSpec, gradient: Tensor) -> tuple[Tensor, ...]:
    """Gradients to means, quats, log_scales and logit_opacities, float64, of a loss with `gradient` at the nodes.

    On the CPU, in a fixed order: the sums by numba, the chain rule in torch.
    """
    means, quats, log_scales, logit_opacities = (value.detach().double() for value in parameters)
    scales, opacities = log_scales.exp().clamp_min(SMALLEST_SCALE), logit_opacities.sigmoid()
    rotations = rotation_matrices(quats)
    whitening = rotations.transpose(1, 2) / scales[:, :, None]  # [N, 3, 3], y = whitening (x - mean)
    sums = _sums_over_supports(means, quats, scales, opacities, whitening, grid, gradient)  # [N, 10]

    total, first, second = sums[:, 0], sums[:, 1:4], sums[:, 4:]
    xx, xy, xz, yy, yz, zz = second.unbind(-1)
    to_means = (whitening.transpose(1, 2) @ first[:, :, None])[:, :, 0]
    to_log_scales = torch.stack([xx, yy, zz], dim=-1)
    to_logits = total * torch.sigmoid(-logit_opacities)
    # A small turn w of the local axes changes v by v w . (b x y / s), b = s y; as a quaternion it is q (0, w / 2).
    sx, sy, sz = scales.unbind(-1)
    turn = torch.stack([yz * (sy / sz - sz / sy), xz * (sz / sx - sx / sz), xy * (sx / sy - sy / sx)], dim=-1)
    return to_means, _turn_to_quats(quats, turn), to_log_scales, to_logits


def _turn_to_quats(quats: Tensor, turn: Tensor) -> Tensor:
    """The gradient [N, 4] to quaternions of any length of that to a turn [N, 3] of the axes: 2 q (0, turn) / |q|^2."""
    squared = quats.square().sum(dim=-1, keepdim=True)
    w, x, y, z = quats.unbind(-1)
    a, b, c = turn.unbind(-1)
    product = torch.stack([-x * a - y * b - z * c, w * a + y * c - z * b, w * b + z * a - x * c, w * c + x * b - y * a])
    # The zero quaternion counts as the identity, whatever its neighbours are: no gradient.
    return torch.where(squared > 0, 2 * product.T / squared.clamp_min(torch.finfo(quats.dtype).tiny), 0.0)


def _sums_over_supports(means, quats, scales, opacities, whitening, grid: GridSpec, gradient: Tensor) -> Tensor:
    """The ten sums of every Gaussian [N, 10], float64."""
    from mesh_extract.gradients_numba import sum_over_supports  # the JIT compiler is slow to import

    packed = torch.cat(
        [
            (means - means.new_tensor(grid.lower)) / grid.voxel_size,
            precision_factors(quats, scales) * grid.voxel_size,
            whitening.flatten(1) * grid.voxel_size,
            squared_radii(opacities)[:, None],
            opacities[:, None],
        ],
        dim=1,
    )
    sums = torch.zeros(len(means), 10, dtype=torch.float64)
    weights = gradient.detach().double().contiguous()
    sum_over_supports(packed.numpy(), weights.numpy(), grid.first_x, sums.numpy())
    return sums
