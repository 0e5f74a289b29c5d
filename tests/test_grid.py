import math

import numpy as np
import pytest
import torch

from errors import UserError
from gaussians import Gaussians, concatenate
from mesh_extract.fields import extract_fields
from mesh_extract.grid import GridSpec
from scenes import shell


def splats(means, scales, opacities=0.9, quats=None):
    means = torch.tensor(means, dtype=torch.float32).reshape(-1, 3)
    scales = torch.as_tensor(scales, dtype=torch.float32).expand(len(means), 3)
    return Gaussians.create(means, scales, torch.as_tensor(opacities).expand(len(means)), quats=quats)


def assert_holds_surface(grid, gaussians, level):
    """Nothing of the field outside the grid reaches `level`: checked in a box of twice the size."""
    margin = max(grid.shape) // 2
    wide = GridSpec(
        tuple(low - margin * grid.voxel_size for low in grid.lower),
        grid.voxel_size,
        tuple(n + 2 * margin for n in grid.shape),
    )
    field = extract_fields(gaussians, wide).numpy().copy()
    field[tuple(slice(margin, margin + n) for n in grid.shape)] = 0
    assert field.max() < level


def test_cube_has_its_first_and_last_node_on_the_faces():
    grid = GridSpec.cube(-1, 1, 17)
    nodes = grid.node_positions(dtype=torch.float64)
    assert nodes.shape == (17, 17, 17, 3)
    assert nodes[0, 0, 0].tolist() == [-1, -1, -1] and nodes[16, 16, 16].tolist() == [1, 1, 1]
    assert nodes[3, 5, 7].tolist() == pytest.approx([-1 + 3 / 8, -1 + 5 / 8, -1 + 7 / 8], abs=1e-15)


def test_world_and_node_units_are_inverse_and_agree_with_the_nodes():
    grid = GridSpec((-1.5, 0.25, 3.0), 0.125, (5, 4, 3))
    index = torch.tensor([[4, 2, 1]], dtype=torch.float64)
    assert torch.equal(grid.to_world(index)[0], grid.node_positions(dtype=torch.float64)[4, 2, 1])
    assert np.array_equal(grid.to_nodes(grid.to_world(index.numpy())), index.numpy())
    assert grid.upper == (-1.0, 0.625, 3.25) and grid.node_count == 60


@pytest.mark.parametrize("resolution", [2, 3, 7, 8, 64, 100])
def test_around_gives_the_longest_side_the_asked_resolution(resolution):
    gaussians = splats([[0.0, 0, 0], [1, 0.1, 0.2]], 0.02)
    grid = GridSpec.around(gaussians, resolution)
    assert max(grid.shape) == resolution == grid.shape[0] and min(grid.shape) >= 2
    assert grid.shape[1] < grid.shape[0] or resolution <= 8


def test_around_holds_the_surface_of_a_shell():
    gaussians = shell(2000, torch.Generator().manual_seed(0))
    grid = GridSpec.around(gaussians, 48)
    assert_holds_surface(grid, gaussians, 0.02)
    # And it is not wasteful: means reach 0.9, the outermost standard deviations are about 0.06.
    assert grid.voxel_size * 47 < 2.6


def test_around_holds_sums_that_no_single_gaussian_reaches():
    coincident = splats([[0.3, 0.3, 0.3]] * 200, 0.05, opacities=0.009)  # each below the level, 1.8 together
    assert_holds_surface(GridSpec.around(coincident, 32), coincident, 0.02)


@pytest.mark.parametrize("stray", [splats([[60.0, 0, 0]], 0.02), splats([[0.0, 0, 0]], 9.0, opacities=0.004)])
def test_around_is_not_blown_up_by_strays_and_faint_giants(stray):
    gaussians = shell(2000, torch.Generator().manual_seed(0))
    plain, with_stray = GridSpec.around(gaussians, 48), GridSpec.around(concatenate([gaussians, stray]), 48)
    assert with_stray.voxel_size <= 2.05 * plain.voxel_size
    assert_holds_surface(with_stray, gaussians, 0.02)


def test_around_keeps_every_part_of_a_small_set():
    # Six splats at +-0.9 on each axis: none of them is an outlier.
    axes = torch.cat([torch.eye(3), -torch.eye(3)]) * 0.9
    grid = GridSpec.around(splats(axes.tolist(), math.exp(-3.5066), opacities=1.0), 64)
    assert min(grid.upper) > 0.9538 and max(grid.lower) < -0.9538
    assert max(grid.upper) < 1.1


@pytest.mark.parametrize(
    "gaussians",
    [
        splats([], 0.02),
        splats([[0.3, 0.3, 0.3]], math.exp(-11.513)),
        splats([[5.0, -7, 1e4]], 1e-6),
        splats([[0.0, 0, 0]] * 3, 0.05, opacities=1e-6),
        splats([[0.3, 0.3, 0.3]], 0.02, quats=torch.zeros(1, 4)),
        splats([[1.0, 2, 3]], 10.0),
    ],
    ids=["none", "tiny", "far", "transparent", "zero quaternion", "huge"],
)
@pytest.mark.parametrize("resolution", [2, 17])
def test_around_of_odd_sets_is_a_grid(gaussians, resolution):
    grid = GridSpec.around(gaussians, resolution)
    assert max(grid.shape) <= resolution and all(math.isfinite(v) for v in (*grid.lower, *grid.upper))
    assert torch.isfinite(extract_fields(gaussians, grid)).all()


@pytest.mark.parametrize(
    ("make", "named"),
    [
        (lambda: GridSpec.cube(-1, 1, 1), "resolution=1"),
        (lambda: GridSpec.cube(1, 1, 8), "grid.upper"),
        (lambda: GridSpec((0, 0, 0), 0.0, (2, 2, 2)), "grid.voxel_size"),
        (lambda: GridSpec((0, 0, math.nan), 1.0, (2, 2, 2)), "grid.lower"),
        (lambda: GridSpec((0, 0, 0), 1.0, (2, 2, 1)), "grid.shape"),
        (lambda: GridSpec.around(splats([[math.nan, 0, 0]], 0.1), 16), "gaussians.means"),
    ],
)
def test_impossible_grids_are_named(make, named):
    with pytest.raises(UserError, match=named):
        make()


def test_slabs_hold_the_nodes_of_the_whole_grid():
    grid = GridSpec((-0.7, 0.1, 0.3), 0.013, (9, 4, 3))
    slab = grid.slab(2, 8).slab(1, 4)
    assert slab.shape == (3, 4, 3) and slab.lower == grid.lower
    assert torch.equal(slab.node_positions(dtype=torch.float64), grid.node_positions(dtype=torch.float64)[3:6])
    assert slab.upper[0] == grid.axes()[0][5] and slab.upper[1:] == grid.upper[1:]
    index = torch.tensor([[1.0, 2.0, 0.0]], dtype=torch.float64)
    for nodes in (index, index.numpy()):
        world = slab.to_world(nodes)
        assert world[0].tolist() == pytest.approx(slab.node_positions(dtype=torch.float64)[1, 2, 0].tolist(), abs=1e-12)
        assert slab.to_nodes(world)[0].tolist() == pytest.approx([1, 2, 0], abs=1e-9)
    for start, stop in ((-1, 4), (3, 4), (4, 10)):
        with pytest.raises(UserError, match="two planes or more of 0 to 8"):
            grid.slab(start, stop)
