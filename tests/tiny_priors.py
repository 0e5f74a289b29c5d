"""Priors with tiny random networks that do something at every layer."""

import functools
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from checkpoint_doubles import write_zero123
from mvdream_doubles import write_multiview

from config import PriorConfig
from priors.base import Prior
from priors.embedded import EmbeddedPrior
from priors.mvdream import ImageDreamPrior, MVDreamPrior
from priors.tiny_zero123 import TinyZero123, TinyZero123Config
from priors.zero123 import Zero123Prior


def tiny_network(seed: int = 0) -> TinyZero123:
    """16 px, 3 blocks of width 32."""
    generator = torch.Generator().manual_seed(seed)
    config = TinyZero123Config(image_size=16, width=32, depth=3, heads=2, stem_channels=8, middle_channels=8)
    model = TinyZero123(config)
    for parameter in model.parameters():  # many layers start at zero; smaller weights than these leave attention idle
        torch.nn.init.normal_(parameter, std=0.3, generator=generator)
    return model.eval().requires_grad_(False)


def tiny_embedded(joint: bool = True, guidance: float = 2.0, device: str = "cpu") -> EmbeddedPrior:
    return EmbeddedPrior(PriorConfig(joint=joint, guidance=guidance), torch.device(device), tiny_network())


@functools.cache
def _tiny_zero123_folder() -> tempfile.TemporaryDirectory:
    """Gone when the interpreter ends."""
    folder = tempfile.TemporaryDirectory(prefix="tiny-zero123-")
    write_zero123(Path(folder.name))
    return folder


def tiny_zero123(variant: str = "stable-zero123", device: str = "cpu") -> Zero123Prior:
    config = PriorConfig(name="zero123", variant=variant, weights=_tiny_zero123_folder().name, guidance=3.0)
    return Zero123Prior(config, torch.device(device))


@functools.cache
def _tiny_multiview_folder(with_picture: bool) -> tempfile.TemporaryDirectory:
    """Gone when the interpreter ends."""
    folder = tempfile.TemporaryDirectory(prefix="tiny-multiview-")
    write_multiview(Path(folder.name), with_picture)
    return folder


def tiny_multiview(kind: type[MVDreamPrior], device: str = "cpu") -> MVDreamPrior:
    """MVDream or ImageDream."""
    config = PriorConfig(name=kind.variant, weights=_tiny_multiview_folder(kind.takes_picture).name, guidance=2.0)
    return kind(config, torch.device(device))


# Every prior enters here: the contract tests of test_priors_base.py run on it.
TINY_PRIORS: dict[str, Callable[[], Prior]] = {
    "embedded": tiny_embedded,
    "zero123": tiny_zero123,
    "imagedream": functools.partial(tiny_multiview, ImageDreamPrior),
    "mvdream": functools.partial(tiny_multiview, MVDreamPrior),
}
