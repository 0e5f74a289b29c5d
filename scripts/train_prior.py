"""Train, evaluate and look at the embedded prior (tiny-zero123).

    python scripts/train_prior.py train --gpus 2 --minutes 8.5 --total-minutes 24 --state DIR --export prior.safetensors
    python scripts/train_prior.py evaluate --weights prior.safetensors --device cuda --json floor.json
    python scripts/train_prior.py sheet --weights prior.safetensors --out sheet.png [pictures ...]
    python scripts/train_prior.py join prior.safetensors --parts DIR

`train` goes on where the state folder left off. Its time includes everything from the start of the command.
"""

from __future__ import annotations

import time

STARTED = time.time()

import sys  # noqa: E402
from pathlib import Path  # noqa: E402

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from runtime_env import prepare_environment  # noqa: E402

prepare_environment()

import argparse  # noqa: E402
import logging  # noqa: E402
from functools import partial  # noqa: E402

from errors import UserError  # noqa: E402

LOG_FORMAT = "%(asctime)s %(message)s"


def run_train(args: argparse.Namespace) -> None:
    from training.loop import TrainOptions, prepare_caches

    prepare_caches(args.state)
    from priors.tiny_zero123 import TinyZero123Config
    from training.distributed import launch
    from training.pool import render_procedural

    if args.final and args.minutes * 60 < 30:
        raise UserError(f"--minutes: expected at least 0.5 with --final, found {args.minutes}")
    sizes = {"image_size": args.image_size, "width": args.width, "depth": args.depth, "heads": args.width // 64 or 1}
    options = TrainOptions(
        state=args.state,
        minutes=args.minutes,
        total_minutes=args.total_minutes,
        last_run=args.final,
        export=args.export,
        split=args.split,
        init=args.init,
        model=TinyZero123Config(**sizes),
        pool_objects=args.objects,
        first_objects=args.first_objects,
        chunk=args.chunk,
        refresh_every=args.refresh_every,
        batch=args.batch,
        muon_lr=args.muon_lr,
        adam_lr=args.adam_lr,
        compile=args.compile,
        max_steps=args.steps,
        log_every=args.log_every,
        save_every_s=args.save_every,
        seed=args.seed,
        render=partial(render_procedural, version=args.version),
    )
    launch(_train_worker, args.gpus, args.device, options, STARTED)


def _train_worker(team, options, started: float) -> None:
    from training.loop import train

    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stdout, force=True)
    train(team, options, started)


def run_evaluate(args: argparse.Namespace) -> None:
    import torch

    from training.floor import SAMPLERS, evaluate, format_table

    torch.set_float32_matmul_precision("high")  # on a GPU: TF32

    report = evaluate(
        args.weights, args.device, args.objects, tuple(args.versions), args.batch, args.seed, args.samplers or SAMPLERS
    )
    print(format_table(report))
    if args.json:
        import json

        from files import whole_file

        with whole_file(args.json) as aside:
            aside.write_text(json.dumps(report, indent=1) + "\n")


def run_sheet(args: argparse.Namespace) -> None:
    from training.sheet import make_sheet

    make_sheet(
        args.weights,
        args.out,
        args.device,
        held_out=args.objects,
        version=args.version,
        pictures=args.pictures,
        elevation_deg=args.elevation,
        steps=args.steps,
        guidance=args.guidance,
        seed=args.seed,
    )
    print(args.out)


def run_join(args: argparse.Namespace) -> None:
    from training.state import join_file

    join_file(args.path, args.parts)
    print(args.path)


def parse_arguments(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)

    train = commands.add_parser("train", help="train, or go on training")
    train.set_defaults(run=run_train)
    train.add_argument("--state", type=Path, required=True, help="folder of the state, the log and compiled kernels")
    train.add_argument("--export", type=Path, help="averaged weights, .safetensors")
    train.add_argument("--init", type=Path, help="exported weights to begin from, where the state folder is empty")
    train.add_argument("--split", action="store_true", help="write the export in parts of 15 MB too")
    train.add_argument("--gpus", type=int, default=1, help="processes, one a device (ignored under torchrun)")
    train.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    train.add_argument("--minutes", type=float, default=8.5, help="wall clock of this run, from the command's start")
    train.add_argument("--total-minutes", type=float, default=24.0, help="wall clock of the whole schedule, all runs")
    train.add_argument("--final", action="store_true", help="let the learning rate reach 0 at the end of this run")
    train.add_argument("--steps", type=int, help="end this run after so many steps")
    train.add_argument("--objects", type=int, default=100_000, help="in the pool of each device")
    train.add_argument("--first-objects", type=int, default=20_000, help="in the pool before the first step")
    train.add_argument("--version", help="of the objects; by default the one for training")
    train.add_argument("--chunk", type=int, default=1024, help="objects rendered at once")
    train.add_argument("--refresh-every", type=int, default=0, help="steps between replaced chunks; 0: never")
    train.add_argument("--batch", type=int, default=64, help="objects a step and device")
    train.add_argument("--image-size", type=int, default=128)
    train.add_argument("--width", type=int, default=320)
    train.add_argument("--depth", type=int, default=8)
    train.add_argument("--muon-lr", type=float, default=0.02)
    train.add_argument("--adam-lr", type=float, default=1e-3)
    train.add_argument("--compile", action=argparse.BooleanOptionalAction, default=True)
    train.add_argument("--log-every", type=int, default=200)
    train.add_argument("--save-every", type=float, default=120.0, help="seconds between saves of the state")
    train.add_argument("--seed", type=int, default=0)

    evaluate = commands.add_parser("evaluate", help="table against trivial baselines on held-out objects")
    evaluate.set_defaults(run=run_evaluate)
    evaluate.add_argument("--weights", type=Path, required=True)
    evaluate.add_argument("--device", default="cuda")
    evaluate.add_argument("--objects", type=int, default=256)
    evaluate.add_argument("--versions", nargs="+", default=["v1", "v2"])
    evaluate.add_argument("--samplers", nargs="+", help="names of the table's rows to sample; all by default")
    evaluate.add_argument("--batch", type=int, default=32, help="objects at once")
    evaluate.add_argument("--json", type=Path)
    evaluate.add_argument("--seed", type=int, default=0)

    sheet = commands.add_parser("sheet", help="contact sheet: held-out objects, and pictures")
    sheet.set_defaults(run=run_sheet)
    sheet.add_argument("--weights", type=Path, required=True)
    sheet.add_argument("--out", type=Path, required=True)
    sheet.add_argument("--device", default="cuda")
    sheet.add_argument("--objects", type=int, default=12, help="held-out objects")
    sheet.add_argument("--version", default="v2", help="of the held-out objects")
    sheet.add_argument("--elevation", type=float, default=5.0, help="of the pictures' camera, degrees")
    sheet.add_argument("--steps", type=int, default=20)
    sheet.add_argument("--guidance", type=float, default=2.0)
    sheet.add_argument("--seed", type=int, default=0)
    sheet.add_argument("pictures", type=Path, nargs="*", help="picture files, as the app takes them")

    join = commands.add_parser("join", help="put the parts of a split export together")
    join.set_defaults(run=run_join)
    join.add_argument("path", type=Path, help="the file to write; its name is that of the parts")
    join.add_argument("--parts", type=Path, help="folder of the parts, by default the file's own")
    return parser.parse_args(argv)


def main() -> int:
    args = parse_arguments()
    logging.basicConfig(level=logging.INFO, format=LOG_FORMAT, stream=sys.stdout)
    try:
        args.run(args)
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
