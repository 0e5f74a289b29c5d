"""Time whole runs of the app: cold, each in a process of its own, and later objects in one process; stage by stage.

    python scripts/bench_pipeline.py --device cuda
    python scripts/bench_pipeline.py --device cpu --cold 1 --objects 2 --json outputs/bench.json fit.rounds=1

Everything else on the command line is an override of the configuration, as for main.py. The first process fills the
caches and is shown apart. A run counts only if its files are all there and its mesh is closed; if not, nothing is
timed and the exit status is 1.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from config import load_config  # noqa: E402
from errors import UserError  # noqa: E402
from runtime_env import prepare_environment  # noqa: E402

Run = dict[str, float]  # seconds by stage, and "wall", as a clock outside the run has it


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="auto", choices=("auto", "cpu", "cuda"))
    parser.add_argument(
        "--cold", type=int, default=3, help="runs in a process of their own, after one that fills caches"
    )
    parser.add_argument("--objects", type=int, default=4, help="runs in one process; the first does not count")
    parser.add_argument("--json", type=Path, default=None, help="write the figures to this file too")
    parser.add_argument("overrides", nargs="*", metavar="key=value")
    options = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory() as folder:
            first, *cold = [
                cold_run(options.device, options.overrides, Path(folder) / f"cold{k}") for k in range(1 + options.cold)
            ]
            objects = warm_runs(options.device, options.overrides, options.objects, Path(folder))
    except UserError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    columns = {"first process": [first], "cold": cold, "first object": objects[:1], "later objects": objects[1:]}
    from comparison.machine import describe_machine, one_line  # it imports torch, which cold runs do without

    machine = describe_machine()
    print("machine:", one_line(machine))
    print(f"command: {' '.join(sys.argv)}\nseconds: medians, in brackets least and most")
    print_table(columns)
    if options.json:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        record = {"command": sys.argv, "machine": machine, "runs": columns}
        options.json.write_text(json.dumps(record, indent=2) + "\n")
    return 0


def cold_run(device: str, overrides: list[str], folder: Path) -> Run:
    """One `python main.py`, from the start of the process to its end."""
    command = [sys.executable, str(ROOT / "main.py"), "--device", device, "--quiet", *overrides]
    started_s = time.perf_counter()
    ended = subprocess.run([*command, f"outdir={folder}", "save_path=run"], capture_output=True, text=True)
    wall_s = time.perf_counter() - started_s
    if ended.returncode:
        raise UserError(f"main.py ended with {ended.returncode}: {ended.stderr.strip()[-2000:]}")
    return checked(folder / "run", device) | {"wall": wall_s}


def warm_runs(device_name: str, overrides: list[str], count: int, folder: Path) -> list[Run]:
    """Runs with seeds 0, 1, ... in this process."""
    prepare_environment()
    import pipeline

    device, runs = pipeline.choose_device(device_name), []
    for seed in range(count):
        name = f"object{seed}"
        config = load_config(None, [*overrides, f"seed={seed}", f"outdir={folder}", f"save_path={name}"])
        started_s = time.perf_counter()
        written = pipeline.run(config, device, show_progress=False)
        wall_s = time.perf_counter() - started_s
        runs.append(checked(written, device_name) | {"wall": wall_s})
    return runs


def checked(folder: Path, device: str) -> Run:
    """Seconds by stage of a run whose results are what they should be.

    Raises:
        UserError: a file is missing or empty, the mesh is not closed, or something else than `device` was used.
    """
    import trimesh

    record = json.loads((folder / "run.json").read_text(encoding="utf-8"))
    missing = [name for name in record["files"] if not (folder / name).is_file() or not (folder / name).stat().st_size]
    if missing:
        raise UserError(f"{folder}: {', '.join(missing)} missing or empty")
    (mesh_file,) = (name for name in record["files"] if name.endswith("_mesh.ply"))
    mesh = trimesh.load(folder / mesh_file, process=False)
    if not (mesh.is_watertight and mesh.volume > 0):
        raise UserError(f"{folder / mesh_file}: the mesh is not closed, or turned inside out")
    if device != "auto" and record["ran_on"]["rasteriser"] != device:
        raise UserError(f"{folder}: ran on {record['ran_on']}, not on {device}")
    return record["seconds"] | {"whole run": record["total_seconds"]}


def print_table(columns: dict[str, list[Run]]) -> None:
    names = list(dict.fromkeys(name for runs in columns.values() for run in runs for name in run))
    print(f"{'':16}" + "".join(f"{f'{title} ({len(runs)})':>26}" for title, runs in columns.items()))
    for name in names:
        print(
            f"{name:16}" + "".join(f"{summary([run.get(name, 0.0) for run in runs]):>26}" for runs in columns.values())
        )


def summary(seconds: list[float]) -> str:
    if not seconds:
        return "-"
    spread = f" [{min(seconds):.2f} {max(seconds):.2f}]" if len(seconds) > 1 else ""
    return f"{statistics.median(seconds):.2f}{spread}"


if __name__ == "__main__":
    sys.exit(main())
