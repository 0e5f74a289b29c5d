"""Marching cubes on the GPU against the CPU's, which PyMCubes gives its topology; slabs against the whole."""

import math

import numpy as np
import pytest
import torch

from errors import BackendUnavailable, UserError
from mesh_extract import GridSpec, extract_fields, extract_mesh, extract_mesh_by_planes, extract_surface, smooth_field
from mesh_extract.isosurface import marching_cubes
from mesh_extract.isosurface_cuda import NODE_DISTANCE, marching_cubes_cuda, marching_cubes_planes, slabs
from mesh_extract.mesh import Mesh
from scenes import shell
from scripts.bench_isosurface import ISO, difference


def noise(shape, seed=0, integers=False) -> torch.Tensor:
    rng = np.random.default_rng(seed)
    values = rng.integers(0, 5, shape) if integers else rng.random(shape)
    return torch.from_numpy(values.astype(np.float32))


def in_order(vertices: np.ndarray) -> np.ndarray:
    return vertices[np.lexsort(vertices.T)]


def assert_same_surface(vertices: torch.Tensor, faces: torch.Tensor, field: torch.Tensor, iso: float) -> None:
    """As many vertices and faces as PyMCubes makes, the vertices bit for bit those of the CPU in single precision."""
    expected, expected_faces = marching_cubes(field.numpy(), iso)
    assert vertices.dtype == torch.float32 and faces.dtype == torch.int32
    assert len(faces) == len(expected_faces)
    assert np.array_equal(in_order(vertices.cpu().numpy()), in_order(expected.astype(np.float32)))
    mesh = Mesh(vertices.cpu().numpy(), faces.cpu().numpy())
    assert mesh.is_closed() and mesh.volume > 0 and np.linalg.norm(mesh.face_normals, axis=1).min() > 0
    reference = Mesh(expected, expected_faces)
    assert mesh.euler_number() == reference.euler_number() and mesh.components()[0] == reference.components()[0]


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 2, 2), (2, 3, 5), (9, 8, 7), (3, 4, 31), (3, 3, 32), (2, 5, 33), (4, 3, 65)])
@pytest.mark.parametrize("integers", [False, True])
def test_noise_has_the_surface_of_pymcubes(cuda, shape, integers):
    """Every row of the table, words of bits that end before, at and after the row's end; also values exactly at iso."""
    pytest.importorskip("mcubes", reason="other libraries join ambiguous corners otherwise")
    for seed in range(3):
        field = noise(shape, seed, integers)
        for iso in (1.0, 2.0, 2.5, 4.0) if integers else (0.1, 0.5, 0.9):
            if field.max() >= iso:
                assert_same_surface(*marching_cubes_cuda(field.to(cuda), iso), field, iso)


@pytest.mark.gpu
@pytest.mark.parametrize("resolution", [16, 48])
def test_a_fitted_object_has_the_surface_of_pymcubes(cuda, resolution):
    pytest.importorskip("mcubes", reason="other libraries join ambiguous corners otherwise")
    gaussians = shell(500, torch.Generator().manual_seed(0))
    grid = GridSpec.around(gaussians, resolution)
    field = smooth_field(extract_fields(gaussians, grid, "numba"), 0.7)
    for iso in (0.05, 0.2):
        assert_same_surface(*marching_cubes_cuda(field.to(cuda), iso), field, iso)


