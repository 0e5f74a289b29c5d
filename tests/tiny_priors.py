"""Priors with tiny random networks that do something at every layer."""

from collections.abc import Callable

import torch

from config import PriorConfig
from priors.base import Prior
from priors.embedded import EmbeddedPrior
from priors.tiny_zero123 import TinyZero123, TinyZero123Config


def tiny_network(seed: int = 0) -> TinyZero123:
    """16 px, 2 blocks of width 32."""
    generator = torch.Generator().manual_seed(seed)
    config = TinyZero123Config(image_size=16, width=32, depth=2, heads=2, stem_channels=8, middle_channels=8)
    model = TinyZero123(config)
    for parameter in model.parameters():  # many layers start at zero; smaller weights than these leave attention idle
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return model.eval().requires_grad_(False)


def tiny_embedded(joint: bool = True, guidance: float = 2.0, device: str = "cpu") -> EmbeddedPrior:
    return EmbeddedPrior(PriorConfig(joint=joint, guidance=guidance), torch.device(device), tiny_network())


# Every prior enters here: the contract tests of test_priors_base.py run on it.
TINY_PRIORS: dict[str, Callable[[], Prior]] = {"embedded": tiny_embedded}
