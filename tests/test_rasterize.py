"""Rasterisers against each other, against formulas, and against what must not change the picture."""

import logging
import math

import numpy as np
import pytest
import torch
from numba import njit

import scenes
from cameras import Cameras, orbit_cameras
from gaussians import SH_C0, Gaussians
from rasterize import RASTERIZERS, reference
from rasterize.cpu_tiles import exp2_negative
from rasterize.definition import ALPHA_MAX, ALPHA_MIN, EPS2D, TRANSMITTANCE_MIN, Rendered
from rasterize.projection import project, sh_basis

logger = logging.getLogger(__name__)
CUDA = pytest.param("cuda", marks=pytest.mark.gpu)
WHITE = torch.ones(1, 3)


@pytest.fixture(params=["reference", "cpu", CUDA])
def backend(request):
    """Name of a rasteriser; that of the GPU is skipped without one."""
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    return request.param


@pytest.fixture(params=["cpu", CUDA])
def fast_backend(request):
    """Name of a rasteriser that has to match the reference."""
    if request.param == "cuda":
        request.getfixturevalue("cuda")
    return request.param


def device_of(backend):
    return torch.device("cuda" if backend == "cuda" else "cpu")


def opaque(n, generator, sh_degree=0):
    """A shell of large, nearly opaque Gaussians: reaches ALPHA_MAX and ends pixels early."""
    gaussians = scenes.shell(n, generator, sh_degree)
    gaussians.log_scales = gaussians.log_scales + math.log(4)
    gaussians.logit_opacities = gaussians.logit_opacities * 3 + 5
    return gaussians


def needles(n, generator, sh_degree=0):
    """Gaussians from 1e-6 to 10 long, with quaternions of any length; some behind the camera."""
    gaussians = scenes.mixed(n, generator, sh_degree)
    exponents = torch.randint(0, 8, gaussians.log_scales.shape, generator=generator)
    gaussians.log_scales = (10.0 ** (exponents - 6)).log()
    gaussians.means = gaussians.means * 4
    gaussians.quats = gaussians.quats * 10.0 ** torch.randint(-3, 4, (n, 1), generator=generator)
    return gaussians


def one(mean=(0.0, 0.0, 0.0), sigma=0.05, opacity=0.8, rgb=(0.2, 0.5, 0.9)) -> Gaussians:
    make = torch.tensor
    return Gaussians.create(make([mean]), torch.full((1, 3), sigma), make([opacity]), make([rgb]))


def draw(gaussians, cameras, backend="cpu", background=WHITE):
    """What a rasteriser makes of Gaussians on the CPU, on the CPU; `means2d` stays where it was made."""
    device, dtype = device_of(backend), gaussians.means.dtype
    backgrounds = background.to(device, dtype).expand(len(cameras), 3)
    rendered = RASTERIZERS[backend](gaussians.to(device), cameras.to(device, dtype), backgrounds)
    images = rendered.rgb.cpu(), rendered.alpha.cpu(), rendered.depth.cpu()
    return Rendered(*images, rendered.means2d, rendered.radii.cpu())


def draw_with_gradients(gaussians, cameras, backend, mask=1.0, background=WHITE):
    """Images, and gradients of a fixed random weighting of all of them where mask [C, H, W] is 1."""
    gaussians = gaussians.map(lambda t: t.detach().clone().requires_grad_())
    rendered = draw(gaussians, cameras, backend, background)
    rendered.means2d.retain_grad()
    generator = torch.Generator().manual_seed(1)
    images = {"rgb": rendered.rgb, "alpha": rendered.alpha[..., None], "depth": rendered.depth[..., None]}
    mask = torch.as_tensor(mask)[..., None] if isinstance(mask, torch.Tensor) else mask
    weights = [torch.randn(image.shape, generator=generator) * mask for image in images.values()]
    sum((image * w).sum() for image, w in zip(images.values(), weights, strict=True)).backward()
    gradients = {name: value.grad for name, value in gaussians.tensors().items()}
    return rendered, gradients | {"means2d": rendered.means2d.grad.cpu()}


