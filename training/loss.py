"""What a training step minimises: augmentation, noise levels, and the weighted v-prediction error."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from priors.diffusion import add_noise, shift_time, velocity
from priors.tiny_zero123 import TinyZero123
from training.pool import ViewBatch

TIME_BINS = 8
T_MIN = 0.02


@dataclass(frozen=True)
class LossOptions:
    """Probabilities and widths of what is randomised; the defaults trained the embedded prior."""

    source_dropped: float = 0.1  # sources replaced by a blank picture, for guidance
    elevation_jitter_deg: float = 2.0  # of the source's elevation as told to the network
    wide_jitter_share: float = 0.25  # of the objects that get five times that: pictures of unknown elevation
    low_noise_cap: float = 0.12  # below this t the weight falls with t: what is left there is almost pure noise
    mirrored: float = 0.5
    hues_permuted: float = 0.25
    brightness: float = 0.15  # gain in 1 +- this
    saturation: float = 0.3  # in 1 +- this


@dataclass(frozen=True)
class Sample:
    """A prepared training batch, all float32: pictures in [-1, 1]."""

    source: Tensor  # [B, 4, S, S]
    source_elevation_deg: Tensor  # [B]
    x0: Tensor  # [B, V, 4, S, S]
    relative_azimuth_deg: Tensor  # [B, V]
    elevation_deg: Tensor  # [B, V]


def colour_matrices(batch: int, options: LossOptions, device: torch.device, generator: torch.Generator) -> Tensor:
    """Random hue permutations and saturations as [B, 3, 3] whose rows sum to 1.

    Such a matrix maps white to white and is linear, so applied to a picture composited over white it gives exactly the
    object of that colour composited over white.
    """
    uniform = torch.rand(batch, 5, device=device, generator=generator)
    order = uniform[:, :3].argsort(1)
    identity = torch.eye(3, device=device)
    keep = (uniform[:, 3] >= options.hues_permuted)[:, None, None]
    permutation = torch.where(keep, identity, identity[order])
    saturation = (1 + options.saturation * (2 * uniform[:, 4] - 1))[:, None, None]
    return saturation * permutation + (1 - saturation) / 3


def augment(pictures: Tensor, options: LossOptions, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Mirror and recolour all views of an object alike.

    Args:
        pictures: [B, N, 4, S, S] in [0, 1], colour over white and coverage.
    Returns:
        The same shape in [0, 1]; and which objects were mirrored [B], bool, whose azimuths must change sign.
    """
    batch, device = pictures.shape[0], pictures.device
    colours = colour_matrices(batch, options, device, generator)
    uniform = torch.rand(batch, 2, device=device, generator=generator)
    gain = (1 + options.brightness * (2 * uniform[:, :1] - 1))[:, :, None, None, None]  # [B, 1, 1, 1, 1]
    rgb, coverage = pictures[:, :, :3], pictures[:, :, 3:]
    rgb = torch.einsum("bij,bnjhw->bnihw", colours, rgb)
    white = 1 - coverage
    rgb = (gain * (rgb - white) + white).clamp(0, 1)  # the gain acts on the object, not on the white behind it
    pictures = torch.cat([rgb, coverage], 2)
    mirrored = uniform[:, 1] < options.mirrored
    return torch.where(mirrored[:, None, None, None, None], pictures.flip(-1), pictures), mirrored


def prepare(batch: ViewBatch, options: LossOptions, generator: torch.Generator) -> Sample:
    """Augment a batch, drop some sources and blur what the network hears of the source's elevation."""
    pictures = torch.cat([batch.source[:, None], batch.targets], 1).float() / 255
    pictures, mirrored = augment(pictures, options, generator)
    pictures = pictures * 2 - 1
    source = pictures[:, 0]
    uniform = torch.rand(len(source), 2, device=source.device, generator=generator)
    blank = source.new_tensor([1.0, 1.0, 1.0, -1.0])[None, :, None, None]
    source = torch.where((uniform[:, 0] < options.source_dropped)[:, None, None, None], blank, source)
    width = options.elevation_jitter_deg * (1 + 4 * (uniform[:, 1] < options.wide_jitter_share).float())
    jitter = width * torch.randn(len(source), device=source.device, generator=generator)
    return Sample(
        source=source,
        source_elevation_deg=batch.source_elevation_deg + jitter,
        x0=pictures[:, 1:],
        relative_azimuth_deg=torch.where(mirrored[:, None], -1.0, 1.0) * batch.relative_azimuth_deg,
        elevation_deg=batch.elevation_deg,
    )


def draw_times(count: int, image_size: int, device: torch.device, generator: torch.Generator) -> Tensor:
    """Noise levels, one in each of `count` equal parts of [T_MIN, 1], in random order, shifted for the size."""
    part = torch.randperm(count, device=device, generator=generator)
    t = (part + torch.rand(count, device=device, generator=generator)) / count
    return shift_time(T_MIN + (1 - T_MIN) * t, image_size)


def time_weight(t: Tensor, cap: float) -> Tensor:
    """1 from t = cap on, in proportion to t below, but a quarter at least."""
    return (t / cap).clamp(0.25, 1.0)


def v_loss(
    model: TinyZero123, sample: Sample, options: LossOptions, joint: bool, generator: torch.Generator
) -> tuple[Tensor, Tensor]:
    """Weighted mean squared error of v.

    With `joint` the views of an object share a noise level, else each has its own.

    Returns:
        The loss, and [2, TIME_BINS]: sum of unweighted errors and number of views, by noise level (not differentiable).
    """
    batch, views = sample.x0.shape[:2]
    device, size = sample.x0.device, model.config.image_size
    if joint:
        t = draw_times(batch, size, device, generator)[:, None].expand(batch, views)
    else:
        t = draw_times(batch * views, size, device, generator).view(batch, views)
    noise = torch.randn(sample.x0.shape, device=device, generator=generator)
    cache = model.encode_source(sample.source, sample.source_elevation_deg)
    v = model.denoise(
        add_noise(sample.x0, noise, t),
        t,
        sample.relative_azimuth_deg,
        sample.elevation_deg,
        sample.source_elevation_deg,
        cache,
        joint,
    )
    errors = (v.float() - velocity(sample.x0, noise, t)).square().mean((2, 3, 4))  # [B, V]
    loss = (errors * time_weight(t, options.low_noise_cap)).mean()
    return loss, bin_by_time(errors.detach(), t)


def bin_by_time(errors: Tensor, t: Tensor) -> Tensor:
    """Sums and counts of errors by t in TIME_BINS equal bins of [0, 1]: any shape -> [2, TIME_BINS]."""
    index = (t.flatten() * TIME_BINS).long().clamp(0, TIME_BINS - 1)
    bins = torch.zeros(2, TIME_BINS, device=errors.device, dtype=errors.dtype)
    bins[0].index_add_(0, index, errors.flatten())
    bins[1].index_add_(0, index, torch.ones_like(errors).flatten())
    return bins
