"""Distances between meshes, against brute force and against what geometry says."""

import numpy as np
import pytest

from comparison.mesh_distance import distance_to_triangles, distances_to_mesh, mesh_distance
from mesh_extract import GridSpec, Mesh, extract_mesh


def sphere(radius: float, centre=(0.0, 0.0, 0.0), resolution: int = 33) -> Mesh:
    grid = GridSpec.cube(-1, 1, resolution)
    x, y, z = np.meshgrid(*grid.axes(), indexing="ij")
    distance = np.sqrt((x - centre[0]) ** 2 + (y - centre[1]) ** 2 + (z - centre[2]) ** 2)
    return extract_mesh(1 + radius - distance, grid, 1.0)


def by_sampling(point: np.ndarray, triangle: np.ndarray) -> float:
    """Distance from a fine lattice on the triangle: too large by what the lattice misses."""
    u, v = np.meshgrid(np.linspace(0, 1, 401), np.linspace(0, 1, 401))
    u, v = u[u + v <= 1 + 1e-12], v[u + v <= 1 + 1e-12]
    on_it = triangle[0] + u[:, None] * (triangle[1] - triangle[0]) + v[:, None] * (triangle[2] - triangle[0])
    return float(np.linalg.norm(on_it - point, axis=1).min())


@pytest.mark.parametrize("kind", ["random", "sliver", "segment", "point"])
def test_distance_to_a_triangle_is_the_least_distance_of_its_points(kind):
    rng = np.random.default_rng(0)
    corners = rng.normal(size=(20, 3, 3))
    if kind == "sliver":
        corners[:, 2] = (corners[:, 0] + corners[:, 1]) / 2 + 1e-3 * rng.normal(size=(20, 3))
    elif kind == "segment":
        corners[:, 2] = 0.3 * corners[:, 0] + 0.7 * corners[:, 1]
    elif kind == "point":
        corners[:] = corners[:, :1]
    points = 1.5 * rng.normal(size=(20, 3))
    found = distance_to_triangles(points, corners)
    expected = [by_sampling(point, triangle) for point, triangle in zip(points, corners, strict=True)]
    # The lattice's step is at most 1/400 of an edge of up to 8: measured 5e-3 where a triangle is seen from the side.
    assert np.all(found <= np.add(expected, 1e-9)) and np.allclose(found, expected, atol=1.5e-2)


def test_the_nearest_triangle_is_found_among_large_and_small_ones():
    """A few huge faces, whose centres are far from where they are near, beside many tiny ones."""
    rng = np.random.default_rng(1)
    huge = rng.normal(size=(20, 3, 3)) * 2
    tiny = rng.normal(size=(500, 1, 3)) + 0.01 * rng.normal(size=(500, 3, 3))
    corners = np.concatenate([huge, tiny])
    mesh = Mesh(corners.reshape(-1, 3), np.arange(len(corners) * 3).reshape(-1, 3))
    points = 1.5 * rng.normal(size=(200, 3))
    pairs = np.repeat(points, len(corners), axis=0), np.tile(corners, (len(points), 1, 1))
    expected = distance_to_triangles(*pairs).reshape(len(points), len(corners)).min(axis=1)
    assert np.allclose(distances_to_mesh(points, mesh), expected, rtol=0, atol=1e-12)


def test_two_spheres_are_as_far_apart_as_their_radii():
    a, b = sphere(0.5, resolution=21), sphere(0.6, resolution=21)
    apart = mesh_distance(a, b)
    # Both surfaces bulge and dent by up to half a percent of the radius on this coarse grid: measured 0.1063, 0.1000.
    assert apart.hausdorff == pytest.approx(0.1, abs=1e-2) and apart.mean == pytest.approx(0.1, abs=2e-3)
    assert mesh_distance(b, a) == apart


def test_a_part_that_only_one_mesh_has_counts_in_both_orders():
    whole = sphere(0.3)
    far = sphere(0.1, (0.7, 0.0, 0.0))
    both = Mesh(
        np.concatenate([whole.vertices, far.vertices]), np.concatenate([whole.faces, far.faces + len(whole.vertices)])
    )
    expected = 0.8 - 0.3  # from the far side of the small ball to the large one
    for apart in (mesh_distance(whole, both), mesh_distance(both, whole)):
        assert apart.hausdorff == pytest.approx(expected, abs=5e-3) and 0 < apart.mean < 0.2


def test_a_mesh_is_nowhere_away_from_itself():
    mesh = sphere(0.5)
    turned = Mesh(mesh.vertices, np.roll(mesh.faces, 1, axis=1)[::-1])
    apart = mesh_distance(mesh, turned)
    assert apart.hausdorff < 1e-12 and apart.mean < 1e-12
