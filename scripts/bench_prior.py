"""Time a public prior at its full size, with random weights: its networks, and whole jobs from file to file.

    python scripts/bench_prior.py write /tmp/weights                 # a random checkpoint in the public layout, 2.5 GB
    python scripts/bench_prior.py networks /tmp/weights              # calls of UNet and VAE, eager and as CUDA graphs
    python scripts/bench_prior.py networks /tmp/weights --kernels 10 # and which kernels take the time
    python scripts/bench_prior.py jobs /tmp/weights --jobs 3         # one process: the first job, then warm ones
    python scripts/bench_prior.py jobs /tmp/weights --plain          # the same, run plainly (scripts/plain_run.py)
    python scripts/bench_prior.py cold /tmp/weights                  # a process of its own, from its start
    python scripts/bench_prior.py jobs /tmp/weights --memory-gb 8    # with no more GPU memory than that
    python scripts/bench_prior.py write /tmp/dream --prior imagedream    # 4 GB; likewise mvdream
    python scripts/bench_prior.py jobs /tmp/dream --prior imagedream

What follows the options (`prior.compile=true`, `fit.rounds=30`) goes over configs/image_sai.yaml (imagedream.yaml,
text_mv.yaml). Graphs are compared
with the eager call first; one that differs is not timed. Random weights make no object, but the same work.
"""

from __future__ import annotations

import argparse
import json
import logging
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))  # the writer of checkpoints
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime_env import prepare_environment

prepare_environment()

import torch  # noqa: E402  (the environment comes first)

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = {"zero123": "image_sai.yaml", "imagedream": "imagedream.yaml", "mvdream": "text_mv.yaml"}
SAMPLE = ROOT / "assets" / "sample.png"
TFLOP = {"unet": 0.176, "vae encode": 0.273, "vae decode": 0.622}  # a 256 px picture, counted as 2 x MAC
LARGEST_DIFFERENCE = 2e-2  # of a graph from the eager call in half precision, relative to the largest value


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("write", "networks", "jobs", "cold"))
    parser.add_argument("weights", type=Path, help="folder of the checkpoint")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="over the prior's config")
    parser.add_argument("--prior", default="zero123", choices=tuple(CONFIGS), help="whose checkpoint and config")
    parser.add_argument("--jobs", type=int, default=3, help="jobs in one process; the first one is not warm")
    parser.add_argument("--plain", action="store_true", help="run plainly: what the speed-up is measured against")
    parser.add_argument("--memory-gb", type=float, default=0.0, help="GPU memory that the process may take; 0: all")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--kernels", type=int, default=0, help="list that many of the kernels that take most time")
    parser.add_argument("--size", default="full", choices=("full", "tiny"), help="of a checkpoint that is written")
    options = parser.parse_intermixed_args()
    if options.prior != "zero123" and (options.plain or options.what == "networks"):
        parser.error("--plain and networks are there for --prior zero123 alone")
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    actions = {"write": write, "networks": time_networks, "jobs": time_jobs, "cold": time_cold}
    return actions[options.what](options) or 0


def write(options: argparse.Namespace) -> None:
    from checkpoint_doubles import write_zero123
    from mvdream_doubles import write_multiview

    started_s, device = time.perf_counter(), "cuda" if torch.cuda.is_available() else "cpu"
    if options.prior == "zero123":
        write_zero123(options.weights, options.size, device=device)
    else:
        write_multiview(options.weights, options.prior == "imagedream", options.size, device=device)
    size = sum(path.stat().st_size for path in options.weights.rglob("*") if path.is_file())
    print(f"wrote {size / 1e9:.2f} GB in {time.perf_counter() - started_s:.1f} s")


def config_of(options: argparse.Namespace) -> Path:
    return ROOT / "configs" / CONFIGS[options.prior]


def overrides(options: argparse.Namespace, out: str) -> list[str]:
    given = {"zero123": [], "imagedream": ["prompt=a cat", f"input={SAMPLE}"], "mvdream": ["prompt=a cat"]}
    always = [f"prior.weights={options.weights}", f"outdir={out}", "output.turntable=none"]
    return [*always, *given[options.prior], *options.overrides]


