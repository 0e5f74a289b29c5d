"""The held-out objects that everything is measured on: what they look like, from where, and their true surface.

The pipeline's frame has the source camera at azimuth 0; an object's own frame is turned against it by the azimuth that
its source was rendered from. Pictures need no turning (a view at offset a is rendered at the source's azimuth + a);
surfaces are turned here.
"""

import math
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from cameras import Cameras, orbit_cameras
from errors import UserError
from files import whole_file
from mesh_extract.mesh import Mesh
from prepare import PreparedImage

VERSIONS = ("v1", "v2")
NOVEL_AZIMUTHS_DEG = (-160.0, -120.0, -80.0, -40.0, 40.0, 80.0, 120.0, 160.0)  # from the source, at its elevation
VIEW_SIZE_PX = 128
SOURCE_SIZE_PX = 256
MEAN_OBJECTS = 32  # the mean object is that of so many, however few are evaluated
SURFACE_RESOLUTION = 160  # nodes a side of the true surface's grid: 0.01 world units apart, a fifth of F-score's 0.05


@dataclass(frozen=True)
class Truth:
    """N held-out objects of one version, rendered.

    seeds [N] int64; azimuths_deg [N], elevations_deg [N] of the source, in the object's frame; sources
    [N, 256, 256, 4] and views [N, 9, 128, 128, 4] uint8: colour over white, then coverage. View 0 is the source's.
    """

    version: str
    seeds: np.ndarray
    azimuths_deg: np.ndarray
    elevations_deg: np.ndarray
    sources: np.ndarray
    views: np.ndarray

    def __len__(self) -> int:
        return len(self.seeds)


@dataclass(frozen=True)
class HeldOut:
    """One object as the evaluation of it needs it; all tensors float32 on the CPU.

    picture: the source, 256 px, not recentred, so that the cameras and the scale of the world match the truth.
    cameras: 9, of the pipeline's frame; camera 0 is the source's. rgb [9, S, S, 3] over white and alpha [9, S, S] are
    the truth there; mean_rgb and mean_alpha the means over the other objects.
    """

    version: str
    index: int
    seed: int
    azimuth_deg: float
    elevation_deg: float
    picture: PreparedImage
    cameras: Cameras
    rgb: Tensor
    alpha: Tensor
    mean_rgb: Tensor
    mean_alpha: Tensor


def render_truth(version: str, count: int) -> Truth:
    """Render the first `count` held-out objects of a version, on the CPU: every machine is to see the same."""
    import procedural  # compiles kernels when used

    if version not in VERSIONS:
        raise UserError(f"--version {version} is unknown; choose from {', '.join(VERSIONS)}")
    seeds = np.asarray(procedural.held_out_seeds(version))[:count]
    if len(seeds) < count:
        raise UserError(f"--objects {count}: version {version} has {len(seeds)} held-out objects")
    azimuths, elevations = (np.asarray(angles, dtype=np.float64) for angles in procedural.held_out_source_angles(seeds))
    objects = procedural.sample_objects(seeds, version)
    offsets = np.array([0.0, *NOVEL_AZIMUTHS_DEG])
    view_azimuths = azimuths[:, None] + offsets  # [N, 9]
    view_elevations = np.repeat(elevations[:, None], len(offsets), axis=1)

    def render(azimuths_deg: np.ndarray, elevations_deg: np.ndarray, size: int) -> np.ndarray:
        return procedural.render_views(objects, azimuths_deg, elevations_deg, size=size).numpy()  # [N, V, S, S, 4]

    return Truth(
        version,
        seeds.astype(np.int64),
        azimuths,
        elevations,
        render(azimuths[:, None], elevations[:, None], SOURCE_SIZE_PX)[:, 0],
        render(view_azimuths, view_elevations, VIEW_SIZE_PX),
    )


def save_truth(truth: Truth, path: Path, code: str) -> None:
    """Write the truth whole; `code` names what it was rendered by."""
    with whole_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, code=np.array(code), **vars(truth))


def load_truth(path: Path, code: str) -> Truth | None:
    """The truth of an earlier run, or None if there is none or other code rendered it."""
    if not path.is_file():
        return None
    with np.load(path) as stored:
        values = dict(stored)
    if str(values.pop("code")) != code:
        return None
    return Truth(version=str(values.pop("version")), **values)


def held_out(truth: Truth, index: int) -> HeldOut:
    """Object `index` of the truth."""
    views = torch.from_numpy(truth.views)
    others = [i for i in range(len(truth)) if i != index]
    mean = views[others].float().mean(0) / 255 if others else torch.ones(views.shape[1:])
    own = views[index].float() / 255
    source = torch.from_numpy(truth.sources[index]).float() / 255
    return HeldOut(
        version=truth.version,
        index=index,
        seed=int(truth.seeds[index]),
        azimuth_deg=float(truth.azimuths_deg[index]),
        elevation_deg=float(truth.elevations_deg[index]),
        picture=PreparedImage(source[..., :3].contiguous(), source[..., 3].contiguous()),
        cameras=evaluation_cameras(float(truth.elevations_deg[index]), views.shape[2]),
        rgb=own[..., :3].contiguous(),
        alpha=own[..., 3].contiguous(),
        mean_rgb=mean[..., :3].contiguous(),
        mean_alpha=mean[..., 3].contiguous(),
    )


def evaluation_cameras(elevation_deg: float, size: int = VIEW_SIZE_PX) -> Cameras:
    """The source's camera and the eight novel ones, in the pipeline's frame."""
    azimuths = [0.0, *NOVEL_AZIMUTHS_DEG]
    return orbit_cameras(azimuths, [elevation_deg] * len(azimuths), width=size, height=size)


def turned_to_source(vertices: np.ndarray, azimuth_deg: float) -> np.ndarray:
    """Move points [V, 3] of an object's frame into the frame in which the camera at `azimuth_deg` has azimuth 0."""
    a = math.radians(azimuth_deg)
    x, y, z = np.asarray(vertices, dtype=np.float64).T
    return np.stack([x * math.cos(a) - z * math.sin(a), y, x * math.sin(a) + z * math.cos(a)], axis=1)


def true_surface(item: HeldOut, resolution: int = SURFACE_RESOLUTION) -> tuple[Mesh, int]:
    """The true surface in the pipeline's frame, and its number of parts."""
    import procedural
    from procedural.truth import truth_components, truth_mesh

    objects = procedural.sample_objects(np.array([item.seed], dtype=np.int64), item.version)
    surface = truth_mesh(objects, 0, resolution)
    vertices = turned_to_source(surface.vertices, item.azimuth_deg)
    return Mesh(vertices, np.asarray(surface.faces)), truth_components(objects, 0)
