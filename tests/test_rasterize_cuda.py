"""What is the CUDA rasteriser's own: room for entries, long lists, streams, graphs, messages.

What it has in common with the others, tests/test_rasterize.py asks of it too.
"""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import gs_renderer
import scenes
from cameras import orbit_cameras
from cuda_ext import load_module
from errors import BackendUnavailable, UserError
from gaussians import Gaussians
from gs_renderer import render
from rasterize import RASTERIZERS, cuda, cuda_buffers


def device_of(backend):
    return torch.device("cuda" if backend == "cuda" else "cpu")


@pytest.fixture
def device(cuda):
    return device_of("cuda")


def draw(gaussians, cameras, device, background=(1.0, 1.0, 1.0)):
    """Images, radii and gradients of a fixed random weighting of all images."""
    gaussians = gaussians.map(lambda t: t.detach().to(device).requires_grad_())
    cameras = cameras.to(device)
    rendered = cuda.rasterize(gaussians, cameras, torch.tensor([background], device=device).expand(len(cameras), 3))
    rendered.means2d.retain_grad()
    weighted_sum(rendered).backward()
    results = {"rgb": rendered.rgb, "alpha": rendered.alpha, "depth": rendered.depth, "radii": rendered.radii}
    results |= {f"gradient of {name}": value.grad for name, value in gaussians.tensors().items()}
    results["gradient of means2d"] = rendered.means2d.grad
    return {name: value.detach().cpu() for name, value in results.items()}


def weighted_sum(rendered):
    generator = torch.Generator().manual_seed(1)
    images = rendered.rgb, rendered.alpha, rendered.depth
    return sum((image * torch.randn(image.shape, generator=generator).to(image)).sum() for image in images)


def assert_same_bits(results, expected):
    for name, value in expected.items():
        assert torch.equal(results[name], value), name


@pytest.fixture
def scene(generator):
    return scenes.shell(400, generator, 1), orbit_cameras([0.0, 120.0], [0.0, 20.0], width=40, height=24)


def test_gaussians_on_the_cpu_are_refused_in_one_line(scene):
    with pytest.raises(
        BackendUnavailable, match=r"^backend='cuda' draws Gaussians that are on a CUDA device, got .*cpu$"
    ):
        render(*scene, backend="cuda")


def test_auto_takes_kernels_where_they_run(monkeypatch, caplog):
    gpu = torch.device("cuda", 0)
    for missing, expected in [(None, "cuda"), ("no compiler", "reference")]:
        gs_renderer._fastest.cache_clear()
        monkeypatch.setattr(gs_renderer, "why_unavailable", lambda device, missing=missing: missing)
        assert gs_renderer._fastest(gpu) == expected
    assert "no compiler" in caplog.text
    gs_renderer._fastest.cache_clear()


def test_one_background_is_not_copied_for_every_image():
    colours = torch.rand(3)
    base, stride = cuda._background(colours.expand(5, 3))
    assert stride == 0 and base.data_ptr() == colours.data_ptr()
    base, stride = cuda._background(torch.rand(3, 5).T)
    assert stride == 3 and base.is_contiguous()


def test_out_of_memory_is_one_line(monkeypatch, scene):
    def fail(*arguments):
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate ...\nmore")

    monkeypatch.setattr(cuda, "make_buffers", fail)
    with pytest.raises(UserError, match=r"^the GPU has no memory left to render 2 images of 400 Gaussians: [^\n]*$"):
        RASTERIZERS["cuda"](*scene, torch.ones(2, 3))


def test_room_fixed_for_a_recording_is_that_of_its_thread_alone(monkeypatch):
    monkeypatch.setattr(cuda_buffers, "_modules", lambda *arguments: [None] * 3)
    cpu = torch.device("cpu")

    def buffers():
        return cuda_buffers.make_buffers(cpu, 1, 10, 16, 16, 1)

    with cuda_buffers.fixed_capacity(cpu, 5 * cuda_buffers._STEP), ThreadPoolExecutor(1) as other:
        here, there = buffers(), other.submit(buffers).result()
    assert here.waiter.keeps_largest and here.capacity == 5 * cuda_buffers._STEP
    assert not there.waiter.keeps_largest and there.capacity == cuda_buffers._STEP
    assert cuda_buffers.wait_for_entries(here) and here.entries is None  # nobody waits, inside or later
    assert not buffers().waiter.keeps_largest


@pytest.mark.gpu
def test_results_are_equal_bit_for_bit_from_run_to_run(device):
    gaussians = scenes.shell(1500, torch.Generator().manual_seed(0), 1)
    cameras = orbit_cameras([0.0, 120.0, 240.0], [0.0, 20.0, -20.0], width=64, height=48)
    expected = draw(gaussians, cameras, device)
    for _ in range(3):
        assert_same_bits(draw(gaussians, cameras, device), expected)


