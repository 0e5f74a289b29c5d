"""Whole runs of the app by one backend or another, and how much of them its density field takes."""

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

import pipeline
from config import Config
from errors import UserError
from evaluation.fingerprint import code_hash, measured_code, weights_hash
from gaussians import Gaussians
from mesh_extract import BACKENDS, GridSpec
from registry import lookup
from run_record import write_json
from timing import timed

logger = logging.getLogger(__name__)

_KEPT = "measured.json"


@dataclass
class FieldCalls:
    """Calls of one backend during a run: seconds and nodes."""

    seconds: list[float] = field(default_factory=list)
    nodes: list[int] = field(default_factory=list)

    @property
    def field_s(self) -> float:
        """Of the calls on the run's own grid, the largest; a coarse one only finds where that has to be."""
        largest = max(self.nodes, default=0)
        return sum(s for s, nodes in zip(self.seconds, self.nodes, strict=True) if nodes == largest)


@contextmanager
def timed_backend(name: str) -> Iterator[FieldCalls]:
    """Time, after synchronising, every call of a backend while the context lasts: the app itself runs unchanged."""
    original = lookup(BACKENDS, name, "mesh.backend")
    calls = FieldCalls()

    def measured(gaussians: Gaussians, grid: GridSpec) -> torch.Tensor:
        density, seconds = timed(lambda: original(gaussians, grid), "cuda" if torch.cuda.is_available() else "cpu")
        calls.seconds.append(seconds)
        calls.nodes.append(grid.node_count)
        return density

    BACKENDS[name] = measured
    try:
        yield calls
    finally:
        BACKENDS[name] = original


@dataclass(frozen=True)
class WholeRun:
    """What a run of the app took. Seconds; folder: with the run's files."""

    backend: str
    total_s: float
    field_s: float
    field_device: str
    stages: dict[str, float]
    ran_on: dict[str, str]
    folder: str

    @property
    def rest_s(self) -> float:
        return self.total_s - self.field_s


def whole_run(config: Config, backend: str, device: torch.device, outdir: Path) -> WholeRun:
    """Run the app by one backend into <outdir>/<backend>.

    Raises:
        UserError: as the app.
    """
    folder, settings = _prepared(config, backend, outdir)
    logger.info("%s ...", folder)
    with timed_backend(backend) as calls:
        written = pipeline.run(settings, device, show_progress=False)
    if not calls.seconds:
        raise RuntimeError(f"the run never called the backend {backend!r}: nothing was measured")
    record = json.loads((written / "run.json").read_text(encoding="utf-8"))
    run = WholeRun(
        backend=backend,
        total_s=record["total_seconds"],
        field_s=calls.field_s,
        field_device=record["ran_on"]["density field"],
        stages=record["seconds"],
        ran_on=record["ran_on"],
        folder=str(written),
    )
    return run


def keep(run: WholeRun, config: Config, device: torch.device, outdir: Path) -> None:
    """Leave beside the run's files what it took, for `kept_run`."""
    folder, settings = _prepared(config, run.backend, outdir)
    write_json({"key": _key(settings, device), "run": asdict(run)}, folder / _KEPT)


def kept_run(config: Config, backend: str, device: torch.device, outdir: Path) -> WholeRun | None:
    """What an earlier, equal run has left: same settings, code and machine, its files still there."""
    folder, settings = _prepared(config, backend, outdir)
    try:
        record = json.loads((folder / _KEPT).read_text(encoding="utf-8"))
        if record["key"] != json.loads(json.dumps(_key(settings, device))):
            return None
        run = WholeRun(**record["run"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
    if not (Path(run.folder) / "run.json").is_file():
        return None
    logger.info("%s: taken from an earlier run", folder)
    return run


def _prepared(config: Config, backend: str, outdir: Path) -> tuple[Path, Config]:
    """The folder and the configuration of a run by this backend."""
    if backend == "auto":
        raise UserError("backend 'auto' stands for another one: name that one")
    settings = replace(config, outdir=str(outdir), save_path=backend, mesh=replace(config.mesh, backend=backend))
    return Path(outdir) / backend, settings


def _key(config: Config, device: torch.device) -> dict:
    """All that a run depends on, but for the load of the machine."""
    return {
        "config": asdict(config),
        "weights": weights_hash(config.prior.weights),
        "code": code_hash(measured_code()),
        "device": str(device),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
        "threads": torch.get_num_threads(),
    }
