"""What a stored result depends on: a run goes on from results of the same settings and the same code, no others."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from config import Config
from priors.embedded import DEFAULT_WEIGHTS

ROOT = Path(__file__).resolve().parent.parent
CODE_SUFFIXES = (".py", ".cu", ".txt")
# Folders of code that no result depends on.
NOT_MEASURED = ("tests", "training", "scripts", "docs", "comparison")
TRUTH_CODE = ("procedural", "evaluation/objects.py")
SAMPLES_CODE = (*TRUTH_CODE, "priors", "sir.py", "cameras.py", "views.py", "prepare.py", "evaluation/baselines.py")
MEAN_MESH_CODE = (
    *TRUTH_CODE, "hull.py", "mesh_extract/grid.py", "mesh_extract/isosurface.py", "evaluation/baselines.py"
)  # fmt: skip
# Keys that change where a run writes, or that the evaluation sets itself.
NOT_SETTINGS = ("input", "load", "save_path", "outdir", "elevation", "cache_dir", "prepare", "output")


def measured_code() -> list[str]:
    """Names of the modules and packages at the top level that a result may depend on."""
    modules = [path.name for path in ROOT.glob("*.py")]
    packages = [
        path.name
        for path in ROOT.iterdir()
        if path.is_dir() and path.name not in NOT_MEASURED and not path.name.startswith(".") and any(path.glob("*.py"))
    ]
    return sorted([*modules, *packages])


def code_hash(names: Iterable[str], root: Path = ROOT) -> str:
    """Hash of the source files `names` (files, or folders with all below), 16 hexadecimal digits."""
    digest = hashlib.sha256()
    for name in names:
        path = root / name
        files = sorted(f for f in path.rglob("*") if f.suffix in CODE_SUFFIXES) if path.is_dir() else [path]
        for file in files:
            digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:16]


def weights_hash(weights: str) -> str:
    """Hash of the prior's weights: of a file's bytes (no name: the project's own), of a folder's names and sizes."""
    digest = hashlib.sha256(weights.encode())
    path = Path(weights).expanduser() if weights else DEFAULT_WEIGHTS
    if path.is_file():
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    elif path.is_dir():
        for file in sorted(f for f in path.rglob("*") if f.is_file()):
            digest.update(f"{file.relative_to(path).as_posix()} {file.stat().st_size}\0".encode())
    return digest.hexdigest()[:16]


def settings_hash(config: Config, version: str, baselines: bool, device: str) -> str:
    """Hash of all that was asked for and that changes a number."""
    values = {key: value for key, value in asdict(config).items() if key not in NOT_SETTINGS}
    values |= {"version": version, "baselines": baselines, "device": device}
    values["weights"] = weights_hash(config.prior.weights)
    return _short_hash(values)


def samples_hash(config: Config, device: str) -> str:
    """Hash of what the prior's independent samples depend on."""
    return _short_hash(
        {
            "prior": config.prior.name,
            "weights": weights_hash(config.prior.weights),
            "seed": config.seed,
            "device": device,  # rounding differs, and twenty steps make it visible
            "code": code_hash(SAMPLES_CODE),
        }
    )


def _short_hash(values: dict) -> str:
    return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:16]
