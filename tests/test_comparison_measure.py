"""Fields of backends: checked before they are timed, on whole grids and in slabs."""

import itertools
import math

import numpy as np
import pytest
import torch

from comparison import backends, measure, scaling
from comparison.backends import Variant, find_variants
from comparison.field_error import ExactSample
from comparison.measure import Budget, compare_fields
from errors import BackendUnavailable, UserError
from mesh_extract import BACKENDS, GridSpec, extract_fields
from scenes import shell
from timing import repeat, timed

QUICK = Budget(repeats=2, seconds=1.0)
CPU, NUMBA = Variant("cpu", "cpu"), Variant("numba", "cpu")


@pytest.fixture
def gaussians(generator):
    found = shell(60, generator)
    found.log_scales += 1.5
    return found


@pytest.fixture
def registered(monkeypatch):
    """Enters a function as the backend "double"."""

    def enter(function) -> Variant:
        monkeypatch.setitem(BACKENDS, "double", function)
        return Variant("double", "cpu")

    return enter


def test_right_fields_pass_and_are_timed_and_meshes_agree(gaussians):
    cpu, numba = compare_fields(gaussians, GridSpec.cube(-1, 1, 20), 0.3, [CPU, NUMBA], QUICK)
    for result in (cpu, numba):
        assert not result.error.is_wrong and result.timing.repeats == 2
        assert 0 < result.timing.lowest_s <= result.timing.median_s <= result.timing.highest_s
        assert result.error.no_cutoff >= result.error.same_cutoff
    assert (cpu.vertices, cpu.faces) == (numba.vertices, numba.faces) and cpu.vertices > 100
    assert cpu.distance is None and numba.distance.hausdorff < 1e-3


@pytest.mark.parametrize("fault", ["scaled", "moved", "nan", "empty"])
def test_a_wrong_field_is_not_timed(gaussians, registered, fault):
    """The faults of the article's comparison, as small as half a voxel of shift."""

    def wrong(gaussians, grid):
        half = tuple(low + grid.voxel_size / 2 for low in grid.lower)
        moved = GridSpec(half, grid.voxel_size, grid.shape) if fault == "moved" else grid
        field = extract_fields(gaussians, moved, "numba")
        if fault == "scaled":
            field *= 1.001
        elif fault == "nan":
            field[::2] = math.nan
        elif fault == "empty":
            field.zero_()
        return field

    error = ExactSample(gaussians, GridSpec.cube(-1, 1, 20)).error_of(wrong(gaussians, GridSpec.cube(-1, 1, 20)))
    assert error.is_wrong
    if fault in ("scaled", "moved"):  # the others have no surface, which is an error of its own
        _, double = compare_fields(gaussians, GridSpec.cube(-1, 1, 20), 0.3, [NUMBA, registered(wrong)], QUICK)
        assert double.error.is_wrong and double.timing is None


@pytest.mark.parametrize("shape", [(2, 2, 2), (3, 40, 5), (20, 21, 22), (64, 2, 64)])
@pytest.mark.parametrize("most_nodes", [8, 200, 10_000])
def test_the_sample_lies_on_nodes_of_the_grid(gaussians, shape, most_nodes):
    grid = GridSpec((-0.9, -0.8, -0.7), 0.04, shape)
    sample = ExactSample(gaussians, grid, most_nodes)
    field = extract_fields(gaussians, grid, "numba")
    assert sample.sampled(field).shape == sample.cut.shape
    assert not sample.error_of(field).is_wrong


def test_without_the_uncut_field_its_error_is_unknown(gaussians):
    grid = GridSpec.cube(-1, 1, 9)
    error = ExactSample(gaussians, grid, without_cutoff=False).error_of(extract_fields(gaussians, grid, "numba"))
    assert error.no_cutoff is None and not error.is_wrong


@pytest.mark.parametrize(("size", "most"), [(2, 1), (7, 60), (16, 1 << 28), (33, 5000)])
def test_slabs_are_the_grid(gaussians, size, most):
    grid = GridSpec((-1, -0.9, -0.8), 0.06, (size, 9, 11))
    parts = list(scaling.slabs(grid, most))
    assert sum(part.node_count for part in parts) == grid.node_count
    assert (len(parts) == 1) == (grid.node_count <= most or size < 4)
    whole = extract_fields(gaussians, grid, "numba")
    assert torch.equal(torch.cat([extract_fields(gaussians, part, "numba") for part in parts]), whole)
    assert np.allclose(np.concatenate([part.axes()[0] for part in parts]), grid.axes()[0], rtol=0, atol=1e-12)


@pytest.mark.parametrize("start", [0, 5, 11])
def test_the_sample_of_a_slab_lies_on_its_nodes(gaussians, start):
    slab = GridSpec.cube(-1, 1, 24).slab(start, start + 13)
    sample = ExactSample(gaussians, slab, 300)
    assert sample.stride > 1 and not sample.error_of(extract_fields(gaussians, slab, "numba")).is_wrong