def time_jobs(options: argparse.Namespace) -> None:
    """Jobs one after the other in this process, as a server would run them."""
    from plain_run import plainly

    import fit
    import pipeline
    from config import load_config
    from devices import choose_device

    device = choose_device(options.device)
    limit_memory(options.memory_gb, device)
    if options.memory_gb:
        logging.getLogger("priors").setLevel(logging.INFO)
    clock = Clock()
    with tempfile.TemporaryDirectory() as out, plainly() if options.plain else nullcontext():
        imagine, optimiser_run, export_mesh = fit.imagine, fit.SplatOptimiser.run, pipeline.export_mesh
        fit.imagine = clock.timed("prior", imagine)
        fit.SplatOptimiser.run = clock.timed("optimiser", optimiser_run)
        pipeline.export_mesh = clock.watched(export_mesh)
        try:
            for number in range(options.jobs):
                config = load_config(config_of(options), [*overrides(options, out), f"save_path=job{number}"])
                clock.start()
                folder = pipeline.run(config, device, show_progress=False)
                report(number, json.loads((folder / "run.json").read_text()), clock, options)
        finally:
            fit.imagine, fit.SplatOptimiser.run, pipeline.export_mesh = imagine, optimiser_run, export_mesh
    if device.type == "cuda":
        print(f"peak GPU memory held by torch: {torch.cuda.max_memory_reserved() / 1e9:.2f} GB")


class Clock:
    """Seconds inside functions; each ends with the GPU idle, as it does anyway."""

    def __init__(self) -> None:
        self.start()

    def start(self) -> None:
        """Begin a job."""
        self.seconds: dict[str, float] = {}
        self.glb_s = 0.0  # from the job's start until its .glb is written
        self._started_s = time.perf_counter()

    def watched(self, export_mesh):
        def wrapped(mesh, path: Path):
            export_mesh(mesh, path)
            if path.suffix == ".glb":
                self.glb_s = time.perf_counter() - self._started_s

        return wrapped

    def timed(self, name: str, function):
        def wrapped(*arguments, **options):
            started_s = time.perf_counter()
            result = function(*arguments, **options)
            if torch.cuda.is_initialized():
                torch.cuda.synchronize()
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - started_s
            return result

        return wrapped


def report(number: int, record: dict, clock: Clock, options: argparse.Namespace) -> None:
    """One line a job: to the Gaussians, to the textured mesh, and where the time goes."""
    seconds = record["seconds"]
    to_splats = sum(seconds.get(name, 0.0) for name in ("start", "prepare", "prior", "fit"))
    to_mesh = clock.glb_s - seconds.get("previews", 0.0)
    manner = "plain" if options.plain else "graphs" if record["config"]["prior"]["compile"] is False else "compiled"
    inside = ", ".join(f"{name} {value:.2f}" for name, value in clock.seconds.items())
    rest = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if value >= 0.005)
    state = "first" if number == 0 else "warm"
    print(
        f"{options.prior}, {manner}, {state} job: {to_splats:.2f} s to the splats, {to_mesh:.2f} s to the textured .glb"
    )
    print(f"    in the fit: {inside}; stages: {rest}; splats and faces: {record['mesh'].get('raw', {})}", flush=True)


def time_cold(options: argparse.Namespace) -> int:
    """The command line, from the start of its process."""
    with tempfile.TemporaryDirectory() as out:
        command = [
            sys.executable,
            str(ROOT / "main.py"),
            "--config",
            str(config_of(options)),
            "--quiet",
            "--device",
            options.device,
        ]
        started_s = time.perf_counter()
        status = subprocess.run([*command, *overrides(options, out), "save_path=cold"], check=False).returncode
        elapsed_s = time.perf_counter() - started_s
        if status == 0:
            seconds = json.loads((Path(out) / "cold" / "run.json").read_text())["seconds"]
            stages = ", ".join(f"{name} {value:.2f}" for name, value in seconds.items() if value >= 0.005)
            print(f"cold process: {elapsed_s:.1f} s; {stages}")
        return status


