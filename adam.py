"""Adam for Gaussians whose number changes: the moments of those that stay are kept."""

import torch
from torch import Tensor

from gaussians import Gaussians


class GaussianAdam:
    """Adam (arXiv:1412.6980), one learning rate a parameter, one age a Gaussian.

    The age counts the steps of each Gaussian for itself, so that the bias correction holds for new ones too: with a
    common counter their first step would be three times too long.
    """

    BETAS, EPS = (0.9, 0.999), 1e-15

    def __init__(self, gaussians: Gaussians, betas: tuple[float, float] = BETAS, eps: float = EPS) -> None:
        self.betas, self.eps = betas, eps
        self.gaussians = gaussians.map(_leaf)
        self.first = {name: torch.zeros_like(value.detach()) for name, value in self.gaussians.tensors().items()}
        self.second = {name: torch.zeros_like(value.detach()) for name, value in self.gaussians.tensors().items()}
        self.ages = gaussians.means.new_zeros(len(gaussians))

    def zero_grad(self) -> None:
        for value in self.gaussians.tensors().values():
            value.grad = None

    @torch.no_grad()
    def non_finite(self) -> Tensor:
        """Gaussians with a parameter or a gradient that is not finite [N], bool."""
        bad = torch.zeros_like(self.ages, dtype=torch.bool)
        for value in self.gaussians.tensors().values():
            for tensor in (value, value.grad):
                if tensor is not None and tensor.numel():
                    bad |= ~tensor.reshape(len(bad), -1).isfinite().all(dim=1)
        return bad

    @torch.no_grad()
    def step(self, rates: dict[str, float]) -> None:
        """One update; parameters without a gradient or a rate stay."""
        beta1, beta2 = self.betas
        self.ages += 1
        correct1, correct2 = 1 - beta1**self.ages, 1 - beta2**self.ages
        for name, value in self.gaussians.tensors().items():
            if value.grad is None or not value.numel() or not rates.get(name):
                continue
            shape = (-1,) + (1,) * (value.dim() - 1)
            first, second = self.first[name], self.second[name]
            first.lerp_(value.grad, 1 - beta1)
            second.mul_(beta2).addcmul_(value.grad, value.grad, value=1 - beta2)
            root = (second / correct2.reshape(shape)).sqrt_().add_(self.eps)
            value.sub_(rates[name] * (first / correct1.reshape(shape)) / root)

    @torch.no_grad()
    def replace(self, gaussians: Gaussians, kept: Tensor) -> None:
        """Go on with other Gaussians: the first len(kept) are those of index kept[i] until now, the rest new."""
        new = len(gaussians) - len(kept)
        assert new >= 0

        def carry(state: Tensor) -> Tensor:
            return torch.cat([state[kept], state.new_zeros(new, *state.shape[1:])])

        self.first = {name: carry(state) for name, state in self.first.items()}
        self.second = {name: carry(state) for name, state in self.second.items()}
        self.ages = carry(self.ages)
        self.gaussians = gaussians.map(_leaf)


def _leaf(value: Tensor) -> Tensor:
    return value.detach().clone(memory_format=torch.contiguous_format).requires_grad_(True)
