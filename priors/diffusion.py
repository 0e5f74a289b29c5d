"""The diffusion process of the embedded prior: cosine schedule, v-prediction; DDIM for training's own samples.

| here        | paper (arXiv:2202.00512, v-prediction; arXiv:2010.02502, DDIM) |
|-------------|-----------------------------------------------------------------|
| alpha       | cos(pi t / 2)                                                   |
| sigma       | sin(pi t / 2)                                                   |
| velocity    | alpha eps - sigma x0                                            |

The DDIM step is `priors.base.ddim_step`, that of every prior.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from priors.base import ddim_step
from priors.tiny_zero123 import SourceCache, TinyZero123


def alpha_sigma(t: Tensor) -> tuple[Tensor, Tensor]:
    """Scale of the picture and of the noise at noise level t in [0, 1]."""
    angle = t * (math.pi / 2)
    return angle.cos(), angle.sin()


def shift_time(t: Tensor, image_size: int) -> Tensor:
    """Noise level at which a larger picture is as hard to see as a 64 px one at level t.

    tan(pi t' / 2) = (image_size / 64) tan(pi t / 2), after simple diffusion (arXiv:2301.11093): averaging pixels
    halves the noise of a picture twice as large.
    """
    factor = max(1.0, image_size / 64)
    if factor == 1.0:
        return t
    angle = t * (math.pi / 2)
    return torch.atan2(factor * angle.sin(), angle.cos()) * (2 / math.pi)


def add_noise(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """x_t = alpha x0 + sigma eps; t has the leading dimensions of x0."""
    alpha, sigma = (c.reshape(c.shape + (1,) * (x0.dim() - c.dim())) for c in alpha_sigma(t))
    return alpha * x0 + sigma * noise


def velocity(x0: Tensor, noise: Tensor, t: Tensor) -> Tensor:
    """v = alpha eps - sigma x0; t has the leading dimensions of x0."""
    alpha, sigma = (c.reshape(c.shape + (1,) * (x0.dim() - c.dim())) for c in alpha_sigma(t))
    return alpha * noise - sigma * x0


def predicted_x0(x_t: Tensor, v: Tensor, t: Tensor) -> Tensor:
    """x0 = alpha x_t - sigma v, clamped to [-1, 1]."""
    alpha, sigma = (c.reshape(c.shape + (1,) * (x_t.dim() - c.dim())) for c in alpha_sigma(t))
    return (alpha * x_t - sigma * v).clamp(-1, 1)


def ddim_times(steps: int, image_size: int, start: float = 1.0) -> list[float]:
    """`steps` + 1 noise levels from `start` down to 0, uniform before the shift for the picture's size."""
    # The start is given as the level the picture really has: undo the shift, walk, shift again.
    factor = max(1.0, image_size / 64)
    first = math.atan2(math.sin(start * math.pi / 2), factor * math.cos(start * math.pi / 2)) * (2 / math.pi)
    uniform = torch.linspace(first, 0.0, steps + 1, dtype=torch.float64)
    return shift_time(uniform, image_size).tolist()


def guided_velocity(
    model: TinyZero123,
    x_t: Tensor,
    t: Tensor,
    relative_azimuth_deg: Tensor,
    elevation_deg: Tensor,
    source_elevation_deg: Tensor,
    cache: SourceCache,
    blank: SourceCache | None,
    guidance: float,
    joint: bool,
) -> Tensor:
    """Velocity under classifier-free guidance (arXiv:2207.12598); guidance 1 or no blank cache is the plain one.

    Arguments as in `TinyZero123.denoise`; `blank` is the cache of `blank_source` for the same B.
    """
    arguments = (x_t, t, relative_azimuth_deg, elevation_deg, source_elevation_deg)
    conditional = model.denoise(*arguments, cache, joint)
    if blank is None or guidance == 1.0:
        return conditional
    unconditional = model.denoise(*arguments, blank, joint)
    return unconditional + guidance * (conditional - unconditional)


def ddim_sample(
    model: TinyZero123,
    noise: Tensor,
    relative_azimuth_deg: Tensor,
    elevation_deg: Tensor,
    source_elevation_deg: Tensor,
    cache: SourceCache,
    blank: SourceCache | None = None,
    *,
    steps: int = 20,
    guidance: float = 1.0,
    joint: bool = False,
    start: float = 1.0,
) -> Tensor:
    """Sample target views from noise [B, V, 4, S, S] (or from a picture already noised to level `start`)."""
    times = ddim_times(steps, model.config.image_size, start)
    x, x0 = noise, noise
    for t, t_next in zip(times[:-1], times[1:], strict=True):
        now = noise.new_full(noise.shape[:1], t)
        v = guided_velocity(
            model,
            x,
            now,
            relative_azimuth_deg,
            elevation_deg,
            source_elevation_deg,
            cache,
            blank,
            guidance,
            joint,
        ).float()
        x0 = predicted_x0(x, v, now)
        here, there = ((math.cos(angle), math.sin(angle)) for angle in (t * math.pi / 2, t_next * math.pi / 2))
        eps = (x - here[0] * x0) / here[1]  # of the clamped x0, so that x = alpha x0 + sigma eps still holds
        x = ddim_step(x0, eps, here, there)
    return x0
