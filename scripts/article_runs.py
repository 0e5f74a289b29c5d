"""Repeat the runs of the article "Turbocharging MicroDreamer": 20 iterations and a mesh, and the validation with 80.

    python scripts/article_runs.py                              # cpu, and every faster backend that is there
    python scripts/article_runs.py --backends cpu cuda-fused cuda --device cuda
    python scripts/article_runs.py --only 80 input=cat.png

The first experiment runs the app from picture to files by each backend of the density field: seconds, and Amdahl's
account of them. The second runs it by the first and the last backend and measures how far the two assets are apart. An
iteration is one step of the optimiser: configs/article_20.yaml, configs/article_80.yaml. The backends differ in the
density field alone; all else runs on --device. Written to the output folder: article.md, article.json and the runs
themselves. A run that was killed goes on where it was; --fresh begins anew.
"""

import argparse
import logging
import shlex
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import load_config  # noqa: E402
from errors import BackendUnavailable, UserError  # noqa: E402
from runtime_env import prepare_environment  # noqa: E402


def parse_arguments(arguments: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--backends", nargs="+", metavar="NAME", default=[], help="the slow one first; default: all that run here"
    )
    parser.add_argument("--only", choices=("20", "80"), help="one of the two experiments")
    parser.add_argument("--timed-config", type=Path, default=ROOT / "configs" / "article_20.yaml", metavar="FILE")
    parser.add_argument("--validation-config", type=Path, default=ROOT / "configs" / "article_80.yaml", metavar="FILE")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="of all but the field")
    parser.add_argument("--repeats", type=int, default=1, help="of the timed runs, in turns; the median counts")
    parser.add_argument("--fresh", action="store_true", help="take nothing from earlier runs")
    parser.add_argument("--out", type=Path, default=Path("outputs/article"), help="output folder")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the app, in both experiments")
    options = parser.parse_intermixed_args(arguments)
    # --backends takes names alone: a key=value behind it belongs to the overrides.
    options.overrides += [text for text in options.backends if "=" in text]
    options.backends = [text for text in options.backends if "=" not in text]
    return options


def run(options: argparse.Namespace) -> int:
    timed = None if options.only == "80" else load_config(options.timed_config, options.overrides)
    validation = None if options.only == "20" else load_config(options.validation_config, options.overrides)
    prepare_environment((timed or validation).cache_dir or None)

    from comparison.article import ArticleRuns, repeat_article  # after the environment is set
    from comparison.backends import find_variants
    from devices import choose_device

    variants, missing = find_variants(options.backends)
    if options.backends and missing:
        name, reason = next(iter(missing.items()))
        raise BackendUnavailable(f"--backends {name}: {reason}")
    for name, reason in missing.items():
        logging.getLogger("comparison").info("%s is left out: %s", name, reason)
    backends = tuple(options.backends or dict.fromkeys(variant.backend for variant in variants))
    if options.repeats < 1:
        raise UserError(f"--repeats {options.repeats}: expected 1 at least")
    if len(backends) < 2:
        raise UserError(f"--backends {' '.join(backends)}: expected two at least, a slow one and a fast one")
    wanted = ArticleRuns(
        out=options.out,
        timed=backends,
        validated=(backends[0], backends[-1]),
        repeats=options.repeats,
        fresh=options.fresh,
        command=shlex.join(["python", *sys.argv]),
    )
    repeat_article(timed, validation, wanted, choose_device(options.device))
    print((options.out / "article.md").read_text(encoding="utf-8"), end="")
    return 0


def main(arguments: list[str] | None = None) -> int:
    options = parse_arguments(arguments)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    logging.getLogger("comparison").setLevel(logging.INFO)  # not what the app says about every run
    try:
        return run(options)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; the same command goes on from here", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
