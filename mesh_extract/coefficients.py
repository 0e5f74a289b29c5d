"""exp(-q / 2) of Gaussians at points: what the Python loops over a density field call, on the CPU and on a GPU."""

import torch
from torch import Tensor

from cuda_ext import load_module
from devices import enough_memory
from errors import UserError

_BLOCK = 256  # threads; one a pair
_DTYPES = {torch.float32: "gaussian_3d_coeff", torch.float64: "gaussian_3d_coeff_double"}


def gaussian_3d_coeff(points: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """exp(-q / 2) of every Gaussian at every point.

    On a GPU it is one kernel, one thread a pair; elsewhere torch, which is the reference.

    Args:
        points: [P, 3], world units, float32 or float64.
        means: [G, 3], world units.
        factors: [G, 6] triangular factors of the inverse covariances, as from `precision_factors`.
    Returns:
        [P, G], dtype and device of `points`.
    Raises:
        UserError: a shape, dtype or device does not fit, and the message names the argument; too little memory.
        BackendUnavailable: the tensors are on a GPU and kernels cannot run there.
    """
    for name, value, width in (("points", points, 3), ("means", means, 3), ("factors", factors, 6)):
        if value.ndim != 2 or value.shape[1] != width:
            raise UserError(f"{name} must be [*, {width}], got {list(value.shape)}")
        if value.device != points.device:
            raise UserError(f"{name} must be on {points.device} like points, got {value.device}")
    if means.shape[0] != factors.shape[0]:
        raise UserError(f"factors must be [{means.shape[0]}, 6] to match means, got {list(factors.shape)}")
    if points.dtype not in _DTYPES:
        raise UserError(f"points must be float32 or float64, got {points.dtype}")
    what = f"gaussian_3d_coeff of {len(points)} points and {len(means)} Gaussians"
    with enough_memory(what, points.device, "try fewer at once"):
        means, factors = means.to(points.dtype), factors.to(points.dtype)
        compute = coefficients_on_gpu if points.is_cuda else coefficients_in_torch
        return compute(points, means, factors)


def coefficients_in_torch(points: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """The reference of `gaussian_3d_coeff`, on any device."""
    dx, dy, dz = (points[:, None, axis] - means[None, :, axis] for axis in range(3))  # [P, G] each
    l0, l1, l2, l3, l4, l5 = factors.unbind(-1)
    # In place from here on: three products and two sums a pair are what this costs, not the memory of each.
    q = (dz.mul_(l5).addcmul_(dy, l4).addcmul_(dx, l3)).square_()
    q.add_((dy.mul_(l2).addcmul_(dx, l1)).square_())
    q.add_((dx.mul_(l0)).square_())
    return q.mul_(-0.5).exp_()


def coefficients_on_gpu(points: Tensor, means: Tensor, factors: Tensor) -> Tensor:
    """`gaussian_3d_coeff` by its kernel, in kernels/gaussian_3d_coeff.cu."""
    count, gaussians = len(points), len(means)
    values = points.new_empty(count, gaussians)
    module = load_module("gaussian_3d_coeff", points.device)
    blocks = -(-count * gaussians // _BLOCK)
    arguments = (value.detach().contiguous() for value in (points, means, factors))
    module.launch(_DTYPES[points.dtype], blocks, _BLOCK, *arguments, count, gaussians, values)
    return values
