import functools
import math

import numba
import numpy as np
import pytest
import torch

from errors import UserError
from gaussians import Gaussians, rotation_matrices
from mesh_extract.coefficients import gaussian_3d_coeff
from mesh_extract.fields import BACKENDS, extract_fields
from mesh_extract.fields_exact import exact_at, extract_fields_exact, nodes_near
from mesh_extract.fields_loops import extract_fields_loops
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, precision_factors
from scenes import mixed, shell

ON_GPU = ["cuda-coeff", "cuda-fused", "cuda"]
LOOPS = ["cpu", "cuda-coeff"]  # which torch adds up, in an order that depends on the block


@pytest.fixture(params=["cpu", "numba", *(pytest.param(name, marks=pytest.mark.gpu) for name in ON_GPU)])
def backend(request) -> str:
    """A backend by name; those of a GPU take the Gaussians there and bring the field back."""
    if request.param in ON_GPU:
        request.getfixturevalue("cuda")
    return request.param


def one(scales, opacity=1.0, mean=(0.0, 0.0, 0.0), quat=(1.0, 0.0, 0.0, 0.0)) -> Gaussians:
    scales = torch.as_tensor(scales, dtype=torch.float32).expand(1, 3)
    return Gaussians.create(torch.tensor([mean]), scales, torch.tensor([opacity]), quats=torch.tensor([quat]))


def seeded(n: int, make=shell) -> Gaussians:
    return make(n, torch.Generator().manual_seed(n))


@functools.cache
def case(n: int, resolution: int):
    gaussians, grid = seeded(n), GridSpec.cube(-1, 1, resolution)
    return gaussians, grid, extract_fields_exact(gaussians, grid), extract_fields_exact(gaussians, grid, CUTOFF)


@pytest.mark.parametrize(("n", "resolution"), [(300, 17), (3000, 17), (1500, 64), (300, 100)])
def test_backends_match_float64(backend, n, resolution):
    gaussians, grid, (exact, _), (cut, slack) = case(n, resolution)
    field = extract_fields(gaussians, grid, backend).double()
    # Without any cut-off: what is dropped is at most 1e-5 a Gaussian. Measured for N = 20,000 with numba: 2.2e-4 at
    # R = 64, 1.9e-4 at 3,000 nodes of R = 128.
    assert (field - exact).abs().max() <= 4e-4
    # Same cut-off: rounding alone. Measured at those nodes, where d is up to 10: at most 3.0e-6 and 2.2e-7 + 4e-7 d.
    assert ((field - cut).abs() <= 2e-5 + 2e-6 * cut + slack).all()


def test_needles_and_blobs_match_float64(backend):
    gaussians, grid = seeded(200, mixed), GridSpec((-0.9, -1.0, -0.7), 0.05, (37, 41, 30))
    cut, slack = extract_fields_exact(gaussians, grid, CUTOFF)
    field = extract_fields(gaussians, grid, backend).double()
    assert ((field - cut).abs() <= 2e-5 + 2e-6 * cut + slack).all()


@pytest.mark.parametrize("block_size", [1, 5, 64])
def test_result_does_not_depend_on_the_tiling(backend, block_size):
    gaussians, grid = seeded(200), GridSpec.cube(-1, 1, 19)
    gaussians.log_scales = gaussians.log_scales + 1.5  # wide ones reach over many blocks
    other = extract_fields_loops(gaussians, grid, block_size)
    # float32 sums in another order.
    assert (extract_fields(gaussians, grid, backend) - other).abs().max() <= 2e-5


@pytest.mark.parametrize("resolution", [2, 3, 16, 33])
def test_a_ball_has_its_full_volume(backend, resolution):
    """sigma = 0.2 keeps its whole integral: no support is cut short (published loops kept 62 %)."""
    grid = GridSpec.cube(-2, 2, resolution)
    field = extract_fields(one(0.2), grid, backend)
    assert field.shape == (resolution,) * 3 and torch.isfinite(field).all()
    if resolution >= 33:  # the lattice sum of a Gaussian equals its integral once h <= sigma
        integral = field.double().sum().item() * grid.voxel_size**3
        assert integral == pytest.approx((2 * math.pi) ** 1.5 * 0.2**3, rel=1e-3)