def near_threshold(gaussians, cameras, band):
    """Pixels [C, H, W] where some alpha or transmittance lies within a relative `band` of a threshold, in float64."""
    seen = project(gaussians.double(), cameras.to(torch.float64))
    y, x = torch.meshgrid(torch.arange(cameras.height) + 0.5, torch.arange(cameras.width) + 0.5, indexing="ij")
    masks = []
    for c in range(len(cameras)):
        order = torch.argsort(seen.depths[c].float(), stable=True)
        order = order[seen.radii[c, order] > 0]
        dx, dy = (torch.stack([x, y], dim=-1)[:, :, None] - seen.means2d[c, order]).unbind(-1)
        xx, slope, yy = seen.conics[c, order].unbind(-1)
        alphas = seen.opacities[order] * torch.exp(-0.5 * (xx * (dx + slope * dy).square() + yy * dy.square()))
        near = ((alphas / ALPHA_MIN - 1).abs() < band) | ((alphas / ALPHA_MAX - 1).abs() < band)
        drawn = alphas.where(alphas >= ALPHA_MIN, 0 * alphas).clamp_max(ALPHA_MAX)
        # A transmittance sums the errors of everything in front: hence a wider band.
        near |= (torch.cumprod(1 - drawn, dim=-1) / TRANSMITTANCE_MIN - 1).abs() < 30 * band
        masks.append(near.any(dim=-1))
    return torch.stack(masks)


def largest_relative_error(value, exact, floor=1e-2):
    """Largest error an element, relative to the element or to `floor` of the largest one."""
    if exact.numel() == 0:
        return 0.0
    largest = exact.abs().max().clamp_min(1e-30)
    return ((value - exact).abs() / exact.abs().clamp_min(floor * largest)).max().item()


@pytest.mark.parametrize(
    ("scene", "n", "sh_degree", "views", "size"),
    [
        (scenes.shell, 300, 3, 3, (53, 37)),
        (scenes.ball, 300, 1, 1, (37, 53)),
        (scenes.mixed, 300, 2, 3, (48, 32)),
        (opaque, 700, 0, 2, (40, 41)),
        (needles, 120, 1, 3, (33, 17)),
        (scenes.mixed, 60, 1, 2, (100, 90)),
        (scenes.shell, 1, 3, 2, (20, 9)),
        (scenes.shell, 0, 2, 2, (17, 16)),
    ],
)
def test_fast_rasterisers_agree_with_the_reference_in_float64(fast_backend, scene, n, sh_degree, views, size):
    gaussians = scene(n, torch.Generator().manual_seed(0), sh_degree)
    cameras = orbit_cameras([10.0, 130.0, 255.0][:views], [5.0, 35.0, -50.0][:views], width=size[0], height=size[1])
    background = torch.tensor([[1.0, 0.5, 0.0]])
    band = near_threshold(gaussians, cameras, 3e-5)
    assert band.float().mean() < 0.02  # measured: at most 0.55 % (opaque)
    mask = (~band).double()
    fast, fast_gradients = draw_with_gradients(gaussians, cameras, fast_backend, mask, background)
    exact, exact_gradients = draw_with_gradients(gaussians.double(), cameras, "reference", mask, background)

    errors = {}
    for name in ("rgb", "alpha", "depth"):
        inside = mask if name != "rgb" else mask[..., None]
        errors[name] = largest_relative_error(getattr(fast, name) * inside, getattr(exact, name) * inside)
    for name, gradient in exact_gradients.items():
        errors[f"gradient of {name}"] = largest_relative_error(fast_gradients[name], gradient)
    logger.info("largest relative errors, %s, %s, N = %d: %s", fast_backend, scene.__name__, n, errors)
    # Measured: images at most 9.3e-6, from positions rounded to float32; gradients 1.7e-4, where terms cancel.
    assert max(errors[name] for name in ("rgb", "alpha", "depth")) < 3e-5, errors
    assert max(errors.values()) < 6e-4, errors
    assert torch.equal(fast.radii > 0, exact.radii > 0)
    assert (fast.radii - exact.radii).abs().max() <= 1 if n else True  # rounded up from values that rounding may lift
    if scene is opaque:
        assert fast.alpha.max() > 1 - 2 * TRANSMITTANCE_MIN  # pixels did end early


