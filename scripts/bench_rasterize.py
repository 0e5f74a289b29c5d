"""Time the rasterisers: forward, and forward + backward through autograd, all cameras in one call.

    python scripts/bench_rasterize.py
    python scripts/bench_rasterize.py --sizes 128 256 --counts 5000 20000 --json outputs/bench_rasterize.json
    python scripts/bench_rasterize.py --backends cuda cuda-graph --peer gsplat --views 7 --sizes 128 256 \
        --counts 5000 20000 40000

`cuda-graph` is `cuda` recorded as a CUDA graph and replayed. A backend whose images or gradients differ from the
float64 reference is not timed.
"""

import argparse
import functools
import json
import statistics
import sys
import time
from collections.abc import Callable
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime_env import prepare_environment

prepare_environment()

import torch  # noqa: E402  (the environment comes first)
from torch import Tensor  # noqa: E402

import scenes  # noqa: E402
from cameras import Cameras, orbit_cameras  # noqa: E402
from comparison.machine import describe_machine, one_line  # noqa: E402
from gaussians import Gaussians  # noqa: E402
from gs_renderer import render  # noqa: E402
from rasterize import RASTERIZERS, cuda_buffers  # noqa: E402

SCENES = {"shell": scenes.shell, "ball": scenes.ball, "mixed": scenes.mixed}
GRAPH = "cuda-graph"
LARGEST_ERROR = 1e-4  # of an image or gradient against float64, relative to its largest element; measured: 5e-6
# Other projects cut Gaussians off elsewhere: the check is to see that they draw the same scene.
LARGEST_PEER_ERROR = 0.1


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--backends", nargs="+", default=None, help="names in RASTERIZERS, cuda-graph; default: all fast"
    )
    parser.add_argument("--peer", nargs="*", default=[], choices=["gsplat"], help="installed projects to compare with")
    parser.add_argument("--scenes", nargs="+", default=["shell", "ball"], choices=SCENES)
    parser.add_argument("--counts", nargs="+", type=int, default=[5000], help="Gaussians")
    parser.add_argument("--sizes", nargs="+", type=int, default=[128], help="image sides in pixels")
    parser.add_argument("--views", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--pixels-a-lane", type=int, default=None, choices=[1, 2, 4], help="of the CUDA kernels")
    parser.add_argument("--kernels", action="store_true", help="show the time of each CUDA kernel too")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file too")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    if arguments.pixels_a_lane:
        cuda_buffers.PIXELS_A_LANE = arguments.pixels_a_lane
    gpu = ["cuda", GRAPH] if torch.cuda.is_available() else []
    backends = arguments.backends or ([name for name in RASTERIZERS if name not in ("reference", "cuda")] + gpu)
    backends = [*backends, *arguments.peer]
    machine = describe_machine() | {"pixels a lane": cuda_buffers.PIXELS_A_LANE}
    print(f"machine: {one_line(machine)}, load {machine.get('load', 'unknown')}")  # above 0: shared, read the minima

    checks = {name: check(name) for name in backends}
    for name, errors in checks.items():
        print(f"largest errors of {name!r} against the float64 reference, relative to the largest element:")
        print("  " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items()))
    allowed = {name: LARGEST_PEER_ERROR if name in arguments.peer else LARGEST_ERROR for name in backends}
    wrong = [name for name, errors in checks.items() if not max(errors.values()) < allowed[name]]
    if wrong:
        print(f"not timed, since they are wrong: {', '.join(wrong)}", file=sys.stderr)
        return 1

    columns = "backend scene N views size forward_ms both_ms both_min_ms both_p90_ms processor_ms".split()
    print("  ".join(f"{column:>12}" for column in columns))
    rows = []
    for scene in arguments.scenes:
        for n in arguments.counts:
            for size in arguments.sizes:
                for backend in backends:
                    figures = measure(backend, scene, n, arguments.views, size, arguments.repeats)
                    row = dict(zip(columns, (backend, scene, n, arguments.views, size, *figures), strict=True))
                    print("  ".join(f"{v:>12.3f}" if isinstance(v, float) else f"{v:>12}" for v in row.values()))
                    rows.append(row)
    if arguments.kernels:
        for scene in arguments.scenes:
            show_kernels(scene, arguments.counts[-1], arguments.views, arguments.sizes[-1])
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"command": sys.argv, "machine": machine, "errors": checks, "rows": rows}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def orbit(views: int, size: int) -> Cameras:
    """Cameras all around, at changing heights."""
    azimuths = [360.0 * k / views for k in range(views)]
    return orbit_cameras(azimuths, [20.0 * (k % 3 - 1) for k in range(views)], width=size, height=size)