@pytest.mark.parametrize("sigma", [1e-6, 1e-5, 1e-4, 1e-2, 1.0, 10.0])
def test_every_size_has_its_own_width(backend, sigma):
    """One standard deviation off the middle the value is exp(-1/2), whatever the size: no determinant is padded."""
    grid = GridSpec((0, 0, 0), sigma, (8, 3, 3))
    values = extract_fields(one(sigma), grid, backend)[:, 0, 0].double()
    expected = torch.exp(-0.5 * torch.arange(8.0, dtype=torch.float64) ** 2)
    expected[expected < CUTOFF] = 0
    # 1e-4: means and nodes are float32 in the loops; the opacity 1 is stored as 1 - 1e-6.
    assert (values - expected).abs().max() <= 1e-4


def test_a_disk_a_million_times_wider_than_thick_keeps_its_shape(backend):
    quat = torch.nn.functional.normalize(torch.tensor([0.9, 0.2, -0.3, 0.1]), dim=0)
    gaussians = one([1.0, 1.0, 1e-6], quat=tuple(quat.tolist())).double()
    rotation = rotation_matrices(gaussians.quats)[0]
    factors = precision_factors(gaussians.quats, gaussians.scales)
    local = torch.tensor([[0.5, 0.25, 1e-6], [1.0, -1.0, 0.0], [0.0, 0.0, 2e-6]], dtype=torch.float64)
    values = gaussian_3d_coeff(local @ rotation.T, gaussians.means, factors)[:, 0]
    # q = (.25 + .0625 + 1), 2, 4.  1e-9: float64 offsets of size 1 know a thickness of 1e-6 to 1e-10 of itself.
    assert values == pytest.approx(torch.exp(-0.5 * torch.tensor([1.3125, 2.0, 4.0])).double(), rel=1e-6)


def test_factors_reproduce_the_inverse_covariance():
    gaussians = seeded(50, mixed).double()
    l0, l1, l2, l3, l4, l5 = precision_factors(gaussians.quats, gaussians.scales).unbind(-1)
    zero = torch.zeros_like(l0)
    lower = torch.stack([l0, zero, zero, l1, l2, zero, l3, l4, l5], dim=-1).reshape(-1, 3, 3)
    rotations = rotation_matrices(gaussians.quats)
    covariances = rotations @ torch.diag_embed(gaussians.scales**2) @ rotations.transpose(1, 2)
    identity = lower.transpose(1, 2) @ lower @ covariances
    assert (identity - torch.eye(3)).abs().max() <= 1e-8


def test_zero_quaternion_is_the_identity(backend):
    grid = GridSpec.cube(-0.2, 0.8, 17)
    odd = extract_fields(one((0.05, 0.1, 0.15), mean=(0.3, 0.3, 0.3), quat=(0.0, 0.0, 0.0, 0.0)), grid, backend)
    assert torch.equal(odd, extract_fields(one((0.05, 0.1, 0.15), mean=(0.3, 0.3, 0.3)), grid, backend))


def test_properties_of_the_sum(backend):
    gaussians, grid = seeded(100), GridSpec.cube(-1, 1, 20)
    field = extract_fields(gaussians, grid, backend)
    backwards = gaussians[torch.arange(99, -1, -1)]
    negated = Gaussians(**{**gaussians.tensors(), "quats": -3 * gaussians.quats})
    parts = [extract_fields(gaussians[chosen], grid, backend) for chosen in (slice(0, 40), slice(40, 100))]
    for other in (extract_fields(backwards, grid, backend), extract_fields(negated, grid, backend), sum(parts)):
        assert (other - field).abs().max() <= 2e-5  # one contribution at the cut-off may fall on the other side


def test_contributions_below_the_cutoff_count_as_nothing(backend):
    grid = GridSpec.cube(-1, 1, 21)  # sigma .2: the cut-off lies at .2 sqrt(2 ln 1e5) = .9597
    field = extract_fields(one(0.2), grid, backend)
    radii = grid.node_positions().norm(dim=-1)
    assert field[radii < 0.9595].min() >= 0.99 * CUTOFF and (field[radii > 0.9599] == 0).all()
    assert (extract_fields(one(0.2, opacity=2e-6), grid, backend) == 0).all()


@pytest.mark.parametrize(("resolution", "n"), [(2, 1), (17, 0), (100, 500)])
def test_any_size_runs(backend, resolution, n):
    gaussians = seeded(n)
    gaussians.means = 1.3 * gaussians.means  # beyond the grid
    field = extract_fields(gaussians, GridSpec.cube(-1, 1, resolution), backend)
    assert field.shape == (resolution,) * 3 and torch.isfinite(field).all()
    assert (field[96:] > 0).any() if n > 1 else (field == 0).all()  # also where no block of 16 is whole


