"""The embedded prior's network, its schedule and its file format."""

import math

import pytest
import torch

from errors import UserError
from priors.diffusion import (
    add_noise,
    alpha_sigma,
    ddim_sample,
    ddim_times,
    predicted_x0,
    shift_time,
    velocity,
)
from priors.tiny_zero123 import SourceCache, TinyZero123, TinyZero123Config, blank_source, token_rays
from priors.tiny_zero123_io import load_model, save_weights

SMALL = TinyZero123Config(image_size=32, width=64, depth=2, heads=2, stem_channels=16, middle_channels=16)


def random_model(config: TinyZero123Config = SMALL) -> TinyZero123:
    """A network without the zeros of its initialisation, which would hide half of it."""
    torch.manual_seed(0)
    model = TinyZero123(config).eval().requires_grad_(False)
    for p in model.parameters():
        if not p.any():
            torch.nn.init.normal_(p, std=0.1)
    return model


@pytest.fixture(scope="module")
def model() -> TinyZero123:
    return random_model()


def views(generator, batch=2, count=3, size=32):
    x = torch.randn(batch, count, 4, size, size, generator=generator)
    azimuth = torch.rand(batch, count, generator=generator) * 360
    elevation = torch.rand(batch, count, generator=generator) * 40
    source = torch.rand(batch, 4, size, size, generator=generator) * 2 - 1
    return x, azimuth, elevation, source, torch.tensor([5.0, 20.0])[:batch]


def test_the_embedded_prior_fits_its_budget():
    network = TinyZero123()
    count = sum(p.numel() for p in network.parameters())
    assert 11_000_000 < count <= 13_000_000  # 26 MB in half precision
    assert network.config.grid == 16
    assert len(network.trunk_matrices()) == 4 * network.config.depth


@pytest.mark.parametrize("image_size", [32, 64, 128])
def test_shapes(image_size, generator):
    small = TinyZero123Config(image_size=image_size, width=32, depth=1, heads=1, stem_channels=8, middle_channels=8)
    network = random_model(small)
    x, azimuth, elevation, source, source_elevation = views(generator, size=image_size)
    cache = network.encode_source(source, source_elevation)
    v = network.denoise(x, torch.tensor([0.3, 0.9]), azimuth, elevation, source_elevation, cache, True)
    assert v.shape == x.shape and v.isfinite().all()


def test_views_apart_equal_separate_calls(model, generator):
    x, azimuth, elevation, source, source_elevation = views(generator)
    t = torch.tensor([[0.2, 0.5, 0.9], [1.0, 0.7, 0.1]])
    cache = model.encode_source(source, source_elevation)
    together = model.denoise(x, t, azimuth, elevation, source_elevation, cache, False)
    for b in range(2):
        own = model.encode_source(source[b : b + 1], source_elevation[b : b + 1])
        for i in range(3):
            at = (slice(b, b + 1), slice(i, i + 1))
            alone = model.denoise(
                x[at], t[at], azimuth[at], elevation[at], source_elevation[b : b + 1], own, i % 2 == 1
            )  # one view is the same either way
            torch.testing.assert_close(alone, together[at], atol=2e-5, rtol=1e-4)  # measured 2e-6


def test_joint_views_see_each_other_and_their_order_does_not_matter(model, generator):
    x, azimuth, elevation, source, source_elevation = views(generator)
    cache = model.encode_source(source, source_elevation)
    t = torch.tensor([0.5, 0.8])

    def run(x, azimuth, elevation, joint):
        return model.denoise(x, t, azimuth, elevation, source_elevation, cache, joint)

    joint = run(x, azimuth, elevation, True)
    order = [2, 0, 1]
    permuted = run(x[:, order], azimuth[:, order], elevation[:, order], True)
    torch.testing.assert_close(permuted, joint[:, order], atol=2e-5, rtol=1e-4)

    changed = x.clone()
    changed[0, 1] += 1
    for is_joint in (True, False):
        before, after = run(x, azimuth, elevation, is_joint), run(changed, azimuth, elevation, is_joint)
        other_view = (before[0, 0] - after[0, 0]).abs().max()
        other_object = (before[1] - after[1]).abs().max()
        assert (other_view > 1e-4) == is_joint
        assert other_object < 2e-5


