"""What is special about the density field on a GPU; that it is right at all is in test_fields.py, by name."""

import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import mesh_extract
from errors import BackendUnavailable, UserError
from gaussians import Gaussians
from mesh_extract import compare_extract_fields_cpu_to_gpu, compare_gaussian_cpu_to_gpu, fields, fields_cuda
from mesh_extract.coefficients import coefficients_in_torch, gaussian_3d_coeff
from mesh_extract.fields import extract_fields, resolve_backend
from mesh_extract.fields_exact import exact_at, extract_fields_exact, nodes_near
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, precision_factors
from scenes import mixed, shell

GPU_BACKENDS = ["cuda-coeff", "cuda-fused", "cuda"]


def seeded(n: int, make=shell) -> Gaussians:
    return make(n, torch.Generator().manual_seed(n))


def crowd(n: int) -> Gaussians:
    """N Gaussians over the same few tiles: lists longer than one segment of 2,048."""
    means = 0.3 * torch.rand(n, 3, generator=torch.Generator().manual_seed(n))
    return Gaussians.create(means, torch.full((n, 3), 0.1), torch.full((n,), 0.01))


def assert_exact(gaussians: Gaussians, grid: GridSpec, field: torch.Tensor) -> None:
    """Within the bound of float64 with the same cut-off, less what rounding may put on either side of it."""
    cut, slack = extract_fields_exact(gaussians, grid, CUTOFF)
    assert ((field.cpu().double() - cut).abs() <= 2e-5 + 2e-6 * cut + slack).all()


# Without a GPU.


