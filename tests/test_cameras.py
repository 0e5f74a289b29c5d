import math

import pytest
import torch

from cameras import FOVY_DEG, RADIUS, concatenate, orbit_cameras


def project(cameras, points):
    """Pixels [C, P, 2] and depths [C, P] of world points [P, 3]."""
    local = points @ cameras.viewmats[:, :3, :3].transpose(1, 2) + cameras.viewmats[:, None, :3, 3]
    pixels = local @ cameras.Ks.transpose(1, 2)
    return pixels[..., :2] / pixels[..., 2:], local[..., 2]


@pytest.mark.parametrize(
    "azimuth, elevation, position",
    [(0, 0, (0, 0, 2)), (90, 0, (2, 0, 0)), (180, 0, (0, 0, -2)), (-90, 0, (-2, 0, 0)), (0, 30, (0, 1, math.sqrt(3)))],
)
def test_the_orbit_starts_at_plus_z_grows_towards_plus_x_and_rises_with_elevation(azimuth, elevation, position):
    cameras = orbit_cameras(azimuth, elevation)
    torch.testing.assert_close(cameras.centers, torch.tensor([position], dtype=torch.float32), atol=1e-6, rtol=0)


def test_pixels_lie_as_a_person_sees_them():
    cameras = orbit_cameras([0.0, 90.0], 0.0, width=64, height=48)
    points = torch.tensor([[0.0, 0, 0], [0.5, 0, 0], [0, 0.5, 0], [0, 0, 0.5]])
    pixels, depths = project(cameras, points)
    torch.testing.assert_close(pixels[:, 0], torch.tensor([[32.0, 24.0]] * 2))  # the origin is central
    assert pixels[0, 1, 0] > 32  # +x is right of it at azimuth 0
    assert pixels[1, 3, 0] < 32  # and +z is left of it at azimuth 90
    assert (pixels[:, 2, 1] < 24).all()  # +y is above
    torch.testing.assert_close(depths[:, 0], torch.full((2,), RADIUS))


def test_the_field_of_view_spans_the_height():
    cameras = orbit_cameras(0.0, 0.0, height=100, width=60)
    top = torch.tensor([[0.0, RADIUS * math.tan(math.radians(FOVY_DEG / 2)), 0.0]])
    torch.testing.assert_close(project(cameras, top)[0][0, 0], torch.tensor([30.0, 0.0]), atol=1e-4, rtol=0)


def test_angles_come_back_from_the_matrices():
    azimuths, elevations = torch.tensor([-170.0, 10, 95]), torch.tensor([-80.0, 0, 45])
    cameras = orbit_cameras(azimuths, elevations, radius=torch.tensor([1.0, 2, 3]))
    for found, expected in zip(cameras.orbit_angles(), (azimuths, elevations, torch.tensor([1.0, 2, 3])), strict=True):
        torch.testing.assert_close(found, expected, atol=1e-3, rtol=0)


def test_viewmats_are_rigid_and_right_handed():
    rotations = orbit_cameras(torch.arange(0.0, 360, 40), 25.0, dtype=torch.float64).viewmats[:, :3, :3]
    torch.testing.assert_close(rotations @ rotations.transpose(1, 2), torch.eye(3).double().expand_as(rotations))
    torch.testing.assert_close(torch.linalg.det(rotations), torch.ones(9).double())


def test_resizing_keeps_the_picture():
    small = orbit_cameras(20.0, 10.0, width=64, height=64)
    point = torch.tensor([[0.3, -0.2, 0.1]])
    torch.testing.assert_close(project(small.resized(256, 256), point)[0], 4 * project(small, point)[0])


def test_batches_index_and_join():
    cameras = orbit_cameras([0.0, 30, 60], 0.0)
    again = concatenate([cameras[0], cameras[[1, 2]]])
    assert len(cameras[1]) == 1 and len(again) == 3
    torch.testing.assert_close(again.viewmats, cameras.viewmats)
