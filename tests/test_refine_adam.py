"""The official fit of a texture to pictures: the linear map from texels to pixels, and what Adam makes of it."""

import numpy as np
import pytest
import torch
from textured_ball import wavy_ball

from cameras import orbit_cameras
from mesh_extract.mesh_raster import rasterize_uvs, render_mesh
from mesh_extract.texels import Texels, texels_of
from mesh_extract.textured import TexturedMesh
from refine import SAMPLES
from refine_adam import Target, fit_adam, texel_map


@pytest.fixture(scope="module")
def truth() -> TexturedMesh:
    return wavy_ball()


@pytest.fixture(scope="module")
def surface(truth) -> Texels:
    return texels_of(truth.mesh, truth.uvs, truth.uv_faces, 128, torch.device("cpu"))


def texel_colours(textured: TexturedMesh) -> torch.Tensor:
    valid = rasterize_uvs(textured.uvs, textured.uv_faces, textured.texture.shape[0])[0] >= 0
    return torch.from_numpy(textured.texture)[torch.from_numpy(valid)].float() / 255


def test_the_map_draws_what_the_renderer_draws(truth, surface):
    cameras = orbit_cameras([30.0, 200.0], [10.0, -40.0], width=32, height=24)
    texels = texel_map(surface, cameras, torch.ones(2, 24, 32, dtype=torch.bool))
    assert len(texels.pixels) > 100
    np.testing.assert_allclose(texels.matrix @ torch.ones(texels.matrix.shape[1], 1), 1.0, atol=1e-5)
    drawn = render_mesh(truth, cameras, supersample=SAMPLES)
    assert (drawn.alpha.flatten()[texels.pixels] == 1.0).all()
    mapped, texel_count = texels.matrix @ texel_colours(truth), texels.matrix.shape[1]
    # Measured 2e-7: the same bilinear samples, added in another order.
    torch.testing.assert_close(mapped, drawn.rgb.reshape(-1, 3)[texels.pixels], rtol=0, atol=2e-5)
    torch.testing.assert_close(texels.transposed @ torch.eye(len(mapped)), (texels.matrix @ torch.eye(texel_count)).T)


def test_the_map_leaves_out_what_is_oblique_or_unusable(truth, surface):
    cameras = orbit_cameras([0.0], 0.0, width=64, height=64)
    usable = torch.ones(1, 64, 64, dtype=torch.bool)
    whole = texel_map(surface, cameras, usable).pixels
    covered = (render_mesh(truth, cameras, supersample=SAMPLES).alpha == 1.0).sum()
    # A ball's share seen at a cosine above 0.2 is 1 - 0.2^2 = 0.96 of its disc; perspective hardly changes it.
    assert 0.9 * covered < len(whole) < 0.99 * covered
    usable[:, :, :32] = False
    half = texel_map(surface, cameras, usable).pixels
    assert (half % 64 >= 32).all() and len(half) == (whole % 64 >= 32).sum()


def test_pictures_that_show_nothing_change_nothing(truth, surface):
    cameras = orbit_cameras([0.0], 0.0, width=32, height=32)
    texels = texel_map(surface, cameras, torch.zeros(1, 32, 32, dtype=torch.bool))
    assert texels.pixels.shape == (0,) and texels.matrix.shape[0] == 0
    colours = texel_colours(truth)
    fitted = fit_adam(colours, [Target(texels, torch.zeros(0, 3))], 3, 0.2)
    torch.testing.assert_close(fitted, colours, rtol=0, atol=1e-5)


def one_view(surface, colour: float) -> Target:
    cameras = orbit_cameras([0.0], 0.0, width=48, height=48)
    texels = texel_map(surface, cameras, torch.ones(1, 48, 48, dtype=torch.bool))
    return Target(texels, torch.full((len(texels.pixels), 3), colour))


def test_what_is_seen_moves_and_nothing_else(surface):
    target = one_view(surface, 0.9)
    colours = torch.full((int(surface.nearest.max()) + 1, 3), 0.5)
    fitted = fit_adam(colours, [target], 30, 0.2)
    unseen = (target.texels.transposed @ torch.ones(len(target.colours), 1))[:, 0] == 0
    assert 0.2 < unseen.float().mean() < 0.8
    torch.testing.assert_close(fitted[unseen], colours[unseen])
    shown = target.texels.matrix @ fitted
    assert (shown - 0.9).abs().max() < 0.05
