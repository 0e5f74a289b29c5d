"""What the priors in the latent space of Stable Diffusion share: noise schedule, predictions, VAE, the two halves.

| here            | latent diffusion (arXiv:2112.10752), DDPM (arXiv:2006.11239)     |
|-----------------|------------------------------------------------------------------|
| latents         | z_t, scaled by the VAE's scaling_factor (0.18215)                |
| alphas_cumprod  | alpha bar_t = prod (1 - beta_t)                                  |
| alpha, sigma    | sqrt(alpha bar_t), sqrt(1 - alpha bar_t)                         |
| step            | t of the discrete schedule, 0 to T - 1                           |
| "epsilon", "v"  | epsilon_theta(z_t, t); alpha epsilon - sigma z_0 (arXiv:2202.00512) |

The DDIM step itself, down and up, is `priors.base.ddim_step`.
"""

from __future__ import annotations

import abc
import math
import re
from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from cameras import Cameras
from config import PriorConfig
from errors import UserError
from priors.base import GuidanceMemory, PrecisionOverflow, Prior
from priors.feature_memory import FeatureMemory
from priors.ldm_networks import Network, Predictions, Runtime
from priors.sd_vae import Autoencoder
from priors.weights import Located, load_safetensors, read_settings

# Names of the VAE's attention in files that were saved before diffusers 0.15.
_LEGACY_ATTENTION = {"query": "to_q", "key": "to_k", "value": "to_v", "proj_attn": "to_out.0"}


@dataclass(frozen=True)
class Schedule:
    """A discrete noise schedule.

    alphas_cumprod: at steps 0 ... T - 1, falling.
    prediction: what the network predicts, "epsilon" or "v_prediction".
    final: alphas_cumprod of level 0, where sampling ends: 1, or that of step 0 (`set_alpha_to_one: false`).
    """

    alphas_cumprod: tuple[float, ...]
    prediction: str
    final: float

    @classmethod
    def from_settings(cls, settings: dict, origin: str = "scheduler_config.json") -> Schedule:
        """From the fields of a diffusers scheduler; UserError for what is not implemented here."""
        kind = settings.get("beta_schedule", "linear")
        steps = int(settings.get("num_train_timesteps", 1000))
        first, last = float(settings.get("beta_start", 1e-4)), float(settings.get("beta_end", 0.02))
        if kind == "scaled_linear":
            betas = torch.linspace(math.sqrt(first), math.sqrt(last), steps, dtype=torch.float64) ** 2
        elif kind == "linear":
            betas = torch.linspace(first, last, steps, dtype=torch.float64)
        else:
            raise UserError(f"beta_schedule={kind!r}: expected scaled_linear or linear; {origin}")
        prediction = settings.get("prediction_type", "epsilon")
        if prediction not in ("epsilon", "v_prediction"):
            raise UserError(f"prediction_type={prediction!r}: expected epsilon or v_prediction; {origin}")
        for field in ("clip_sample", "thresholding", "rescale_betas_zero_snr"):
            # diffusers' own default of clip_sample is true: a file that says nothing asks for clipping
            if settings.get(field, field == "clip_sample"):
                raise UserError(f"{field}={settings.get(field, True)}: expected false; {origin}")
        alphas_cumprod = tuple(torch.cumprod(1 - betas, dim=0).tolist())
        final = 1.0 if settings.get("set_alpha_to_one", True) else alphas_cumprod[0]
        return cls(alphas_cumprod, prediction, final)

    @property
    def steps(self) -> int:
        return len(self.alphas_cumprod)

    def step(self, t: float) -> int:
        """The discrete step of level t in [0, 1]; levels above the last step count as the last."""
        return min(round(t * self.steps), self.steps - 1)

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        """sqrt(alpha bar) and sqrt(1 - alpha bar) at level t."""
        cumulative = self.final if t == 0.0 else self.alphas_cumprod[self.step(t)]
        return math.sqrt(cumulative), math.sqrt(1.0 - cumulative)


