"""MVDream (arXiv:2308.16512) and ImageDream (arXiv:2312.02201): four views of an object, 90 degrees apart, together.

| here           | papers                                                                                       |
|----------------|----------------------------------------------------------------------------------------------|
| group          | MVDream, section 3.1: F = 4 views on a circle, that attend to each other                     |
| camera_rows    | there too: extrinsic parameters, embedded by a small network                                 |
| context        | text tokens; ImageDream, section 3.2: "local controller", tokens of the picture beside them  |
| source         | ImageDream, section 3.2: "pixel controller", the picture's latents as a view of its own      |

Without text and picture (guidance 0) the text is the negative prompt, the picture's features are zeros, which still
pass through the Resampler, and its latents are zero.

The networks know an object from azimuth 90, where its front is; ours is at 0. Distances mean nothing to them: the
official orbit (2.5) is 1.25 times the project's, with the same pictures.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cameras import Cameras
from config import PriorConfig
from errors import UserError
from priors.ldm import LatentPrior, Schedule, needed_halves, vae_network
from priors.ldm_networks import Network, Runtime
from priors.mvdream_networks import (
    VIEWS,
    VIEWS_BESIDE,
    embed_text,
    embed_text_and_picture,
    encode_picture,
    encode_text,
    image_encoder_network,
    read_tokenizer,
    read_unet_config,
    text_encoder_network,
    unet_network,
)
from priors.weights import locate, read_settings
from priors.zero123 import clip_pixels

if TYPE_CHECKING:
    from prepare import PreparedImage

FRONT_AZIMUTH_DEG = 90.0  # of the front in the networks' world
# Free GPU memory, GB, above which both halves run at once, and above which the networks stay on the GPU.
ALL_AT_ONCE_GB, RESIDENT_GB = 8.0, 6.0


class MVDreamPrior(LatentPrior):
    """Views of what a text tells of."""

    variant = "mvdream"  # name in the registry of weights
    group_size = 4
    takes_picture = False
    takes_text = True
    source_azimuth_deg = None

    def __init__(self, config: PriorConfig, device: torch.device, runtime: Runtime | None = None) -> None:
        """
        Args:
            config: `weights` says where the weights lie, if not in the hub's cache.
            runtime: None: as `config` and the free memory say.
        Raises:
            UserError: weights are missing or others.
        """
        parts = locate(self.variant, config.weights)
        if runtime is None:
            runtime = Runtime.from_config(config, device, ALL_AT_ONCE_GB, RESIDENT_GB)
            runtime.batch = min(runtime.batch, 1)  # where memory is short: of what goes in parts here, one is a group
        schedule = Schedule.from_settings(
            read_settings(parts["scheduler"], "scheduler_config.json"), parts["scheduler"].origin
        )
        super().__init__(config, runtime, schedule, vae_network(parts["vae"], runtime))
        self.unet_config = read_unet_config(parts["unet"], parts.get("image_encoder"))
        self.image_size = 8 * self.unet_config.image_size
        self.unet: Network = unet_network(parts["unet"], self.unet_config, runtime)
        self.text_encoder: Network = text_encoder_network(parts["text_encoder"], runtime)
        self.tokenize = read_tokenizer(parts["tokenizer"])
        self.image_encoder: Network | None = None
        if self.takes_picture:
            self.image_encoder = image_encoder_network(parts["image_encoder"], runtime)
        self._keep_encoders = runtime.batch == 0
        self.prompt_suffix = config.prompt_suffix
        self.set_text("")
        # Of the halves, conditional first:
        self._context: Tensor | None = None  # [2, tokens, ...]
        self._source: Tensor | None = None  # [2, 4, S / 8, S / 8]; None without a picture
        # What was last asked for, and its conditions: they stay the same for all steps of a round.
        self._conditions: tuple[Cameras, tuple, tuple[Tensor, ...]] | None = None

    @property
    def networks(self) -> tuple[Network, ...]:
        return (self.unet,)

    def set_text(self, prompt: str, negative_prompt: str = "") -> None:
        self._texts = [prompt + self.prompt_suffix if prompt else "", negative_prompt]

    @torch.no_grad()
    def set_source(self, prepared: PreparedImage | None, elevation_deg: float) -> None:
        assert (prepared is not None) == self.takes_picture
        self._conditions = None
        texts = self.encode_texts()
        if prepared is None:
            self._context = self.unet.run(embed_text, texts, checked=True, seldom=True)
        else:
            picture = prepared.resized(self.image_size).rgb.permute(2, 0, 1)[None].to(self.device)  # [1, 3, S, S]
            pixels = clip_pixels(picture, self.image_encoder)
            features = self.image_encoder.run(encode_picture, pixels, checked=True, seldom=True)
            features = torch.cat([features, torch.zeros_like(features)])
            self._context = self.unet.run(embed_text_and_picture, texts, features, checked=True, seldom=True)
            latents = self.encode(picture)  # scaled, as the noisy ones are
            self._source = torch.cat([latents, torch.zeros_like(latents)])
        if not self._keep_encoders:
            for encoder in (self.text_encoder, self.image_encoder):
                if encoder is not None:
                    encoder.release()

    def encode_texts(self) -> Tensor:
        """The prompt and the negative prompt, encoded [2, 77, C]."""
        ids = self.tokenize(self._texts)
        return self.text_encoder.run(encode_text, ids, checked=True, seldom=True)

    def network_output(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        views = len(latents)
        if views % self.group_size:
            raise UserError(
                f"prior.name={self.variant} imagines views in groups of {self.group_size}, found {views}; "
                f"expected a multiple of {self.group_size}, such as fit.views={self.group_size}"
            )
        rows, context, *source = self._conditions_of(cameras, guidance)
        x = latents.unflatten(0, (-1, self.group_size))  # [groups, 4, ...]
        copies = len(rows) // len(x)  # both halves in one call, or the needed one alone
        if copies > 1:
            x = x.repeat(copies, 1, 1, 1, 1)
        predictions = VIEWS_BESIDE if source else VIEWS
        tensors = x, self.step_tensor(t, len(x)), rows, context, *source
        output = self.ask(self.unet, predictions, needed_halves(guidance), *tensors).flatten(0, 1)
        return self.memory.combine(*output.chunk(2), guidance, t, cameras) if copies > 1 else output

    def _conditions_of(self, cameras: Cameras, guidance: float) -> tuple[Tensor, ...]:
        """Camera rows, context and source of all groups, for the halves that this guidance needs, conditional first."""
        halves = [0 if half == 1.0 else 1 for half in needed_halves(guidance)]
        key = tuple(halves), self.unet.dtype
        if self._conditions is None or self._conditions[0] is not cameras or self._conditions[1] != key:
            assert self._context is not None, "set_source comes first"
            rows = camera_rows(cameras).unflatten(0, (-1, self.group_size))  # [groups, 4, 16]
            if self._source is not None:  # the picture is a view without a camera
                rows = torch.cat([rows, torch.zeros_like(rows[:, :1])], dim=1)
            groups = len(rows)
            known = [self._context] if self._source is None else [self._context, self._source]
            parts = [part[halves].repeat_interleave(groups, dim=0) for part in known]
            conditions = [self.unet.cast(part) for part in (rows.repeat(len(halves), 1, 1), *parts)]
            self._conditions = cameras, key, tuple(conditions)
        return self._conditions[2]


class ImageDreamPrior(MVDreamPrior):
    """Views of the object in a picture, which a text may tell more about."""

    variant = "imagedream"
    takes_picture = True
    source_azimuth_deg = 0.0


def camera_rows(cameras: Cameras) -> Tensor:
    """What the networks know of each camera [B, 16]: its camera-to-world matrix, row by row, in their world.

    Blender's axes: z up; x and the object's front as OpenGL's camera sees them. Turned by FRONT_AZIMUTH_DEG about the
    up axis, and moved to distance 1.
    """
    azimuths_deg, elevations_deg, _ = cameras.orbit_angles()
    a = torch.deg2rad(azimuths_deg.double().cpu() + FRONT_AZIMUTH_DEG)
    e = torch.deg2rad(elevations_deg.double().cpu())
    zero, one = torch.zeros_like(a), torch.ones_like(a)
    # Columns: the camera's right, up and backward axes, and its position, which is backward at distance 1.
    backward = torch.stack([e.cos() * a.sin(), -e.cos() * a.cos(), e.sin()], dim=-1)
    right = torch.stack([a.cos(), a.sin(), zero], dim=-1)
    up = torch.linalg.cross(backward, right)
    upper = torch.stack([right, up, backward, backward], dim=-1)  # [B, 3, 4]
    return torch.cat([upper.flatten(1), torch.stack([zero, zero, zero, one], dim=-1)], dim=1)
