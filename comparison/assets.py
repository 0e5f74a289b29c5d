"""Distance between the assets of two runs: their splats, their surfaces, their textures."""

from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import torch

from comparison.mesh_distance import mesh_distance
from errors import UserError
from evaluation.metrics import psnr
from mesh_extract import Mesh, TexturedMesh
from mesh_extract.textured import sample_texture
from previews import SHEET_AZIMUTHS_DEG, draw_views, framing_cameras
from splat_ply import read_gaussians

_VIEW_PX = 256
_ELEVATION_DEG = 15.0


@dataclass(frozen=True)
class AssetDistance:
    """How far two assets are apart.

    splats: the largest difference of any parameter of the Gaussians as stored, None where their numbers differ;
    vertices, faces: of both, vertices split along the seams of the textures; size: longest side of the first mesh;
    hausdorff, mean: two-sided distances of the surfaces, world units; views, views_psnr_db: mean difference of eight
    views of the textured meshes, in 1/255, and their peak signal-to-noise ratio; texture: mean difference of the
    textures in the middle of each face, wherever the atlases put it, in 1/255, None where the meshes have other faces.
    """

    splats: float | None
    vertices: tuple[int, int]
    faces: tuple[int, int]
    size: float
    hausdorff: float
    mean: float
    views: float
    views_psnr_db: float
    texture: float | None

    def to_dict(self) -> dict:
        return asdict(self)


def asset_distance(first: Path, second: Path) -> AssetDistance:
    """Of the assets in two folders of runs.

    Raises:
        UserError: a folder lacks the files of a run.
    """
    a, b = read_asset(first), read_asset(second)
    apart = mesh_distance(a.mesh, b.mesh)
    cameras = framing_cameras(a, SHEET_AZIMUTHS_DEG, _ELEVATION_DEG, _VIEW_PX)
    pictures_a, pictures_b = (torch.from_numpy(np.stack(draw_views(each, cameras))).float() for each in (a, b))
    return AssetDistance(
        splats=_splat_difference(first, second),
        vertices=(len(a.mesh.vertices), len(b.mesh.vertices)),
        faces=(len(a.mesh.faces), len(b.mesh.faces)),
        size=float(np.ptp(a.mesh.vertices, axis=0).max()),
        hausdorff=apart.hausdorff,
        mean=apart.mean,
        views=float((pictures_a - pictures_b).abs().mean()),
        views_psnr_db=float(psnr(pictures_a / 255, pictures_b / 255).mean()),
        texture=_texture_difference(a, b),
    )


def read_asset(folder: Path) -> TexturedMesh:
    """The .glb of a run."""
    import trimesh

    path = _the_file(folder, "*.glb")
    (geometry,) = trimesh.load(path, force="scene", process=False).geometry.values()
    uvs = np.asarray(geometry.visual.uv, dtype=np.float32)
    texture = np.array(geometry.visual.material.baseColorTexture.convert("RGB"))
    mesh = Mesh(np.asarray(geometry.vertices), np.asarray(geometry.faces))
    return TexturedMesh(mesh, uvs, mesh.faces, texture)


def _splat_difference(first: Path, second: Path) -> float | None:
    a, b = (read_gaussians(_the_file(folder, "*_gaussians.ply")).tensors() for folder in (first, second))
    if any(a[name].shape != b[name].shape for name in a):
        return None
    return max((float((a[name] - b[name]).abs().max()) for name in a if a[name].numel()), default=0.0)


def _texture_difference(a: TexturedMesh, b: TexturedMesh) -> float | None:
    if not np.array_equal(a.mesh.faces, b.mesh.faces):
        return None
    of_a, of_b = (sample_texture(each.texture, each.uvs[each.uv_faces].mean(axis=1)) for each in (a, b))  # [F, 3]
    return float(np.abs(of_a - of_b).mean() * 255)


def _the_file(folder: Path, pattern: str) -> Path:
    found = sorted(Path(folder).glob(pattern))
    if len(found) != 1:
        raise UserError(f"{folder}: expected one {pattern} of a run, found {len(found)}")
    return found[0]
