"""Gaussians in .ply files: the layout that every splat viewer and 3D Gaussian splatting tool reads.

One element `vertex`, float32: x y z, nx ny nz (unused, zero), f_dc_0..2, f_rest_0..(3 K - 4), opacity, scale_0..2,
rot_0..3. Values are those before activation: opacity is a logit, scale a natural logarithm, rot a quaternion w, x, y, z
of any length, f_dc and f_rest spherical harmonics with f_rest ordered by channel (all of red, then green, then blue).
"""

import logging
from pathlib import Path

import numpy as np
import torch

from errors import UserError
from files import whole_file
from gaussians import Gaussians

logger = logging.getLogger(__name__)

_REQUIRED = (
    *("x", "y", "z"),
    *(f"f_dc_{i}" for i in range(3)),
    "opacity",
    *(f"scale_{i}" for i in range(3)),
    *(f"rot_{i}" for i in range(4)),
)
_BASES = {0: 1, 1: 4, 2: 9, 3: 16}  # spherical harmonics of each degree
# Infinite logits, as tools write for opacity 1, become this: indistinguishable in float32.
_LARGEST_LOGIT = 20.0
# exp of more than this (natural logarithm of a standard deviation) is no size; its square must fit float32 as well.
_LARGEST_LOG_SCALE = 40.0


def read_gaussians(path: Path) -> Gaussians:
    """Read Gaussians by property name: any order, ascii or binary of either byte order, any numeric type.

    Splats with values that are not finite are dropped with a warning; zero quaternions become the identity.

    Returns:
        float32 on the CPU, of the SH degree (0 to 3) that the file's f_rest properties give.
    Raises:
        UserError: no such file, no .ply, cut short, no splats in it, or properties missing (all are named).
    """
    table = _read_vertices(Path(path))
    names = table.dtype.names or ()
    missing = [name for name in _REQUIRED if name not in names]
    if missing:
        hint = "; it looks like a plain point cloud" if "x" in names and "opacity" not in names else ""
        raise UserError(f"{path}: not a file of Gaussians, the properties {', '.join(missing)} are missing{hint}")
    if not len(table):
        raise UserError(f"{path}: holds no splats (0 vertices)")
    rest = sum(name.startswith("f_rest_") for name in names)
    bases = 1 + rest // 3
    wanted = [f"f_rest_{i}" for i in range(rest)]
    if rest % 3 or bases not in _BASES.values() or any(name not in names for name in wanted):
        raise UserError(f"{path}: has {rest} f_rest properties; expected f_rest_0 to 8, 23 or 44, or none")

    with np.errstate(over="ignore"):  # doubles beyond float32 become infinite and are dropped below
        columns = {name: np.asarray(table[name]).astype(np.float32) for name in (*_REQUIRED, *wanted)}
    logits = columns["opacity"]
    columns["opacity"] = np.where(np.isinf(logits), np.sign(logits) * np.float32(_LARGEST_LOGIT), logits)
    sound = np.all([np.isfinite(column) for column in columns.values()], axis=0)
    sound &= np.all([columns[f"scale_{i}"] <= _LARGEST_LOG_SCALE for i in range(3)], axis=0)
    if not sound.all():
        if not sound.any():
            raise UserError(f"{path}: none of the {len(sound)} splats is finite")
        logger.warning("%s: dropped %d of %d splats that are not finite", path, int((~sound).sum()), len(sound))
        columns = {name: column[sound] for name, column in columns.items()}
    _warn_if_activated(path, columns)

    def stacked(*parts: str) -> torch.Tensor:
        return torch.from_numpy(np.stack([columns[name] for name in parts], axis=1))

    quats = stacked("rot_0", "rot_1", "rot_2", "rot_3")
    quats[(quats == 0).all(dim=1)] = torch.tensor([1.0, 0.0, 0.0, 0.0])
    count = len(quats)
    sh_rest = stacked(*wanted).reshape(count, 3, bases - 1).transpose(1, 2) if rest else torch.zeros(count, 0, 3)
    return Gaussians(
        means=stacked("x", "y", "z"),
        quats=quats,
        log_scales=stacked("scale_0", "scale_1", "scale_2"),
        logit_opacities=torch.from_numpy(columns["opacity"]),
        sh0=stacked("f_dc_0", "f_dc_1", "f_dc_2")[:, None, :],
        shN=sh_rest.contiguous(),
    )


