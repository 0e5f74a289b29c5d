"""Time the first call of the CUDA kernels in a new process: compiled from nothing, and taken from the cache on disk.

    python scripts/bench_compile.py
    python scripts/bench_compile.py --ops extract_fields render --repeats 5 --json outputs/bench_compile.json

Every figure is of a process of its own, in which torch is imported and CUDA at work before the clock starts; what is
timed is the call: cuda-core's import, the compiler, the loading of the kernels and the work itself. `all-files` has the
machine code of every file of kernels made or read, one after the other, without a launch. The first process of a pair
has an empty cache folder, the second one what the first has left. A result that is empty or not finite is not timed,
and the exit status is 1; without a GPU it is 2.
"""

import argparse
import functools
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from errors import UserError  # noqa: E402
from runtime_env import prepare_environment  # noqa: E402

TARGETS_S = {"compiled": 3.0, "cached": 0.3}
POINTS, RESOLUTION, SIZE = 5000, 128, 128
ALL_FILES = "all-files"
NO_GPU = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--ops", nargs="+", default=[*OPS, ALL_FILES], help=f"of {', '.join([*OPS, ALL_FILES])}")
    parser.add_argument("--repeats", type=int, default=3, help="pairs of processes")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--child", metavar="OP", help=argparse.SUPPRESS)  # what the processes are started with
    options = parser.parse_args()
    try:
        if options.child is not None:
            print(json.dumps(first_call(options.child)))
            return 0
        check(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return NO_GPU
    figures: dict[str, dict[str, list[float]]] = {}
    try:
        for op in options.ops:
            for _ in range(options.repeats):
                with tempfile.TemporaryDirectory() as cache:
                    for state in TARGETS_S:  # in this order
                        for name, seconds in in_new_process(op, Path(cache)).items():
                            figures.setdefault(name, {}).setdefault(state, []).append(seconds)
    except RuntimeError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print_table(figures)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps({"command": sys.argv, "seconds": figures}, indent=2) + "\n")
    return 0


def check(options: argparse.Namespace) -> None:
    """Raise a UserError unless the arguments make sense and there is a GPU to time."""
    unknown = [op for op in options.ops if op not in OPS and op != ALL_FILES]
    if unknown:
        raise UserError(f"--ops {' '.join(unknown)}: expected some of {', '.join([*OPS, ALL_FILES])}")
    if options.repeats < 1:
        raise UserError(f"--repeats {options.repeats}: expected 1 or more")
    prepare_environment()
    from cuda_ext import why_unavailable

    missing = why_unavailable()
    if missing is not None:
        raise UserError(f"nothing to time: {missing}")
    import torch

    print(f"{torch.cuda.get_device_name()}; torch {torch.__version__}; N = {POINTS}, {RESOLUTION}^3, {SIZE} px")
    print(f"seconds, medians of {options.repeats}, in brackets least and most; first calls in new processes")


def in_new_process(op: str, cache: Path) -> dict[str, float]:
    """Seconds by name, of a process with this cache folder."""
    environment = os.environ | {"TURBODREAMER_CACHE_DIR": str(cache)}
    # The driver keeps a cache of its own, of code that it had to compile; ours is machine code already.
    command = [sys.executable, str(Path(__file__).resolve()), "--child", op]
    ended = subprocess.run(command, env=environment, capture_output=True, text=True)
    if ended.returncode:
        raise RuntimeError(f"{op}: {(ended.stderr.strip().splitlines() or ['no message'])[-1]}")
    return json.loads(ended.stdout.splitlines()[-1])