def test_reference_gradients_are_those_of_finite_differences():
    generator = torch.Generator().manual_seed(3)
    gaussians = scenes.mixed(3, generator, sh_degree=3).double()
    gaussians.sh0 = gaussians.sh0 * 0.2  # away from the kink at black
    gaussians.logit_opacities = gaussians.logit_opacities * 0.5
    cameras = orbit_cameras([0.0, 100.0], [10.0, -30.0], width=5, height=4, dtype=torch.float64)

    def render(*parameters):
        background = torch.full((2, 3), 0.7, dtype=torch.float64)
        rendered = reference.rasterize(Gaussians(*parameters), cameras, background, cutoffs=False)
        return rendered.rgb, rendered.alpha, rendered.depth, rendered.means2d

    assert torch.autograd.gradcheck(render, [t.requires_grad_() for t in gaussians.tensors().values()])


def test_exp2_is_exact_to_float32():
    @njit
    def apply(x, out):
        for i in range(len(x)):
            out[i] = exp2_negative(x[i])

    x = -np.concatenate([np.linspace(0, 63, 100_001), np.arange(0, 63, 0.5)]).astype(np.float32)
    out = np.empty_like(x)
    apply(x, out)
    assert np.abs(out / np.exp2(x.astype(np.float64)) - 1).max() < 2.5e-7  # measured 2.1e-7; a unit is 1.2e-7
    apply(np.float32([-1e9, -np.inf]), out[:2])
    assert (out[:2] < 1e-18).all() and (out[:2] >= 0).all()


def test_one_gaussian_follows_the_formula(backend):
    camera = orbit_cameras(0.0, 0.0, width=33, height=33)  # the axis meets the centre of pixel (16, 16)
    rendered = draw(one(sigma=0.05, opacity=0.8), camera, backend)
    variance = (camera.Ks[0, 0, 0].item() / 2.0 * 0.05) ** 2 + EPS2D
    for dx, dy in [(0, 0), (1, 0), (0, 2), (-2, 1)]:
        alpha = 0.8 * math.exp(-0.5 * (dx * dx + dy * dy) / variance)
        at = (0, 16 + dy, 16 + dx)
        assert rendered.alpha[at].item() == pytest.approx(alpha, rel=1e-5)
        assert rendered.depth[at].item() == pytest.approx(alpha * 2.0, rel=1e-5)
        expected = [alpha * c + (1 - alpha) for c in (0.2, 0.5, 0.9)]
        assert rendered.rgb[at].tolist() == pytest.approx(expected, rel=1e-5)
    assert rendered.means2d[0, 0].tolist() == pytest.approx([16.5, 16.5], abs=1e-4)
    assert rendered.radii.tolist() == [[math.ceil(math.sqrt(2 * math.log(0.8 * 255) * variance))]]
    # Beyond the cut-off nothing at all: the background, bit for bit.
    assert rendered.alpha[0, 0, 0] == 0 and torch.equal(rendered.rgb[0, 0, 0], torch.ones(3))


def test_nearer_gaussian_covers_the_farther_one(backend):
    near, far = one((0, 0, 0.5), opacity=0.6, rgb=(1, 0, 0)), one((0, 0, -0.5), opacity=0.5, rgb=(0, 1, 0))
    both = Gaussians(**{k: torch.cat([v, near.tensors()[k]]) for k, v in far.tensors().items()})
    camera = orbit_cameras(0.0, 0.0, width=9, height=9)
    rendered = draw(both, camera, backend, torch.tensor([[0.0, 0.0, 1.0]]))
    assert rendered.rgb[0, 4, 4].tolist() == pytest.approx([0.6, 0.4 * 0.5, 0.4 * 0.5], abs=1e-5)
    assert rendered.depth[0, 4, 4].item() == pytest.approx(0.6 * 1.5 + 0.4 * 0.5 * 2.5, rel=1e-5)


def test_axes_appear_where_the_conventions_say(backend):
    def centre(mean, azimuth_deg):
        """Column and row of the centre of mass, from the middle of the image."""
        alpha = draw(one(mean), orbit_cameras(azimuth_deg, 0.0, width=32, height=32), backend).alpha[0]
        offsets = torch.arange(32) - 15.5
        return [(alpha.sum(0) @ offsets / alpha.sum()).item(), (alpha.sum(1) @ offsets / alpha.sum()).item()]

    assert centre((0.3, 0, 0), 0.0) == pytest.approx([0.3 * 17.51, 0], abs=0.1)  # focal 35.03 px at distance 2
    assert centre((0, 0.3, 0), 0.0) == pytest.approx([0, -0.3 * 17.51], abs=0.1)
    assert centre((0, 0, 0.3), 90.0) == pytest.approx([-0.3 * 17.51, 0], abs=0.1)  # seen from +x, front is left


