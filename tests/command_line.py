"""What tests of the command line share: quick settings, and how a run's folder and environment look."""

import os
from pathlib import Path

import torch

from scenes import shell
from splat_ply import write_gaussians

ROOT = Path(__file__).resolve().parent.parent

# A mesh and its texture in a second; pictures as small as they may be.
TINY = (
    "mesh.resolution=24", "mesh.seal=0", "texture.size=64", "texture.render_size=32", "texture.passes=0",
    "output.turntable=none",
)  # fmt: skip
TINY_FIT = ("fit.rounds=1", "fit.views=4", "fit.denoise_steps=1", "fit.init_steps=5", "fit.round_steps=5")


def files_of(name: str) -> list[str]:
    suffixes = ("_albedo.png", "_gaussians.ply", "_mesh.ply", "_views.png", ".glb", ".mtl", ".obj")
    return sorted([*(name + suffix for suffix in suffixes), "run.json"])


def contents(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {str(p.relative_to(folder)): p.read_bytes() if p.is_file() else None for p in folder.rglob("*")}


def environment(**changes: str) -> dict[str, str]:
    """This process's, as a child of its own would have it; caches stay where they are unless `changes` says so."""
    return {**os.environ, "PYTHONPATH": "", "LC_ALL": "C.UTF-8", **changes}


def write_splats(path: Path) -> Path:
    """A closed shell of 400 wide Gaussians in a .ply."""
    gaussians = shell(400, torch.Generator().manual_seed(0))
    gaussians.log_scales += 1.2
    write_gaussians(gaussians, path)
    return path