def device_of(backend: str) -> torch.device:
    return torch.device("cpu" if backend in ("cpu", "reference") else "cuda")


def draw(gaussians: Gaussians, cameras: Cameras, backend: str) -> tuple[Tensor, Tensor, Tensor]:
    """rgb [C, H, W, 3] over white, alpha and depth [C, H, W]."""
    if backend == "gsplat":
        return draw_with_gsplat(gaussians, cameras)
    rendered = render(gaussians, cameras, backend="cuda" if backend == GRAPH else backend)
    return rendered.rgb, rendered.alpha, rendered.depth


def draw_with_gsplat(gaussians: Gaussians, cameras: Cameras) -> tuple[Tensor, Tensor, Tensor]:
    """gsplat 1.5 in its batched mode: all cameras in one call."""
    from gsplat.rendering import rasterization

    colors = torch.cat([gaussians.sh0, gaussians.shN], dim=1)
    images, alphas, _ = rasterization(
        gaussians.means, gaussians.quats, gaussians.scales, gaussians.opacities, colors, cameras.viewmats, cameras.Ks,
        cameras.width, cameras.height, sh_degree=gaussians.sh_degree, packed=False, render_mode="RGB+D",
        backgrounds=_white(len(cameras), cameras.viewmats.device),
    )  # fmt: skip
    return images[..., :3], alphas[..., 0], images[..., 3]


@functools.cache
def _white(views: int, device: torch.device) -> Tensor:
    return torch.ones(views, 3, device=device)


def check(backend: str) -> dict[str, float]:
    """Largest errors of the images and of the gradients on a small scene, against the reference in float64."""
    gaussians, cameras = scenes.shell(300, torch.Generator().manual_seed(0), sh_degree=3), orbit(3, 40)
    exact = images_and_gradients(gaussians.double(), cameras.to(torch.float64), "reference")
    device = device_of(backend)
    fast = images_and_gradients(gaussians.to(device), cameras.to(device), backend)
    return {name: ((fast[name].cpu() - v).abs().max() / v.abs().max()).item() for name, v in exact.items()}


def images_and_gradients(gaussians: Gaussians, cameras: Cameras, backend: str) -> dict[str, Tensor]:
    step = Step(gaussians, cameras, backend)
    step.both()
    gradients = {f"d {name}": value.grad for name, value in step.gaussians.tensors().items()}
    return dict(zip(("rgb", "alpha", "depth"), step.images, strict=True)) | gradients


