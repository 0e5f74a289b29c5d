"""Time the mesh stage, from Gaussians to a textured mesh and its previews, on each device, after comparing the results.

    python scripts/bench_mesh.py                                 # 20,000 Gaussians on a shell, the defaults
    python scripts/bench_mesh.py outputs/cat/cat_gaussians.ply --devices cuda mesh.resolution=256

The texture is that of the splats: no prior goes over it. Rows that begin with a space are functions within the stage
above them. Medians, after one run that warms up. Results that differ between the devices are not timed, and the exit
status is 1.
"""

import argparse
import statistics
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from unittest.mock import patch

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from runtime_env import prepare_environment  # noqa: E402  (must run before torch and numba are imported)

prepare_environment()

import numpy as np  # noqa: E402
import torch  # noqa: E402

import pipeline  # noqa: E402
import previews  # noqa: E402
from cameras import orbit_cameras  # noqa: E402
from config import Config, load_config  # noqa: E402
from mesh_extract import TexturedMesh, bake, render_mesh  # noqa: E402
from scenes import shell  # noqa: E402
from splat_ply import read_gaussians  # noqa: E402
from stages import StageTimes  # noqa: E402

# Stage -> the functions in it that are timed by themselves, each as the module that calls it knows it.
FUNCTIONS = {
    "density field": [(pipeline, "extract_fields"), (pipeline, "smooth_field")],
    "isosurface": [(pipeline, name) for name in ("auto_threshold", "carve", "fill_cavities", "extract_mesh")],
    "clean mesh": [],
    "texture": [(bake, name) for name in ("unwrap", "view_gaussians", "paint")],
    "previews": [(previews, "draw_views")],
    "turntable file": [],
}
LEAST_PSNR = 35.0  # of pictures of the two devices' meshes: one flipped diagonal of a face is enough to differ a little


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gaussians", nargs="?", type=Path, help="a splat .ply; none: a shell")
    parser.add_argument("overrides", nargs="*", help="keys of the configuration, such as mesh.resolution=256")
    parser.add_argument("--points", type=int, default=20_000, help="of the shell")
    gpus = ["cuda"] if torch.cuda.is_available() else []
    parser.add_argument("--devices", nargs="+", default=["cpu", *gpus], choices=["cpu", "cuda"])
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_intermixed_args()
    if options.gaussians is not None and "=" in options.gaussians.name:
        options.overrides.insert(0, str(options.gaussians))
        options.gaussians = None

    # Nobody knows what a file was fitted in, or to.
    config = load_config(None, ["mesh.pixel=0", "refine=false", *options.overrides])
    gaussians = read_gaussians(options.gaussians) if options.gaussians else None
    gaussians = gaussians or shell(options.points, torch.Generator().manual_seed(0))
    print(f"{len(gaussians)} Gaussians, torch {torch.__version__}, {torch.get_num_threads()} threads")
    for index in range(torch.cuda.device_count()):
        print(torch.cuda.get_device_name(index))
    rows, meshes = {}, {}
    for name in options.devices:
        there = gaussians.to(name)
        meshes[name] = mesh_of(there, config)[0]  # warms up
        runs = [mesh_of(there, config)[1] for _ in range(options.repeats)]
        rows[name] = {key: [run[key] for run in runs] for key in runs[0]}
    if len(meshes) == 2:
        worst = difference(*meshes.values())
        print(f"pictures of the two meshes differ by {worst:.1f} dB at worst")
        if worst < LEAST_PSNR:
            print(f"expected {LEAST_PSNR} dB or more: not timed")
            return 1
    print(f"{'ms':20}" + "".join(f"{name:>10} {'spread':>18}" for name in rows))
    for key in next(iter(rows.values())):
        cells = [[1000 * s for s in found[key]] for found in rows.values()]
        print(
            f"{key:20}"
            + "".join(f"{statistics.median(ms):10.1f} {f'{min(ms):.1f} to {max(ms):.1f}':>18}" for ms in cells)
        )
    return 0


def mesh_of(gaussians, config: Config) -> tuple[TexturedMesh, dict[str, float]]:
    """The mesh of Gaussians, and the seconds of every stage, function, and of all."""
    times, spent = StageTimes(), {}
    with ExitStack() as stack, tempfile.TemporaryDirectory() as folder:
        for functions in FUNCTIONS.values():
            for module, name in functions:
                stack.enter_context(patch.object(module, name, timed(getattr(module, name), name, spent)))
        started_s = time.perf_counter()
        textured, _ = pipeline.mesh_stage(gaussians, config, None, times)
        with times.stage("previews"):
            previews.views_sheet(None, gaussians, textured)
            frames = previews.turntable_frames(textured, device=gaussians.means.device)
        total_s = time.perf_counter() - started_s
        with times.stage("turntable file"):
            previews.write_turntable(Path(folder) / "turntable.gif", frames)
    seconds = {}
    for stage, functions in FUNCTIONS.items():
        seconds[stage] = times.seconds[stage]
        seconds |= {f" {name}": spent[name] for _, name in functions}
    return textured, seconds | {"all but the file": total_s}


def timed(function, name: str, spent: dict[str, float]):
    """The function, which adds to spent[name] what it takes."""

    def run(*args, **kwargs):
        synchronise()
        started_s = time.perf_counter()
        result = function(*args, **kwargs)
        synchronise()
        spent[name] = spent.get(name, 0.0) + time.perf_counter() - started_s
        return result

    return run


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def difference(first: TexturedMesh, second: TexturedMesh) -> float:
    """The least signal to noise, in dB, of pictures of one mesh against those of another."""
    cameras = orbit_cameras([0.0, 75.0, 150.0, 225.0, 300.0], [0.0, 30.0, -30.0, 60.0, 10.0], width=256, height=256)
    pictures = [render_mesh(textured, cameras).rgb.numpy() for textured in (first, second)]
    errors = np.square(pictures[0] - pictures[1]).mean(axis=(1, 2, 3))
    return float(-10 * np.log10(errors.max() + 1e-10))


if __name__ == "__main__":
    sys.exit(main())