@pytest.mark.gpu
def test_missing_room_for_entries_changes_nothing(device, scene, monkeypatch):
    expected = draw(*scene, device)
    monkeypatch.setattr(cuda_buffers, "_STEP", 64)
    monkeypatch.setattr(cuda_buffers, "_GUESS", 1e-3)
    monkeypatch.setattr(cuda_buffers, "_entries_of", {})
    assert_same_bits(draw(*scene, device), expected)
    (entries,) = cuda_buffers._entries_of.values()
    assert entries * 800 > 640  # there was room for 64
    assert_same_bits(draw(*scene, device), expected)


@pytest.mark.gpu
def test_lists_of_any_length_are_sorted(device):
    """A block sorts 4096 keys in shared memory; longer lists are merged through global memory."""
    lengths = torch.tensor([0, 1, 2, 3, 63, 64, 65, 1000, 4095, 4096, 4097, 0, 8192, 8193, 13000])
    begins = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    keys = torch.randint(0, 2**62, (int(begins[-1]),), generator=torch.Generator().manual_seed(0))
    expected = torch.cat([part.sort()[0] for part in keys.split(lengths.tolist())])
    module = load_module("rasterize_bins", device, **cuda_buffers.constants()["rasterize_bins"])
    keys = keys.to(device)
    module.launch("sort_tiles", len(lengths), 256, begins.to(device, torch.int32), len(keys), keys)
    assert torch.equal(keys.cpu(), expected)


@pytest.mark.gpu
def test_a_picture_of_one_tile_with_thousands_of_gaussians(device):
    n, generator = 5000, torch.Generator().manual_seed(0)
    gaussians = scenes.ball(n, generator)
    gaussians.means[::7, 2] = 0.25  # many equal depths
    gaussians.logit_opacities = torch.full((n,), math.log(0.005 / 0.995))
    gaussians.log_scales = torch.full((n, 3), math.log(0.5))
    cameras = orbit_cameras([0.0], [0.0], width=8, height=8)
    results = draw(gaussians, cameras, device)
    exact = RASTERIZERS["reference"](gaussians.double(), cameras.to(torch.float64), torch.ones(1, 3).double())
    # Measured on the CPU: 9e-7 and 2e-6. Neighbours in front that change places change a pixel by up to 2.5e-5.
    torch.testing.assert_close(results["rgb"].double(), exact.rgb, atol=4e-6, rtol=0)
    torch.testing.assert_close(results["depth"].double(), exact.depth, atol=1e-5, rtol=0)


@pytest.mark.gpu
def test_no_camera_and_no_gaussian(device, scene):
    gaussians, cameras = scene
    assert draw(gaussians, cameras[[]], device)["rgb"].shape == (0, 24, 40, 3)
    results = draw(gaussians[:0], cameras, device, (0.25, 0.5, 0.75))
    assert torch.equal(results["rgb"], torch.tensor([0.25, 0.5, 0.75]).expand(2, 24, 40, 3))
    aside = Gaussians(**gaussians.tensors() | {"means": gaussians.means + 50})
    results = draw(aside, cameras, device)
    assert (results["rgb"] == 1).all() and (results["radii"] == 0).all() and (results["gradient of means"] == 0).all()


@pytest.mark.gpu
def test_three_million_gaussians(device, scene):
    """The last 400 of them are those in view: what lies behind the camera costs nothing and changes no bit."""
    few, cameras = scene
    cameras = cameras[[0]]
    behind = {name: value[:1].expand(2_999_600, *value.shape[1:]) for name, value in few.tensors().items()}
    behind["means"] = torch.tensor([[0.0, 0.0, 9.0]]).expand(2_999_600, 3)
    many = {name: torch.cat([behind[name], value]) for name, value in few.tensors().items()}
    results, expected = draw(Gaussians(**many), cameras, device), draw(few, cameras, device)
    for name, value in expected.items():
        found = results[name]
        if name == "radii" or name.startswith("gradient"):
            axis = 1 if name in ("radii", "gradient of means2d") else 0
            others, found = found.split([2_999_600, 400], dim=axis)
            assert not others.any(), name
        assert torch.equal(found, value), name


@pytest.mark.gpu
def test_half_is_computed_in_float32(device, scene):
    gaussians, cameras = scene
    halves = gaussians.to(device, torch.float16)
    rendered = render(halves, cameras.to(device), backend="cuda")
    expected = render(halves.to(torch.float32), cameras.to(device), backend="cuda")
    assert rendered.rgb.dtype == rendered.depth.dtype == torch.float16
    assert torch.equal(rendered.rgb, expected.rgb.half()) and torch.equal(rendered.means2d, expected.means2d)


