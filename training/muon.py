"""Muon: momentum whose matrices are made orthogonal before they are applied.

After Keller Jordan's description (kellerjordan.github.io/posts/muon): the update of a matrix is U V^T of its Nesterov
momentum, found by a quintic Newton-Schulz iteration in bfloat16. Matrices of one shape are iterated as one batch.
"""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import Tensor

NEWTON_SCHULZ = (3.4445, -4.7750, 2.0315)  # steep at 0, so that 5 iterations bring singular values near 1


def orthogonalise(matrices: Tensor, steps: int = 5) -> Tensor:
    """Replace singular values by about 1 (.7 to 1.2): [K, rows, cols] -> the same, bfloat16."""
    a, b, c = NEWTON_SCHULZ
    x = matrices.bfloat16()
    tall = x.shape[1] > x.shape[2]
    if tall:
        x = x.mT
    x = x / (x.norm(dim=(1, 2), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(torch.optim.Optimizer):
    """Muon over matrices; a [3 d, d] matrix is taken as three (query, key, value) apart.

    Args:
        params: two-dimensional parameters.
        lr: step size in units of the orthogonal update; scaled by sqrt(max(1, rows / cols)).
        momentum: of the Nesterov average.
        weight_decay: decoupled, times lr.
    """

    def __init__(self, params, lr: float = 0.02, momentum: float = 0.95, weight_decay: float = 0.01) -> None:
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        assert closure is None
        for group in self.param_groups:
            params = [p for p in group["params"] if p.grad is not None]
            if not params:
                continue
            for p in params:
                if not self.state[p]:
                    self.state[p]["momentum"] = torch.zeros_like(p)
            averages = [self.state[p]["momentum"] for p in params]
            grads = [p.grad for p in params]
            torch._foreach_lerp_(averages, grads, 1 - group["momentum"])
            ahead = torch._foreach_lerp(grads, averages, group["momentum"])  # Nesterov
            torch._foreach_mul_(params, 1 - group["lr"] * group["weight_decay"])

            by_shape: dict[tuple[int, int], list[tuple[Tensor, Tensor]]] = defaultdict(list)
            for p, update in zip(params, ahead, strict=True):
                rows, cols = p.shape
                parts = 3 if rows == 3 * cols else 1
                for target, part in zip(p.chunk(parts), update.chunk(parts), strict=True):
                    by_shape[tuple(target.shape)].append((target, part))
            for (rows, cols), pairs in by_shape.items():
                updates = orthogonalise(torch.stack([part for _, part in pairs])).to(pairs[0][0].dtype)
                step_size = group["lr"] * max(1.0, rows / cols) ** 0.5
                torch._foreach_add_([target for target, _ in pairs], list(updates.unbind(0)), alpha=-step_size)
