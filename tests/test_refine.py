"""Texture refinement, by a prior that knows the right texture."""

import dataclasses

import numpy as np
import pytest
import torch
from oracle_prior import OraclePrior
from textured_ball import grey, wavy_ball
from tiny_priors import TINY_PRIORS

from cameras import orbit_cameras
from config import RefineConfig
from gaussians import Gaussians
from mesh_extract.mesh_raster import render_mesh
from mesh_extract.textured import TexturedMesh
from prepare import PreparedImage
from refine import SAMPLES, noise_plan, refine_texture, ring

CPU = torch.device("cpu")


class MeshOracle(OraclePrior):
    """Knows how a textured mesh looks."""

    def __init__(self, truth: TexturedMesh, channels: int = 4, image_size: int = 48) -> None:
        nothing = Gaussians.create(torch.zeros(1, 3), torch.full((1, 3), 0.1), torch.full((1,), 0.5), torch.zeros(1, 3))
        super().__init__(nothing, image_size, channels=channels)
        self.truth_mesh = truth

    def true_views(self, cameras):
        drawn = render_mesh(self.truth_mesh, cameras, supersample=SAMPLES)
        views = torch.cat([drawn.rgb, drawn.alpha[..., None]], -1)
        return views.permute(0, 3, 1, 2)[:, : self.channels]


@pytest.fixture(scope="module")
def truth() -> TexturedMesh:
    return wavy_ball()


def error(textured: TexturedMesh, truth: TexturedMesh, elevation_deg: float = 5.0) -> float:
    """Root mean square over views at azimuths that no refinement takes, where the ball is."""
    cameras = orbit_cameras([13.0, 100.0, 190.0, 280.0], elevation_deg, width=96, height=96)
    first, second = (render_mesh(t, cameras) for t in (textured, truth))
    return float((first.rgb - second.rgb)[first.alpha >= 1].square().mean().sqrt())


@pytest.mark.parametrize("channels", [3, 4])
def test_a_prior_that_knows_the_texture_brings_it_back(truth, channels):
    prior = MeshOracle(truth, channels)
    config = RefineConfig(pull=0.1, rounds=4)
    refined = refine_texture(grey(truth), prior, config, torch.Generator().manual_seed(0))
    before, after = error(grey(truth), truth), error(refined, truth)
    # Measured: 0.288 before, 0.041 after: little of the rim is carried back, and the poles are seen by none.
    assert before > 0.25 and after < 0.05
    assert refined.mesh is truth.mesh and refined.texture.shape == truth.texture.shape


def test_a_right_texture_stays(truth):
    refined = refine_texture(truth, MeshOracle(truth), RefineConfig(), torch.Generator().manual_seed(0))
    assert np.abs(refined.texture.astype(int) - truth.texture).max() <= 2


def test_the_official_fit_comes_near_too(truth):
    config = RefineConfig(solver="adam", steps=30)
    refined = refine_texture(grey(truth), MeshOracle(truth), config, torch.Generator().manual_seed(0))
    assert error(refined, truth) < 0.1  # measured 0.045


def test_the_picture_counts(truth):
    """A prior that says grey, a picture that says the truth: the front is true, the back is grey."""
    prior = MeshOracle(grey(truth))
    camera = orbit_cameras(0.0, 0.0, width=96, height=96)
    drawn = render_mesh(truth, camera, supersample=SAMPLES)
    picture = torch.cat([drawn.rgb[0], drawn.alpha[0, ..., None]], -1)
    config = RefineConfig(pull=0.1, rounds=3)
    refined = refine_texture(grey(truth), prior, config, torch.Generator().manual_seed(0), (picture, camera))
    front, back = (
        render_mesh(refined, orbit_cameras(a, 0.0, width=64, height=64)).rgb[0, 24:40, 24:40] for a in (0.0, 180.0)
    )
    true = render_mesh(truth, orbit_cameras(0.0, 0.0, width=64, height=64)).rgb[0, 24:40, 24:40]
    assert (front - true).abs().mean() < 0.5 * (front - 128 / 255).abs().mean()
    torch.testing.assert_close(back, torch.full_like(back, 128 / 255), rtol=0, atol=0.01)