@pytest.mark.parametrize(
    "backend", ["numba", *(pytest.param(name, marks=pytest.mark.gpu) for name in ("cuda-fused", "cuda"))]
)
def test_many_gaussians_match_float64(request, backend):
    if backend in ON_GPU:
        request.getfixturevalue("cuda")
    gaussians, grid = seeded(70_000), GridSpec.cube(-1, 1, 64)
    nodes = nodes_near(gaussians.means, grid, 300, torch.Generator().manual_seed(0))
    cut, slack = exact_at(gaussians, grid, nodes, CUTOFF)
    x, y, z = nodes.unbind(-1)
    found = extract_fields(gaussians, grid, backend)[x, y, z].double()
    assert ((found - cut).abs() <= 2e-5 + 2e-6 * cut + slack).all() and cut.max() > 1


def test_layout_and_precision_of_the_inputs(backend):
    gaussians, grid = seeded(60), GridSpec.cube(-1, 1, 16)
    field = extract_fields(gaussians, grid, backend)
    strided = gaussians.map(lambda value: torch.stack([value, value], dim=-1)[..., 0])
    assert not strided.means.is_contiguous()
    assert torch.equal(extract_fields(strided, grid, backend), field)
    double = extract_fields(gaussians.double(), grid, backend)
    assert double.dtype == torch.float64 and (double - field).abs().max() <= 2e-5
    half = gaussians.to(torch.float16)
    coarse = extract_fields(half, grid, backend)
    assert coarse.dtype == torch.float32
    assert torch.equal(coarse, extract_fields(half.to(torch.float32), grid, backend))


def test_arguments_stay_as_they_are(backend):
    gaussians = seeded(20)
    before = {name: value.clone() for name, value in gaussians.tensors().items()}
    assert not extract_fields(gaussians, GridSpec.cube(-1, 1, 9), backend).requires_grad
    assert all(torch.equal(before[name], value) for name, value in gaussians.tensors().items())


def test_numba_gives_the_same_bytes_on_any_number_of_threads():
    gaussians, grid = seeded(500), GridSpec((-1, -1, -1), 0.05, (41, 37, 43))
    first = extract_fields(gaussians, grid, "numba")
    threads = numba.get_num_threads()
    try:
        numba.set_num_threads(1)
        assert np.array_equal(extract_fields(gaussians, grid, "numba").numpy(), first.numpy())
    finally:
        numba.set_num_threads(threads)


def test_auto_is_a_backend_and_unknown_ones_are_named():
    gaussians, grid = seeded(10), GridSpec.cube(-1, 1, 8)
    assert torch.equal(extract_fields(gaussians, grid), extract_fields(gaussians, grid, "numba"))
    with pytest.raises(UserError, match=r"^mesh.backend='opencl' is unknown; choose from auto, cpu, numba"):
        extract_fields(gaussians, grid, "opencl")
    assert set(BACKENDS) == {"auto", "cpu", "numba", *ON_GPU}


@pytest.mark.parametrize("name", ["means", "quats", "log_scales", "logit_opacities"])
def test_parameters_that_are_not_finite_are_named(name):
    gaussians = seeded(5)
    getattr(gaussians, name)[2] = math.nan
    with pytest.raises(UserError, match=f"gaussians.{name} holds"):
        extract_fields(gaussians, GridSpec.cube(-1, 1, 8))


def test_coefficients_check_their_shapes():
    good = torch.zeros(4, 3), torch.zeros(2, 3), torch.ones(2, 6)
    assert gaussian_3d_coeff(*good).shape == (4, 2)
    for index, named in enumerate(("points", "means", "factors")):
        bad = list(good)
        bad[index] = torch.zeros(4, 2)
        with pytest.raises(UserError, match=named):
            gaussian_3d_coeff(*bad)


def test_slabs_are_slices_of_the_whole_field(backend):
    gaussians, grid = seeded(300), GridSpec((-0.9, -1.0, -0.8), 0.07, (29, 25, 23))
    whole = extract_fields(gaussians, grid, backend)
    for start, stop in ((0, 2), (3, 20), (20, 29)):
        slab = extract_fields(gaussians, grid.slab(start, stop), backend)
        assert (slab - whole[start:stop]).abs().max() <= (2e-6 if backend in LOOPS else 0)
