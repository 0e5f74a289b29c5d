"""Time extract_fields by every backend on a shell of Gaussians, after checking its result against float64.

    python scripts/bench_fields.py                      # N = 20,000, R = 128
    python scripts/bench_fields.py --points 5000 --resolution 64 --repeats 5

A backend whose field is wrong is not timed, and the exit status is 1.
"""

import argparse
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()

import torch  # noqa: E402

from mesh_extract import BACKENDS, GridSpec, extract_fields  # noqa: E402
from mesh_extract.fields_exact import extract_fields_exact  # noqa: E402
from mesh_extract.support import CUTOFF  # noqa: E402
from scenes import shell  # noqa: E402

MAX_ERROR = 4e-4  # against float64 without a cut-off: what is dropped adds up
CHECKED_RESOLUTION = 33  # a coarser grid over the same Gaussians: float64 at 128^3 takes minutes


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--points", type=int, default=20_000)
    parser.add_argument("--resolution", type=int, default=128)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--backends", nargs="+", default=[name for name in BACKENDS if name != "auto"])
    options = parser.parse_args()

    gaussians = shell(options.points, torch.Generator().manual_seed(0))
    coarse = GridSpec.cube(-1, 1, min(options.resolution, CHECKED_RESOLUTION))
    exact, _ = extract_fields_exact(gaussians, coarse)
    cut, slack = extract_fields_exact(gaussians, coarse, CUTOFF)
    grid = GridSpec.cube(-1, 1, options.resolution)
    print(
        f"N = {options.points}, R = {options.resolution}, CPU, {torch.get_num_threads()} threads, "
        f"torch {torch.__version__}"
    )
    print(f"{'backend':10} {'median s':>10} {'spread s':>18} {'ratio':>8} {'error':>10} {'same cut-off':>13}")

    slowest, wrong = None, False
    for name in options.backends:
        field = extract_fields(gaussians, coarse, name).double()  # also warms up
        error = float((field - exact).abs().max())
        rounding = (field - cut).abs()
        wrong_here = error > MAX_ERROR or bool((rounding > 2e-5 + 2e-6 * cut + slack).any())
        wrong |= wrong_here
        if wrong_here:
            print(f"{name:10} {'wrong: not timed':>48} {error:10.1e} {float(rounding.max()):13.1e}")
            continue
        seconds = []
        for _ in range(options.repeats):
            started_s = time.perf_counter()
            extract_fields(gaussians, grid, name)
            seconds.append(time.perf_counter() - started_s)
        median = statistics.median(seconds)
        slowest = slowest or median
        timing = f"{median:10.3f} {f'{min(seconds):.3f} to {max(seconds):.3f}':>18} {slowest / median:7.1f}x"
        print(f"{name:10} {timing} {error:10.1e} {float(rounding.max()):13.1e}")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
