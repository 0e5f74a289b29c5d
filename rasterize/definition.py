"""What a rendered Gaussian is: one definition, the same in every backend.

Elliptical weighted average splatting (Zwicker et al. 2001), as 3D Gaussian splatting (arXiv:2308.04079) uses it and
gsplat (arXiv:2409.06765) writes it out. For a camera with world-to-camera rotation W and a Gaussian with mean m,
rotation R and standard deviations s:

1. t = W m + translation; m' = (fx t_x / t_z + cx, fy t_y / t_z + cy) in pixels; the depth is t_z.
2. cov2d = M M^T + EPS2D I with M = J W R diag(s), J the Jacobian of the perspective projection at t, where t_x / t_z
   and t_y / t_z are first clamped to the field of view widened by FOV_MARGIN on each side.
   Its determinant is a sum of squares (Cauchy-Binet), so that needles do not lose it to cancellation.
3. colour = max(0, 0.5 + sum of SH coefficients times basis), seen along the direction from the camera's centre to m.
4. At pixel centre p: q = (p - m')^T cov2d^-1 (p - m'), alpha = min(ALPHA_MAX, opacity exp(-q / 2)); nothing is drawn
   where opacity exp(-q / 2) < ALPHA_MIN.
5. Front to back, sorted by the depth rounded to float32, ties by index: weight = alpha T, T <- T (1 - alpha). The
   Gaussian that would take T below TRANSMITTANCE_MIN is not drawn and ends the pixel.
6. rgb = sum weight colour + (1 - sum weight) background; alpha = sum weight; depth = sum weight t_z.

Culled, with zero gradients: t_z <= NEAR, a parameter that is not finite, |mean| > MEAN_MAX, a standard deviation above
SCALE_MAX, opacity < ALPHA_MIN, or no reach into the image. Intrinsics with skew are not supported.
"""

from dataclasses import dataclass

from torch import Tensor

EPS2D = 0.3  # pixels^2 added to both variances: a Gaussian is never thinner than about half a pixel
NEAR = 0.01  # world units
ALPHA_MAX = 0.999  # keeps 1 - alpha away from 0: the backward pass divides by it
ALPHA_MIN = 1.0 / 255.0  # one step of an 8-bit image
TRANSMITTANCE_MIN = 1e-4
FOV_MARGIN = 0.3  # of tan(half the field of view); beyond it the linearised projection is useless
MEAN_MAX = 1e6  # world units; with SCALE_MAX the bound within which float32 products stay finite
SCALE_MAX = 1e4  # world units


@dataclass
class Rendered:
    """Images of C cameras, differentiable with respect to every parameter of the Gaussians.

    rgb [C, H, W, 3] over the background; alpha [C, H, W], the coverage in [0, 1]; depth [C, H, W], the accumulated sum
    of weight times camera depth, not divided by alpha; means2d [C, N, 2] in pixels, part of the graph: after
    `means2d.retain_grad()` and a backward pass its `.grad` holds the screen-space gradients that densification wants;
    radii [C, N] int32, half the longer side of the bounding box in pixels, 0 for a Gaussian that is not visible.
    """

    rgb: Tensor
    alpha: Tensor
    depth: Tensor
    means2d: Tensor
    radii: Tensor
