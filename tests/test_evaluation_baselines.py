"""The baselines, where the answer is known: a ball."""

import math

import numpy as np
import pytest
import torch
from evaluation_doubles import CENTRE, RADIUS, SIZE, BallPrior, ball_mesh, ball_views, small_truth

from cameras import concatenate, orbit_cameras
from evaluation import baselines
from evaluation.metrics import chamfer_and_fscore, sample_surface
from evaluation.objects import held_out, turned_to_source
from mesh_extract.mesh import Mesh


def points_of(mesh: Mesh, seed: int) -> np.ndarray:
    return sample_surface(mesh.vertices, mesh.faces, 5_000, seed)


def many_cameras(size: int):
    """26 views all round and from above and below."""
    rings = [orbit_cameras(np.arange(8) * 45.0, e, width=size, height=size) for e in (-40, 0, 40)]
    return concatenate([*rings, orbit_cameras([0, 0], [-80, 80], width=size, height=size)])


@pytest.mark.parametrize("agreement", [1.0, 0.9])
def test_visual_hull_of_perfect_silhouettes_is_close_to_the_ball(agreement):
    views = ball_views(many_cameras(64))
    hull = baselines.visual_hull(views.alpha, views.cameras, resolution=48, agreement=agreement)
    assert hull.is_closed() and hull.components()[0] == 1
    # A hull contains the object; measured 1.03 and 1.07 of the ball's volume.
    assert 0.99 < hull.volume / (4 / 3 * math.pi * RADIUS**3) < 1.10
    chamfer, fscore = chamfer_and_fscore(points_of(hull, 0), points_of(ball_mesh(), 1))
    # The voxels are 0.038 wide; 5,000 points on such a ball are 0.014 apart; measured 0.016 and 0.018.
    assert chamfer < 0.022 and fscore > 0.99
    middle = (hull.vertices.min(0) + hull.vertices.max(0)) / 2
    assert np.abs(middle - CENTRE).max() < 0.015  # not shifted by half a voxel


def test_visual_hull_spares_views_that_disagree():
    views = ball_views(many_cameras(32))
    alphas = views.alpha.clone()
    alphas[5] = 0.0
    everyone = baselines.visual_hull(alphas, views.cameras, resolution=32, agreement=1.0)
    most = baselines.visual_hull(alphas, views.cameras, resolution=32, agreement=0.9)
    assert len(everyone.faces) == 0 and most.volume > 0.4


def test_a_mesh_agrees_wholly_with_itself_and_less_with_a_shifted_one():
    ball = ball_mesh()
    assert chamfer_and_fscore(points_of(ball, 0), points_of(ball, 0)) == (0.0, 1.0)
    shifted = Mesh(ball.vertices + [0.2, 0, 0], ball.faces)
    chamfer, fscore = chamfer_and_fscore(points_of(ball, 0), points_of(shifted, 1))
    assert 0.05 < chamfer < 0.2 and fscore < 0.6


def test_the_mean_object_is_one_solid_in_the_middle():
    mesh = baselines.mean_object_mesh(resolution=24, count=6)
    assert mesh.is_closed() and 0.02 < mesh.volume < 1.0
    assert np.abs(mesh.vertices.mean(0)).max() < 0.2
    again = baselines.mean_object_mesh(resolution=24, count=6)
    assert np.array_equal(mesh.vertices, again.vertices)


def test_turned_surface_is_seen_from_the_front_as_it_was_from_the_side():
    points = np.random.default_rng(0).normal(size=(50, 3)) * 0.4
    side, front = (orbit_cameras([a], [20.0], dtype=torch.float64) for a in (50.0, 0.0))

    def seen(camera, p):
        return p @ camera.viewmats[0, :3, :3].numpy().T + camera.viewmats[0, :3, 3].numpy()

    assert np.allclose(seen(side, points), seen(front, turned_to_source(points, 50.0)), atol=1e-12)


def test_samples_repeat_and_a_cached_one_is_not_drawn_again(tmp_path):
    item = held_out(small_truth(2), 1)
    cameras = baselines.sample_cameras(item)
    assert len(cameras) == 12
    first = baselines.independent_samples(BallPrior(torch.device("cpu")), item, cameras, seed=0)
    again = baselines.independent_samples(BallPrior(torch.device("cpu")), item, cameras, seed=0)
    other = baselines.independent_samples(BallPrior(torch.device("cpu")), item, cameras, seed=1)
    assert torch.equal(first.rgb, again.rgb) and not torch.equal(first.rgb, other.rgb)
    assert (first.rgb - ball_views(cameras, samples=1).rgb).abs().mean() < 0.05

    path = tmp_path / "samples.npz"
    drawn = baselines.cached_samples(lambda: BallPrior(torch.device("cpu")), item, 0, path)
    kept = baselines.cached_samples(lambda: pytest.fail("sampled again"), item, 0, path)
    assert torch.equal(drawn.rgb, kept.rgb) and torch.equal(drawn.alpha, kept.alpha)
    assert (drawn.rgb - first.rgb).abs().max() <= 0.5 / 255 + 1e-6


def test_views_over_white_wipes_specks_and_keeps_the_object():
    pictures = torch.ones(1, 4, SIZE, SIZE)
    pictures[:, 3] = 0.0
    pictures[:, :3, 0, 0] = 0.3  # a speck where nothing is covered
    pictures[:, :, 10:20, 10:20] = torch.tensor([0.2, 0.4, 0.6, 1.0])[:, None, None]
    views = baselines.views_over_white(pictures, orbit_cameras([0.0], 0.0, width=SIZE, height=SIZE))
    assert (views.rgb[0, 0, 0] == 1).all()
    assert torch.allclose(views.rgb[0, 15, 15], torch.tensor([0.2, 0.4, 0.6]))
    without = baselines.views_over_white(pictures[:, :3], views.cameras)
    assert without.alpha[0, 15, 15] == 1 and without.alpha[0, 25, 25] == 0


def test_the_mean_object_leaves_out_the_object_itself():
    truth = small_truth(3)
    item = held_out(truth, 1)
    expected = (truth.views[0].astype(np.float64) + truth.views[2]) / 2 / 255
    assert np.allclose(item.mean_rgb.numpy(), expected[..., :3], atol=1e-6)
    assert np.allclose(item.mean_alpha.numpy(), expected[..., 3], atol=1e-6)


def test_with_source_puts_the_true_source_first():
    item = held_out(small_truth(2), 0)
    samples = baselines.independent_samples(
        BallPrior(torch.device("cpu")), item, baselines.sample_cameras(item), seed=0
    )
    views = baselines.with_source(item, samples)
    assert len(views) == 13 and torch.equal(views.rgb[1:], samples.rgb)
    # The 256 px source and the 128 px truth are sampled apart; measured 0.003.
    assert (views.rgb[0] - item.rgb[0]).abs().mean() < 0.01
    assert torch.equal(views.cameras.viewmats[0], item.cameras.viewmats[0])
