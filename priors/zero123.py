"""Stable-Zero123 and Zero123-XL: one picture and a relative camera condition Stable Diffusion (arXiv:2303.11328).

| here       | paper, section 3; public code                                            |
|------------|--------------------------------------------------------------------------|
| latents    | z_t: noisy latents of the target view, scaled by 0.18215                  |
| source     | latents of the picture, *not* scaled, beside z_t in the network's input   |
| embedding  | CLIP embedding of the picture                                             |
| pose       | T: four numbers of the relative camera, radians                           |
| token      | c(x, R, T): a linear map of [embedding, pose], the only token attended to |

Without the picture (guidance 0) the token is zero after the linear map, and the source latents are zero.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.nn.functional as F
from torch import Tensor

from cameras import Cameras
from config import PriorConfig
from priors.ldm import LatentPrior, Schedule, needed_halves, vae_network
from priors.ldm_networks import Network, Runtime
from priors.weights import locate, read_settings
from priors.zero123_networks import (
    PREDICTIONS,
    embed_picture,
    image_encoder_network,
    read_projection,
    unet_network,
)

if TYPE_CHECKING:
    from prepare import PreparedImage

CLIP_MEAN = (0.48145466, 0.4578275, 0.40821073)
CLIP_STD = (0.26862954, 0.26130258, 0.27577711)
# Free GPU memory, GB, above which all views run at once, and above which the networks stay on the GPU.
# A whole job with graphs of 6 views was measured to take 7.0, and 4.3 without graphs.
ALL_AT_ONCE_GB, RESIDENT_GB = 7.2, 4.5


class Zero123Prior(LatentPrior):
    """Views from any camera on the picture's orbit, each by itself."""

    def __init__(self, config: PriorConfig, device: torch.device, runtime: Runtime | None = None) -> None:
        """
        Args:
            config: `variant` says which model the weights are; `weights` where they lie.
            runtime: None: as `config` and the free memory say.
        Raises:
            UserError: the weights are missing or another model's.
        """
        parts = locate(config.variant, config.weights)
        if runtime is None:
            runtime = Runtime.from_config(config, device, ALL_AT_ONCE_GB, RESIDENT_GB)
        schedule = Schedule.from_settings(
            read_settings(parts["scheduler"], "scheduler_config.json"), parts["scheduler"].origin
        )
        super().__init__(config, runtime, schedule, vae_network(parts["vae"], runtime))
        self.variant = config.variant
        self.unet, self.image_size = unet_network(parts["unet"], runtime)
        self.image_encoder = image_encoder_network(parts["image_encoder"], runtime)
        self.projection = read_projection(
            parts["clip_camera_projection"], parts["unet"], parts["image_encoder"], runtime
        )
        self._embedding: Tensor | None = None  # [1, D]
        self._source: Tensor | None = None  # [1, 4, S / 8, S / 8]
        self._elevation_deg = 0.0
        # What was last asked for, and its conditions: they stay the same for all steps of a round.
        self._asked: tuple | None = None
        self._conditions: tuple[Tensor, Tensor] | None = None

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.unet,)

    @torch.no_grad()
    def set_source(self, prepared: PreparedImage, elevation_deg: float) -> None:
        rgb = prepared.resized(self.image_size).rgb.to(self.device, self.projection.weight.dtype)
        picture = rgb.permute(2, 0, 1)[None]  # [1, 3, S, S]
        self._elevation_deg = float(elevation_deg)
        pixels = clip_pixels(picture, self.image_encoder)
        self._embedding = self.image_encoder.run(embed_picture, pixels, checked=True, seldom=True)
        self._source = self.encode_unscaled(picture, seldom=True)
        self._asked = None
        if self.runtime.batch:  # little memory: 0.6 GB that nothing needs until the next picture
            self.image_encoder.release()

    def network_output(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        source, tokens = self._conditions_of(cameras, guidance)
        copies = len(tokens) // len(latents)  # both halves in one call, or the needed one alone
        x = latents.repeat(copies, 1, 1, 1) if copies > 1 else latents
        halves = needed_halves(guidance)
        output = self.ask(self.unet, PREDICTIONS, halves, x, source, self.step_tensor(t, len(tokens)), tokens)
        return self.memory.combine(*output.chunk(2), guidance, t, cameras) if copies > 1 else output

    def _conditions_of(self, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        """Source latents and tokens of the halves that this guidance needs, conditional first."""
        assert self._source is not None, "set_source comes first"
        halves = needed_halves(guidance)
        asked = (cameras, halves, self.unet.dtype)
        if self._asked is None or self._asked[0] is not cameras or self._asked[1:] != asked[1:]:
            source, tokens = self._source.expand(len(cameras), -1, -1, -1), self.tokens(cameras)
            # Zero where the picture is not known: also the token, after the linear map, whose bias is not zero.
            source, tokens = (torch.cat([part * half for half in halves]) for part in (source, tokens))
            self._asked, self._conditions = asked, (self.unet.cast(source), self.unet.cast(tokens))
        return self._conditions

    def tokens(self, cameras: Cameras) -> Tensor:
        """What the conditional half attends to [B, 1, D]."""
        assert self._embedding is not None, "set_source comes first"
        poses = relative_pose(cameras, self._elevation_deg, self.variant).to(self._embedding)
        return self.projection(torch.cat([self._embedding.expand(len(poses), -1), poses], dim=-1))[:, None]


def relative_pose(cameras: Cameras, source_elevation_deg: float, variant: str) -> Tensor:
    """T of the target cameras relative to the picture's [B, 4], radians.

    (polar of the target - polar of the picture, sin and cos of the azimuth from the picture's, last), polar being the
    angle from the up axis: a target below the picture's camera has a positive first number. The last one is, for
    stable-zero123, the picture's own polar angle; for zero123-xl the difference of distances, which is 0 here: all
    cameras stand on the picture's orbit.
    """
    azimuths_deg, elevations_deg, _ = cameras.orbit_angles()
    polar = torch.deg2rad(source_elevation_deg - elevations_deg)
    azimuths = torch.deg2rad(azimuths_deg)
    last = torch.full_like(polar, 90.0 - source_elevation_deg if variant == "stable-zero123" else 0.0)
    return torch.stack([polar, azimuths.sin(), azimuths.cos(), torch.deg2rad(last)], dim=-1)


def clip_pixels(picture: Tensor, image_encoder: Network) -> Tensor:
    """A picture [1, 3, S, S] in [0, 1] as CLIP's image processor hands it on: bicubic with antialiasing, normalised."""
    size = image_encoder.module.config.image_size
    resized = F.interpolate(picture, size=(size, size), mode="bicubic", align_corners=False, antialias=True)
    mean, std = (picture.new_tensor(values)[:, None, None] for values in (CLIP_MEAN, CLIP_STD))
    return (resized.clamp(0.0, 1.0) - mean) / std