def time_networks(options: argparse.Namespace) -> None:
    """Calls of the networks at the batches of the default job."""
    from config import PriorConfig
    from devices import choose_device
    from priors.ldm import decode_mean, encode_mean
    from priors.ldm_networks import Network, Runtime
    from priors.zero123 import Zero123Prior
    from priors.zero123_networks import predict

    device = choose_device(options.device)
    config = PriorConfig(name="zero123", variant="stable-zero123", weights=str(options.weights))
    half = torch.float16 if device.type == "cuda" else torch.float32
    generator = torch.Generator().manual_seed(0)

    def tensors(*shape: int) -> torch.Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    def arguments(views: int, size: int, token: int) -> tuple:
        steps = torch.full((views,), 501.0, device=device)
        return tensors(views, 4, size, size), tensors(views, 4, size, size), steps, tensors(views, 1, token)

    manners = {"eager": {"fused": False}, "graph": {"fused": False, "graphs": True}, "fused": {"graphs": True}}
    manners["fused, convolutions chosen by trial"] = manners["fused"]
    if any(override == "prior.compile=true" for override in options.overrides):
        manners["compiled"] = {"graphs": True, "compiled": True}
    expected: dict[str, torch.Tensor] = {}
    for manner, settings in manners.items():
        torch.backends.cudnn.benchmark = manner.endswith("trial")
        prior = Zero123Prior(config, device, Runtime(device, half, **settings))
        side, token = prior.image_size // 8, prior.projection.out_features
        calls: list[tuple[str, Network, object, tuple, int]] = [
            (f"unet, batch {n}", prior.unet, predict, arguments(n, side, token), n) for n in (6, 12)
        ]
        calls.append(("vae encode, batch 6", prior.vae, encode_mean, (tensors(6, 3, side * 8, side * 8),), 6))
        calls.append(("vae decode, batch 6", prior.vae, decode_mean, (tensors(6, 4, side, side),), 6))
        generator.manual_seed(0)
        for name, network, method, inputs, views in calls:
            for _ in range(3):
                result = network.run(method, *inputs)
            reference = expected.setdefault(name, result)
            error = float((result - reference).abs().max() / reference.abs().max())
            if not error <= LARGEST_DIFFERENCE:
                print(f"{manner}: {name} differs from eager by {error:.1e} of its largest value: not timed")
                continue
            times_ms = timed_ms(lambda: network.run(method, *inputs), device)  # noqa: B023  (called at once)
            median = statistics.median(times_ms)
            rate = f", {TFLOP[name.split(',')[0]] * views / median * 1e3:.0f} TFLOP/s" if side == 32 else ""
            spread = f"({min(times_ms):.2f} to {max(times_ms):.2f})"
            print(f"{manner}: {name}: {median:.2f} ms {spread}{rate}, differs by {error:.0e}", flush=True)
        if options.kernels and manner == "fused" and device.type == "cuda":
            for name, network, method, inputs, _ in calls[1:]:
                list_kernels(name, lambda: network.run(method, *inputs), options.kernels)  # noqa: B023
    torch.backends.cudnn.benchmark = False


def list_kernels(name: str, call, count: int) -> None:
    """The kernels of one call that take most of its time."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as profiler:
        call()
        torch.cuda.synchronize()
    events = sorted(profiler.key_averages(), key=lambda event: -event.self_device_time_total)
    total_us = sum(event.self_device_time_total for event in events)
    print(f"{name}: {sum(event.count for event in events)} kernels, {total_us / 1e3:.2f} ms on the GPU")
    for event in events[:count]:
        print(f"    {event.self_device_time_total / 1e3:6.2f} ms {event.count:5d} x {event.key[:90]}")


def timed_ms(call, device: torch.device, repeats: int = 20) -> list[float]:
    """Milliseconds of each of some calls, after two that do not count."""
    times_ms = []
    for i in range(repeats + 2):
        if device.type == "cuda":
            start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            start.record()
            call()
            end.record()
            end.synchronize()
            elapsed_ms = start.elapsed_time(end)
        else:
            started_s = time.perf_counter()
            call()
            elapsed_ms = (time.perf_counter() - started_s) * 1e3
        if i >= 2:
            times_ms.append(elapsed_ms)
    return times_ms


def limit_memory(limit_gb: float, device: torch.device) -> None:
    """Make torch refuse to take more, and the priors believe that there is no more."""
    if not limit_gb or device.type != "cuda":
        return
    from priors import ldm_networks

    free_bytes, total_bytes = torch.cuda.mem_get_info(device)
    context_gb = (total_bytes - free_bytes) / 1e9  # what the process's context takes is part of a small card's memory
    share = min(1.0, (limit_gb - context_gb) * 1e9 / total_bytes)
    torch.cuda.set_per_process_memory_fraction(share, torch.cuda.current_device())
    plain = ldm_networks.free_gb
    ldm_networks.free_gb = lambda where, limit=0.0: plain(where, limit_gb - context_gb)


if __name__ == "__main__":
    sys.exit(main())