def test_the_camera_and_the_source_matter(model, generator):
    x, azimuth, elevation, source, source_elevation = views(generator)
    t = torch.tensor([0.5, 0.5])
    cache = model.encode_source(source, source_elevation)
    v = model.denoise(x, t, azimuth, elevation, source_elevation, cache, False)
    turned = model.denoise(x, t, azimuth + 360, elevation, source_elevation, cache, False)
    torch.testing.assert_close(v, turned, atol=1e-3, rtol=1e-3)  # float32 degrees near 720; measured 2e-5
    for other in (
        model.denoise(x, t, azimuth + 30, elevation, source_elevation, cache, False),
        model.denoise(x, t, azimuth, elevation + 10, source_elevation, cache, False),
        model.denoise(x, t + 0.1, azimuth, elevation, source_elevation, cache, False),
        model.denoise(
            x, t, azimuth, elevation, source_elevation, model.encode_source(-source, source_elevation), False
        ),
    ):
        assert (v - other).abs().max() > 1e-3


def test_caches_join_and_expand(model, generator):
    x, azimuth, elevation, source, source_elevation = views(generator)
    both = model.encode_source(source, source_elevation)
    joined = SourceCache.cat([model.encode_source(source[i : i + 1], source_elevation[i : i + 1]) for i in (0, 1)])
    torch.testing.assert_close(joined.keys[1], both.keys[1], atol=2e-5, rtol=1e-4)
    expanded = model.encode_source(source[:1], source_elevation[:1]).expand(2)
    assert expanded.values[0].shape == both.values[0].shape
    torch.testing.assert_close(expanded.values[1][1], both.values[1][0], atol=2e-5, rtol=1e-4)


def test_shapes_that_do_not_fit_are_named(model, generator):
    x, azimuth, elevation, source, source_elevation = views(generator)
    cache = model.encode_source(source, source_elevation)
    t = torch.ones(2)
    with pytest.raises(ValueError, match="relative_azimuth_deg"):
        model.denoise(x, t, azimuth[:, :2], elevation, source_elevation, cache, False)
    with pytest.raises(ValueError, match="x_t"):
        model.denoise(x[..., :16], t, azimuth, elevation, source_elevation, cache, False)
    with pytest.raises(ValueError, match="cache"):
        model.denoise(x[:1], t[:1], azimuth[:1], elevation[:1], source_elevation[:1], cache, False)


def test_rays_meet_the_conventions():
    rays = token_rays(torch.tensor([0.0, 90.0, 0.0]), torch.tensor([0.0, 0.0, 90.0]), 2)
    directions, moments = rays[..., :3], rays[..., 3:]
    torch.testing.assert_close(directions.norm(dim=-1), torch.ones(3, 4))
    torch.testing.assert_close((directions * moments).sum(-1), torch.zeros(3, 4), atol=1e-6, rtol=0)
    towards = directions.mean(1)
    # Azimuth 0 stands at +z, 90 at +x, elevation 90 above; all look at the origin.
    for i, axis in enumerate(([0, 0, -1], [-1, 0, 0], [0, -1, 0])):
        torch.testing.assert_close(torch.nn.functional.normalize(towards[i], dim=0), torch.tensor(axis).float())
    first = directions[0, 0]  # top left of the front view: -x, +y
    assert first[0] < 0 < first[1]
    expected = 0.5 * math.tan(math.radians(49.1) / 2)  # the centre of a quarter lies half way to the border
    assert -first[0] / -first[2] == pytest.approx(expected, rel=1e-5)
    assert directions[1, 1][2] < 0  # from +x, right is -z


