"""Texture refinement: the linear map from texels to pixels, its solvers, and a prior that knows the right texture."""

import dataclasses

import numpy as np
import pytest
import torch
import trimesh
from oracle_prior import OraclePrior
from tiny_priors import TINY_PRIORS

from cameras import orbit_cameras
from config import RefineConfig
from gaussians import Gaussians
from mesh_extract.cleanup import with_normals
from mesh_extract.fill import nearest_texels
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_uvs, render_mesh
from mesh_extract.textured import TexturedMesh
from mesh_extract.uv import unwrap
from prepare import PreparedImage
from refine import SAMPLES, SOLVERS, Target, TexelMap, fit_least_squares, noise_plan, refine_texture, ring, texel_map
from sparse_matrix import SparseMatrix

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


def waves(points: np.ndarray) -> np.ndarray:
    return 0.5 + 0.4 * np.sin(4.0 * points + np.array([0.0, 1.0, 2.0]))


@pytest.fixture(scope="module")
def truth() -> TexturedMesh:
    """A ball in colours that a formula gives."""
    sphere = trimesh.creation.icosphere(subdivisions=3, radius=0.6)
    mesh = with_normals(Mesh(sphere.vertices, sphere.faces))
    uvs, uv_faces = unwrap(mesh, 128, method="simple")
    face_ids, barycentrics = rasterize_uvs(uvs, uv_faces, 128)
    valid = face_ids >= 0
    points = (mesh.vertices[mesh.faces[face_ids[valid]]] * barycentrics[valid][..., None]).sum(axis=1)
    colours = (waves(points) * 255 + 0.5).astype(np.uint8)
    return TexturedMesh(mesh, uvs, uv_faces, colours[nearest_texels(torch.from_numpy(valid)).numpy()])


@pytest.fixture(scope="module")
def nearest(truth) -> torch.Tensor:
    return nearest_texels(torch.from_numpy(rasterize_uvs(truth.uvs, truth.uv_faces, 128)[0] >= 0))


def grey(truth: TexturedMesh) -> TexturedMesh:
    return dataclasses.replace(truth, texture=np.full_like(truth.texture, 128))


def error(textured: TexturedMesh, truth: TexturedMesh, elevation_deg: float = 5.0) -> float:
    """Root mean square over views at azimuths that no refinement takes, where the ball is."""
    cameras = orbit_cameras([13.0, 100.0, 190.0, 280.0], elevation_deg, width=96, height=96)
    first, second = (render_mesh(t, cameras) for t in (textured, truth))
    return float((first.rgb - second.rgb)[first.alpha >= 1].square().mean().sqrt())


def texel_colours(textured: TexturedMesh) -> torch.Tensor:
    valid = rasterize_uvs(textured.uvs, textured.uv_faces, textured.texture.shape[0])[0] >= 0
    return torch.from_numpy(textured.texture)[torch.from_numpy(valid)].float() / 255


def test_the_map_draws_what_the_renderer_draws(truth, nearest):
    cameras = orbit_cameras([30.0, 200.0], [10.0, -40.0], width=32, height=24)
    texels = texel_map(truth, nearest, cameras, torch.ones(2, 24, 32, dtype=torch.bool))
    assert len(texels.pixels) > 100
    np.testing.assert_allclose(texels.matrix @ torch.ones(texels.matrix.shape[1], 1), 1.0, atol=1e-5)
    drawn = render_mesh(truth, cameras, supersample=SAMPLES)
    assert (drawn.alpha.flatten()[texels.pixels] == 1.0).all()
    mapped, texel_count = texels.matrix @ texel_colours(truth), texels.matrix.shape[1]
    # Measured 2e-7: the same bilinear samples, added in another order.
    torch.testing.assert_close(mapped, drawn.rgb.reshape(-1, 3)[texels.pixels], rtol=0, atol=2e-5)
    torch.testing.assert_close(texels.transposed @ torch.eye(len(mapped)), (texels.matrix @ torch.eye(texel_count)).T)


