"""The embedded prior: what goes beyond the contract of all priors."""

import inspect
import math

import pytest
import torch
from tiny_priors import tiny_embedded

from config import PriorConfig
from errors import UserError
from prepare import PreparedImage
from priors import PRIORS
from priors.embedded import EmbeddedPrior, source_rgba
from priors.tiny_zero123 import CAMERA_FOVY_DEG, CAMERA_RADIUS, TinyZero123, TinyZero123Config, blank_source
from procedural.render import render_views


def picture(seed: int = 3) -> PreparedImage:
    generator = torch.Generator().manual_seed(seed)
    return PreparedImage(torch.rand(16, 16, 3, generator=generator), torch.rand(16, 16, generator=generator).round())


def made(joint: bool = True, guidance: float = 2.0, device: str = "cpu") -> EmbeddedPrior:
    prior = tiny_embedded(joint, guidance, device)
    prior.set_source(picture(), 15.0)
    return prior


def test_velocity_is_turned_into_picture_and_noise():
    """x0 = alpha x - sigma v, clamped; the noise is that of the clamped x0."""
    prior = made(joint=False)
    t = 0.6
    latents = torch.randn(2, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    cameras = prior.orbit([40.0, 100.0], [15.0, -5.0])
    cache = prior.model.encode_source(source_rgba(picture(), 16) * 2 - 1, torch.tensor([15.0]))
    blank = prior.model.encode_source(blank_source(1, 16), torch.tensor([15.0]))
    v, u = (
        prior.model.denoise(
            latents[None], torch.tensor([t]), torch.tensor([[40.0, 100.0]]), torch.tensor([[15.0, -5.0]]),
            torch.tensor([15.0]), c, joint=False,
        )[0]
        for c in (cache, blank)
    )  # fmt: skip
    alpha, sigma = math.cos(math.pi / 2 * t), math.sin(math.pi / 2 * t)
    for guidance, velocity in ((1.0, v), (0.0, u), (3.0, u + 3 * (v - u))):
        x0, noise = prior.predict(latents, t, cameras, guidance)
        expected = (alpha * latents - sigma * velocity).clamp(-1, 1)
        torch.testing.assert_close(x0, expected, rtol=0, atol=1e-4)
        torch.testing.assert_close(noise, (latents - alpha * expected) / sigma, rtol=0, atol=1e-4)


def test_pure_noise_has_a_prediction():
    """At t = 1 nothing of x0 is left in x: dividing by alpha would give infinity."""
    prior = made()
    latents = torch.randn(4, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    x0, noise = prior.predict(latents, 1.0, prior.orbit([0.0, 90.0, 180.0, 270.0], 15.0), 2.0)
    assert x0.isfinite().all() and x0.abs().max() <= 1
    torch.testing.assert_close(noise, latents)


def test_joint_views_see_each_other_within_their_group_alone():
    latents = torch.randn(8, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    changed = latents.clone()
    changed[7] = 0.0
    azimuths = torch.tensor([0.0, 90, 180, 270, 45, 135, 225, 315])
    for joint, affected in ((True, [False] * 4 + [True] * 4), (False, [False] * 7 + [True])):
        prior = made(joint)
        cameras = prior.orbit(azimuths, 15.0)
        before, after = (prior.predict(x, 0.5, cameras, 1.0)[0] for x in (latents, changed))
        assert [bool((a - b).abs().max() > 1e-5) for a, b in zip(before, after, strict=True)] == affected


def test_an_odd_number_of_views_is_taken_one_by_one():
    prior = made(joint=True)
    latents = torch.randn(3, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    cameras = prior.orbit([10.0, 130.0, 250.0], 15.0)
    together = prior.predict(latents, 0.5, cameras, 1.0)[0]
    for i in range(3):
        alone = prior.predict(latents[i : i + 1], 0.5, cameras[i], 1.0)[0]
        torch.testing.assert_close(together[i : i + 1], alone, rtol=0, atol=1e-5)


def test_steps_are_spaced_for_the_size_of_the_picture():
    small = made()
    assert small.level(0.5) == pytest.approx(0.5)
    large = EmbeddedPrior(PriorConfig(), torch.device("cpu"), TinyZero123(TinyZero123Config(
        image_size=128, width=32, depth=1, heads=2, stem_channels=8, middle_channels=8
    )))  # fmt: skip
    # tan(pi t / 2) is twice that of u: t = 2 / pi atan 2 at u = 1/2
    assert large.level(0.5) == pytest.approx(2 / math.pi * math.atan(2.0))
    assert large.level(0.0) == 0.0 and large.level(1.0) == 1.0


def test_one_orbit_for_network_prior_and_training_pictures():
    """Radius and field of view stand with the cameras, the network and the renderer of its training data."""
    defaults = inspect.signature(render_views).parameters
    trained = defaults["radius"].default, defaults["fovy_deg"].default
    assert (EmbeddedPrior.radius, EmbeddedPrior.fovy_deg) == (CAMERA_RADIUS, CAMERA_FOVY_DEG) == trained


def test_missing_weights_are_named(tmp_path):
    path = tmp_path / "none.safetensors"
    with pytest.raises(UserError, match=r"prior\.weights=.*none\.safetensors: no such file"):
        PRIORS["embedded"](PriorConfig(weights=str(path)), torch.device("cpu"))


@pytest.mark.gpu
def test_the_same_on_the_gpu(cuda):
    cpu, gpu = made(), made(device="cuda")
    latents = torch.randn(4, 4, 16, 16, generator=torch.Generator().manual_seed(0))
    cameras = cpu.orbit([0.0, 90.0, 180.0, 270.0], 15.0)
    expected = cpu.predict(latents, 0.7, cameras, 2.0)[0]
    actual = gpu.predict(latents.to(cuda), 0.7, cameras, 2.0)[0]
    assert actual.device.type == "cuda"
    torch.testing.assert_close(actual.cpu(), expected, rtol=0, atol=5e-3)