@pytest.mark.gpu
def test_losses_of_single_outputs_and_of_positions(device, scene):
    gaussians, cameras = scene
    gaussians = gaussians.map(lambda t: t.detach().to(device).requires_grad_())

    def gradients(loss_of):
        rendered = cuda.rasterize(gaussians, cameras.to(device), torch.ones(2, 3, device=device))
        return torch.autograd.grad(loss_of(rendered), [gaussians.means, gaussians.sh0], allow_unused=True)

    alone = gradients(lambda r: r.alpha.square().sum())
    everything = gradients(lambda r: r.alpha.square().sum() + 0 * r.rgb.sum() + 0 * r.depth.sum())
    assert torch.equal(alone[0], everything[0]) and (alone[1] == 0).all()
    # Positions alone: d m' / d t = focal / z for a Gaussian on the axis.
    means, _ = gradients(lambda r: r.means2d[0, :, 0].sum())
    rendered = cuda.rasterize(gaussians, cameras.to(device), torch.ones(2, 3, device=device))
    x, _, z = (cameras.viewmats[0, :3, :3] @ gaussians.means.detach().cpu().T + cameras.viewmats[0, :3, 3:]).unbind(0)
    axes, focal = cameras.viewmats[0, :3, :3], cameras.Ks[0, 0, 0]
    expected = focal * (axes[0] / z[:, None] - axes[2] * (x / z**2)[:, None])
    expected = expected.where(rendered.radii[0].cpu()[:, None] > 0, 0.0)
    torch.testing.assert_close(means.cpu(), expected, rtol=1e-5, atol=1e-4)
    both = gradients(lambda r: r.alpha.square().sum() + r.means2d[0, :, 0].sum())
    torch.testing.assert_close(both[0], alone[0] + means, rtol=1e-5, atol=1e-4)


@pytest.mark.gpu
def test_a_second_backward_pass_finds_all_it_needs(device, scene):
    gaussians, cameras = scene
    means = gaussians.means.to(device).requires_grad_()
    gaussians = Gaussians(**gaussians.to(device).tensors() | {"means": means})
    loss = weighted_sum(cuda.rasterize(gaussians, cameras.to(device), torch.ones(2, 3, device=device)))
    first, second = (torch.autograd.grad(loss, means, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)


@pytest.mark.gpu
def test_another_stream_draws_the_same(cuda, scene):
    expected = draw(*scene, cuda)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        results = draw(*scene, cuda)
    assert_same_bits(results, expected)


@pytest.mark.gpu
def test_a_gpu_that_is_not_the_current_one(cuda, other_gpu, scene):
    assert_same_bits(draw(*scene, other_gpu), draw(*scene, cuda))


@pytest.mark.gpu
def test_a_graphed_step_replays_what_the_step_does(cuda, scene):
    from rasterize.cuda_graph import GraphedStep

    gaussians = scene[0].map(lambda t: t.detach().to(cuda).requires_grad_())
    cameras = scene[1].to(cuda)
    target = torch.full((2, 24, 40, 3), 0.5, device=cuda)

    def loss_of(rendered):
        return (rendered.rgb - target).square().mean() + 0.1 * rendered.alpha.mean()

    step = GraphedStep(gaussians, cameras, loss_of)
    # Of another kind, and in the last round so large that they need more room than was made.
    for shift, growth in [(0.0, 0.0), (0.05, 0.1), (0.0, 3.0)]:
        with torch.no_grad():
            gaussians.means += shift
            gaussians.log_scales += growth
        loss = step.replay().clone()
        replayed = {name: value.grad.clone() for name, value in gaussians.tensors().items()}
        parameters = gaussians.map(lambda t: t.detach().clone().requires_grad_())
        expected = loss_of(render(parameters, cameras, backend="cuda"))
        expected.backward()
        assert torch.equal(loss, expected)
        for name, value in parameters.tensors().items():
            assert torch.equal(replayed[name], value.grad), name
        for value in gaussians.tensors().values():
            value.grad = None


@pytest.mark.gpu
def test_a_graphed_step_makes_more_room(cuda, scene, monkeypatch):
    from rasterize.cuda_graph import GraphedStep

    monkeypatch.setattr(cuda_buffers, "_STEP", 64)
    gaussians = scene[0].map(lambda t: t.detach().to(cuda).requires_grad_())
    step = GraphedStep(gaussians, scene[1].to(cuda), lambda rendered: rendered.rgb.square().sum())
    step.replay(check=False)
    assert step.had_room()
    with torch.no_grad():
        gaussians.log_scales += 2.0
    step.replay(check=False)
    assert not step.had_room()
    loss = step.replay()
    assert step.had_room()
    assert torch.equal(loss, render(gaussians, scene[1].to(cuda), backend="cuda").rgb.square().sum())