def by_edge(vertices: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Sorted by grid edge: edges [V, 4], axis and lower node, and how far along them the vertices lie [V]."""
    axes = np.abs(vertices - np.round(vertices)).argmax(axis=1)
    edges = np.column_stack([axes, np.floor(vertices)]).astype(int)
    along = np.take_along_axis(vertices, axes[:, None], axis=1)[:, 0]
    order = np.lexsort(edges.T)
    return edges[order], along[order] - np.floor(along[order])


@pytest.mark.gpu
@pytest.mark.parametrize("resolution", [20, 128])
def test_positions_are_those_of_pymcubes_itself(cuda, resolution):
    """Also by its own interpolation, but that we keep vertices away from nodes."""
    mcubes = pytest.importorskip("mcubes", reason="PyMCubes has no wheel for this Python")
    grid = GridSpec.cube(-1, 1, resolution)
    field = (1.1 - (grid.node_positions() - 0.01).norm(dim=-1)).clamp_min(0)
    vertices, faces = marching_cubes_cuda(field.to(cuda), 0.5)
    theirs, their_faces = mcubes.marching_cubes(np.pad(field.numpy(), 1), 0.5)
    edges, along = by_edge(vertices.cpu().numpy().astype(np.float64))
    their_edges, their_along = by_edge(theirs - 1)
    assert len(faces) == len(their_faces) and np.array_equal(edges, their_edges)
    # Single precision at 127 rounds by 3.8e-6.
    assert np.abs(along - their_along.clip(NODE_DISTANCE, 1 - NODE_DISTANCE)).max() < 1e-5


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_positions_at_512_nodes_a_side(cuda):
    """As many vertices and faces as PyMCubes itself makes, on the same edges, within 1e-4 of a voxel.

    The threshold is one that single precision holds, to which PyMCubes rounds it.
    """
    pytest.importorskip("mcubes", reason="PyMCubes has no wheel for this Python")
    gaussians = shell(20_000, torch.Generator().manual_seed(0)).to(cuda)
    field = extract_fields(gaussians, GridSpec.cube(-1, 1, 512), "cuda")
    found = difference(field, *marching_cubes_cuda(field, ISO))
    assert isinstance(found, float), found
    assert found <= 1e-4  # rounding at 511 in single precision alone gives 1.5e-5


@pytest.mark.gpu
@pytest.mark.parametrize("slab_planes", [1, 2, 5, 9, None])
def test_slabs_weld_into_the_mesh_of_the_whole_field(cuda, slab_planes):
    field = noise((9, 6, 37), integers=True)
    vertices, faces = marching_cubes_cuda(field.to(cuda), 2.0)
    asked, memory = [], torch.empty(9, 6, 37, device=cuda)

    def planes(x0, x1):
        asked.append((x0, x1))
        return memory[: x1 - x0].copy_(field[x0:x1])  # as a caller may that has room for one slab alone

    by_planes = marching_cubes_planes(planes, (9, 6, 37), 2.0, slab_planes)
    assert torch.equal(by_planes[0], vertices) and torch.equal(by_planes[1], faces)
    assert [x for start, end in asked for x in range(start, end)] == list(range(9))
    grid = GridSpec((-1.0, 2.0, 0.3), 0.1, (9, 6, 37))
    mesh, whole = extract_mesh_by_planes(planes, grid, 2.0, slab_planes), extract_mesh(field.to(cuda), grid, 2.0)
    assert np.array_equal(mesh.vertices, whole.vertices) and np.array_equal(mesh.faces, whole.faces)
    assert mesh.vertices.dtype == np.float64 and mesh.is_closed()


@pytest.mark.gpu
def test_slabs_of_a_density_field(cuda):
    gaussians = shell(300, torch.Generator().manual_seed(0))
    grid = GridSpec.around(gaussians, 24)

    def planes(x0, x1):
        return extract_fields(gaussians, grid.slab(x0, x1), "numba").to(cuda)

    whole = extract_mesh(extract_fields(gaussians, grid, "numba").to(cuda), grid, 0.2)
    mesh = extract_mesh_by_planes(planes, grid, 0.2, 7)
    assert np.array_equal(mesh.vertices, whole.vertices) and np.array_equal(mesh.faces, whole.faces)


@pytest.mark.gpu
def test_slabs_without_a_surface_between_others(cuda):
    field = torch.zeros(12, 5, 6)
    field[1:3], field[8, 2, 2], field[11] = 1, 1, 1
    whole = marching_cubes_cuda(field.to(cuda), 0.5)
    by_planes = marching_cubes_planes(lambda x0, x1: field[x0:x1].to(cuda), (12, 5, 6), 0.5, 3)
    assert all(torch.equal(a, b) for a, b in zip(whole, by_planes, strict=True))
    mesh = Mesh(*(part.cpu().numpy() for part in whole))
    assert mesh.is_closed() and mesh.components()[0] == 3


@pytest.mark.gpu
def test_equal_from_run_to_run(cuda):
    field = noise((20, 21, 40)).to(cuda)
    first = marching_cubes_cuda(field, 0.5)
    for _ in range(3):
        assert all(torch.equal(a, b) for a, b in zip(first, marching_cubes_cuda(field, 0.5), strict=True))


@pytest.mark.gpu
def test_views_and_other_types_of_number(cuda):
    field = noise((8, 9, 10), integers=True)
    vertices, faces = marching_cubes_cuda(field.to(cuda), 2.0)
    turned = field.permute(2, 0, 1).contiguous().to(cuda).permute(1, 2, 0)
    for same in (turned, field.double().to(cuda), field.half().to(cuda), field.to(cuda).requires_grad_()):
        found = marching_cubes_cuda(same, 2.0)
        assert torch.equal(found[0], vertices) and torch.equal(found[1], faces)


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one(cuda, other_gpu):
    field = noise((8, 9, 40))
    found, expected = (marching_cubes_cuda(field.to(device), 0.5) for device in (other_gpu, cuda))
    assert all(part.device == other_gpu for part in found)
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(found, expected, strict=True))


@pytest.mark.gpu
def test_nothing_and_everything_inside(cuda):
    field = torch.zeros(5, 6, 7, device=cuda)
    vertices, faces = marching_cubes_cuda(field, 0.5)
    assert vertices.shape == (0, 3) and faces.shape == (0, 3)
    mesh = Mesh(*(part.cpu().numpy() for part in marching_cubes_cuda(field + 1, 0.5)))
    assert mesh.is_closed() and mesh.euler_number() == 2
    # The box of nodes and half a voxel around it, less its edges and corners, which are cut off.
    assert 0.9 * 5 * 6 * 7 < mesh.volume < 5 * 6 * 7
    assert np.array_equal(mesh.vertices.min(axis=0), [-0.5] * 3)
    assert np.array_equal(mesh.vertices.max(axis=0), [4.5, 5.5, 6.5])


@pytest.mark.gpu
def test_faults_are_named_also_by_planes(cuda):
    field = torch.ones(6, 5, 4, device=cuda)
    grid = GridSpec((0.0, 0.0, 0.0), 1.0, (6, 5, 4))

    def planes(x0, x1):
        return field[x0:x1]

    with pytest.raises(UserError, match=r"no surface at mesh.iso=2: the density ranges from 1 to 1; try mesh.iso=0.5"):
        extract_mesh_by_planes(planes, grid, 2.0, 4)
    with pytest.raises(UserError, match="mesh.iso=0.0 must be a positive number"):
        extract_mesh_by_planes(planes, grid, 0.0)
    with pytest.raises(UserError, match=r"density must be \[6, 5, 4\]"):
        extract_surface(field[1:], grid, 0.5)
    with pytest.raises(UserError, match="mesh.method on a GPU='tsdf' is unknown; choose from marching_cubes"):
        extract_surface(field, grid, 0.5, "tsdf")
    for value in (math.nan, math.inf, -math.inf):
        field[4, 1, 3] = value
        with pytest.raises(UserError, match="density holds 1 values that are not finite"):
            extract_mesh_by_planes(planes, grid, 0.5, 4)


def test_slabs_cover_the_field_without_single_planes():
    for count in range(2, 40):
        for wanted in (2, 3, 5, 9, 100, None):
            found = slabs((count, 5, 6), wanted)
            assert [x for start, stop in found for x in range(start, stop)] == list(range(count))
            sizes = [stop - start for start, stop in found]
            assert min(sizes) >= 2 and max(sizes) <= max(wanted or count, 3) and max(sizes) - min(sizes) <= 1
    assert slabs((3, 5, 6), 1) == [(0, 1), (1, 2), (2, 3)]
    assert all(stop - start == 64 for start, stop in slabs((1024, 1024, 1024)))


def test_a_field_on_the_cpu_is_refused():
    with pytest.raises(BackendUnavailable, match="^marching cubes on the GPU: expected tensors on a CUDA device"):
        marching_cubes_cuda(torch.ones(4, 4, 4), 0.5)


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_thousand_nodes_a_side_by_planes(cuda):
    """A field of 4.3 GB that is never there: two balls, closed, within 8 GB and near their volume."""
    size = 1024
    axis = torch.arange(size, device=cuda, dtype=torch.float32)
    y, z = axis[None, :, None], axis[None, None, :]

    def planes(x0, x1):
        x = axis[x0:x1, None, None]
        distances = (((x - c) ** 2 + (y - 500) ** 2 + (z - 520) ** 2).sqrt_() for c in (250.0, 760.0))
        return (1 - torch.minimum(*distances).div_(400)).clamp_min_(0)

    torch.cuda.reset_peak_memory_stats()
    vertices, faces = marching_cubes_planes(planes, (size,) * 3, 0.5)
    assert torch.cuda.max_memory_allocated() < 8e9
    # Closed: every edge is walked once each way. Two balls: V - E + F = 4.
    corners = faces.long()
    starts, ends = corners.flatten(), corners.roll(-1, dims=1).flatten()
    forward, backward = (a * len(vertices) + b for a, b in ((starts, ends), (ends, starts)))
    forward, backward = forward.sort().values, backward.sort().values
    assert torch.equal(forward, backward) and bool((forward[1:] != forward[:-1]).all())
    assert len(vertices) - len(forward) // 2 + len(faces) == 4
    a, b, c = (vertices[corners[:, k]].double() for k in range(3))
    volume = float((a * torch.linalg.cross(b, c)).sum() / 6)
    assert volume == pytest.approx(2 * 4 / 3 * math.pi * 200**3, rel=1e-4)
