"""TurboDreamer's command line: a picture (or Gaussians) in, a folder with a textured 3D asset out."""

import argparse
import gc
import logging
import os
import signal
import sys
import time
from contextlib import suppress
from pathlib import Path

from config import Config, describe_keys, load_config
from errors import UserError
from files import remove_unfinished
from runtime_env import prepare_environment, process_started_s, start_driver, without_collection

EXIT_USER_ERROR = 2
EXIT_INTERRUPTED = 130
LESS_MEMORY = "try a smaller mesh.resolution or texture.size"

USAGE = """\
One picture in, a textured 3D asset out.

  python main.py                                        the sample picture
  python main.py input=cat.png save_path=cat            your picture: with an alpha channel, or on a plain background
  python main.py --config configs/mesh.yaml load=outputs/cat/cat_gaussians.ply      the mesh stage alone
"""


class _Parser(argparse.ArgumentParser):
    """argparse, with its errors as one line like all others."""

    def error(self, message: str) -> None:
        raise UserError(f"{message}; see --help")


class _Once(argparse.Action):
    """A flag that may not be given twice: of two files, which one wins should not be a guess."""

    def __call__(self, parser, namespace, values, option_string=None):
        if getattr(namespace, self.dest) is not None:
            given = f"{getattr(namespace, self.dest)} and {values}"
            parser.error(f"{option_string} is given twice: {given}; expected one file")
        setattr(namespace, self.dest, values)


def parse_arguments(arguments: list[str]) -> argparse.Namespace:
    """The flags; everything else is a key=value override."""
    parser = _Parser(
        prog="main.py",
        description=USAGE,
        epilog="keys, their defaults and meanings:\n" + describe_keys(),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", action=_Once, help="a YAML file of keys, such as configs/image.yaml"
    )
    parser.add_argument("--backend", metavar="NAME", help="how the density field is computed; wins over mesh.backend=")
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"), help="where everything runs")
    parser.add_argument("--quiet", action="store_true", help="log warnings only, no progress bar")
    parser.add_argument("overrides", nargs="*", metavar="key=value", help="any key of the list below")
    return parser.parse_intermixed_args(arguments)  # flags and overrides in any order


def resolve_config(options: argparse.Namespace) -> Config:
    """The configuration of this run, checked before anything heavy is imported."""
    overrides = list(options.overrides)
    if options.backend is not None:
        overrides.append(f"mesh.backend={options.backend}")
    return load_config(options.config, overrides)


def main(arguments: list[str] | None = None, started_s: float | None = None) -> int:
    """Run the command line; returns the exit code.

    Args:
        arguments: None: those of the process.
        started_s: when the program started, on the clock of time.perf_counter(); None: now.
    """
    started_s = time.perf_counter() if started_s is None else started_s
    try:
        options = parse_arguments(sys.argv[1:] if arguments is None else arguments)
        level = logging.WARNING if options.quiet else logging.INFO
        logging.basicConfig(level=level, format="%(message)s", stream=sys.stderr)
        config = resolve_config(options)
        prepare_environment(config.cache_dir or None)
        if options.device != "cpu":
            start_driver()
        with without_collection():
            import devices  # torch and numba read the environment when they are imported: only now
            import rehearsal

            device = devices.choose_device(options.device)
            rehearsed = rehearsal.start(config, device)  # while the rest is imported
            import pipeline

        pipeline.run(config, device, not options.quiet, started_s, rehearsed)
    except UserError as error:
        return _refuse(str(error))
    except OSError as error:  # writers name their file themselves; this is the rest, such as a full disk for caches
        return _refuse(str(error))
    except MemoryError as error:
        return _refuse(f"not enough memory ({error}); {LESS_MEMORY}")
    except RuntimeError as error:
        if "DefaultCPUAllocator" not in str(error):  # torch's own, where numpy has a MemoryError
            raise
        return _refuse(f"not enough memory ({str(error).splitlines()[0]}); {LESS_MEMORY}")
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    return 0


def _refuse(message: str) -> int:
    print(f"error: {' '.join(message.split())}", file=sys.stderr)
    return EXIT_USER_ERROR


def prepare_process() -> None:
    """Closed streams take what is written and lose it; signals that end the program leave nothing half written."""
    # In the order of their numbers: an open file gets the lowest free one, and libraries write to number 2 directly.
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode, errors="backslashreplace"))
    for number in (getattr(signal, name, None) for name in ("SIGINT", "SIGTERM", "SIGHUP")):
        if number is not None and signal.getsignal(number) != signal.SIG_IGN:  # nohup, or a job in the background
            signal.signal(number, _end_at_once)


def _end_at_once(number: int, frame) -> None:
    """Not by an exception: it would come up in the middle of anything, and what is called back from C swallows it."""
    if remove_unfinished():
        with suppress(OSError):
            os.write(2, b"interrupted\n" if number == signal.SIGINT else b"terminated\n")
        os._exit(128 + number)


if __name__ == "__main__":
    prepare_process()
    code = main(started_s=process_started_s())
    gc.freeze()  # or the interpreter, ending, goes through all objects for garbage, again and again: a second
    sys.exit(code)