def test_sh_basis_is_orthonormal():
    # Gauss-Legendre in z times even steps in azimuth: exact for the products of two harmonics of degree 3.
    z, weights = np.polynomial.legendre.leggauss(8)
    azimuth = np.arange(16) * (2 * math.pi / 16)
    z, azimuth = np.meshgrid(z, azimuth, indexing="ij")
    directions = np.stack([np.sqrt(1 - z * z) * np.cos(azimuth), np.sqrt(1 - z * z) * np.sin(azimuth), z], axis=-1)
    basis = sh_basis(torch.from_numpy(directions.reshape(-1, 3)), 16)
    weights = torch.from_numpy(np.repeat(weights, 16) * (2 * math.pi / 16))
    torch.testing.assert_close(basis.T * weights @ basis, torch.eye(16, dtype=torch.float64), atol=1e-12, rtol=0)


@pytest.mark.parametrize(
    ("coefficient", "azimuth_deg", "elevation_deg", "sign"),
    [(0, 0, 80, 1), (0, 0, -80, -1), (1, 0, 0, -1), (1, 180, 0, 1), (2, 90, 0, 1), (2, -90, 0, -1)],
)
def test_first_degree_harmonics_have_the_signs_of_ply_files(backend, coefficient, azimuth_deg, elevation_deg, sign):
    """-C1 y, +C1 z, -C1 x along the direction from the camera to the Gaussian, here towards the origin."""
    gaussians = one(rgb=(0.5, 0.5, 0.5), opacity=0.9)
    gaussians.shN = torch.zeros(1, 3, 3)
    gaussians.shN[0, coefficient] = 0.3
    camera = orbit_cameras(azimuth_deg, elevation_deg, width=9, height=9)
    rendered = draw(gaussians, camera, backend, torch.zeros(1, 3))
    shift = (rendered.rgb[0, 4, 4, 0] / rendered.alpha[0, 4, 4] - 0.5).item()
    size = math.sin(math.radians(80)) if elevation_deg else 1.0
    assert shift == pytest.approx(sign * 0.3 * 0.4886025 * size, rel=1e-3)


def test_negative_colours_are_black_and_get_no_gradient(backend):
    gaussians = one(rgb=(-1.0, 0.5, 0.5))
    camera = orbit_cameras(0.0, 0.0, width=9, height=9)
    rendered, gradients = draw_with_gradients(gaussians, camera, backend, background=torch.zeros(1, 3))
    assert rendered.rgb.min() == 0
    assert gradients["sh0"][0, 0, 0] == 0 and gradients["sh0"][0, 0, 1] != 0


def test_order_of_gaussians_does_not_matter(fast_backend, generator):
    gaussians = scenes.mixed(200, generator, 1)
    order = torch.randperm(200, generator=generator)
    cameras = orbit_cameras([0.0, 77.0], [0.0, 20.0], width=40, height=24)
    rendered, gradients = draw_with_gradients(gaussians, cameras, fast_backend)
    shuffled, shuffled_gradients = draw_with_gradients(gaussians[order], cameras, fast_backend)
    assert torch.equal(rendered.rgb, shuffled.rgb) and torch.equal(rendered.depth, shuffled.depth)
    assert torch.equal(rendered.radii[:, order], shuffled.radii)
    gradients["means2d"] = gradients["means2d"].transpose(0, 1)
    shuffled_gradients["means2d"] = shuffled_gradients["means2d"].transpose(0, 1)
    for name, gradient in gradients.items():
        assert torch.equal(gradient[order], shuffled_gradients[name]), name


