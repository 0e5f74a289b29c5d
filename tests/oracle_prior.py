"""A test double of a prior: it knows the object, so that a fit that works must find it."""

import math

import torch
from torch import Tensor

from cameras import Cameras
from gaussians import Gaussians
from gs_renderer import render
from prepare import PreparedImage
from priors.base import Prior


def painted_object(count: int = 400, seed: int = 0) -> Gaussians:
    """A solid-looking object without symmetry: an egg with a ball on one side, coloured by direction."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.nn.functional.normalize(torch.randn(count, 3, generator=generator), dim=-1)
    egg = directions * torch.tensor([0.4, 0.5, 0.3])
    ball = directions[: count // 4] * 0.2 + torch.tensor([0.45, 0.25, 0.1])
    rgb = 0.5 + 0.4 * torch.sin(2.5 * directions + torch.tensor([0.0, 1.0, 2.0]))
    red = torch.tensor([[0.85, 0.2, 0.15]]).repeat(len(ball), 1)
    means = torch.cat([egg, ball])
    scales = torch.cat([torch.full((count, 3), 0.05), torch.full((len(ball), 3), 0.04)])
    return Gaussians.create(means, scales, torch.full((len(means),), 0.95), torch.cat([rgb, red]))


class OraclePrior(Prior):
    """Answers every question with the true view, plus an error of its own for each call."""

    def __init__(self, truth: Gaussians, image_size: int = 48, error: float = 0.0, channels: int = 4) -> None:
        super().__init__(torch.device("cpu"), guidance=1.0)
        self.truth, self.image_size, self.error, self.channels = truth, image_size, error, channels
        self.generator = torch.Generator().manual_seed(1)
        self._known: tuple[Cameras, Tensor] | None = None

    def set_source(self, prepared: PreparedImage, elevation_deg: float) -> None:
        self.generator.manual_seed(1)
        self._known = None

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        return (0.0, 1.0) if t == 1.0 else (math.cos(math.pi / 2 * t), math.sin(math.pi / 2 * t))

    def true_views(self, cameras: Cameras) -> Tensor:
        """[B, channels, S, S] in [0, 1]."""
        with torch.no_grad():
            rendered = render(self.truth, cameras)
        return torch.cat([rendered.rgb, rendered.alpha[..., None]], -1).permute(0, 3, 1, 2)[:, : self.channels]

    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        return self.predict(latents, t, cameras, guidance)[1]

    def predict(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        if self._known is None or self._known[0] is not cameras:
            self._known = cameras, self.true_views(cameras)
        alpha, sigma = self.alpha_sigma(t)
        # Errors of low frequency, as a network's are: noise of one value an 8 x 8 block.
        coarse = torch.randn(latents.shape[0], self.channels, 8, 8, generator=self.generator)
        error = torch.nn.functional.interpolate(coarse, latents.shape[-2:], mode="bilinear", align_corners=False)
        x0 = (self._known[1] * 2 - 1 + self.error * error).clamp(-1, 1)
        return x0, (latents - alpha * x0) / sigma

    def picture(self, elevation_deg: float) -> PreparedImage:
        """The true view from the front."""
        view = self.true_views(self.orbit(0.0, elevation_deg))[0].permute(1, 2, 0)
        alpha = view[..., 3] if self.channels == 4 else (view.amin(-1) < 0.98).float()
        return PreparedImage(view[..., :3].contiguous(), alpha.contiguous())
