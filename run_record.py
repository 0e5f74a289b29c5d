"""run.json: what was asked for, what ran where, how long it took, what came out."""

import json
import platform
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import torch

try:
    import resource
except ImportError:  # Windows
    resource = None

from config import Config
from files import whole_file
from runtime_env import usable_cpus
from stages import StageTimes

ROOT = Path(__file__).resolve().parent
PACKAGES = ("torch", "numba", "numpy", "scipy", "PyMCubes", "fast-simplification", "uvunwrap", "trimesh", "Pillow")


def describe_run(
    config: Config, source: str, devices: dict[str, str], times: StageTimes, mesh_report: dict, files: list[str]
) -> dict:
    """Everything about a run that is not in its other files, as plain values for JSON.

    Args:
        source: the picture or the Gaussians that went in.
        devices: what ran where, by stage.
        times: duration of every stage, and since when.
        mesh_report: counts and properties of the mesh, and what its cleaning dropped.
        files: names of the other files written.
    """
    return {
        "config": asdict(config),
        "source": source,
        "seed": config.seed,
        "commit": commit(),
        "versions": versions(),
        "machine": {
            "system": platform.platform(), "cpus": usable_cpus(), "threads": torch.get_num_threads(), "gpu": _gpu_name()
        },
        "ran_on": devices,
        "seconds": {name: round(value, 3) for name, value in times.seconds.items()},
        "total_seconds": round(times.total_s, 3),
        "peak_memory_mb": peak_memory_mb(),
        "peak_gpu_memory_mb": _peak_gpu_memory_mb(),
        "mesh": mesh_report,
        "files": files,
    }


def write_json(record: dict, path: Path) -> None:
    """Write `record` whole, readable by people."""
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    with whole_file(path) as temporary:
        # Of names that are no UTF-8 the odd bytes become \udcxx, which is JSON's own way to write them.
        temporary.write_text(text, encoding="utf-8", errors="backslashreplace")


def commit() -> str | None:
    """The commit of the checkout that this code lies in, `-dirty` if files differ from it; None outside a checkout."""
    try:
        found = subprocess.run(
            ["git", "-C", str(ROOT), "describe", "--always", "--abbrev=40", "--dirty", "--exclude=*"],
            capture_output=True, text=True, timeout=5, check=True,
        )  # fmt: skip
    except (OSError, subprocess.SubprocessError):
        return None
    return found.stdout.strip() or None


def peak_memory_mb() -> float | None:
    """Largest resident memory of this process, or of a child that has ended, so far, in 10^6 bytes; None: not known.

    Linux gives a child the memory of its parent at the time of the start as a first value. That is no more than the
    parent's own peak, so the larger of the two is right all the same.
    """
    if resource is None:
        return None
    unit = 1.0 if sys.platform == "darwin" else 1024.0  # bytes on macOS, KiB on Linux
    children_mb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * unit / 1e6
    # For the same reason not getrusage for our own: it may hold the peak of what started us.
    own_mb = own_peak_memory_mb()
    if own_mb is None:  # no Linux
        own_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit / 1e6
    return round(max(own_mb, children_mb), 1)


def own_peak_memory_mb() -> float | None:
    """Largest resident memory of this process alone, since /proc/self/clear_refs was last written; None: not Linux."""
    try:
        status = Path("/proc/self/status").read_text()
        kib = next(float(line.split()[1]) for line in status.splitlines() if line.startswith("VmHWM:"))
    except (OSError, StopIteration):
        return None
    return kib * 1024 / 1e6


def versions() -> dict[str, str | None]:
    """Versions of Python and of what computes; None for a package that is not installed."""
    return {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}}


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpu_name() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _peak_gpu_memory_mb() -> float | None:
    """Largest memory that torch had allocated on the GPU, in 10^6 bytes; None where it used none."""
    if not (torch.cuda.is_available() and torch.cuda.is_initialized()):
        return None
    return round(torch.cuda.max_memory_allocated() / 1e6, 1)
