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
    """V pictures: rgb [V, H, W, 3] over white; alpha [V, H, W], coverage, or None where it is not known."""

    cameras: Cameras
    rgb: Tensor
    alpha: Tensor | None

    def __len__(self) -> int:
        return self.rgb.shape[0]

    def __getitem__(self, index: Tensor) -> Views:
        return Views(self.cameras[index], self.rgb[index], None if self.alpha is None else self.alpha[index])

    def finite(self) -> Views:
        """Those views in which every pixel is a number."""
        good = self.rgb.flatten(1).isfinite().all(dim=1)
        if self.alpha is not None:
            good &= self.alpha.flatten(1).isfinite().all(dim=1)
        return self if bool(good.all()) else self[good.nonzero()[:, 0]]


def concatenate(parts: list[Views]) -> Views:
    """All views of `parts`, in order; alpha is known if all know it."""
    known = all(part.alpha is not None for part in parts)
    return Views(
        camera_batches.concatenate([part.cameras for part in parts]),
        torch.cat([part.rgb for part in parts]),
        torch.cat([part.alpha for part in parts]) if known else None,
    )


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