class Step:
    """Forward and backward pass of one scene, from fixed random gradients of the three images."""

    def __init__(self, gaussians: Gaussians, cameras: Cameras, backend: str) -> None:
        self.gaussians = gaussians.map(lambda t: t.detach().clone().requires_grad_())
        self.cameras, self.backend = cameras, backend
        generator = torch.Generator().manual_seed(0)
        shape = len(cameras), cameras.height, cameras.width
        self.gradients = [torch.randn(s, generator=generator).to(gaussians.means) for s in ((*shape, 3), shape, shape)]
        self.images: list[Tensor] = []
        self.both: Callable[[], None] = self._both
        if backend == GRAPH:
            self.both = self._graphed()

    def forward(self) -> None:
        with torch.no_grad():
            draw(self.gaussians, self.cameras, self.backend)

    def _both(self) -> None:
        for value in self.gaussians.tensors().values():
            value.grad = None
        images = draw(self.gaussians, self.cameras, self.backend)
        torch.autograd.backward(images, self.gradients)
        self.images = [image.detach() for image in images]

    def _graphed(self) -> Callable[[], None]:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for _ in range(3):
                self._both()
        torch.cuda.current_stream().wait_stream(side)
        device, width, height = self.cameras.viewmats.device, self.cameras.width, self.cameras.height
        entries = cuda_buffers.expected_entries(device, len(self.cameras), len(self.gaussians), width, height)
        graph = torch.cuda.CUDAGraph()
        with cuda_buffers.fixed_capacity(device, 1.2 * entries), torch.cuda.graph(graph):
            self._both()
        return graph.replay


def make_step(backend: str, scene: str, n: int, views: int, size: int) -> Step:
    device = device_of(backend)
    gaussians = SCENES[scene](n, torch.Generator().manual_seed(0)).to(device)
    return Step(gaussians, orbit(views, size).to(device), backend)


def measure(backend: str, scene: str, n: int, views: int, size: int, repeats: int) -> tuple[float, ...]:
    """Milliseconds: median forward; median, least and 90th percentile of forward + backward; processor time of that."""
    step = make_step(backend, scene, n, views, size)
    timed = timed_on_gpu if device_of(backend).type == "cuda" else timed_on_cpu
    forward_ms, _ = timed(step.forward, repeats)
    both_ms, processor_ms = timed(step.both, repeats)
    ordered = sorted(both_ms)
    p90_ms = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return statistics.median(forward_ms), statistics.median(both_ms), ordered[0], p90_ms, processor_ms


def timed_on_cpu(function: Callable[[], None], repeats: int) -> tuple[list[float], float]:
    """Wall milliseconds of every call after three to warm up, and the least processor milliseconds."""
    wall_ms, processor_ms = [], []
    for k in range(repeats + 3):
        processor_s, started_s = time.process_time(), time.perf_counter()
        function()
        if k >= 3:
            wall_ms.append(1e3 * (time.perf_counter() - started_s))
            processor_ms.append(1e3 * (time.process_time() - processor_s))
    return wall_ms, min(processor_ms)


def timed_on_gpu(function: Callable[[], None], repeats: int) -> tuple[list[float], float]:
    """As above by CUDA events, calls queued one after the other as a fit does; processor milliseconds on average."""
    for _ in range(10):
        function()
    torch.cuda.synchronize()
    events = [torch.cuda.Event(enable_timing=True) for _ in range(repeats + 1)]
    processor_s = time.process_time()
    events[0].record()
    for event in events[1:]:
        function()
        event.record()
    processor_ms = 1e3 * (time.process_time() - processor_s) / repeats
    torch.cuda.synchronize()
    return [a.elapsed_time(b) for a, b in zip(events, events[1:], strict=False)], processor_ms


def show_kernels(scene: str, n: int, views: int, size: int) -> None:
    """Print microseconds of each kernel of a forward and backward pass, from torch's profiler."""
    from torch.profiler import ProfilerActivity, profile

    step = make_step("cuda", scene, n, views, size)
    for _ in range(5):
        step.both()
    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        for _ in range(20):
            step.both()
        torch.cuda.synchronize()
    averages = sorted(profiler.key_averages(), key=lambda a: -a.device_time_total)
    print(f"kernels, {scene}, {n} Gaussians, {views} views of {size} pixels, microseconds a pass:")
    for average in averages[:12]:
        print(f"  {average.device_time_total / 20:8.1f}  {average.count // 20:3d} x {average.key[:80]}")


if __name__ == "__main__":
    sys.exit(main())