def test_comparisons_are_not_imported_before_they_are_asked_for():
    code = (
        "import sys, mesh_extract; assert not {'comparison', 'scenes', 'timing'} & set(sys.modules); "
        "from mesh_extract import compare_gaussian_cpu_to_gpu; assert 'comparison.cpu_gpu' in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True, cwd=Path(__file__).parent.parent)
    with pytest.raises(AttributeError, match="has no attribute 'compare_nothing'"):
        mesh_extract.compare_nothing  # noqa: B018


@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_what_is_missing_is_one_line(monkeypatch, backend):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(
        BackendUnavailable, match=rf"^mesh.backend={backend}: torch \S+ (is a CPU build|finds no CUDA)"
    ) as found:
        extract_fields(seeded(5), GridSpec.cube(-1, 1, 8), backend)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("compare", [compare_gaussian_cpu_to_gpu, compare_extract_fields_cpu_to_gpu])
def test_a_comparison_without_a_gpu_says_what_is_missing(monkeypatch, compare):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    with pytest.raises(BackendUnavailable, match=rf"^{compare.__name__}: torch"):
        compare()


def test_auto_is_numba_on_the_cpu_and_where_no_kernel_runs(monkeypatch, caplog):
    monkeypatch.setattr(fields, "why_unavailable", lambda device: "NVRTC is missing")
    fields._runs_kernels.cache_clear()
    try:
        assert resolve_backend("auto") == resolve_backend("auto", torch.device("cpu")) == "numba"
        assert resolve_backend("auto", torch.device("cuda", 3)) == "numba" and "NVRTC is missing" in caplog.text
        assert resolve_backend("cuda-fused") == "cuda-fused"
        fields._runs_kernels.cache_clear()
        monkeypatch.setattr(fields, "why_unavailable", lambda device: None)
        assert resolve_backend("auto", torch.device("cuda", 3)) == "cuda"
    finally:
        fields._runs_kernels.cache_clear()


def no_memory(*arguments):
    raise torch.OutOfMemoryError("CUDA out of memory.\nTried to allocate ...")


@pytest.mark.parametrize("backend", GPU_BACKENDS)
@pytest.mark.parametrize("with_gradient", [False, True])
def test_too_little_memory_is_one_line_with_advice(monkeypatch, backend, with_gradient):
    monkeypatch.setitem(fields.BACKENDS, backend, no_memory)
    gaussians = seeded(5)
    gaussians.means.requires_grad_(with_gradient)
    expected = (
        r"^a density field of 8 x 9 x 8 nodes for 5 Gaussians needs more memory than the GPU has; [^\n]*slabs[^\n]*$"
    )
    with pytest.raises(UserError, match=expected):
        extract_fields(gaussians, GridSpec((0, 0, 0), 0.1, (8, 9, 8)), backend)


def test_too_little_memory_for_gradients_and_coefficients_is_one_line(monkeypatch):
    monkeypatch.setattr("mesh_extract.fields_gradients.field_gradients", no_memory)
    gaussians = seeded(5)
    gaussians.means.requires_grad_()
    with pytest.raises(UserError, match=r"^the backward pass of 5 Gaussians needs more memory than cpu has; [^\n]*$"):
        extract_fields(gaussians, GridSpec.cube(-1, 1, 8), "numba").sum().backward()
    monkeypatch.setattr("mesh_extract.coefficients.coefficients_in_torch", no_memory)
    with pytest.raises(UserError, match=r"^gaussian_3d_coeff of 2 points and 3 Gaussians needs more memory [^\n]*$"):
        gaussian_3d_coeff(torch.zeros(2, 3), torch.zeros(3, 3), torch.ones(3, 6))


def test_lists_that_no_kernel_could_number_are_refused(monkeypatch):
    """In one layer of cells; more layers are filled one after the other."""
    monkeypatch.setattr(fields_cuda, "_launch", lambda *arguments, **options: (1 << 31, 1, 0, 0))
    with pytest.raises(UserError, match=r"^5 Gaussians reach 2,147,483,648 cells of 8 x 8 x 8 nodes, at most [^\n]*$"):
        fields_cuda.extract_fields_cuda(seeded(5), GridSpec.cube(-1, 1, 8))


@pytest.mark.parametrize(("first", "count"), [(0, 16), (0, 17), (0, 18), (0, 64), (8, 30), (15, 3), (14, 4), (33, 200)])
def test_a_grid_is_halved_between_cells(first, count):
    grid = GridSpec((0, 0, 0), 1, (first + count, 2, 2)).slab(first, first + count)
    middle = fields_cuda._middle(grid)
    if middle is None:
        assert (first + count - 1) // 16 - first // 16 <= 1
    else:
        assert (first + middle) % 16 == 0 and 2 <= middle <= count - 2


def test_exact_values_at_nodes_are_those_of_the_whole_field():
    gaussians, grid = seeded(100), GridSpec.cube(-1, 1, 30).slab(4, 25)
    nodes = nodes_near(gaussians.means, grid, 400, torch.Generator().manual_seed(0))
    x, y, z = nodes.unbind(-1)
    for cutoff in (0.0, CUTOFF):
        density, slack = exact_at(gaussians, grid, nodes, cutoff)
        whole, whole_slack = extract_fields_exact(gaussians, grid, cutoff)
        assert (density - whole[x, y, z]).abs().max() <= 1e-12
        assert (slack - whole_slack[x, y, z]).abs().max() <= 1e-12
    assert 0 < (density > 0).sum() < 400  # some inside, some outside


# On a GPU.


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_coefficients_of_the_kernel_are_the_reference_s(cuda, dtype):
    gaussians = seeded(77, mixed)
    points = 2 * torch.rand(130, 3, generator=torch.Generator().manual_seed(0)) - 1
    arguments = [
        value.to(dtype) for value in (points, gaussians.means, precision_factors(gaussians.quats, gaussians.scales))
    ]
    found = gaussian_3d_coeff(*(value.to(cuda) for value in arguments))
    exact = coefficients_in_torch(*(value.double() for value in arguments))
    single = (coefficients_in_torch(*arguments) - exact).abs().max()
    assert found.dtype == dtype and found.is_cuda
    assert (found.cpu() - exact).abs().max() <= 2 * single + 1e-15
    assert gaussian_3d_coeff(points[:0].to(cuda), gaussians.means.to(cuda), arguments[2].to(cuda)).shape == (0, 77)
    with pytest.raises(UserError, match=r"means must be on cuda:0 like points, got cpu"):
        gaussian_3d_coeff(points.to(cuda), *arguments[1:])


def assert_timed(found) -> None:
    """How long the two take is for benchmarks to tell."""
    assert all(0 < ms < math.inf for ms in (found.cpu_ms, found.gpu_ms))
    assert found.ratio == found.cpu_ms / found.gpu_ms and f"{found.ratio:.1f}x;" in str(found)


@pytest.mark.gpu
def test_gaussian_cpu_to_gpu(cuda):
    found = compare_gaussian_cpu_to_gpu()
    # float32 on both: at most twice the reference's error.
    assert found.gpu_error <= 2 * found.cpu_error and found.max_difference <= 3 * found.cpu_error
    assert_timed(found)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_extract_fields_cpu_to_gpu(cuda, backend):
    found = compare_extract_fields_cpu_to_gpu(2000, 48, gpu_backend=backend)
    assert found.gpu_error <= 2e-5 and found.cpu_error <= 2e-5 and found.max_difference <= 1e-4
    assert_timed(found)


@pytest.mark.gpu
@pytest.mark.parametrize("shape", [(2, 2, 2), (17, 17, 17), (200, 3, 90), (5, 257, 31), (257, 64, 40)])
@pytest.mark.parametrize("n", [1, 300])
def test_shapes_of_the_grid(cuda, shape, n):
    gaussians, grid = seeded(n), GridSpec((-1.0, -0.8, -0.6), 2 / (max(shape) - 1), shape)
    assert_exact(gaussians, grid, extract_fields(gaussians.to(cuda), grid, "cuda"))


@pytest.mark.gpu
@pytest.mark.parametrize("make", [shell, mixed, crowd])
def test_every_run_and_every_slab_gives_the_same_bits(cuda, make):
    gaussians = (crowd(9000) if make is crowd else seeded(3000, make)).to(cuda)
    grid = GridSpec((-0.9, -1.0, -0.8), 0.02, (90, 97, 85))
    whole = extract_fields(gaussians, grid, "cuda")
    for _ in range(3):
        assert torch.equal(extract_fields(gaussians, grid, "cuda"), whole)
    for start, stop in ((0, 2), (1, 40), (40, 88), (88, 90)):
        assert torch.equal(extract_fields(gaussians, grid.slab(start, stop), "cuda"), whole[start:stop])


@pytest.mark.gpu
def test_crowded_tiles_are_exact_and_lists_without_room_are_made_again(cuda, monkeypatch):
    gaussians, grid = crowd(9000), GridSpec((-0.1, -0.1, -0.1), 0.04, (35, 12, 20))
    whole = extract_fields(gaussians.to(cuda), grid, "cuda")
    # 9,000 contributions of up to 0.01: the largest error in the same arithmetic on the CPU was 0.13 of this bound.
    assert_exact(gaussians, grid, whole)

    class LittleRoom(dict):
        def get(self, key, default):
            return super().get(key, (64, 4))

    monkeypatch.setattr(fields_cuda, "_room", LittleRoom())
    assert torch.equal(extract_fields(gaussians.to(cuda), grid, "cuda"), whole)
    monkeypatch.setattr(fields_cuda, "_room", LittleRoom())
    monkeypatch.setattr(fields_cuda, "_LARGEST_LIST", 100)  # so that the grid is filled in parts
    assert torch.equal(extract_fields(gaussians.to(cuda), grid, "cuda"), whole)
    monkeypatch.setattr(fields_cuda, "_MOST_GAUSSIANS", 4000)
    assert_exact(gaussians, grid, extract_fields(gaussians.to(cuda), grid, "cuda"))


@pytest.mark.gpu
def test_three_million_gaussians(cuda):
    scene, grid = seeded(3_000_000).to(cuda), GridSpec.cube(-1, 1, 64)
    field = extract_fields(scene, grid, "cuda")
    nodes = nodes_near(scene.means[:1000].cpu(), grid, 64, torch.Generator().manual_seed(0)).to(cuda)
    cut, slack = exact_at(scene, grid, nodes, CUTOFF)
    x, y, z = nodes.unbind(-1)
    # Sums of tens of thousands of float32 values.
    assert ((field[x, y, z].double() - cut).abs() <= 2e-5 + 1e-5 * cut + slack).all() and cut.max() > 100


@pytest.mark.gpu
@pytest.mark.parametrize("sigma", [1e-6, 1e-4, 1e-2, 0.3, 10.0])
def test_no_size_gives_what_is_not_a_number(cuda, sigma):
    gaussians = seeded(500)
    generator = torch.Generator().manual_seed(3)
    gaussians.log_scales = math.log(sigma) + 3 * torch.randn(500, 3, generator=generator)
    field = extract_fields(gaussians.to(cuda), GridSpec.cube(-1, 1, 50), "cuda")
    assert field.isfinite().all() and (field >= 0).all()


@pytest.mark.gpu
def test_parameters_that_are_not_finite_are_named(cuda):
    for name in ("means", "quats", "log_scales", "logit_opacities"):
        gaussians = seeded(5000).to(cuda)
        getattr(gaussians, name)[4321] = math.nan
        with pytest.raises(UserError, match=f"^gaussians.{name} holds values that are not finite$"):
            extract_fields(gaussians, GridSpec.cube(-1, 1, 40), "cuda")


@pytest.mark.gpu
def test_auto_and_the_grid_around_follow_the_gaussians(cuda):
    gaussians = seeded(3000)
    assert resolve_backend("auto", cuda) == "cuda"
    grid = GridSpec.around(gaussians.to(cuda), 60)
    assert grid == GridSpec.around(gaussians, 60)
    on_gpu = extract_fields(gaussians.to(cuda), grid)
    assert on_gpu.is_cuda and torch.equal(on_gpu, extract_fields(gaussians.to(cuda), grid, "cuda"))
    back = extract_fields(gaussians, grid, "cuda")
    assert not back.is_cuda and torch.equal(back, on_gpu.cpu())


@pytest.mark.gpu
def test_other_streams_and_graphs_give_the_same_bits(cuda):
    gaussians, grid = seeded(3000).to(cuda), GridSpec.cube(-1, 1, 96)
    whole = extract_fields(gaussians, grid, "cuda")
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        other = extract_fields(gaussians, grid, "cuda")
    stream.synchronize()
    assert torch.equal(other, whole)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        captured = extract_fields(gaussians, grid, "cuda")
    for _ in range(2):
        captured.fill_(-1)
        graph.replay()
        assert torch.equal(captured, whole)


@pytest.mark.gpu
@pytest.mark.parametrize("backend", GPU_BACKENDS)
def test_a_gpu_that_is_not_the_current_one(cuda, other_gpu, backend):
    gaussians, grid = seeded(500), GridSpec.cube(-1, 1, 40)
    field = extract_fields(gaussians.to(other_gpu), grid, backend)
    assert field.device == other_gpu
    assert torch.equal(field.cpu(), extract_fields(gaussians.to(cuda), grid, backend).cpu())


@pytest.mark.gpu
def test_fields_of_more_than_two_to_the_31_nodes(cuda):
    if torch.cuda.mem_get_info()[0] < 14 << 30:
        pytest.skip("needs 14 GB of free memory")
    gaussians, grid = seeded(2000).to(cuda), GridSpec.cube(-1, 1, 1300)
    field = extract_fields(gaussians, grid, "cuda")
    assert field.numel() > 1 << 31
    for start in (600, 1250):
        assert torch.equal(field[start : start + 9], extract_fields(gaussians, grid.slab(start, start + 9), "cuda"))
    assert field[600:620].max() > 0.3 and field[-1].max() == 0