def test_equal_depths_are_drawn_by_index(backend):
    """Two Gaussians in one place: the first covers the second, in every backend."""
    first, second = one(rgb=(1, 0, 0), opacity=0.9), one(rgb=(0, 1, 0), opacity=0.9)
    both = Gaussians(**{k: torch.cat([v, second.tensors()[k]]) for k, v in first.tensors().items()})
    rendered = draw(both, orbit_cameras(30.0, 10.0, width=9, height=9), backend, torch.zeros(1, 3))
    assert rendered.rgb[0, 4, 4].tolist() == pytest.approx([0.9, 0.09, 0], abs=1e-5)


def test_quaternions_of_either_sign_and_any_length_mean_the_same(fast_backend, generator):
    gaussians = scenes.mixed(50, generator)
    cameras = orbit_cameras([20.0], [20.0], width=40, height=24)
    rgb = draw(gaussians, cameras, fast_backend).rgb
    gaussians.quats = -gaussians.quats
    assert torch.equal(draw(gaussians, cameras, fast_backend).rgb, rgb)
    gaussians.quats = gaussians.quats * 4  # a power of two is exact
    assert torch.equal(draw(gaussians, cameras, fast_backend).rgb, rgb)


def test_results_are_equal_bit_for_bit_for_any_number_of_threads(generator):
    gaussians = scenes.shell(2000, generator, 1)
    cameras = orbit_cameras([0.0, 120.0, 240.0], [0.0, 20.0, -20.0], width=64, height=48)
    threads = torch.get_num_threads()
    try:
        results = []
        for count in (1, 2, 5, 2):
            torch.set_num_threads(count)
            rendered, gradients = draw_with_gradients(gaussians, cameras, "cpu")
            results.append([rendered.rgb, rendered.alpha, rendered.depth, rendered.radii, *gradients.values()])
    finally:
        torch.set_num_threads(threads)
    for other in results[1:]:
        assert all(torch.equal(a, b) for a, b in zip(results[0], other, strict=True))


def test_batch_of_cameras_draws_what_each_draws_alone(fast_backend, generator):
    gaussians = scenes.shell(300, generator, 2)
    cameras = orbit_cameras([0.0, 120.0, 240.0], [0.0, 20.0, -20.0], width=35, height=30)
    backgrounds = torch.rand(3, 3, generator=generator)
    together = draw(gaussians, cameras, fast_backend, backgrounds)
    for c in range(3):
        alone = draw(gaussians, cameras[c], fast_backend, backgrounds[c : c + 1])
        for name in ("rgb", "alpha", "depth", "means2d", "radii"):
            assert torch.equal(getattr(together, name)[c], getattr(alone, name)[0]), name


def test_picture_does_not_depend_on_where_tiles_lie(fast_backend, generator):
    """A window cut out of the camera's image shows what the whole image shows there."""
    gaussians = scenes.ball(300, generator)  # all of it within both fields of view, so that no slope is clamped
    camera = orbit_cameras([40.0], [10.0], width=64, height=48)
    intrinsics = camera.Ks.clone()
    intrinsics[:, :2, 2] -= torch.tensor([7.0, 5.0])
    whole = draw(gaussians, camera, fast_backend)
    part = draw(gaussians, Cameras(camera.viewmats, intrinsics, 57, 43), fast_backend)
    assert whole.alpha.max() > 0.3
    # Measured: 3e-7, from positions rounded to float32.
    torch.testing.assert_close(part.rgb, whole.rgb[:, 5:, 7:], atol=2e-6, rtol=0)


def test_invisible_gaussians_have_radius_zero_and_no_gradient(backend, generator):
    """Beside the image, behind the camera, at its centre, too faint, not finite: as if they were not there."""
    good = scenes.shell(50, generator, 1)
    camera = orbit_cameras([0.0], [0.0], width=24, height=24)
    bad = scenes.shell(12, generator, 1)
    bad.means[0] = torch.tensor([50.0, 0.0, 0.0])
    bad.means[1] = torch.tensor([0.0, 0.0, 5.0])
    bad.means[2] = torch.tensor([0.0, 0.0, 2.0])
    bad.logit_opacities[3] = -6.0
    bad.means[4, 1] = math.nan
    bad.quats[5, 2] = math.nan
    bad.log_scales[6, 0] = math.inf
    bad.log_scales[7, 0] = 200.0
    bad.logit_opacities[8] = math.nan
    bad.sh0[9, 0, 1] = math.nan
    bad.shN[10, 2, 0] = math.inf
    bad.means[11] = 1e30
    mixed = Gaussians(**{k: torch.cat([v, good.tensors()[k]]) for k, v in bad.tensors().items()})
    alone = draw(good, camera, backend)
    rendered, gradients = draw_with_gradients(mixed, camera, backend)
    torch.testing.assert_close(rendered.rgb, alone.rgb, atol=1e-6, rtol=0)  # torch's products round by their size
    assert (rendered.radii[0, :12] == 0).all() and torch.equal(rendered.radii[:, 12:], alone.radii)
    gradients["means2d"] = gradients["means2d"][0]
    for name, gradient in gradients.items():
        assert (gradient[:12] == 0).all(), (backend, name)
        assert gradient.isfinite().all(), (backend, name)


