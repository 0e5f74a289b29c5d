"""The prior that comes with the project: a small network on RGBA pixels, good for a CPU."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cameras import Cameras
from config import PriorConfig
from cuda_ext.graphs import GraphedCall
from errors import UserError
from priors.base import GuidanceMemory, Prior
from priors.diffusion import shift_time
from priors.feature_memory import FeatureMemory
from priors.tiny_zero123 import SourceCache, TinyZero123, blank_source
from priors.tiny_zero123_io import load_model

if TYPE_CHECKING:
    from prepare import PreparedImage

DEFAULT_WEIGHTS = Path(__file__).resolve().parent.parent / "assets" / "tiny_zero123.safetensors"
JOINT_VIEWS = 4  # views that the network saw together in training, 90 degrees apart


class EmbeddedPrior(Prior):
    """tiny-zero123: v-prediction on RGBA, continuous cosine schedule, x0 clamped to the range of pictures.

    On a GPU its network multiplies in TF32, which has the mantissa of half precision and the range of single, and is
    replayed as a CUDA graph.
    """

    channels = 4
    refines = True

    def __init__(self, config: PriorConfig, device: torch.device, model: TinyZero123 | None = None) -> None:
        """Read the weights named by `config.weights` (empty: the project's own), unless `model` is given."""
        super().__init__(device, config.guidance)
        self._memory = GuidanceMemory(config.guidance_every)
        self.features = FeatureMemory(config.features_every)
        if model is None:
            path = Path(config.weights).expanduser() if config.weights else DEFAULT_WEIGHTS
            if not path.is_file():
                raise UserError(f"prior.weights={path}: no such file; expected the embedded prior's weights")
            model, _ = load_model(path, device)
        self.model = model.to(device)
        if device.type == "cuda":
            self.model.to(memory_format=torch.channels_last)
        self._network = GraphedCall(self._denoise, device)
        self.image_size = model.config.image_size
        self.group_size = JOINT_VIEWS if config.joint else 1
        self._source: SourceCache | None = None
        self._blank: SourceCache | None = None
        self._elevation_deg = 0.0
        self._seen: tuple[Cameras, Tensor, Tensor] | None = None

    @torch.no_grad()
    def set_source(self, prepared: PreparedImage, elevation_deg: float) -> None:
        rgba = source_rgba(prepared, self.image_size).to(self.device)
        elevation = torch.tensor([float(elevation_deg)], device=self.device)
        self._elevation_deg = float(elevation_deg)
        with _tf32(self.device):
            self._source = self.model.encode_source(self.encode(rgba), elevation)
            self._blank = self.model.encode_source(blank_source(1, self.image_size, self.device), elevation)

    @torch.no_grad()
    def rehearse(self, views: int) -> None:
        """Go once through what a round of `views` views asks for, so that the first one need not load libraries."""
        source = torch.zeros(1, device=self.device)
        with _tf32(self.device):
            cache = self.model.encode_source(blank_source(1, self.image_size, self.device), source)
        self._source = self._blank = cache
        cameras = self.orbit(torch.arange(views) * (360.0 / views), torch.zeros(views))
        self.predict(torch.zeros(self.latent_shape(views), device=self.device), 0.5, cameras, 1.0)
        self._network.reset()  # it was no call
        self._source = self._blank = self._seen = None

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        # Exactly 0 and 1 at the ends, which the cosine of a rounded pi / 2 is not.
        if t in (0.0, 1.0):
            return (1.0, 0.0) if t == 0.0 else (0.0, 1.0)
        return math.cos(math.pi / 2 * t), math.sin(math.pi / 2 * t)

    def level(self, u: float) -> float:
        """A larger picture hides the same at more noise: uniform steps are taken as at 64 px, then shifted."""
        return float(shift_time(torch.tensor(u, dtype=torch.float64), self.image_size).clamp(0.0, 1.0))

    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        return self.predict(latents, t, cameras, guidance)[1]

    @torch.no_grad()
    def predict(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        alpha, sigma = self.alpha_sigma(t)
        velocity = self._velocity(latents, t, cameras, guidance)
        # v = alpha noise - sigma x0, hence x0 = alpha x - sigma v (progressive distillation, arXiv:2202.00512, app. D)
        x0 = (alpha * latents - sigma * velocity).clamp(-1.0, 1.0)
        return x0, (latents - alpha * x0) / sigma  # the noise of the clamped x0: the pair still adds up to `latents`

    def _velocity(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        """Guided velocity [B, 4, S, S]; only the halves that the guidance needs are evaluated."""
        assert self._source is not None and self._blank is not None, "set_source comes first"
        if guidance in (0.0, 1.0):
            return self._evaluate(latents, t, cameras, guidance)
        conditional = self._evaluate(latents, t, cameras, 1.0)
        change = self._memory.recall(guidance, t, cameras)
        if change is not None:
            return conditional + change
        unconditional = self._evaluate(latents, t, cameras, 0.0)
        return self._memory.combine(conditional, unconditional, guidance, t, cameras)

    def walking(self) -> AbstractContextManager[None]:
        return self.features.walk()

    def _evaluate(self, latents: Tensor, t: float, cameras: Cameras, half: float) -> Tensor:
        """One pass of the network over all views, in groups where they are joint; half: 1.0 knows the picture."""
        cache = self._source if half == 1.0 else self._blank
        views = latents.shape[0]
        # A lone batch of views is one "object" with V independent views; joint ones are B objects of group_size.
        group = self.group_size if self.group_size > 1 and views % self.group_size == 0 else 0
        batch = views // group if group else 1
        azimuths_deg, elevations_deg = self._angles(cameras, latents)
        network = functools.partial(
            self._network,
            latents,
            latents.new_full((batch,), t),
            azimuths_deg,
            elevations_deg,
            latents.new_full((batch,), self._elevation_deg),
            cache.keys,
            cache.values,
            joint=bool(group),
        )
        if t == 1.0:  # pure noise: features that have seen nothing of the views serve no other step
            return network()
        return self.features.call((half,), network, lambda: network(keep=True), lambda deep: network(deep=deep))

    def _denoise(
        self,
        latents: Tensor,
        t: Tensor,
        azimuths_deg: Tensor,
        elevations_deg: Tensor,
        source_elevation_deg: Tensor,
        keys: tuple[Tensor, ...],
        values: tuple[Tensor, ...],
        joint: bool,
        keep: bool = False,
        deep: Tensor | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        """The network's velocity [V, 4, S, S] of B groups: angles [V], levels and source elevations [B].

        keep: return the deep features, too. deep: those of another call.
        """
        batch = len(t)
        with _tf32(self.device):
            velocity, deep = self.model.denoise_and_keep(
                latents.reshape(batch, -1, *latents.shape[1:]),
                t,
                azimuths_deg.reshape(batch, -1),
                elevations_deg.reshape(batch, -1),
                source_elevation_deg,
                SourceCache(tuple(keys), tuple(values)).expand(batch),
                joint=joint,
                deep=deep,
            )
        velocity = velocity.reshape(latents.shape)
        return (velocity, deep) if keep else velocity

    def _angles(self, cameras: Cameras, like: Tensor) -> tuple[Tensor, Tensor]:
        """Azimuths and elevations [V] of the cameras, degrees; the very same tensors for the same cameras."""
        if self._seen is None or self._seen[0] is not cameras or self._seen[1].dtype != like.dtype:
            azimuths_deg, elevations_deg, _ = cameras.orbit_angles()
            self._seen = cameras, azimuths_deg.to(like), elevations_deg.to(like)
        return self._seen[1:]


@contextmanager
def _tf32(device: torch.device) -> Iterator[None]:
    """Products of float32 matrices in TF32, on a GPU."""
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before or device.type == "cuda"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def source_rgba(prepared: PreparedImage, size: int) -> Tensor:
    """The prepared picture as [1, 4, size, size] in [0, 1]: colour over white, then coverage."""
    resized = prepared.resized(size)
    return torch.cat([resized.rgb, resized.alpha[..., None]], dim=-1).permute(2, 0, 1)[None].float()
