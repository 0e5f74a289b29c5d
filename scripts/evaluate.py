"""Measure the app on held-out objects whose truth is known; the yardstick of every change to it.

    python scripts/evaluate.py                                            all 32 objects of version v1, one at a time
    python scripts/evaluate.py --jobs 8 --threads-per-job 2               eight at a time
    python scripts/evaluate.py --only 3,5 --no-baselines fit.rounds=12    two objects, another setting
    python scripts/evaluate.py --compare outputs/before/summary-v1.json   and the difference from an earlier run
    python scripts/evaluate.py --compare before.json after.json           the difference of two runs, nothing is run

A run that was killed goes on where it was if the code and the settings are the same. In the output folder: for each
object objects/<version>-<index>.json (numbers), .png (sheet), .npz (splats, mesh, pictures); summary-<version>.json
and .md, overview-<version>.png. Exit code 1 if an object failed; targets missed are printed and do not count.
"""

import argparse
import json
import logging
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from config import Config, load_config
from errors import UserError
from runtime_env import prepare_environment, usable_cpus


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--version", default="v1", help="of the held-out objects: v1 or v2")
    parser.add_argument("--objects", type=int, default=32, help="the first so many of them")
    parser.add_argument("--only", metavar="I,J,...", help="of these, only the ones of these indices")
    parser.add_argument("--out", type=Path, default=Path("outputs/evaluate"), help="output folder")
    parser.add_argument(
        "--samples", type=Path, default=Path("outputs/evaluate-samples"),
        help="where the prior's independent samples are kept, for other runs too",
    )  # fmt: skip
    parser.add_argument("--jobs", type=int, default=1, help="objects at a time, each in a process of its own")
    parser.add_argument("--threads-per-job", type=int, default=0, help="0: the cores divided by the jobs")
    parser.add_argument(
        "--baselines", action=argparse.BooleanOptionalAction, default=True,
        help="also measure what the prior's independent samples give (about half of the time, once)",
    )  # fmt: skip
    parser.add_argument("--device", choices=("auto", "cpu", "cuda"), default="cpu", help="where the prior runs")
    parser.add_argument("--config", type=Path, metavar="FILE", help="a YAML file of keys, such as configs/image.yaml")
    parser.add_argument("--accept-old-code", action="store_true", help="keep results that other code has made")
    parser.add_argument("--compare", type=Path, nargs="+", metavar="SUMMARY", help="one or two summary JSON files")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the app's configuration")
    options = parser.parse_intermixed_args(arguments)
    # --compare takes files alone: a key=value behind it belongs to the overrides.
    for path in list(options.compare or ()):
        if "=" in path.name:
            options.compare.remove(path)
            options.overrides.append(str(path))
    return options


def parse_indices(text: str | None) -> tuple[int, ...] | None:
    """ "3,5" -> (3, 5)."""
    if text is None:
        return None
    try:
        return tuple(int(part) for part in text.split(","))
    except ValueError:
        raise UserError(f"--only {text}: expected indices such as 3,5") from None


def read_summary(path: Path) -> dict:
    if not path.is_file():
        raise UserError(f"--compare {path}: no such file; expected a summary-<version>.json")
    return json.loads(path.read_text(encoding="utf-8"))


def run(options: argparse.Namespace, config: Config) -> int:
    only = parse_indices(options.only)
    prepare_environment(config.cache_dir or None)
    before = read_summary(options.compare[0]) if options.compare else None

    from evaluation import report  # what imports numba and torch comes after the environment is set

    if options.compare and len(options.compare) == 2:
        print(report.compare(before, read_summary(options.compare[1])), end="")
        return 0

    import pipeline
    from evaluation.app import APP
    from evaluation.run import Settings, evaluate

    threads = options.threads_per_job
    if options.jobs > 1 and threads == 0:
        threads = max(1, usable_cpus() // options.jobs)
    settings = Settings(
        out=options.out,
        samples=options.samples,
        version=options.version,
        objects=options.objects,
        only=only,
        baselines=options.baselines,
        device=str(pipeline.choose_device(options.device)),
        jobs=options.jobs,
        threads_per_job=threads,
        accept_old_code=options.accept_old_code,
    )
    summary = evaluate(config, settings, APP)
    print(report.markdown(summary), end="")
    if before is not None:
        print("\n" + report.compare(before, summary), end="")
    return 1 if summary["failed"] else 0


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("evaluation").setLevel(logging.INFO)  # not what the app says about every object
    try:
        if options.compare and len(options.compare) > 2:
            raise UserError(f"--compare: expected one or two files, found {len(options.compare)}")
        return run(options, load_config(options.config, options.overrides))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