def test_velocity_gives_the_clamped_picture(generator):
    x0 = torch.rand(2, 3, 4, 8, 8, generator=generator) * 2 - 1
    noise = torch.randn(x0.shape, generator=generator)
    t = torch.tensor([1.0, 0.6])
    x_t, v = add_noise(x0, noise, t), velocity(x0, noise, t)
    torch.testing.assert_close(predicted_x0(x_t, v, t), x0, atol=1e-5, rtol=0)
    assert predicted_x0(x_t, v * 3, t).abs().max() <= 1


def test_schedule():
    t = torch.linspace(0, 1, 11, dtype=torch.float64)
    assert torch.equal(shift_time(t, 64), t)
    shifted = shift_time(t, 128)
    torch.testing.assert_close((shifted * math.pi / 2).tan()[:-1], 2 * (t * math.pi / 2).tan()[:-1])
    assert shifted[-1] == 1 and shifted[0] == 0 and (shifted.diff() > 0).all()
    for start in (1.0, 0.6):
        times = ddim_times(5, 128, start)
        assert times[0] == pytest.approx(start) and times[-1] == 0 and sorted(times, reverse=True) == times


def test_sampling_ends_at_the_truth_of_a_perfect_network(generator, monkeypatch):
    truth = torch.rand(1, 2, 4, 32, 32, generator=generator) * 2 - 1
    network = random_model()

    def perfect(x_t, t, *_):
        alpha, sigma = (c.view(-1, 1, 1, 1, 1) for c in alpha_sigma(t))
        return (alpha * x_t - truth) / sigma

    monkeypatch.setattr(network, "denoise", perfect)
    zeros = torch.zeros(1, 2)
    cache = network.encode_source(blank_source(1, 32), torch.zeros(1))
    noise = torch.randn(truth.shape, generator=generator)
    result = ddim_sample(network, noise, zeros, zeros, zeros[:, 0], cache, cache, steps=4, guidance=2.0)
    torch.testing.assert_close(result, truth, atol=1e-4, rtol=0)


def test_weights_survive_the_file(model, tmp_path, generator):
    path = tmp_path / "prior.safetensors"
    save_weights(model.state_dict(), SMALL, path, {"steps": "7"})
    again, notes = load_model(path)
    assert notes["steps"] == "7" and again.config == SMALL and not again.training
    for (name, a), b in zip(model.state_dict().items(), again.state_dict().values(), strict=True):
        assert b.dtype == torch.float32 and torch.equal(a.half().float(), b), name
    first = path.read_bytes()
    save_weights(again.state_dict(), SMALL, path, {"steps": "7"})
    assert path.read_bytes() == first
    assert len(first) < 2.2 * sum(p.numel() for p in model.parameters())


def test_a_wrong_file_is_named(tmp_path):
    from safetensors.torch import save_file

    other = tmp_path / "other.safetensors"
    save_file({"x": torch.zeros(1)}, str(other))
    for path in (tmp_path / "missing.safetensors", other):
        with pytest.raises(UserError, match=path.name):
            load_model(path)
    other.write_bytes(b"no")
    with pytest.raises(UserError, match="safetensors"):
        load_model(other)


def test_regions_compile_once_each(generator):
    from torch._dynamo.testing import CompileCounterWithBackend

    network = random_model()
    x, azimuth, elevation, source, source_elevation = views(generator, count=2)
    counter = CompileCounterWithBackend("eager")
    plain = network.denoise(
        x,
        torch.ones(2),
        azimuth,
        elevation,
        source_elevation,
        network.encode_source(source, source_elevation),
        True,
    )
    network.compile_regions(backend=counter)
    for _ in range(2):
        for joint in (False, True):
            cache = network.encode_source(source, source_elevation)
            v = network.denoise(x, torch.ones(2), azimuth, elevation, source_elevation, cache, joint)
    # Embed and block for the source, embed and block for targets apart, block for joint targets, decode.
    assert counter.frame_count == 6
    torch.testing.assert_close(v, plain, atol=1e-5, rtol=1e-4)
