"""The whole comparison: fields, meshes, a growing grid, whole runs; one record, a table and three figures of it."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch

from comparison.accounts import AmdahlAccount
from comparison.backends import find_variants
from comparison.figures import figure_amdahl, figure_gustafson, figure_times
from comparison.machine import describe_machine, one_line
from comparison.measure import Budget, compare_fields, release_memory
from comparison.report import markdown
from comparison.scaling import measure_scaling
from comparison.whole_run import WholeRun, keep, kept_run, whole_run
from config import Config
from errors import BackendUnavailable
from files import whole_file
from gaussians import Gaussians
from mesh_extract import GridSpec
from run_record import write_json

logger = logging.getLogger(__name__)


@dataclass(frozen=True)
class Settings:
    """What to compare.

    backends: names, none for all; resolution: of the first table; sizes: of the growing grid, none to leave it out;
    iso: density of the meshes; whole_runs: backends of whole runs, the slow one first, none for no runs;
    run_repeats: of each; fresh: repeat those that an earlier call has left; command: what was typed, for the record.
    """

    out: Path
    backends: tuple[str, ...] = ()
    resolution: int = 128
    sizes: tuple[int, ...] = (128, 512, 1024)
    iso: float = 0.3
    budget: Budget = field(default_factory=Budget)
    whole_runs: tuple[str, ...] = ()
    run_repeats: int = 1
    fresh: bool = False
    command: str = ""


def compare(
    gaussians: Gaussians,
    grid_of: Callable[[int], GridSpec],
    scene: str,
    settings: Settings,
    config: Config | None = None,
    device: torch.device | None = None,
) -> dict:
    """Measure everything and write table, record and figures into settings.out; returns the record.

    Args:
        gaussians: on the CPU.
        grid_of: resolution -> grid.
        scene: what they are, in words.
        config, device: of the whole runs.
    Raises:
        UserError: an unknown backend, none that runs, no surface at settings.iso.
    """
    record = {"machine": describe_machine(), "scene": scene, "gaussians": len(gaussians), "iso": settings.iso}
    record["command"] = settings.command
    variants, record["missing"] = find_variants(settings.backends)
    for name, reason in record["missing"].items():
        logger.info("%s is left out: %s", name, reason)
    if not variants:
        raise BackendUnavailable(
            "none of the backends runs here: " + "; ".join(f"{name}: {why}" for name, why in record["missing"].items())
        )
    grid = grid_of(settings.resolution)
    record |= {"resolution": settings.resolution, "shape": list(grid.shape), "voxel_size": grid.voxel_size}
    results = compare_fields(gaussians, grid, settings.iso, variants, settings.budget)
    record["fields"] = [result.to_dict() for result in results]
    release_memory()
    sound = [result.variant for result in results if result.timing]
    record["scaling"] = []
    if settings.sizes:
        scaling = measure_scaling(gaussians, grid_of, settings.sizes, sound, settings.budget)
        record["scaling"] = [result.to_dict() for result in scaling]
    if settings.whole_runs and config is not None:
        runs = run_all(config, settings.whole_runs, device, settings.out / "runs", settings.fresh, settings.run_repeats)
        record |= amdahl_record(runs)
    write(record, settings.out)
    return record


def run_all(
    config: Config,
    backends: Sequence[str],
    device: torch.device,
    out: Path,
    fresh: bool = False,
    repeats: int = 1,
    warm_up: bool = True,
) -> dict[str, WholeRun]:
    """Whole runs by every backend, in turns; of each the one whose time is the median.

    Args:
        fresh: measure again what an earlier call has finished; else it is taken from there.
        repeats: of each.
        warm_up: first run the last backend once for nothing, so that no other pays for what is compiled and loaded.
    """
    runs = {name: None if fresh else kept_run(config, name, device, out) for name in backends}
    missing = [name for name, run in runs.items() if run is None]
    if warm_up and missing:
        logger.info("warming up ...")
        whole_run(config, backends[-1], device, out / "warm-up")
    measured = [(name, whole_run(config, name, device, out)) for _ in range(repeats) for name in missing]
    for name in missing:
        ordered = sorted((run for other, run in measured if other == name), key=lambda run: run.total_s)
        runs[name] = ordered[len(ordered) // 2]
        keep(runs[name], config, device, out)
    return runs


def amdahl_record(runs: dict[str, WholeRun]) -> dict:
    """The runs, and each one's account with the first of them as the slow one."""
    first, *others = runs.values()
    accounts = [
        AmdahlAccount.of(first.backend, other.backend, first.total_s, first.field_s, other.total_s, other.field_s)
        for other in others
    ]
    return {
        "runs": {name: asdict(run) for name, run in runs.items()},
        "accounts": [account.to_dict() for account in accounts],
    }


def figures(record: dict) -> dict[str, str]:
    """File name -> SVG, of what the record holds."""
    machine = one_line(record["machine"])
    scene = f"{record['gaussians']:,} Gaussians, {record['scene']}"
    sides = " x ".join(map(str, record["shape"]))
    drawn = {"figure_6_times.svg": figure_times(record["fields"], f"{scene}; {sides} nodes", machine)}
    if record.get("accounts"):
        drawn["figure_7_amdahl.svg"] = figure_amdahl(
            record["accounts"][-1], record["runs"], record["accounts"], machine
        )
    if len({row["resolution"] for row in record["scaling"] if row["timing"]}) > 1:
        drawn["figure_8_gustafson.svg"] = figure_gustafson(record["scaling"], scene, machine)
    return drawn


def write(record: dict, out: Path) -> None:
    """comparison.json, comparison.md and the figures, each whole or not at all."""
    write_json(record, out / "comparison.json")
    texts = {"comparison.md": markdown(record)}
    if any(row["timing"] for row in record["fields"]):
        texts |= figures(record)
    for name, text in texts.items():
        with whole_file(out / name) as temporary:
            temporary.write_text(text, encoding="utf-8")


def any_wrong(record: dict) -> bool:
    """Whether a backend's field was wrong, on any grid."""
    return any(
        row["error"] is not None and row["error"]["excess"] > 1 for row in (*record["fields"], *record["scaling"])
    )