def test_equal_seeds_give_equal_textures(truth):
    first, same = (
        refine_texture(grey(truth), MeshOracle(truth), RefineConfig(), torch.Generator().manual_seed(3)).texture
        for _ in range(2)
    )
    assert np.array_equal(first, same)


@pytest.mark.parametrize("name", TINY_PRIORS)
def test_every_prior_can_refine(truth, name):
    prior = TINY_PRIORS[name]()
    rgb = torch.rand(20, 20, 3, generator=torch.Generator().manual_seed(3))
    prior.set_source(PreparedImage(rgb, torch.ones(20, 20)) if prior.takes_picture else None, 0.0)
    config = RefineConfig(views=4, guidance=2.0, steps=5)
    refined = refine_texture(grey(truth), prior, config, torch.Generator().manual_seed(0))
    assert not np.array_equal(refined.texture, grey(truth).texture)


def test_views_that_are_denoised_jointly_lie_together(truth):
    prior = MeshOracle(truth)
    azimuths, elevations, _ = ring(prior, 8, -7.0, torch.Generator().manual_seed(0)).orbit_angles()
    np.testing.assert_allclose((azimuths[1:] - azimuths[:-1]) % 360, 45.0, atol=1e-3)
    prior.group_size = 4
    azimuths, elevations, _ = ring(prior, 8, -7.0, torch.Generator().manual_seed(0)).orbit_angles()
    np.testing.assert_allclose((azimuths[1:4] - azimuths[:3]) % 360, 90.0, atol=1e-3)
    np.testing.assert_allclose((azimuths[4:] - azimuths[:4]) % 360, 45.0, atol=1e-3)
    np.testing.assert_allclose(elevations, -7.0, atol=1e-3)


def test_noise_goes_up_at_once_and_down_in_even_steps():
    plan = noise_plan(0.181, 10)
    assert plan.inversion == (0.181,) and plan.calls == 10 and plan.sampling[5] == pytest.approx(0.0905)


def test_a_mesh_whose_faces_reach_no_texel_is_left_alone(truth):
    tiny = dataclasses.replace(truth, uvs=np.zeros_like(truth.uvs))
    assert refine_texture(tiny, MeshOracle(truth), RefineConfig(), torch.Generator()) is tiny


@pytest.mark.gpu
def test_a_gpu_refines_as_the_cpu_does(truth, cuda):
    config = RefineConfig(views=4)
    on_cpu, on_gpu = (
        refine_texture(grey(truth), MeshOracle(truth), config, torch.Generator().manual_seed(0), device=device)
        for device in (CPU, cuda)
    )
    assert np.abs(on_cpu.texture.astype(int) - on_gpu.texture).max() <= 2


def test_detail_that_the_picture_gave_outlives_a_prior_that_sees_none(truth):
    """A prior of few pixels, a picture of many: the front stays sharp, behind the texture takes the prior's colours."""
    checks = np.random.default_rng(0).integers(0, 2, truth.texture.shape[:2] + (1,)).repeat(3, 2).astype(np.uint8) * 200
    sharp = dataclasses.replace(truth, texture=checks)
    camera = orbit_cameras(0.0, 0.0, width=256, height=256)
    drawn = render_mesh(sharp, camera, supersample=SAMPLES)
    picture = torch.cat([drawn.rgb[0], drawn.alpha[0, ..., None]], -1)
    prior = MeshOracle(grey(truth), image_size=32)
    refined = refine_texture(sharp, prior, RefineConfig(), torch.Generator().manual_seed(0), (picture, camera))
    views = orbit_cameras([0.0, 180.0], 0.0, width=256, height=256)
    before, after = (render_mesh(t, views).rgb[:, 112:144, 112:144] for t in (sharp, refined))
    front, back = (after - before).square().mean(dim=(1, 2, 3)).sqrt()
    assert front < 0.02 < 0.1 < back
