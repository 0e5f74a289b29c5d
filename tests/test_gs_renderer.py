"""The front door: choice of the backend, backgrounds, errors, gradients in screen space."""

import pytest
import torch

import scenes
from cameras import orbit_cameras
from errors import UserError
from gs_renderer import render


@pytest.fixture
def gaussians(generator):
    return scenes.shell(40, generator, sh_degree=1)


@pytest.fixture
def cameras():
    return orbit_cameras([0.0, 90.0], [0.0, 30.0], width=20, height=18)


def test_shapes(gaussians, cameras):
    rendered = render(gaussians, cameras)
    assert rendered.rgb.shape == (2, 18, 20, 3)
    assert rendered.alpha.shape == rendered.depth.shape == (2, 18, 20)
    assert rendered.means2d.shape == (2, 40, 2)
    assert rendered.radii.shape == (2, 40) and rendered.radii.dtype == torch.int32


def test_auto_is_the_numba_rasteriser_on_the_cpu(gaussians, cameras):
    automatic = render(gaussians, cameras)
    assert torch.equal(automatic.rgb, render(gaussians, cameras, backend="cpu").rgb)
    torch.testing.assert_close(automatic.rgb, render(gaussians, cameras, backend="reference").rgb, atol=1e-5, rtol=0)


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_background_shows_where_nothing_is(gaussians, cameras, backend):
    """rgb is linear in the background, with 1 - alpha as the slope."""
    black = render(gaussians, cameras, (0, 0, 0), backend)
    colour = torch.tensor([0.2, 0.4, 0.6])
    expected = black.rgb + (1 - black.alpha)[..., None] * colour
    torch.testing.assert_close(render(gaussians, cameras, colour, backend).rgb, expected)
    each = torch.stack([colour, 1 - colour])
    expected = black.rgb + (1 - black.alpha)[..., None] * each[:, None, None]
    torch.testing.assert_close(render(gaussians, cameras, each, backend).rgb, expected)
    torch.testing.assert_close(
        render(gaussians, cameras, backend=backend).rgb, black.rgb + (1 - black.alpha)[..., None]
    )


@pytest.mark.parametrize("backend", ["cpu", "reference"])
def test_no_gaussians_show_the_background(cameras, backend, generator):
    empty = scenes.shell(0, generator, 2).map(lambda t: t.requires_grad_())
    rendered = render(empty, cameras, (0.1, 0.2, 0.3), backend)
    torch.testing.assert_close(rendered.rgb, torch.tensor([0.1, 0.2, 0.3]).expand(2, 18, 20, 3))
    assert rendered.alpha.abs().max() == 0 and rendered.radii.shape == (2, 0)
    (rendered.rgb.sum() + rendered.depth.sum()).backward()


def test_screen_space_gradients_can_be_read(gaussians, cameras):
    gaussians = gaussians.map(lambda t: t.requires_grad_())
    rendered = render(gaussians, cameras)
    rendered.means2d.retain_grad()
    rendered.rgb.square().sum().backward()
    gradients = rendered.means2d.grad
    assert gradients.shape == (2, 40, 2)
    assert (gradients[rendered.radii == 0] == 0).all() and (gradients[rendered.radii > 0] != 0).any()


def test_no_grad_draws_the_same(gaussians, cameras):
    gaussians = gaussians.map(lambda t: t.requires_grad_())
    with torch.no_grad():
        quiet = render(gaussians, cameras)
    assert not quiet.rgb.requires_grad
    assert torch.equal(quiet.rgb, render(gaussians, cameras).rgb)


def test_a_few_steps_of_descent_lower_the_loss(cameras, generator):
    """What the gradients are for: a scene pulled towards another one's pictures."""
    target = render(scenes.shell(60, generator), cameras).rgb
    gaussians = scenes.ball(60, generator).map(lambda t: t.requires_grad_())
    optimiser = torch.optim.Adam(gaussians.tensors().values(), lr=0.03)
    losses = []
    for _ in range(40):
        loss = (render(gaussians, cameras).rgb - target).square().mean()
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.3 * losses[0], losses


def test_errors_name_the_argument(gaussians, cameras):
    with pytest.raises(UserError, match=r"backend='opengl' is unknown; choose from reference, cpu"):
        render(gaussians, cameras, backend="opengl")
    with pytest.raises(ValueError, match=r"background must be \[3\] or \[C, 3\] = \[2, 3\], got \[4\]"):
        render(gaussians, cameras, background=(0, 0, 0, 1))
    with pytest.raises(ValueError, match="cameras must be on the device of the Gaussians, cpu, got meta"):
        render(gaussians, cameras.to("meta"))
    with pytest.raises(UserError, match="backend='cpu' draws Gaussians that are on the CPU"):
        render(gaussians.to("meta"), cameras.to("meta"), backend="cpu")
