"""A field in slabs against the whole field: through the stages that the command line runs."""

import logging

import numpy as np
import pytest
import torch

import pipeline
from config import load_config
from errors import UserError
from mesh_extract import GridSpec, extract_fields, extract_mesh, extract_mesh_by_planes, slab_field, smooth_field
from mesh_extract.isosurface import marching_cubes, marching_cubes_slabs
from mesh_extract.slab_field import coarse_grid
from scenes import shell
from stages import StageTimes


def as_corners(vertices: np.ndarray, faces: np.ndarray) -> np.ndarray:
    """Corners of the faces [F, 9], each from its smallest corner on, in order: equal for meshes equal up to order."""
    corners = vertices[faces]
    first = [min(range(3), key=lambda k, face=face: tuple(face[k])) for face in corners]
    corners = np.stack([np.roll(face, -k, axis=0) for face, k in zip(corners, first, strict=True)])
    corners = corners.reshape(-1, 9)
    return corners[np.lexsort(corners.T)]


@pytest.fixture
def by_slabs(monkeypatch):
    """Makes `pipeline.surface` go by slabs of a few planes, with at most so many nodes a side of a whole field."""

    def go(coarse_resolution: int = 256) -> None:
        monkeypatch.setattr(pipeline, "_require_room", lambda *arguments: False)
        monkeypatch.setattr(slab_field, "COARSE_RESOLUTION", coarse_resolution)
        monkeypatch.setattr(slab_field, "SLAB_NODES", 5 * 48**2)

    return go


@pytest.mark.parametrize(
    "overrides, pixel",
    [
        ([], 0.0),
        ([], 0.03),
        (["mesh.smooth=0", "mesh.seal=0"], 0.0),
        (["mesh.iso=0.3", "mesh.smooth=1.5"], 0.0),
        (["mesh.iso=0.2", "mesh.carve=true", "mesh.seal=1"], 0.03),
    ],
)
def test_slabs_give_the_mesh_of_the_whole_field(by_slabs, generator, overrides, pixel):
    """Where the coarse field is no coarser: blur, silhouettes and hollows are the same, bit for bit."""
    gaussians = shell(4000, generator)
    settings = load_config(None, ["mesh.resolution=48", *overrides]).mesh
    whole, grid, iso = pipeline.surface(gaussians, settings, StageTimes(), pixel=pixel)
    by_slabs()
    mesh, slab_grid, slab_iso = pipeline.surface(gaussians, settings, StageTimes(), pixel=pixel)
    assert (slab_grid, slab_iso) == (grid, iso)
    assert mesh.is_closed() and len(mesh.vertices) == len(whole.vertices)
    assert np.array_equal(as_corners(mesh.vertices, mesh.faces), as_corners(whole.vertices, whole.faces))


def test_a_coarser_whole_finds_the_hollows(by_slabs, generator, caplog):
    """A shell with pinholes becomes solid by what a field of half as many nodes a side tells."""
    gaussians = shell(1500, generator)
    settings = load_config(None, ["mesh.resolution=48", "mesh.iso=0.1"]).mesh
    whole, grid, iso = pipeline.surface(gaussians, settings, StageTimes())
    by_slabs(24)
    with caplog.at_level(logging.INFO):
        mesh, _, _ = pipeline.surface(gaussians, settings, StageTimes())
    assert "hollows are looked for at 24 nodes a side" in caplog.text
    assert mesh.is_closed()
    skin = extract_mesh(smooth_field(extract_fields(gaussians, grid), settings.smooth), grid, iso)
    # Measured 0.33 of the whole's volume for the mere skin, 1.007 by slabs.
    assert skin.volume < 0.5 * whole.volume
    assert mesh.volume == pytest.approx(whole.volume, rel=0.02)


def test_the_coarse_grid_covers_the_box():
    grid = GridSpec((-1.0, 2.0, 0.3), 0.01, (1000, 31, 512))
    coarse = coarse_grid(grid)
    assert max(coarse.shape) <= 256 and coarse.lower == grid.lower
    assert (np.asarray(coarse.upper) >= np.asarray(grid.upper) - 1e-9).all()
    assert coarse_grid(coarse) == coarse
    flat = coarse_grid(GridSpec((0.0, 0.0, 0.0), 0.01, (2000, 2, 2)))
    assert flat.shape == (256, 2, 2)


