"""Target pictures of an object with the cameras that see them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

import cameras as camera_batches
from cameras import Cameras

if TYPE_CHECKING:
    from prepare import PreparedImage
    from priors.base import Prior


@dataclass(frozen=True)
class Views:
    """V pictures: rgb [V, H, W, 3] over white; alpha [V, H, W], coverage, or None where no picture knows it.

    known [V]: which pictures know their coverage, where only some do (the alpha of the others is 0 and means nothing);
    None: all that have an alpha.
    """

    cameras: Cameras
    rgb: Tensor
    alpha: Tensor | None
    known: Tensor | None = None

    def __len__(self) -> int:
        return self.rgb.shape[0]

    def __getitem__(self, index: Tensor) -> Views:
        alpha, known = (None if values is None else values[index] for values in (self.alpha, self.known))
        return Views(self.cameras[index], self.rgb[index], alpha, known)

    def coverage_weights(self) -> Tensor:
        """1 for pictures that know their coverage, 0 for others [V]: what their losses are multiplied by."""
        if self.alpha is None:
            return self.rgb.new_zeros(len(self))
        return self.rgb.new_ones(len(self)) if self.known is None else self.known.to(self.rgb)

    def finite(self) -> Views:
        """Those views in which every pixel is a number."""
        good = self.rgb.flatten(1).isfinite().all(dim=1)
        if self.alpha is not None:
            good &= self.alpha.flatten(1).isfinite().all(dim=1)
        return self if bool(good.all()) else self[good.nonzero()[:, 0]]


def concatenate(parts: list[Views]) -> Views:
    """All views of `parts`, in order. Parts that know their coverage keep it beside others that do not."""
    cameras = camera_batches.concatenate([part.cameras for part in parts])
    rgb = torch.cat([part.rgb for part in parts])
    if all(part.alpha is None for part in parts):
        return Views(cameras, rgb, None)
    alpha = torch.cat([part.rgb.new_zeros(part.rgb.shape[:3]) if part.alpha is None else part.alpha for part in parts])
    if all(part.alpha is not None and part.known is None for part in parts):
        return Views(cameras, rgb, alpha)
    return Views(cameras, rgb, alpha, torch.cat([part.coverage_weights() for part in parts]) > 0)


def from_images(images: Tensor, cameras: Cameras) -> Views:
    """Pictures of a prior [V, 3 or 4, H, W] as views."""
    rgb = images[:, :3].permute(0, 2, 3, 1).contiguous()
    return Views(cameras, rgb, images[:, 3].contiguous() if images.shape[1] == 4 else None)


def to_images(rgb: Tensor, alpha: Tensor, channels: int) -> Tensor:
    """Renders [V, H, W, 3] and [V, H, W] as pictures for a prior [V, channels, H, W] in [0, 1]."""
    images = rgb.permute(0, 3, 1, 2)
    if channels == 4:
        images = torch.cat([images, alpha[:, None]], dim=1)
    return images.clamp(0.0, 1.0)


def reference_view(prepared: PreparedImage | None, prior: Prior, elevation_deg: float) -> Views | None:
    """The input picture as a view of the prior's size; None without one, or where its camera is not known."""
    if prepared is None or prior.source_azimuth_deg is None:
        return None
    resized = prepared.resized(prior.image_size)
    camera = prior.orbit(prior.source_azimuth_deg, elevation_deg).to(resized.rgb.device)
    return Views(camera, resized.rgb[None].float(), resized.alpha[None].float())
