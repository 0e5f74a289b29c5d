"""Gradients of the density field, against float64 autograd of its formula."""

import functools

import pytest
import torch

from gaussians import Gaussians, rotation_matrices
from mesh_extract.fields import extract_fields
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF
from scenes import mixed, shell

NAMES = ("means", "quats", "log_scales", "logit_opacities")
GRID = GridSpec((-0.9, -0.8, -0.7), 0.09, (19, 17, 18))


def dense_field(gaussians: Gaussians, grid: GridSpec) -> torch.Tensor:
    """The formula, every Gaussian at every node, with autograd; what is below the cut-off is left out as a constant."""
    nodes = grid.node_positions(dtype=gaussians.means.dtype).reshape(-1, 1, 3)
    local = torch.einsum("pni,nij->pnj", nodes - gaussians.means, rotation_matrices(gaussians.quats))
    values = gaussians.opacities * torch.exp(-0.5 * (local / gaussians.scales).square().sum(dim=-1))
    return torch.where(values.detach() >= CUTOFF, values, 0.0).sum(dim=1).reshape(grid.shape)


def scene(make, n: int) -> Gaussians:
    gaussians = make(n, torch.Generator().manual_seed(n))
    if make is shell:
        gaussians.log_scales = gaussians.log_scales + 1.2  # a few nodes wide on the small grid
    return gaussians


def gradients(compute, gaussians: Gaussians, grid: GridSpec, dtype, device="cpu") -> list[torch.Tensor]:
    """Of a loss that is linear in the field, with random weights."""
    leaves = gaussians.detach().to(device=device, dtype=dtype).map(lambda value: value.clone().requires_grad_())
    weights = torch.randn(grid.shape, generator=torch.Generator().manual_seed(7), dtype=torch.float64)
    field = compute(leaves, grid)
    assert field.requires_grad and field.dtype == dtype
    (field * weights.to(field)).sum().backward()
    return [getattr(leaves, name).grad.cpu().double() for name in NAMES]


@functools.cache
def measured(make, n: int):
    """Exact gradients, and the errors of float32 autograd of the formula: what single precision costs anyway."""
    exact = gradients(dense_field, scene(make, n), GRID, torch.float64)
    single = gradients(dense_field, scene(make, n), GRID, torch.float32)
    return exact, [(a - b).abs().max().item() for a, b in zip(single, exact, strict=True)]


def assert_no_worse(found, make, n):
    exact, single = measured(make, n)
    for name, value, expected, error in zip(NAMES, found, exact, single, strict=True):
        largest = expected.abs().max().item()
        # 2: a contribution within rounding of the cut-off may fall on either side; 3e-7: a sum's own rounding.
        assert (value - expected).abs().max() <= 2 * error + 3e-7 * largest + 2 * CUTOFF * largest, name
        assert largest > 1e-3, name


@pytest.mark.parametrize(("make", "n"), [(shell, 60), (mixed, 40)])
def test_numba_gradients_are_as_exact_as_autograd_in_single_precision(make, n):
    found = gradients(functools.partial(extract_fields, backend="numba"), scene(make, n), GRID, torch.float32)
    assert_no_worse(found, make, n)


@pytest.mark.gpu
@pytest.mark.parametrize(("make", "n"), [(shell, 60), (mixed, 40)])
def test_cuda_gradients_are_as_exact_as_autograd_in_single_precision(cuda, make, n):
    compute = functools.partial(extract_fields, backend="cuda")
    found = gradients(compute, scene(make, n), GRID, torch.float32, cuda)
    assert_no_worse(found, make, n)
    for device in ("cuda:0", f"cuda:{torch.cuda.device_count() - 1}"):  # where there are two, not the current one
        for first, second in zip(found, gradients(compute, scene(make, n), GRID, torch.float32, device), strict=True):
            assert torch.equal(first, second)


def test_float64_gradients_match_differences_of_the_field():
    """gradcheck in float64: the loops evaluate in double precision, the sums are those of every CPU backend."""
    gaussians = scene(mixed, 3).double()
    grid = GridSpec((-0.9, -0.8, -0.7), 0.3, (6, 5, 6))
    # Supports that hold the whole grid: no contribution crosses the cut-off between the differences.
    gaussians.log_scales = gaussians.log_scales.clamp_min(-0.3)
    quats = 1.7 * gaussians.quats  # of no particular length

    def field(means, quats, log_scales, logit_opacities):
        moved = Gaussians(means, quats, log_scales, logit_opacities, gaussians.sh0, gaussians.shN)
        return extract_fields(moved, grid, "cpu")

    leaves = [
        value.clone().requires_grad_()
        for value in (gaussians.means, quats, gaussians.log_scales, gaussians.logit_opacities)
    ]
    assert torch.autograd.gradcheck(field, leaves, eps=1e-6, atol=1e-7)


def test_a_slab_passes_gradients_as_its_planes_of_the_whole_do():
    gaussians = scene(shell, 30)

    def whole_planes(leaves, grid):
        return extract_fields(leaves, grid, "numba")[5:12]

    def planes(leaves, grid):
        return extract_fields(leaves, grid.slab(5, 12), "numba")

    found = []
    for compute in (whole_planes, planes):
        leaves = gaussians.map(lambda value: value.clone().requires_grad_())
        compute(leaves, GRID).square().sum().backward()
        found.append(torch.cat([getattr(leaves, name).grad.flatten() for name in NAMES]))
    assert torch.allclose(found[0], found[1], rtol=1e-5, atol=1e-6)


def test_gradients_are_carried_only_where_they_are_asked_for():
    gaussians, grid = scene(shell, 5), GridSpec.cube(-1, 1, 9)
    assert not extract_fields(gaussians, grid).requires_grad
    gaussians.sh0.requires_grad_()  # colours do not matter to the density
    assert not extract_fields(gaussians, grid).requires_grad
    gaussians.means.requires_grad_()
    with torch.no_grad():
        assert not extract_fields(gaussians, grid).requires_grad
    extract_fields(gaussians, grid).sum().backward()
    assert gaussians.means.grad.abs().max() > 0 and gaussians.quats.grad is None and gaussians.sh0.grad is None


def test_odd_gaussians_have_finite_gradients():
    gaussians = scene(shell, 8)
    gaussians.quats[0] = 0
    gaussians.log_scales[1] = -200
    gaussians.logit_opacities[2] = float("inf")
    gaussians.logit_opacities[3] = -float("inf")
    gaussians.means[4] = 1e20
    leaves = gaussians.map(lambda value: value.requires_grad_())
    extract_fields(leaves, GRID, "numba").sum().backward()
    assert all(getattr(leaves, name).grad.isfinite().all() for name in NAMES)
    none = gaussians[:0].map(lambda value: value.detach().requires_grad_())
    extract_fields(none, GRID, "numba").sum().backward()
    assert none.means.grad.shape == (0, 3)


def test_the_example_fits_gaussians_to_a_density():
    from scripts.example_density_loss import ball, fit, overlap, torus

    grid = GridSpec.cube(-1, 1, 20)
    target = torus(grid, "cpu")
    start = ball(100, torch.Generator().manual_seed(0))
    losses, results = zip(*fit(start, target, grid, 25), strict=True)
    # Measured: 0.0334 to 0.0006, and 0 to 91 % of the volume in common.
    assert losses[-1] < 0.1 * losses[0]
    assert overlap(extract_fields(results[-1], grid), target) > 0.75 > 2 * overlap(extract_fields(start, grid), target)
