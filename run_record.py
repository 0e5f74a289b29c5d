"""run.json: what was asked for, what ran where, how long it took, what came out."""

import json
import os
import platform
import resource
import subprocess
import sys
from dataclasses import asdict
from importlib import metadata
from pathlib import Path

import torch

from config import Config
from files import whole_file

ROOT = Path(__file__).resolve().parent
PACKAGES = ("torch", "numba", "numpy", "scipy", "PyMCubes", "fast-simplification", "uvunwrap", "trimesh", "Pillow")


def describe_run(
    config: Config, source: str, devices: dict[str, str], seconds: dict[str, float], mesh_report: dict, files: list[str]
) -> dict:
    """Everything about a run that is not in its other files, as plain values for JSON.

    Args:
        source: the picture or the Gaussians that went in.
        devices: what ran where, by stage.
        seconds: duration of every stage.
        mesh_report: counts and properties of the mesh, and what its cleaning dropped.
        files: names of the files written.
    """
    return {
        "config": asdict(config),
        "source": source,
        "seed": config.seed,
        "commit": commit(),
        "versions": {"python": platform.python_version(), **{name: _version(name) for name in PACKAGES}},
        "machine": {"system": platform.platform(), "cpus": usable_cpus(), "gpu": _gpu_name()},
        "ran_on": devices,
        "seconds": {name: round(value, 3) for name, value in seconds.items()},
        "peak_memory_mb": round(peak_memory_mb(), 1),
        "mesh": mesh_report,
        "files": files,
    }


def write_json(record: dict, path: Path) -> None:
    """Write `record` whole, readable by people."""
    with whole_file(path) as temporary:
        temporary.write_text(json.dumps(record, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


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


def peak_memory_mb() -> float:
    """Largest resident memory of this process so far, in 10^6 bytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak * (1.0 if sys.platform == "darwin" else 1024.0) / 1e6  # bytes on macOS, KiB on Linux


def usable_cpus() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def _gpu_name() -> str | None:
    return torch.cuda.get_device_name() if torch.cuda.is_available() else None
