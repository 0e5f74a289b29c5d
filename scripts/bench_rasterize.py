"""Time the rasterisers: forward, and forward + backward through autograd, all cameras in one call.

    python scripts/bench_rasterize.py
    python scripts/bench_rasterize.py --sizes 128 256 --counts 5000 20000 --json outputs/bench_rasterize.json

A backend whose image or gradients differ from the float64 reference is not timed.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime_env import prepare_environment

prepare_environment()

import torch  # noqa: E402  (the environment comes first)

import scenes  # noqa: E402
from cameras import Cameras, orbit_cameras  # noqa: E402
from gaussians import Gaussians  # noqa: E402
from gs_renderer import render  # noqa: E402
from rasterize import RASTERIZERS  # noqa: E402

SCENES = {"shell": scenes.shell, "ball": scenes.ball, "mixed": scenes.mixed}
LARGEST_ERROR = 1e-4  # of an image or gradient against float64, relative to its largest element; measured: 5e-6


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--backends", nargs="+", default=None, help="names in RASTERIZERS; default: the fast ones here")
    parser.add_argument("--scenes", nargs="+", default=["shell", "ball"], choices=SCENES)
    parser.add_argument("--counts", nargs="+", type=int, default=[5000], help="Gaussians")
    parser.add_argument("--sizes", nargs="+", type=int, default=[128], help="image sides in pixels")
    parser.add_argument("--views", type=int, default=5)
    parser.add_argument("--repeats", type=int, default=30)
    parser.add_argument("--threads", type=int, default=0, help="0: as many as torch takes")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file too")
    arguments = parser.parse_args()
    if arguments.threads:
        torch.set_num_threads(arguments.threads)
    backends = arguments.backends or [
        name for name in RASTERIZERS if name != "reference" and (name != "cuda" or torch.cuda.is_available())
    ]
    machine = describe_machine()
    print("machine:", ", ".join(f"{key} {value}" for key, value in machine.items()))

    checks = {name: check(name) for name in backends}
    for name, errors in checks.items():
        print(f"largest errors of {name!r} against the float64 reference, relative to the largest element:")
        print("  " + ", ".join(f"{key} {value:.1e}" for key, value in errors.items()))
    wrong = [name for name, errors in checks.items() if not max(errors.values()) < LARGEST_ERROR]
    if wrong:
        print(f"not timed, since they are wrong: {', '.join(wrong)}", file=sys.stderr)
        return 1

    columns = "backend scene N views size forward_ms both_ms both_min_ms both_p90_ms processor_ms".split()
    print("  ".join(f"{column:>12}" for column in columns))
    rows = []
    for backend in backends:
        for scene in arguments.scenes:
            for n in arguments.counts:
                for size in arguments.sizes:
                    figures = measure(backend, scene, n, arguments.views, size, arguments.repeats)
                    row = dict(zip(columns, (backend, scene, n, arguments.views, size, *figures), strict=True))
                    print("  ".join(f"{v:>12.2f}" if isinstance(v, float) else f"{v:>12}" for v in row.values()))
                    rows.append(row)
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"command": sys.argv, "machine": machine, "errors": checks, "rows": rows}
        arguments.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def describe_machine() -> dict:
    """What the figures depend on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [line.partition(":")[2].strip() for line in cpuinfo.read_text().splitlines() if "model name" in line]
        model = names[0] if names else model
    machine = {"cpu": model, "cores": os.cpu_count(), "threads": torch.get_num_threads(), "torch": torch.__version__}
    if torch.cuda.is_available():
        machine["gpu"] = torch.cuda.get_device_name()
    if hasattr(os, "getloadavg"):
        machine["load"] = round(os.getloadavg()[0], 1)  # above 0 at the start, the machine is shared: read the minima
    return machine


def orbit(views: int, size: int) -> Cameras:
    """Cameras all around, at changing heights."""
    azimuths = [360.0 * k / views for k in range(views)]
    return orbit_cameras(azimuths, [20.0 * (k % 3 - 1) for k in range(views)], width=size, height=size)


def device_of(backend: str) -> torch.device:
    return torch.device("cuda" if backend == "cuda" else "cpu")


def check(backend: str) -> dict[str, float]:
    """Largest errors of the images and of the gradients on a small scene, against the reference in float64."""
    gaussians, cameras = scenes.shell(300, torch.Generator().manual_seed(0), sh_degree=3), orbit(3, 40)
    device = device_of(backend)
    fast = images_and_gradients(gaussians.to(device), cameras.to(device), backend)
    exact = images_and_gradients(gaussians.double(), cameras.to(torch.float64), "reference")
    return {name: ((fast[name].cpu() - v).abs().max() / v.abs().max()).item() for name, v in exact.items()}


def images_and_gradients(gaussians: Gaussians, cameras: Cameras, backend: str) -> dict[str, torch.Tensor]:
    gaussians = gaussians.map(lambda t: t.detach().clone().requires_grad_())
    rendered = render(gaussians, cameras, backend=backend)
    rendered.means2d.retain_grad()
    (rendered.rgb.square().sum() + rendered.alpha.square().sum() + 0.1 * rendered.depth.square().sum()).backward()
    gradients = {f"d {name}": value.grad for name, value in gaussians.tensors().items()}
    images = {"rgb": rendered.rgb, "alpha": rendered.alpha, "depth": rendered.depth}
    return {k: v.detach() for k, v in (images | gradients | {"d means2d": rendered.means2d.grad}).items()}


def measure(backend: str, scene: str, n: int, views: int, size: int, repeats: int) -> tuple[float, ...]:
    """Milliseconds: median forward; median, least and 90th percentile of forward + backward; processor time of that."""
    device = device_of(backend)
    gaussians = SCENES[scene](n, torch.Generator().manual_seed(0)).to(device).map(lambda t: t.requires_grad_())
    cameras = orbit(views, size).to(device)
    target = torch.zeros(views, size, size, 3, device=device)

    def forward() -> None:
        with torch.no_grad():
            render(gaussians, cameras, backend=backend)

    def both() -> None:
        rendered = render(gaussians, cameras, backend=backend)
        ((rendered.rgb - target).square().mean() + rendered.alpha.mean()).backward()
        for value in gaussians.tensors().values():
            value.grad = None

    forward_ms, _ = timed(forward, repeats, device)
    both_ms, processor_ms = timed(both, repeats, device)
    ordered = sorted(both_ms)
    p90_ms = ordered[min(len(ordered) - 1, int(0.9 * len(ordered)))]
    return statistics.median(forward_ms), statistics.median(both_ms), ordered[0], p90_ms, min(processor_ms)


def timed(function, repeats: int, device: torch.device) -> tuple[list[float], list[float]]:
    """Wall and processor milliseconds of every call after three to warm up."""
    wall_ms, processor_ms = [], []
    for k in range(repeats + 3):
        processor_s, started_s = time.process_time(), time.perf_counter()
        function()
        if device.type == "cuda":
            torch.cuda.synchronize()
        if k >= 3:
            wall_ms.append(1e3 * (time.perf_counter() - started_s))
            processor_ms.append(1e3 * (time.process_time() - processor_s))
    return wall_ms, processor_ms


if __name__ == "__main__":
    sys.exit(main())