@pytest.mark.parametrize("planes", [1, 2, 3, 7, None])
def test_slabs_on_the_cpu_weld(planes):
    """Random whole numbers: ambiguous cells, values at the threshold, and surfaces on every plane where slabs meet."""
    field = torch.from_numpy(np.random.default_rng(0).integers(0, 5, (14, 6, 9)).astype(np.float32))
    field[5:9] = 0  # slabs with nothing inside
    expected = marching_cubes(field.numpy(), 2.0)
    vertices, faces = marching_cubes_slabs(lambda x0, x1: field[x0:x1], field.shape, 2.0, planes)
    assert len(vertices) == len(expected[0])
    assert np.array_equal(as_corners(vertices, faces), as_corners(*expected))
    grid = GridSpec((-1.0, 2.0, 0.3), 0.1, field.shape)
    mesh = extract_mesh_by_planes(lambda x0, x1: field[x0:x1], grid, 2.0, planes, on_gpu=False)
    whole = extract_mesh(field, grid, 2.0)
    assert np.array_equal(as_corners(mesh.vertices, mesh.faces), as_corners(whole.vertices, whole.faces))


def test_faults_of_slabs_on_the_cpu_are_named():
    field, grid = torch.ones(6, 5, 4), GridSpec((0.0, 0.0, 0.0), 1.0, (6, 5, 4))
    with pytest.raises(UserError, match="no surface at mesh.iso=2: the density ranges from 1 to 1; try mesh.iso=0.5"):
        extract_mesh_by_planes(lambda x0, x1: field[x0:x1], grid, 2.0, 2, on_gpu=False)
    field[4, 1, 3] = torch.nan
    with pytest.raises(UserError, match="density holds 1 values that are not finite"):
        extract_mesh_by_planes(lambda x0, x1: field[x0:x1], grid, 0.5, 2, on_gpu=False)


def test_what_does_not_fit_whole_goes_by_slabs(monkeypatch, generator, caplog):
    """The bound is that of the memory; the mesh is there, in spite of it."""
    gaussians = shell(4000, generator)
    settings = load_config(None, ["mesh.resolution=48"]).mesh
    grid = GridSpec.around(gaussians, 48)
    monkeypatch.setattr(slab_field, "COARSE_RESOLUTION", 24)
    monkeypatch.setattr(slab_field, "SLAB_NODES", 5 * 48**2)
    monkeypatch.setattr(pipeline, "_MESH_BYTES_A_NODE", 0)
    monkeypatch.setattr("memory.available_memory", lambda: 40 * grid.node_count)
    with caplog.at_level(logging.INFO):
        mesh, _, _ = pipeline.surface(gaussians, settings, StageTimes())
    assert "the field is made in slabs" in caplog.text
    assert mesh.is_closed() and len(mesh.faces) > 1000
    # The surface itself has to fit too.
    monkeypatch.setattr(pipeline, "_MESH_BYTES_A_NODE", 1000)
    with pytest.raises(UserError, match=r"mesh.resolution=48 .* of memory, .* are free; try a smaller one"):
        pipeline.surface(gaussians, settings, StageTimes())


@pytest.mark.gpu
@pytest.mark.parametrize("overrides", [[], ["mesh.iso=0.3", "mesh.smooth=1.5"]])
def test_a_gpu_gives_the_mesh_of_its_whole_field(cuda, by_slabs, generator, overrides):
    gaussians = shell(4000, generator).to(cuda)
    settings = load_config(None, ["mesh.resolution=48", *overrides]).mesh
    whole, _, iso = pipeline.surface(gaussians, settings, StageTimes())
    by_slabs()
    mesh, _, slab_iso = pipeline.surface(gaussians, settings, StageTimes())
    assert slab_iso == iso
    assert np.array_equal(mesh.vertices, whole.vertices) and np.array_equal(mesh.faces, whole.faces)


@pytest.mark.gpu
@pytest.mark.timeout(300)
def test_a_thousand_nodes_a_side_within_8_gb(cuda, generator):
    """From Gaussians to a mesh, with blur, threshold, silhouettes and hollows, as the app does it."""
    gaussians = shell(20_000, generator).to(cuda)
    settings = load_config(None, ["mesh.resolution=1024"]).mesh
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    mesh, grid, _ = pipeline.surface(gaussians, settings, StageTimes())
    assert torch.cuda.max_memory_allocated() < 8e9
    assert max(grid.shape) == 1024 and len(mesh.faces) > 4_000_000
    assert mesh.is_closed()
    # Solid, as at 256 nodes a side, where the field is whole; the mere skin has half the volume or less.
    whole, _, _ = pipeline.surface(gaussians, load_config(None, ["mesh.resolution=256"]).mesh, StageTimes())
    assert mesh.volume == pytest.approx(whole.volume, rel=0.1)
