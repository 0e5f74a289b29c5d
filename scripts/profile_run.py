"""Profile the app's main job: a trace to look at, and tables of stages, functions, operators and kernels.

    python scripts/profile_run.py --config configs/article_20.yaml --warm-up
    python scripts/profile_run.py --config configs/article_20.yaml --backend cuda-fused --device cuda input=cat.png
    python scripts/profile_run.py --python fit.rounds=2

torch's profiler sees the operators of torch and, on a GPU, all kernels; trace.json.gz opens in ui.perfetto.dev or
chrome://tracing. --python takes Python's profiler instead: it also sees what numpy, scipy and numba do, by function;
run.pstats is for `python -m pstats`. Both slow the run down. The tables go to profile.md and to the screen; the run's
own files into the same output folder. With the defaults of the app the trace is large: fewer steps show the same.
"""

import argparse
import logging
import sys
from dataclasses import replace
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import Config, load_config  # noqa: E402
from errors import UserError  # noqa: E402
from runtime_env import prepare_environment  # noqa: E402


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file of keys; default: the app's defaults")
    parser.add_argument("--backend", metavar="NAME", help="how the density field is computed")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument("--python", action="store_true", help="Python's profiler instead of torch's")
    parser.add_argument("--warm-up", action="store_true", help="run once before, so that nothing is compiled any more")
    parser.add_argument("--top", type=int, default=20, help="rows of each table")
    parser.add_argument("--out", type=Path, default=Path("outputs/profile"), help="output folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the app's configuration")
    return parser.parse_intermixed_args(arguments)


def run(options: argparse.Namespace, config: Config) -> int:
    prepare_environment(config.cache_dir or None)

    import pipeline  # after the environment is set
    from comparison import profile

    device = pipeline.choose_device(options.device)
    config = replace(config, outdir=str(options.out), save_path=config.save_path or "run")
    if options.warm_up:
        pipeline.run(config, device, show_progress=False)
    measure = profile.profile_python if options.python else profile.profile_operators
    print(measure(config, device, options.out, options.top), end="")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    try:
        backend = [] if options.backend is None else [f"mesh.backend={options.backend}"]
        return run(options, load_config(options.config, [*options.overrides, *backend]))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
