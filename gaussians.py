"""3D Gaussians: the parameters that the optimiser holds, and their activated values."""

from dataclasses import dataclass, fields

import torch
from torch import Tensor

from errors import UserError

SH_C0 = 0.28209479177387814  # the constant spherical harmonic, 1 / (2 sqrt(pi))


@dataclass
class Gaussians:
    """N Gaussians in world units.

    means [N, 3]; quats [N, 4] as w, x, y, z, of any length but zero; log_scales [N, 3] (natural logarithm of the
    standard deviations); logit_opacities [N]; sh0 [N, 1, 3], shN [N, K - 1, 3]: spherical harmonics, K = (degree+1)^2,
    colour = max(0, 0.5 + sum of coefficient times basis), in sRGB as displayed.
    """

    means: Tensor
    quats: Tensor
    log_scales: Tensor
    logit_opacities: Tensor
    sh0: Tensor
    shN: Tensor

    def __post_init__(self) -> None:
        n = self.means.shape[0]
        bases = self.shN.shape[1] + 1 if self.shN.ndim == 3 else 0
        expected = {
            "means": (n, 3), "quats": (n, 4), "log_scales": (n, 3), "logit_opacities": (n,), "sh0": (n, 1, 3),
            "shN": (n, max(bases - 1, 0), 3),
        }  # fmt: skip
        for name, shape in expected.items():
            if tuple(getattr(self, name).shape) != shape:
                raise ValueError(f"{name} must be {list(shape)}, got {list(getattr(self, name).shape)}")
        if bases not in (1, 4, 9, 16):
            raise ValueError(f"shN must hold 0, 3, 8 or 15 coefficients (degree 0 to 3), got {bases - 1}")

    def __len__(self) -> int:
        return self.means.shape[0]

    @classmethod
    def create(
        cls, means: Tensor, scales: Tensor, opacities: Tensor, rgb: Tensor | None = None, quats: Tensor | None = None
    ) -> "Gaussians":
        """From activated values, SH degree 0: scales [N, 3] > 0, opacities [N] in [0, 1], rgb [N, 3] (default grey)."""
        n = means.shape[0]
        if quats is None:
            quats = means.new_tensor([1.0, 0.0, 0.0, 0.0]).repeat(n, 1)
        rgb = means.new_full((n, 3), 0.5) if rgb is None else rgb
        # Within 1e-6 of 0 and 1 the logit would be infinite, or lost in float32.
        logits = torch.logit(opacities, eps=1e-6)
        return cls(means, quats, scales.log(), logits, (rgb[:, None, :] - 0.5) / SH_C0, means.new_zeros(n, 0, 3))

    @property
    def scales(self) -> Tensor:
        """Standard deviations along the local axes [N, 3]."""
        return self.log_scales.exp()

    @property
    def opacities(self) -> Tensor:
        """Opacities in [0, 1] [N]."""
        return self.logit_opacities.sigmoid()

    @property
    def rgb(self) -> Tensor:
        """View-independent part of the colours [N, 3]."""
        return (0.5 + SH_C0 * self.sh0[:, 0]).clamp_min(0.0)

    @property
    def sh_degree(self) -> int:
        return {0: 0, 3: 1, 8: 2, 15: 3}[self.shN.shape[1]]

    def tensors(self) -> dict[str, Tensor]:
        """The parameters by name, not copied."""
        return {f.name: getattr(self, f.name) for f in fields(self)}

    def map(self, function) -> "Gaussians":
        """`function` applied to every parameter."""
        return Gaussians(**{name: function(value) for name, value in self.tensors().items()})

    def to(self, *args, **kwargs) -> "Gaussians":
        """As Tensor.to, for device and dtype."""
        return self.map(lambda value: value.to(*args, **kwargs))

    def double(self) -> "Gaussians":
        return self.map(Tensor.double)

    def detach(self) -> "Gaussians":
        return self.map(Tensor.detach)

    def widened(self, variance: float) -> "Gaussians":
        """Blurred by a Gaussian of this variance (world units²) to all sides, their peaks kept."""
        wider = 0.5 * torch.log(torch.exp(2.0 * self.log_scales) + variance)
        return Gaussians(**{**self.tensors(), "log_scales": wider})

    def __getitem__(self, index) -> "Gaussians":
        """The Gaussians at `index` (a mask, an index tensor, or a slice)."""
        return self.map(lambda value: value[index])


def concatenate(parts: list[Gaussians]) -> Gaussians:
    """All Gaussians of `parts`, which share one SH degree, in order."""
    if len({part.sh_degree for part in parts}) != 1:
        raise UserError(f"Gaussians of SH degrees {[part.sh_degree for part in parts]} cannot be joined")
    return Gaussians(**{name: torch.cat([getattr(p, name) for p in parts]) for name in parts[0].tensors()})


def rotation_matrices(quats: Tensor) -> Tensor:
    """Rotations [N, 3, 3] of quaternions [N, 4] (w, x, y, z) of any length; the zero quaternion counts as identity."""
    norms = quats.norm(dim=-1, keepdim=True)
    identity = quats.new_tensor([1.0, 0.0, 0.0, 0.0])
    w, x, y, z = torch.where(norms > 0, quats / norms.clamp_min(torch.finfo(quats.dtype).tiny), identity).unbind(-1)
    rows = [
        1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y),
        2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x),
        2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y),
    ]  # fmt: skip
    return torch.stack(rows, dim=-1).reshape(-1, 3, 3)