def test_the_loops_on_a_gpu_are_the_reference_loops(gaussians):
    """What the article starts from, run here on the CPU: it must be the field that every other backend computes."""
    grid = GridSpec.cube(-1, 1, 20)
    loops = Variant("cpu", "cuda")
    assert loops.name == "cpu on GPU" and torch.equal(loops.extract(gaussians, grid), CPU.extract(gaussians, grid))


def test_growing_grids_are_timed_until_they_take_too_long(gaussians, registered, monkeypatch):
    """A backend whose time grows with the nodes, on a clock of its own: no test should wait."""
    double = registered(lambda gaussians, grid: extract_fields(gaussians, grid, "numba"))
    nodes = []

    def clocked(function, device):
        nodes.clear()
        original = BACKENDS["double"]
        monkeypatch.setitem(BACKENDS, "double", lambda g, grid: nodes.append(grid.node_count) or original(g, grid))
        result = function()
        monkeypatch.setitem(BACKENDS, "double", original)
        return result, sum(nodes) / 1e4

    monkeypatch.setattr(scaling, "timed", clocked)
    monkeypatch.setattr(scaling, "repeat", lambda function, device, first_s, *_: scaling.Timing.of([first_s]))
    found = scaling.measure_scaling(
        gaussians, lambda n: GridSpec.cube(-1, 1, n), [64, 32, 8, 16], [double], Budget(3, 1.0), slab_nodes=1100
    )
    assert [(row.resolution, row.slabs) for row in found] == [(8, 1), (16, 4), (32, 16), (64, 32)]
    assert [row.timing.median_s for row in found[:2]] == [8**3 / 1e4, 16**3 / 1e4]
    assert [row.timing for row in found[2:]] == [None, None]
    assert [row.left_out for row in found[2:]] == ["would take about 3 s", "would take about 26 s"]
    assert not found[1].error.is_wrong


def test_a_field_that_is_wrong_in_slabs_is_not_timed(gaussians, registered):
    double = registered(lambda gaussians, grid: extract_fields(gaussians, grid, "numba") + 0.01)
    (row,) = scaling.measure_scaling(gaussians, lambda n: GridSpec.cube(-1, 1, n), [8], [double], QUICK)
    assert row.timing is None and row.error.is_wrong and "float64" in row.left_out


def test_backends_that_cannot_run_are_named_with_the_reason(registered, monkeypatch):
    def unavailable(gaussians, grid):
        raise BackendUnavailable("no driver")

    registered(unavailable)
    monkeypatch.setattr(backends.torch.cuda, "is_available", lambda: False)
    found, missing = find_variants()
    assert found[:2] == [CPU, NUMBA] and missing["double"] == "no driver"
    assert {"cuda-coeff", "cuda-fused", "cuda"} <= set(missing) and "auto" not in missing
    assert find_variants(["numba"]) == ([NUMBA], {})
    with pytest.raises(UserError, match="--backends='cdua' is unknown; choose from"):
        find_variants(["cdua"])


def test_repeats_stay_within_the_budget():
    calls = itertools.count()
    assert repeat(lambda: next(calls), "cpu", 0.0, 3, 1.0).repeats == 3 and next(calls) == 3
    assert repeat(lambda: next(calls), "cpu", 0.8, 3, 1.0) == repeat(None, "cpu", 0.8, 9, 1.0)
    assert next(calls) == 4, "a call that takes more than half of the budget is not repeated"
    result, seconds = timed(lambda: 7, "cpu")
    assert result == 7 and 0 <= seconds < 1


def test_memory_is_given_back_without_a_gpu():
    measure.release_memory()


@pytest.mark.gpu
def test_every_backend_runs_and_agrees_on_a_gpu(cuda, gaussians):
    """Also in slabs; times are between events on the GPU."""
    variants, missing = find_variants()
    assert not missing
    names = [variant.name for variant in variants]
    assert names == ["cpu", "cpu on GPU", "numba", "cuda-coeff", "cuda-fused", "cuda"]
    for result in compare_fields(gaussians, GridSpec.cube(-1, 1, 29), 0.3, variants, QUICK):
        assert not result.error.is_wrong and result.timing.median_s > 0, result.variant.name
        assert result.distance is None or result.distance.hausdorff < 1e-3, result.variant.name
    rows = scaling.measure_scaling(
        gaussians, lambda n: GridSpec.cube(-1, 1, n), [16, 29], variants, QUICK, slab_nodes=5000
    )
    assert all(row.timing is not None and not row.error.is_wrong for row in rows)


@pytest.mark.gpu
def test_work_on_a_gpu_is_timed_until_it_is_done(cuda):
    """The host returns at once: a clock without events would see some 20 microseconds."""
    values = torch.randn(4096, 4096, device=cuda)
    timed(lambda: values @ values, "cuda")
    _, one_s = timed(lambda: values @ values, "cuda")
    _, ten_s = timed(lambda: [values @ values for _ in range(10)], "cuda")
    assert one_s > 2e-4 and 5 < ten_s / one_s < 20
