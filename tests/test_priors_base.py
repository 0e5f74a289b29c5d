"""The closed-form DDIM step and walk, and the contract that every prior must keep."""

import math

import pytest
import torch
from tiny_priors import TINY_PRIORS
from torch import Tensor

from cameras import Cameras
from prepare import PreparedImage
from priors.base import Prior, ddim_step, halves, walk


def stable_diffusion_alphas() -> Tensor:
    """Cumulative products of the public checkpoints' schedule [1000]."""
    return torch.cumprod(1 - torch.linspace(0.00085**0.5, 0.012**0.5, 1000, dtype=torch.float64) ** 2, dim=0)


class RecordingPrior(Prior):
    """A prior whose noise is a fixed function of the latents; it writes down where it was evaluated."""

    image_size = 8

    def __init__(self, constant: bool) -> None:
        super().__init__(torch.device("cpu"), guidance=3.0)
        self.constant = constant
        self.calls: list[tuple[float, float]] = []
        self.fixed = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(5))

    def set_source(self, prepared: PreparedImage, elevation_deg: float) -> None: ...

    def alpha_sigma(self, t: float) -> tuple[float, float]:
        a = float(stable_diffusion_alphas()[round(t * 1000)])
        return math.sqrt(a), math.sqrt(1 - a)

    def predict_noise(self, latents: Tensor, t: float, cameras: Cameras, guidance: float) -> Tensor:
        self.calls.append((t, guidance))
        return self.fixed if self.constant else torch.tanh(latents)