def test_the_map_leaves_out_what_is_oblique_or_unusable(truth, nearest):
    cameras = orbit_cameras([0.0], 0.0, width=64, height=64)
    usable = torch.ones(1, 64, 64, dtype=torch.bool)
    whole = texel_map(truth, nearest, cameras, usable).pixels
    covered = (render_mesh(truth, cameras, supersample=SAMPLES).alpha == 1.0).sum()
    # A ball's share seen at a cosine above 0.2 is 1 - 0.2^2 = 0.96 of its disc; perspective hardly changes it.
    assert 0.9 * covered < len(whole) < 0.99 * covered
    usable[:, :, :32] = False
    half = texel_map(truth, nearest, cameras, usable).pixels
    assert (half % 64 >= 32).all() and len(half) == (whole % 64 >= 32).sum()


@pytest.mark.parametrize("solver", SOLVERS)
def test_views_that_show_nothing_change_nothing(truth, nearest, solver):
    cameras = orbit_cameras([0.0], 0.0, width=32, height=32)
    texels = texel_map(truth, nearest, cameras, torch.zeros(1, 32, 32, dtype=torch.bool))
    assert texels.pixels.shape == (0,) and texels.matrix.shape[0] == 0
    colours = texel_colours(truth)
    fitted = SOLVERS[solver](colours, [Target(texels, torch.zeros(0, 3))], RefineConfig(steps=3))
    torch.testing.assert_close(fitted, colours, rtol=0, atol=1e-5)


def one_view(truth, nearest, colour: float) -> Target:
    cameras = orbit_cameras([0.0], 0.0, width=48, height=48)
    texels = texel_map(truth, nearest, cameras, torch.ones(1, 48, 48, dtype=torch.bool))
    return Target(texels, torch.full((len(texels.pixels), 3), colour))


@pytest.mark.parametrize("solver", SOLVERS)
def test_solvers_move_what_is_seen_and_nothing_else(truth, nearest, solver):
    target = one_view(truth, nearest, 0.9)
    colours = torch.full((int(nearest.max()) + 1, 3), 0.5)
    fitted = SOLVERS[solver](colours, [target], RefineConfig(steps=30, pull=0.001))
    unseen = (target.texels.transposed @ torch.ones(len(target.colours), 1))[:, 0] == 0
    assert 0.2 < unseen.float().mean() < 0.8
    torch.testing.assert_close(fitted[unseen], colours[unseen])
    shown = target.texels.matrix @ fitted
    assert (shown - 0.9).abs().max() < 0.05


def sparse(dense: torch.Tensor) -> SparseMatrix:
    rows, columns = dense.nonzero().unbind(1)
    return SparseMatrix(rows, columns, dense[rows, columns], tuple(dense.shape))


def test_least_squares_is_the_exact_solution_given_enough_steps(generator):
    matrices = [torch.rand(count, 40, generator=generator) / 40 for count in (70, 30)]
    colours = 0.4 + 0.2 * torch.rand(40, 3, generator=generator)
    wanted = [0.5 + 0.1 * torch.randn(len(matrix), 3, generator=generator) for matrix in matrices]
    targets = [
        Target(TexelMap(sparse(m), sparse(m.T), torch.empty(0)), c)
        for m, c in zip(matrices, wanted, strict=True)
    ]
    fitted = fit_least_squares(colours, targets, RefineConfig(steps=200, pull=0.01))
    matrix, residual = torch.cat(matrices).double(), torch.cat(wanted).double()
    residual = residual - matrix @ colours.double()
    shift = torch.linalg.solve(matrix.T @ matrix + 0.01 * torch.eye(40), matrix.T @ residual)
    assert shift.abs().max() > 0.01
    torch.testing.assert_close(fitted, (colours + shift).float().clamp(0, 1), rtol=0, atol=1e-4)


@pytest.mark.parametrize("channels", [3, 4])
def test_a_prior_that_knows_the_texture_brings_it_back(truth, channels):
    prior = MeshOracle(truth, channels)
    config = RefineConfig(steps=20, pull=0.01)
    refined = refine_texture(grey(truth), prior, config, torch.Generator().manual_seed(0))
    before, after = error(grey(truth), truth), error(refined, truth)
    # Measured: 0.288 before, 0.020 after.
    assert before > 0.25 and after < 0.03
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
    config = RefineConfig(steps=20, pull=0.01)
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
