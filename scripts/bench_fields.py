"""Time extract_fields by every backend on a shell of Gaussians, after checking its result against float64.

    python scripts/bench_fields.py                                          # N = 20,000, R = 128
    python scripts/bench_fields.py --points 20000 100000 --resolution 128 512 --json outputs/bench_fields.json
    python scripts/bench_fields.py --points 5000 --resolution 64 --repeats 5 --backends cpu numba

Everything is included from Gaussians on the device to the field on the device; on a GPU by CUDA events. `cuda graph` is
backend cuda captured into a CUDA graph and replayed. A backend whose field is wrong is not timed, and the exit status
is 1. Python loops are left out above --loops-up-to nodes a side, where they take minutes.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()

import torch  # noqa: E402

from cuda_ext import why_unavailable  # noqa: E402
from devices import require_backend  # noqa: E402
from errors import UserError  # noqa: E402
from gaussians import Gaussians  # noqa: E402
from mesh_extract import BACKENDS, GridSpec, extract_fields  # noqa: E402
from mesh_extract.fields_cuda import count_pairs  # noqa: E402
from mesh_extract.fields_exact import ABSOLUTE_ERROR, RELATIVE_ERROR, exact_at, nodes_near  # noqa: E402
from mesh_extract.support import CUTOFF  # noqa: E402
from registry import lookup  # noqa: E402
from scenes import shell  # noqa: E402
from timing import call_times_ms  # noqa: E402

CHECKED_NODES = 4096
MAX_ERRORS = ((20_000, 4e-4), (100_000, 1.5e-3))  # N, error without a cut-off: what is dropped adds up
LOOPS = ("cpu", "cuda-coeff")
GRAPH = "cuda graph"


def main() -> int:
    try:
        return run(parse_arguments())
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, nargs="+", default=[20_000], help="numbers of Gaussians")
    parser.add_argument("--resolution", type=int, nargs="+", default=[128], help="nodes along each side")
    parser.add_argument("--repeats", type=int, default=3, help="timed calls on the CPU; ten times as many on a GPU")
    parser.add_argument("--backends", nargs="+", help="default: all that are there")
    parser.add_argument("--loops-up-to", type=int, default=128, help="nodes a side up to which Python loops run")
    parser.add_argument("--json", type=Path, help="write the results here too")
    options = parser.parse_args()
    for name in options.backends or ():
        if name != GRAPH:
            lookup(BACKENDS, name, "--backends")
        require_backend(name)  # that of the graph begins with cuda too
    if options.repeats < 1:
        parser.error(f"--repeats={options.repeats}: expected at least 1")
    return options


def run(options: argparse.Namespace) -> int:
    missing = why_unavailable()
    names = options.backends or [name for name in BACKENDS if name != "auto"] + [GRAPH]
    if missing is not None and not options.backends:
        names = [name for name in names if not name.startswith("cuda")]
        print(f"no GPU backends: {missing}")
    gpu = torch.cuda.get_device_name() if missing is None else "no GPU"
    print(f"CPU: {torch.get_num_threads()} threads; {gpu}; torch {torch.__version__}")
    results = [
        row
        for points in options.points
        for resolution in options.resolution
        for row in measure(points, resolution, names, options.repeats, options.loops_up_to)
    ]
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    return int(any("ms" not in row for row in results))


def measure(points: int, resolution: int, names: list[str], repeats: int, loops_up_to: int) -> list[dict]:
    """A row for every backend that runs at this size, printed and returned; without "ms": its field is wrong."""
    scene, grid = shell(points, torch.Generator().manual_seed(0)), GridSpec.cube(-1, 1, resolution)
    on_gpu = any(name.startswith("cuda") for name in names)
    moved = scene.to("cuda") if on_gpu else scene
    nodes = nodes_near(scene.means, grid, CHECKED_NODES, torch.Generator().manual_seed(1))
    exact, _ = (value.cpu() for value in exact_at(moved, grid, nodes.to(moved.means.device)))
    cut, slack = (value.cpu() for value in exact_at(moved, grid, nodes.to(moved.means.device), CUTOFF))
    print(f"\nN = {points:,}, R = {resolution}")
    print(
        f"{'backend':10} {'median ms':>11} {'spread ms':>22} {'to fused':>9} {'error':>9} {'same cut-off':>13}  share"
    )
    rows = []
    for name in names:
        if name in LOOPS and resolution > loops_up_to:
            continue
        gaussians = moved if name.startswith("cuda") else scene
        call = capture(gaussians, grid) if name == GRAPH else lambda g=gaussians, n=name: extract_fields(g, grid, n)
        x, y, z = nodes.to(gaussians.means.device).unbind(-1)
        found = call()[x, y, z].cpu().double()
        rounding = (found - cut).abs()
        beyond = (rounding - slack) / (ABSOLUTE_ERROR + RELATIVE_ERROR * cut)  # as a share of what is allowed
        row = {
            "points": points, "resolution": resolution, "backend": name, "error": float((found - exact).abs().max()),
            "rounding": float((rounding - slack).clamp_min(0).max()), "share_of_bound": float(beyond.max()),
        }  # fmt: skip
        rows.append(row)
        limit = next((error for count, error in MAX_ERRORS if points <= count), None)
        errors = f"{row['error']:9.1e} {row['rounding']:13.1e} {row['share_of_bound']:6.2f}"
        if row["share_of_bound"] > 1 or (limit is not None and row["error"] > limit):
            print(f"{name:10} {'wrong: not timed':>44} {errors}")
            continue
        on_device = gaussians.means.device
        slow = name in LOOPS or (name == "cuda-fused" and resolution > 128)
        times = call_times_ms(call, on_device, repeats if slow or on_device.type == "cpu" else 10 * repeats)
        row["ms"] = statistics.median(times)
        row["fastest_ms"], row["slowest_ms"] = min(times), max(times)
        fused = next((other["ms"] for other in rows if other["backend"] == "cuda-fused" and "ms" in other), None)
        ratio = "" if fused is None else f"{fused / row['ms']:8.1f}x"
        spread = f"{row['fastest_ms']:.3f} to {row['slowest_ms']:.3f}"
        print(f"{name:10} {row['ms']:11.3f} {spread:>22} {ratio:>9} {errors}", flush=True)
        if name == "cuda":
            pairs = count_pairs(gaussians, grid)
            row["pairs"] = pairs
            print(f"{'':10} {pairs:.3g} pairs of node and Gaussian: {pairs / row['ms'] * 1e3:.3g} a second")
    return rows


def capture(gaussians: Gaussians, grid: GridSpec):
    """A call that replays backend cuda as a CUDA graph; it returns the same field every time."""
    extract_fields(gaussians, grid, "cuda")  # compiles, and learns how much room the lists need
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        density = extract_fields(gaussians, grid, "cuda")

    def replay():
        graph.replay()
        return density

    return replay


if __name__ == "__main__":
    sys.exit(main())