class LatentPrior(Prior):
    """A prior on latents [B, 4, S / 8, S / 8] of a VAE; a subclass says what conditions the network.

    Latents stay in float32 (float64 if the networks are) from step to step; the networks take their own dtype.
    """

    def __init__(self, config: PriorConfig, runtime: Runtime, schedule: Schedule, vae: Network) -> None:
        super().__init__(runtime.device, config.guidance)
        self.runtime = runtime
        self.memory = GuidanceMemory(config.guidance_every)
        self.features = FeatureMemory(config.features_every)
        self.schedule = schedule
        self.vae = vae

    @abc.abstractmethod
    def network_output(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        """What the network predicts, epsilon or v as the schedule says, under guidance; like `latents`."""

    def ask(self, network: Network, predictions: Predictions, halves: tuple[float, ...], *tensors: Tensor) -> Tensor:
        """What the UNet predicts for `tensors` [len(halves) B, ...]; in a walk, from features kept."""
        return self.features.call(
            halves,
            lambda: network.run(predictions.whole, *tensors),
            lambda: network.run(predictions.keeping, *tensors),
            lambda deep: network.run(predictions.from_kept, *tensors, deep),
        )

    def walking(self) -> AbstractContextManager[None]:
        return self.features.walk()

    @property
    def networks(self) -> tuple[Network, ...]:
        """All networks that work on latents: widened together when half precision overflows."""
        return (self.vae,)

    def load(self) -> None:
        """Read now what the first calls would read."""
        self.runtime.load()

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        return self.schedule.alpha_sigma(t)

    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        return self.predict(latents, t, cameras, guidance)[1]

    def predict(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        alpha, sigma = self.alpha_sigma(t)
        change = self.memory.recall(guidance, t, cameras)
        if change is None:
            output = self.network_output(latents, t, cameras, guidance)
        else:
            output = self.network_output(latents, t, cameras, 1.0) + change
        if self.schedule.prediction == "epsilon":
            return (latents - sigma * output) / alpha, output
        # v = alpha epsilon - sigma x0 (arXiv:2202.00512, appendix D)
        return alpha * latents - sigma * output, alpha * output + sigma * latents

    def encode(self, images: Tensor) -> Tensor:
        """Pictures [B, 3, S, S] in [0, 1] -> scaled latents: the mean of the posterior, so that nothing is random."""
        return self.encode_unscaled(images) * self.vae.module.config.scaling_factor

    def encode_unscaled(self, images: Tensor, seldom: bool = False) -> Tensor:
        """The VAE's own latents, before the scaling: what zero123 is conditioned on; seldom: once an object."""
        return self.vae.run(encode_mean, images.to(self.device) * 2.0 - 1.0, checked=True, seldom=seldom)

    def decode(self, latents: Tensor) -> Tensor:
        """Scaled latents -> pictures [B, 3, S, S] in [0, 1].

        Raises:
            PrecisionOverflow: the latents are not finite, and wider networks (which it has switched to) may do better.
        """
        if not bool(latents.isfinite().all()) and any([network.widen() for network in self.networks]):
            raise PrecisionOverflow
        pictures = self.vae.run(decode_mean, latents / self.vae.module.config.scaling_factor, checked=True)
        return (pictures / 2.0 + 0.5).clamp(0.0, 1.0)

    def latent_shape(self, batch: int) -> tuple[int, ...]:
        side = self.image_size // 8
        return (batch, 4, side, side)

    def step_tensor(self, t: float, batch: int) -> Tensor:
        """The discrete step of level t for `batch` pictures [batch], in float32."""
        return torch.full((batch,), float(self.schedule.step(t)), device=self.device)


def needed_halves(guidance: float) -> tuple[float, ...]:
    """The halves that this guidance mixes, each by the guidance that takes it alone; the conditional one first."""
    return (guidance,) if guidance in (0.0, 1.0) else (1.0, 0.0)


def encode_mean(vae: nn.Module, images: Tensor) -> Tensor:
    """Mean of the posterior of pictures in [-1, 1], unscaled."""
    if isinstance(vae, Autoencoder):
        return vae.encode_mean(images)
    return vae.encode(images, return_dict=False)[0].mode()


def decode_mean(vae: nn.Module, latents: Tensor) -> Tensor:
    """Pictures around [-1, 1] of unscaled latents."""
    return vae.decode_mean(latents) if isinstance(vae, Autoencoder) else vae.decode(latents, return_dict=False)[0]


def vae_network(part: Located, runtime: Runtime) -> Network:
    """The AutoencoderKL of a checkpoint."""

    settings = read_settings(part)

    def build(dtype: torch.dtype, device: torch.device) -> nn.Module:
        with torch.device("meta"):
            vae = Autoencoder(settings, part.origin) if runtime.fused else diffusers_vae(settings)
        vae = load_safetensors(part, vae, dtype=dtype, device=device, rename=_modern_attention)
        return vae.fuse() if runtime.fused else vae

    return Network("vae", build, runtime)


def diffusers_vae(settings: dict) -> nn.Module:
    """diffusers' own form, which ours is compared with."""
    from diffusers.models.autoencoders.autoencoder_kl import AutoencoderKL

    return AutoencoderKL.from_config(settings)


def _modern_attention(name: str) -> str:
    """A tensor's name in today's AutoencoderKL."""
    return re.sub(
        r"(\.attentions\.\d+\.)(query|key|value|proj_attn)\.",
        lambda found: f"{found[1]}{_LEGACY_ATTENTION[found[2]]}.",
        name,
    )