@pytest.mark.parametrize("sigma", [1e-6, 1e-3, 1.0, 10.0])
def test_extreme_sizes_and_zero_quaternions_stay_finite(backend, sigma):
    gaussians = one(sigma=sigma)
    flat = one((0.1, 0.1, 0.0), sigma=sigma)
    flat.log_scales[0, 0] = math.log(1e-6)
    gaussians = Gaussians(**{k: torch.cat([v, flat.tensors()[k]]) for k, v in gaussians.tensors().items()})
    gaussians.quats[0] = 0.0
    camera = orbit_cameras([0.0], [0.0], width=33, height=33)
    rendered, gradients = draw_with_gradients(gaussians, camera, backend)
    for image in (rendered.rgb, rendered.alpha, rendered.depth, *gradients.values()):
        assert image.isfinite().all()
    assert (gradients["quats"][0] == 0).all()
    # The thinnest is as wide as the smallest that pixels can show; the widest covers the picture.
    assert rendered.alpha[0, 16, 16] > 0.7
    assert (rendered.alpha[0, 0, 0] == 0) == (sigma < 0.1)


def test_float64_is_accepted_and_gives_float64_back(fast_backend, generator):
    gaussians = scenes.shell(20, generator, 1)
    cameras = orbit_cameras([0.0], [0.0], width=16, height=16)
    single, single_gradients = draw_with_gradients(gaussians, cameras, fast_backend)
    double, double_gradients = draw_with_gradients(gaussians.double(), cameras, fast_backend)
    assert double.rgb.dtype == double.alpha.dtype == double_gradients["means"].dtype == torch.float64
    torch.testing.assert_close(double.rgb.float(), single.rgb)
    torch.testing.assert_close(double_gradients["means"].float(), single_gradients["means"])


def test_strided_parameters_and_one_image_loss(fast_backend, generator):
    """Parameters that are views, and a loss that uses one of the outputs, as optimisers have them."""
    device, rasterize = device_of(fast_backend), RASTERIZERS[fast_backend]
    gaussians = scenes.shell(30, generator).to(device)
    packed = torch.cat([gaussians.means, gaussians.quats], dim=1).requires_grad_()
    strided = Gaussians(**gaussians.tensors() | {"means": packed[:, :3], "quats": packed[:, 3:]})
    cameras = orbit_cameras([0.0], [0.0], width=16, height=16).to(device)
    rasterize(strided, cameras, WHITE.to(device)).alpha.sum().backward()
    expected = gaussians.map(lambda t: t.clone().requires_grad_())
    rasterize(expected, cameras, WHITE.to(device)).alpha.sum().backward()
    assert torch.equal(packed.grad, torch.cat([expected.means.grad, expected.quats.grad], dim=1))


def test_colour_of_an_opaque_gaussian_is_its_rgb():
    gaussians = one(opacity=1 - 1e-6, sigma=0.3, rgb=(0.25, 0.5, 0.75))
    rendered = draw(gaussians, orbit_cameras([0.0], [0.0], width=9, height=9))
    assert rendered.rgb[0, 4, 4].tolist() == pytest.approx([0.25, 0.5, 0.75], abs=1e-3)  # ALPHA_MAX = 0.999
    assert gaussians.rgb[0].tolist() == pytest.approx([0.25, 0.5, 0.75])
    assert rendered.alpha.max().item() == pytest.approx(ALPHA_MAX, abs=1e-6)
    assert SH_C0 == pytest.approx(0.5 / math.sqrt(math.pi))
