"""Stable-Zero123 and Zero123-XL written a second time: plain loops over views, halves and steps, in float64.

Follows the equations of the papers (arXiv:2303.11328 section 3, arXiv:2010.02502 equations 12 and 16, arXiv:2404.19525
equations 9 and 10) and shares no code with priors/: the networks are read by their own libraries' loaders.
"""

from __future__ import annotations

import math
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

SCALING = 0.18215


class Zero123Reference:
    """One picture under one checkpoint."""

    def __init__(self, folder: Path, stable: bool, rgb: Tensor, elevation_deg: float) -> None:
        from diffusers import AutoencoderKL, UNet2DConditionModel
        from transformers import CLIPVisionModelWithProjection

        options = {"torch_dtype": torch.float64, "use_safetensors": True}
        self.unet = UNet2DConditionModel.from_pretrained(folder / "unet", **options)
        self.vae = AutoencoderKL.from_pretrained(folder / "vae", **options)
        clip = CLIPVisionModelWithProjection.from_pretrained(folder / "image_encoder", dtype=torch.float64)
        projection = load_file(folder / "clip_camera_projection" / "diffusion_pytorch_model.safetensors")
        self.weight, self.bias = projection["proj.weight"].double(), projection["proj.bias"].double()
        self.stable, self.elevation_deg = stable, elevation_deg

        beta_root = [math.sqrt(0.00085) + (math.sqrt(0.012) - math.sqrt(0.00085)) * i / 999 for i in range(1000)]
        self.alpha_bar, product = [], 1.0
        for root in beta_root:
            product *= 1 - root * root
            self.alpha_bar.append(product)

        picture = rgb.double().permute(2, 0, 1)[None]  # [1, 3, S, S]
        side = clip.config.image_size
        rows = bicubic_rows(picture.shape[-1], side)
        small = torch.einsum("ij,bcjk,lk->bcil", rows, picture, rows).clamp(0, 1)
        mean = torch.tensor([0.48145466, 0.4578275, 0.40821073], dtype=torch.float64)[:, None, None]
        std = torch.tensor([0.26862954, 0.26130258, 0.27577711], dtype=torch.float64)[:, None, None]
        self.embedding = clip(pixel_values=(small - mean) / std).image_embeds[0]
        self.source = self.vae.encode(2 * picture - 1).latent_dist.mean  # not multiplied by SCALING

    def noise(self, x: Tensor, step: int, azimuth_deg: float, elevation_deg: float, known: bool) -> Tensor:
        """epsilon of one view [1, 4, h, w], with the picture or without."""
        polar, source_polar = math.radians(90 - elevation_deg), math.radians(90 - self.elevation_deg)
        azimuth = math.radians(azimuth_deg)
        pose = [polar - source_polar, math.sin(azimuth), math.cos(azimuth), source_polar if self.stable else 0.0]
        pose = torch.tensor(pose, dtype=torch.float64)
        token = self.weight @ torch.cat([self.embedding, pose]) + self.bias
        source = self.source
        if not known:
            token, source = torch.zeros_like(token), torch.zeros_like(source)
        return self.unet(torch.cat([x, source], 1), step, encoder_hidden_states=token[None, None]).sample

    @torch.no_grad()
    def target_views(
        self,
        images: Tensor,
        azimuths_deg: list[float],
        elevations_deg: list[float],
        rising: list[int],
        falling: list[int],
        guidance: float,
        eta: float,
        generator: torch.Generator,
    ) -> Tensor:
        """x^(k) [B, 3, S, S] -> D(x_hat^(k)); steps rise from t1 to t2, and fall from t2 to the last before 0."""
        views = range(len(images))
        latents = [SCALING * self.vae.encode(2 * images[b : b + 1].double() - 1).latent_dist.mean for b in views]
        shape = (len(images), *latents[0].shape[1:])
        noise = torch.randn(shape, generator=generator).double()
        a = self.alpha_bar[rising[0]]
        latents = [math.sqrt(a) * latents[b] + math.sqrt(1 - a) * noise[b : b + 1] for b in views]
        for i in range(len(rising) - 1):
            here, there = self.alpha_bar[rising[i]], self.alpha_bar[rising[i + 1]]
            for b in views:
                eps = self.noise(latents[b], rising[i], azimuths_deg[b], elevations_deg[b], known=False)
                x0 = (latents[b] - math.sqrt(1 - here) * eps) / math.sqrt(here)
                latents[b] = math.sqrt(there) * x0 + math.sqrt(1 - there) * eps
        for i in range(len(falling)):
            here = self.alpha_bar[falling[i]]
            there = self.alpha_bar[falling[i + 1]] if i + 1 < len(falling) else self.alpha_bar[0]
            sigma = eta * math.sqrt((1 - there) / (1 - here) * (1 - here / there))
            fresh = torch.randn(shape, generator=generator).double() if sigma > 0 else torch.zeros(shape)
            for b in views:
                u, c = (
                    self.noise(latents[b], falling[i], azimuths_deg[b], elevations_deg[b], known)
                    for known in (False, True)
                )
                eps = u + guidance * (c - u)
                x0 = (latents[b] - math.sqrt(1 - here) * eps) / math.sqrt(here)
                latents[b] = math.sqrt(there) * x0 + math.sqrt(1 - there - sigma**2) * eps + sigma * fresh[b : b + 1]
        return torch.cat([(self.vae.decode(latents[b] / SCALING).sample / 2 + 0.5).clamp(0, 1) for b in views])


def bicubic_rows(before: int, after: int) -> Tensor:
    """Weights [after, before] of a bicubic (a = -1/2) reduction with antialiasing along one axis, as Pillow's."""
    scale = max(before / after, 1.0)
    rows = torch.zeros(after, before, dtype=torch.float64)
    for i in range(after):
        centre = (i + 0.5) * before / after
        first, last = max(int(centre - 2 * scale + 0.5), 0), min(int(centre + 2 * scale + 0.5), before)
        for j in range(first, last):
            d = abs((j + 0.5 - centre) / scale)
            if d < 1:
                rows[i, j] = 1.5 * d**3 - 2.5 * d**2 + 1
            elif d < 2:
                rows[i, j] = -0.5 * d**3 + 2.5 * d**2 - 4 * d + 2
        rows[i] /= rows[i].sum()
    return rows
