"""What every prior offers to the fit, and the closed-form DDIM step that serves sampling and inversion alike.

Names against the papers (DDIM: arXiv:2010.02502; MicroDreamer: arXiv:2404.19525):

| here             | DDIM                       | MicroDreamer |
|------------------|----------------------------|--------------|
| alpha            | sqrt(alpha_t)              |              |
| sigma            | sqrt(1 - alpha_t)          |              |
| level, t         | t                          | t / T        |
| noise            | epsilon_theta^(t)(x_t)     | epsilon      |
| x0               | f_theta^(t)(x_t), "predicted x_0" | x_hat |
| fresh            | sigma_t                    |              |
| eta              | eta                        | eta          |
"""

from __future__ import annotations

import abc
import math
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from cameras import FOVY_DEG, RADIUS, Cameras, orbit_cameras

if TYPE_CHECKING:
    from prepare import PreparedImage


class PrecisionOverflow(ArithmeticError):
    """Half precision did not hold a result; the prior has gone over to a wider one: ask again."""


class Prior(abc.ABC):
    """A diffusion model of the views of one object, given a picture of it (or a text).

    The fit hands over pictures in [0, 1] and cameras in the project's convention, and takes back the same; latents,
    token order, radians and devices are the prior's own affair. Levels t in [0, 1] are continuous; a prior trained on
    T discrete steps reads level t as step round(t T).

    A class states what differs from these:
        channels: of its pictures; 3: RGB over white; 4: RGB over white, then coverage.
        image_size: side of its pictures, pixels.
        group_size: views that it denoises jointly; they come as consecutive cameras of one elevation, 360 / group_size
            degrees apart. 1: each view by itself.
        radius, fovy_deg: the orbit that it was trained on.
        source_azimuth_deg: azimuth of the picture in the object's frame; None: the picture is no view of the object.
        takes_picture, takes_text: what it is conditioned on.
        refines: it goes over textures where `refine` is null.
    """

    channels: int = 3
    image_size: int = 256
    group_size: int = 1
    radius: float = RADIUS
    fovy_deg: float = FOVY_DEG
    source_azimuth_deg: float | None = 0.0
    takes_picture: bool = True
    takes_text: bool = False
    refines: bool = False

    def __init__(self, device: torch.device, guidance: float = 1.0) -> None:
        self.device = device
        self.guidance = guidance

    @property
    def pixel(self) -> float:
        """Side of a pixel of its pictures at the object's middle, world units."""
        return 2.0 * self.radius * math.tan(math.radians(self.fovy_deg) / 2.0) / self.image_size

    @abc.abstractmethod
    def set_source(self, prepared: PreparedImage | None, elevation_deg: float) -> None:
        """Take the picture that all later calls are conditioned on; positive elevation is above.

        prepared: None for a prior that takes no picture.
        """

    def set_text(self, prompt: str, negative_prompt: str = "") -> None:
        """Take the text for the next `set_source`, where the prior takes one; before, the text is empty."""
        assert self.takes_text

    @abc.abstractmethod
    def alpha_sigma(self, t: float) -> tuple[float, float]:
        """Scale of the latents and of the noise at level t: x_t = alpha x0 + sigma noise, alpha^2 + sigma^2 = 1."""

    @abc.abstractmethod
    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        """Noise in `latents` [B, ...] at level t > 0, seen from B cameras.

        guidance: scale s of classifier-free guidance (arXiv:2207.12598), noise = u + s (c - u) of the conditional c and
            the unconditional u. At 1 only c is evaluated, at 0 only u.
        """

    def predict(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> tuple[Tensor, Tensor]:
        """(x0, noise), each like `latents` and latents = alpha x0 + sigma noise.

        A prior that clamps x0, or predicts it or a velocity, overrides this; alpha may then be 0.
        """
        alpha, sigma = self.alpha_sigma(t)
        noise = self.predict_noise(latents, t, cameras, guidance)
        return (latents - sigma * noise) / alpha, noise

    def encode(self, images: Tensor) -> Tensor:
        """Pictures [B, channels, S, S] in [0, 1] -> latents on the prior's device; for priors in pixels, a shift."""
        return images.to(self.device, torch.float32) * 2.0 - 1.0

    def decode(self, latents: Tensor) -> Tensor:
        """Latents -> pictures [B, channels, S, S] in [0, 1].

        Raises:
            PrecisionOverflow: the latents are not finite, and networks of wider precision may do better.
        """
        return (latents.float() / 2.0 + 0.5).clamp(0.0, 1.0)

    def walking(self) -> AbstractContextManager[None]:
        """Entered around the calls of one walk: a prior that keeps something from step to step forgets it outside."""
        return nullcontext()

    def latent_shape(self, batch: int) -> tuple[int, ...]:
        """Shape of the latents of `batch` pictures."""
        return (batch, self.channels, self.image_size, self.image_size)

    def level(self, u: float) -> float:
        """Noise level t at time u of the schedule, both rising over [0, 1]; where a prior spaces its steps unevenly."""
        return u

    def orbit(self, azimuths_deg: Tensor, elevations_deg: Tensor) -> Cameras:
        """Cameras on the prior's orbit with its picture size, on the CPU."""
        size = self.image_size
        return orbit_cameras(azimuths_deg, elevations_deg, self.radius, self.fovy_deg, size, size)


class GuidanceMemory:
    """What guidance changed at one step, for the next ones of the same way down.

    noise = u + s (c - u) = c + (s - 1) (c - u): the difference of the halves varies slowly from step to step, and a
    step that takes it over needs the conditional half alone.
    """

    def __init__(self, every: int) -> None:
        """
        Args:
            every: steps that one difference serves; 1: none is taken over.
        """
        self.every = every
        self._kept: tuple[Cameras, float, Tensor] | None = None  # cameras and level of the last step, the difference
        self._served = 0

    def combine(
        self, conditional: Tensor, unconditional: Tensor, guidance: float, t: float, cameras: Cameras
    ) -> Tensor:
        """Both halves under guidance; keeps their difference."""
        difference = conditional - unconditional
        if self.every > 1:
            self._kept, self._served = (cameras, t, difference), 1
        return unconditional + guidance * difference

    def recall(self, guidance: float, t: float, cameras: Cameras) -> Tensor | None:
        """(s - 1) (c - u) of an earlier step, to be added to c; None: both halves are needed (or one alone is)."""
        if guidance in (0.0, 1.0) or self._kept is None or self._served >= self.every:
            return None
        known, level, difference = self._kept
        if known is not cameras or t >= level:  # another round, or a new way down
            return None
        self._kept, self._served = (cameras, t, difference), self._served + 1
        return (guidance - 1.0) * difference


def ddim_step(
    x0: Tensor,
    noise: Tensor,
    here: tuple[float, float],
    there: tuple[float, float],
    eta: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """Move from one noise level to another: down (sampling) or up (inversion, which takes eta = 0).

    DDIM (arXiv:2010.02502), equations 12 and 16, in terms of alpha and sigma; the inversion is the same formula.

    Args:
        x0, noise: predicted at the level of departure; x = alpha x0 + sigma noise.
        here, there: (alpha, sigma) of departure and arrival.
        eta: 0 is deterministic, 1 as random as DDPM.
        generator: on the CPU; needed where eta > 0.
    """
    (alpha_s, sigma_s), (alpha_t, sigma_t) = here, there
    # 1. fresh noise, "sigma_t" of DDIM equation 16: none without eta, none on the way up, none at alpha = 0
    fresh = 0.0
    if eta > 0.0 and sigma_t < sigma_s and alpha_t > 0.0:
        fresh = eta * sigma_t / sigma_s * math.sqrt(max(0.0, 1.0 - (alpha_s / alpha_t) ** 2))
    # 2. "direction pointing to x_t": what remains of the predicted noise
    direction = math.sqrt(max(0.0, sigma_t**2 - fresh**2))
    # 3. equation 12
    x = alpha_t * x0 + direction * noise
    if fresh > 0.0:
        x = x + fresh * standard_normal(x.shape, generator, x.device, x.dtype)
    return x


def walk(
    prior: Prior,
    latents: Tensor,
    levels: Sequence[float],
    cameras: Cameras,
    guidance: Callable[[float], float],
    eta: float = 0.0,
    generator: torch.Generator | None = None,
    on_call: Callable[[int], None] | None = None,
) -> Tensor:
    """Follow DDIM through `levels`, falling (sampling) or rising (inversion): one call of the prior a step.

    The prior is evaluated at the level of departure of each step, so never at the last level; a single level is a walk
    of no steps.

    Args:
        latents: at levels[0].
        guidance: scale of classifier-free guidance at a level.
        on_call: told the number of evaluated views after each call, for the progress bar.
    Returns:
        Latents at levels[-1].
    """
    with prior.walking():
        for t, t_next in zip(levels[:-1], levels[1:], strict=True):
            scale = guidance(t)
            x0, noise = prior.predict(latents, t, cameras, scale)
            latents = ddim_step(x0, noise, prior.alpha_sigma(t), prior.alpha_sigma(t_next), eta, generator)
            if on_call is not None:
                on_call(len(cameras) * halves(scale))
    return latents


def halves(guidance: float) -> int:
    """Evaluations of the network that one view costs at this guidance: 1 where one half alone is needed."""
    return 1 if guidance in (0.0, 1.0) else 2


def standard_normal(
    shape: Sequence[int], generator: torch.Generator | None, device: torch.device, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Normal noise drawn on the CPU, so that a seed means the same on every device."""
    return torch.randn(tuple(shape), generator=generator, dtype=torch.float32).to(device, dtype)
