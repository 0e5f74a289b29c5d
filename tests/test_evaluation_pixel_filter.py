import numpy as np
import torch

from cameras import orbit_cameras
from evaluation.pixel_filter import _gaussian_rows, render_mesh_as_splats
from mesh_extract import Mesh, TexturedMesh, render_mesh
from rasterize.definition import EPS2D


def white_square(half: float) -> TexturedMesh:
    """A square of side 2 half facing azimuth 0."""
    vertices = np.array([[-half, -half, 0], [half, -half, 0], [half, half, 0], [-half, half, 0]], dtype=np.float64)
    faces = np.array([[0, 1, 2], [0, 2, 3]])
    uvs = np.array([[0, 0], [1, 0], [1, 1], [0, 1]], dtype=np.float64)
    return TexturedMesh(Mesh(vertices, faces), uvs, faces, np.full((4, 4, 3), 255, dtype=np.uint8))


def test_an_edge_is_as_soft_as_the_splats_filter():
    cameras = orbit_cameras(0.0, 0.0, width=64, height=64)
    square = white_square(0.4)
    profile = render_mesh_as_splats(square, cameras, background=(0.0, 0.0, 0.0))[0, 32, :, 0].double()
    edge = profile[:32].diff()  # the derivative of a filtered step is the filter
    centres = torch.arange(1, 32, dtype=torch.float64)
    mean = (edge * centres).sum() / edge.sum()
    variance = (edge * (centres - mean) ** 2).sum() / edge.sum()
    # Differences of neighbours add the variance of a box of one pixel, samples that of one of a quarter pixel.
    assert abs(float(variance) - EPS2D - 1 / 12) < 0.02  # 0.374 measured
    boxes = render_mesh(square, cameras, background=(0.0, 0.0, 0.0)).rgb[0, 32, :, 0]
    assert abs(float(profile.sum()) - float(boxes.sum())) < 0.2  # no wider and no narrower: 1e-6 measured


def test_flat_regions_keep_their_value():
    rows = _gaussian_rows(16, 4)
    assert torch.allclose(rows @ torch.ones(64, dtype=torch.float64), torch.ones(16, dtype=torch.float64))
    rgb = render_mesh_as_splats(white_square(0.4), orbit_cameras(0.0, 0.0, width=32, height=32), (0.0, 0.5, 1.0))
    assert torch.allclose(rgb[0, 16, 16], torch.ones(3), atol=1e-5)  # float32 sums of 24 weights
    assert torch.allclose(rgb[0, 0, 0], torch.tensor([0.0, 0.5, 1.0]), atol=1e-5)