@pytest.mark.parametrize("eta", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("start, end", [(951, 901), (501, 451), (51, 1), (1, -49)])
def test_sampling_step_is_diffusers_step(eta, start, end):
    diffusers = pytest.importorskip("diffusers", reason="the comparison needs diffusers")
    scheduler = diffusers.DDIMScheduler(
        beta_start=0.00085, beta_end=0.012, beta_schedule="scaled_linear", clip_sample=False, set_alpha_to_one=False,
        steps_offset=1,
    )  # fmt: skip
    scheduler.set_timesteps(20)
    generator = torch.Generator().manual_seed(0)
    x, noise = torch.randn(2, 1, 4, 8, 8, generator=generator)
    fresh = torch.randn(1, 4, 8, 8, generator=torch.Generator().manual_seed(7))
    expected = scheduler.step(noise, start, x, eta=eta, variance_noise=fresh, return_dict=False)[0]
    alphas = stable_diffusion_alphas()
    here, there = ((math.sqrt(a), math.sqrt(1 - a)) for a in (float(alphas[start]), float(alphas[max(end, 0)])))
    x0 = (x - here[1] * noise) / here[0]
    actual = ddim_step(x0, noise, here, there, eta, torch.Generator().manual_seed(7))
    # Largest difference seen: 4e-6 at 951, where x is divided by sqrt(0.008) in float32.
    torch.testing.assert_close(actual, expected, rtol=1e-5, atol=1e-5)


def test_sampling_undoes_inversion():
    """With the same noise at both ends of a step the two are inverse to each other: one formula serves both."""
    prior = RecordingPrior(constant=True)
    cameras = prior.orbit(torch.tensor([0.0, 90.0]), torch.tensor([0.0, 0.0]))
    x = torch.randn(2, 3, 8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
    levels = [t / 1000 for t in (101, 151, 201, 251, 301)]
    inverted = walk(prior, x, levels, cameras, lambda t: 0.0)
    back = walk(prior, inverted, levels[::-1], cameras, lambda t: 1.0)
    assert (inverted - x).abs().max() > 0.1
    torch.testing.assert_close(back, x, rtol=0, atol=1e-12)


def test_walk_evaluates_at_the_level_of_departure():
    """MicroDreamer inverts with the noise of the current level, diffusers' own pipelines with that of the next."""
    prior = RecordingPrior(constant=False)
    cameras = prior.orbit(torch.tensor([0.0, 90.0]), torch.tensor([0.0, 0.0]))
    x = torch.zeros(2, 3, 8, 8, dtype=torch.float64)
    views = []
    walk(prior, x, [0.501, 0.551, 0.601], cameras, lambda t: 0.0, on_call=views.append)
    walk(prior, x, [0.101, 0.051, 0.001, 0.0], cameras, lambda t: 3.0 if t > 0.01 else 1.0, on_call=views.append)
    assert prior.calls == [(0.501, 0.0), (0.551, 0.0), (0.101, 3.0), (0.051, 3.0), (0.001, 1.0)]
    assert views == [2, 2, 4, 4, 2]


def test_a_walk_of_one_level_is_no_step():
    prior = RecordingPrior(constant=False)
    x = torch.ones(2, 3, 8, 8)
    assert walk(prior, x, [0.5], prior.orbit([0.0, 90.0], 0.0), lambda t: 1.0) is x
    assert prior.calls == []


def test_fresh_noise_keeps_the_variance():
    """For white noise as data, every eta must arrive at the variance alpha_t^2 + sigma_t^2 = 1."""
    generator = torch.Generator().manual_seed(0)
    x0, noise = torch.randn(2, 200_000, generator=generator)
    here, there = (math.cos(1.2), math.sin(1.2)), (math.cos(0.7), math.sin(0.7))
    for eta in (0.0, 0.5, 1.0):
        moved = ddim_step(x0, noise, here, there, eta, generator)
        # Standard error of a variance from 200,000 values: sqrt(2 / 200,000) = 0.003.
        assert abs(float(moved.var()) - 1.0) < 0.015


@pytest.fixture(params=TINY_PRIORS)
def prior(request) -> Prior:
    made = TINY_PRIORS[request.param]()
    show(made, 3)
    return made


def show(prior: Prior, seed: int) -> None:
    """A picture of noise, or a text of one letter, or both."""
    if prior.takes_text:
        prior.set_text(chr(ord("a") + seed % 26))
    rgb = torch.rand(20, 20, 3, generator=torch.Generator().manual_seed(seed))
    prior.set_source(PreparedImage(rgb, torch.ones(20, 20)) if prior.takes_picture else None, 10.0)


def some_views(prior: Prior) -> tuple[Tensor, Cameras]:
    cameras = prior.orbit(torch.tensor([30.0, 120.0, 210.0, 300.0]), torch.full((4,), 10.0))
    latents = torch.randn(prior.latent_shape(4), generator=torch.Generator().manual_seed(1))
    return latents, cameras


def test_contract_pictures_survive_the_latents(prior):
    images = torch.rand(2, prior.channels, prior.image_size, prior.image_size)
    latents = prior.encode(images)
    assert latents.shape == prior.latent_shape(2)
    decoded = prior.decode(latents)
    assert decoded.shape == images.shape and decoded.min() >= 0 and decoded.max() <= 1
    # Pixel priors are exact; a latent prior with random weights has no reason to be.
    if latents.shape == images.shape:
        torch.testing.assert_close(decoded, images, rtol=0, atol=1e-6)


def test_contract_levels_rise_from_picture_to_noise(prior):
    levels = [prior.level(u) for u in (0.0, 0.1, 0.5, 0.9, 1.0)]
    assert levels[0] == 0.0 and levels[-1] == 1.0 and levels == sorted(levels)
    sigmas = [prior.alpha_sigma(t)[1] for t in levels]
    assert sigmas == sorted(sigmas)
    for t in levels:
        alpha, sigma = prior.alpha_sigma(t)
        assert alpha**2 + sigma**2 == pytest.approx(1.0)


@pytest.mark.parametrize("guidance", [0.0, 1.0, 2.5])
def test_contract_prediction_adds_up(prior, guidance):
    latents, cameras = some_views(prior)
    before = latents.clone()
    for t in (0.3, 0.9):
        x0, noise = prior.predict(latents, t, cameras, guidance)
        assert x0.shape == noise.shape == latents.shape and x0.isfinite().all() and noise.isfinite().all()
        alpha, sigma = prior.alpha_sigma(t)
        torch.testing.assert_close(alpha * x0 + sigma * noise, latents, rtol=0, atol=1e-5)
        torch.testing.assert_close(prior.predict_noise(latents, t, cameras, guidance), noise)
    assert torch.equal(latents, before)


def test_contract_guidance_halves(prior):
    """0 does not know the picture, 1 does."""
    latents, cameras = some_views(prior)
    first = [prior.predict_noise(latents, 0.5, cameras, g) for g in (0.0, 1.0)]
    show(prior, 99)
    second = [prior.predict_noise(latents, 0.5, cameras, g) for g in (0.0, 1.0)]
    torch.testing.assert_close(first[0], second[0])
    assert (first[1] - second[1]).abs().max() > 1e-5
    assert [halves(g) for g in (0.0, 1.0, 2.5)] == [1, 1, 2]


def test_contract_the_camera_matters_and_turns_are_whole(prior):
    latents, cameras = some_views(prior)
    azimuths, elevations, _ = cameras.orbit_angles()
    noise = prior.predict_noise(latents, 0.5, cameras, 1.0)
    same = prior.predict_noise(latents, 0.5, prior.orbit(azimuths + 360, elevations), 1.0)
    moved = prior.predict_noise(latents, 0.5, prior.orbit(azimuths + 30, elevations), 1.0)
    # 3e-6 was measured: the angles come back through float32 matrices.
    torch.testing.assert_close(same, noise, rtol=0, atol=1e-4)
    assert (moved - noise).abs().max() > 1e-4


def test_contract_groups_do_not_mix(prior):
    """Views of different groups do not see each other; those of one group may."""
    latents, cameras = some_views(prior)
    azimuths, elevations, _ = cameras.orbit_angles()
    double = prior.orbit(torch.cat([azimuths, azimuths + 45]), torch.cat([elevations, elevations + 5]))
    both = torch.cat([latents, latents.flip(-1)])
    together = prior.predict_noise(both, 0.5, double, 1.0)
    alone = prior.predict_noise(latents, 0.5, cameras, 1.0)
    torch.testing.assert_close(together[:4], alone, rtol=0, atol=1e-5)
