"""Run every backend of the density field that is there on the same Gaussians, and draw what comes out.

    python scripts/compare_backends.py                                     # 20,000 Gaussians on a shell
    python scripts/compare_backends.py outputs/cat/cat_gaussians.ply --resolution 192
    python scripts/compare_backends.py --backends cpu numba --sizes 64 128 --no-whole-runs

Time, error against float64 and mesh of each backend on one grid; time on ever finer grids, in slabs where a field is
large (Gustafson); whole runs of the app by the first and the last backend (Amdahl). Written to the output folder:
comparison.md (tables), comparison.json, figure_6_times.svg, figure_7_amdahl.svg, figure_8_gustafson.svg, runs/.
What would take longer than --seconds is left out. A wrong field is not timed, and the exit status is 1.
"""

import argparse
import functools
import logging
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import Config, load_config  # noqa: E402
from errors import UserError  # noqa: E402
from runtime_env import prepare_environment  # noqa: E402


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("gaussians", type=Path, nargs="?", help="a .ply; without one: a bumpy shell")
    parser.add_argument("--points", type=int, default=20_000, help="Gaussians on the shell")
    parser.add_argument("--backends", nargs="+", default=[], metavar="NAME", help="default: all that run here")
    parser.add_argument("--resolution", type=int, default=128, help="nodes along a side, of the first table")
    parser.add_argument(
        "--sizes", type=int, nargs="*", default=[128, 512, 1024], help="of the growing grid; none to leave it out"
    )
    parser.add_argument("--iso", type=float, default=0.3, help="density of the meshes that are compared")
    parser.add_argument("--repeats", type=int, default=10, help="at most so many calls are timed")
    parser.add_argument("--seconds", type=float, default=20.0, help="and about so long, for a backend on a grid")
    parser.add_argument(
        "--whole-runs", nargs="*", metavar="NAME", default=None,
        help="backends of whole runs, the slow one first; default: cpu and the last of the ladder that runs here",
    )  # fmt: skip
    parser.add_argument("--no-whole-runs", dest="whole_runs", action="store_const", const=[])
    parser.add_argument("--run-repeats", type=int, default=1, help="whole runs of each, in turns; the median counts")
    parser.add_argument("--config", type=Path, default=ROOT / "configs" / "article_20.yaml", help="of the whole runs")
    parser.add_argument("--set", nargs="+", default=[], metavar="key=value", help="keys of their configuration")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="of the whole runs")
    parser.add_argument("--fresh", action="store_true", help="repeat whole runs that an earlier call has left")
    parser.add_argument("--out", type=Path, default=Path("outputs/compare"), help="output folder")
    return parser.parse_args(arguments)


def run(options: argparse.Namespace, config: Config) -> int:
    prepare_environment(config.cache_dir or None)

    import torch  # what imports torch and numba comes after the environment is set

    from comparison.backends import find_variants
    from comparison.measure import Budget
    from comparison.run import Settings, any_wrong, compare
    from devices import choose_device
    from mesh_extract import GridSpec
    from scenes import shell
    from splat_ply import read_gaussians

    for name in ("points", "repeats", "seconds", "run_repeats", "iso"):
        if getattr(options, name) <= 0:
            raise UserError(f"--{name.replace('_', '-')} {getattr(options, name)}: expected a number above 0")
    if options.gaussians is None:
        gaussians = shell(options.points, torch.Generator().manual_seed(0))
        scene, grid_of = "a bumpy shell", functools.partial(GridSpec.cube, -1, 1)
    else:
        gaussians = read_gaussians(options.gaussians)
        scene, grid_of = options.gaussians.name, functools.partial(GridSpec.around, gaussians)
    whole_runs = options.whole_runs
    if whole_runs is None:
        ladder = list(dict.fromkeys(variant.backend for variant in find_variants(options.backends)[0]))
        whole_runs = [ladder[0], ladder[-1]] if len(ladder) > 1 else []
    settings = Settings(
        out=options.out,
        backends=tuple(options.backends),
        resolution=options.resolution,
        sizes=tuple(options.sizes),
        iso=options.iso,
        budget=Budget(options.repeats, options.seconds),
        whole_runs=tuple(whole_runs),
        run_repeats=options.run_repeats,
        fresh=options.fresh,
        command=shlex.join(["python", *sys.argv]),
    )
    record = compare(gaussians, grid_of, scene, settings, config, choose_device(options.device))
    print((options.out / "comparison.md").read_text(encoding="utf-8"), end="")
    return int(any_wrong(record))


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("comparison").setLevel(logging.INFO)  # not what the app says about every run
    try:
        return run(options, load_config(options.config, options.set))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; whole runs that were finished are kept", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