def write_gaussians(gaussians: Gaussians, path: Path, sh_degree: int = -1) -> None:
    """Write Gaussians as binary little-endian float32.

    Args:
        gaussians: at least one.
        path: the file, which appears whole or not at all.
        sh_degree: -1 as they are; else padded with zeros (or cut) to this degree, 0 to 3: some viewers insist on 3.
    Raises:
        UserError: nothing to write, values that are not finite, or the file cannot be written.
    """
    if sh_degree not in (-1, *_BASES):
        raise UserError(f"sh_degree={sh_degree} must be -1, 0, 1, 2 or 3")
    if not len(gaussians):
        raise UserError(f"{path}: there are no Gaussians to write")
    values = {name: value.detach().cpu().float() for name, value in gaussians.tensors().items()}
    values["logit_opacities"] = values["logit_opacities"].clamp(-1e4, 1e4)  # infinite ones stand for 0 and 1
    for name, value in values.items():
        if not value.isfinite().all():
            raise UserError(f"{path}: gaussians.{name} holds values that are not finite; nothing was written")
    bases = _BASES[gaussians.sh_degree if sh_degree == -1 else sh_degree]
    count = len(gaussians)
    sh_rest = torch.zeros(count, bases - 1, 3)
    shared = min(bases - 1, values["shN"].shape[1])
    sh_rest[:, :shared] = values["shN"][:, :shared]
    quats = values["quats"].clone()
    quats[(quats == 0).all(dim=1)] = torch.tensor([1.0, 0.0, 0.0, 0.0])

    names = ["x", "y", "z", "nx", "ny", "nz", "f_dc_0", "f_dc_1", "f_dc_2"]
    names += [f"f_rest_{i}" for i in range(3 * (bases - 1))]
    names += ["opacity", "scale_0", "scale_1", "scale_2", "rot_0", "rot_1", "rot_2", "rot_3"]
    rows = torch.cat(
        [
            values["means"], torch.zeros(count, 3), values["sh0"][:, 0], sh_rest.transpose(1, 2).reshape(count, -1),
            values["logit_opacities"][:, None], values["log_scales"], quats,
        ],
        dim=1,
    )  # fmt: skip
    table = np.ascontiguousarray(rows.numpy(), dtype="<f4").view([(name, "<f4") for name in names])[:, 0]

    from plyfile import PlyData, PlyElement

    with whole_file(path) as temporary:
        try:
            PlyData([PlyElement.describe(table, "vertex")], byte_order="<").write(str(temporary))
        except OSError as error:
            raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def _read_vertices(path: Path) -> np.ndarray:
    """The element `vertex` of a .ply as a structured array."""
    from plyfile import PlyData, PlyParseError

    if not path.is_file():
        raise UserError(f"{path}: {'a folder' if path.is_dir() else 'no such file'}; expected a .ply of Gaussians")
    try:
        data = PlyData.read(str(path), mmap="r")  # value by value without: 0.4 s for 20,000
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error
    except (PlyParseError, UnicodeDecodeError, ValueError, MemoryError) as error:
        raise UserError(f"{path}: not a complete .ply file: {' '.join(str(error).split())}") from error
    if "vertex" not in data:
        held = ", ".join(element.name for element in data.elements) or "none"
        raise UserError(f"{path}: has no element vertex; its elements: {held}")
    return data["vertex"].data


def _warn_if_activated(path: Path, columns: dict[str, np.ndarray]) -> None:
    """Warn of files that hold opacities and sizes themselves where logits and logarithms belong."""
    opacity = columns["opacity"]
    sizes_positive = all((columns[f"scale_{i}"] > 0).all() for i in range(3))
    if sizes_positive and 0 <= opacity.min() and opacity.max() <= 1:
        logger.warning(
            "%s: every opacity is in [0, 1] and every scale positive; the file may hold activated values where logits "
            "and logarithms belong, and will look wrong",
            path,
        )