def first_call(op: str) -> dict[str, float]:
    """Start torch and CUDA, then time the op, or all files of kernels one by one."""
    prepare_environment()
    import torch

    device = torch.device("cuda", 0)
    calls = {f"file {name}": load for name, load in file_loads(device).items()} if op == ALL_FILES else {}
    if op != ALL_FILES:
        calls[op] = OPS[op](device)
    (torch.ones(64, 64, device=device) @ torch.ones(64, 64, device=device)).cumsum(0).sort()
    torch.cuda.synchronize()
    seconds = {}
    for name, call in calls.items():
        started_s = time.perf_counter()
        result = call()
        torch.cuda.synchronize()
        seconds[name] = time.perf_counter() - started_s
        if result is not None and not (result.numel() and bool(result.isfinite().all()) and bool(result.any())):
            raise RuntimeError("the result is empty or not finite")
    return seconds


def extract_fields_call(device) -> Callable:
    from mesh_extract import extract_fields

    gaussians, grid = scene(device)
    return lambda: extract_fields(gaussians, grid, backend="cuda")


def gradients_call(device) -> Callable:
    from mesh_extract import extract_fields

    gaussians, grid = scene(device)
    gaussians.means.requires_grad_(True)

    def call():
        extract_fields(gaussians, grid, backend="cuda").sum().backward()
        return gaussians.means.grad

    return call


def marching_cubes_call(device) -> Callable:
    import torch

    from mesh_extract.isosurface_cuda import marching_cubes_cuda

    axis = torch.linspace(-1.0, 1.0, RESOLUTION, device=device)
    ball = 1.0 - (axis[:, None, None] ** 2 + axis[:, None] ** 2 + axis**2).sqrt()
    return lambda: marching_cubes_cuda(ball, 0.5)[0]


def render_call(device) -> Callable:
    import torch

    from cameras import orbit_cameras
    from gs_renderer import render

    gaussians = scene(device)[0].map(lambda value: value.detach().requires_grad_(True))
    angles = torch.arange(4) * 90.0
    cameras = orbit_cameras(angles, torch.zeros(4), width=SIZE, height=SIZE).to(device)

    def call():
        render(gaussians, cameras, backend="cuda").rgb.square().sum().backward()
        return gaussians.means.grad

    return call


OPS = {
    "extract_fields": extract_fields_call,
    "field-gradients": gradients_call,
    "marching-cubes": marching_cubes_call,
    "render": render_call,
}


def scene(device) -> tuple:
    """Gaussians on the device and a grid around them."""
    import torch

    from mesh_extract import GridSpec
    from scenes import shell

    gaussians = shell(POINTS, torch.Generator().manual_seed(0)).to(device)
    return gaussians, GridSpec.cube(-1, 1, RESOLUTION)  # `around` would look the field up, and compile for that


def file_loads(device) -> dict[str, Callable]:
    """For every file of kernels a call that has its machine code made, or read."""
    from cuda_ext import kernel_names, load_module

    def load(name: str, constants: dict) -> None:
        load_module(name, device, **constants)

    return {name: functools.partial(load, name, macros(name)) for name in kernel_names()}


def macros(name: str) -> dict:
    """What the app defines for a file of kernels; nothing for files without macros."""
    from mesh_extract import fields_cuda, fields_fused
    from optimise_cuda import kernel_constants
    from rasterize.cuda_buffers import constants

    if name == "extract_fields_fused":
        return fields_fused.KERNEL_CONSTANTS
    if name.startswith("extract_fields"):
        return fields_cuda.KERNEL_CONSTANTS
    if name == "fit_step":
        return kernel_constants()
    return constants().get(name, {"BFLOAT": 0} if name in ("group_norm", "network_ops") else {})


def print_table(figures: dict[str, dict[str, list[float]]]) -> None:
    head = "".join(f"{f'{state} (at most {limit:g})':>28}" for state, limit in TARGETS_S.items())
    print(f"{'':32}{head}")
    for name, states in figures.items():
        cells = []
        for state, limit in TARGETS_S.items():
            median = statistics.median(states[state])
            late = " !" if median > limit else "  "
            cells.append(f"{median:.3f} [{min(states[state]):.3f} {max(states[state]):.3f}]{late}")
        print(f"{name:32}" + "".join(f"{cell:>28}" for cell in cells))


if __name__ == "__main__":
    sys.exit(main())
