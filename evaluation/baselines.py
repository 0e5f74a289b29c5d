"""What a result is compared with: guesses that need no reconstruction, or only a simple one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

import views as view_sets
from cameras import Cameras, concatenate, orbit_cameras
from evaluation.objects import HeldOut, turned_to_source
from files import whole_file
from hull import EXTENT, sample_view
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface import extract_mesh
from mesh_extract.mesh import Mesh
from priors.base import Prior
from sir import continuous_plan, target_views
from views import Views, from_images

DDIM_STEPS = 20
GUIDANCE = 2.0
# With the eight novel views and the source itself these are the 13 views that the simple reconstructions fuse.
UPPER_AZIMUTHS_DEG = (45.0, 135.0, 225.0, 315.0)
UPPER_ELEVATION_DEG = 50.0
HULL_RESOLUTION = 96  # voxels along each side of the carved cube
HULL_AGREEMENT = 0.9  # share of the views that must cover a voxel: single samples err at their rims
MEAN_MESH_OBJECTS = 64
MEAN_MESH_RESOLUTION = 64
MEAN_MESH_FIRST_SEED = 7_000_000  # training seeds: no held-out object goes into the mean mesh
OPAQUE_BELOW = 0.97  # of a picture without coverage, what is darker than this in any channel is the object


def sample_cameras(item: HeldOut) -> Cameras:
    """Cameras of the independent samples: the eight novel views, then four from above."""
    size = item.cameras.width
    above = orbit_cameras(UPPER_AZIMUTHS_DEG, UPPER_ELEVATION_DEG, width=size, height=size)
    return concatenate([item.cameras[1:], above])


def independent_samples(prior: Prior, item: HeldOut, cameras: Cameras, seed: int) -> Views:
    """Each view sampled by the prior alone, from pure noise: DDIM with 20 steps, guidance 2.

    The prior's setting for joint views must be off. Deterministic for equal seed, object and device.
    """
    assert prior.group_size == 1, "views that see each other are not independent"
    prior.set_source(item.picture, item.elevation_deg)
    generator = torch.Generator().manual_seed(seed * 1_000_003 + item.index)
    at_prior = cameras.resized(prior.image_size, prior.image_size)
    views = []
    for camera in range(len(at_prior)):  # one by one: nothing is shared, and the memory is that of one view
        sampled = target_views(
            prior,
            None,
            at_prior[camera],
            continuous_plan(1.0, 1.0, DDIM_STEPS),
            guidance=GUIDANCE,
            generator=generator,
        )
        views.append(sampled.float().cpu())
    pictures = torch.cat(views)
    if pictures.shape[-2:] != (cameras.height, cameras.width):
        pictures = torch.nn.functional.interpolate(
            pictures, (cameras.height, cameras.width), mode="bilinear", antialias=True, align_corners=False
        ).clamp(0, 1)
    return views_over_white(pictures, cameras)


def views_over_white(pictures: Tensor, cameras: Cameras) -> Views:
    """A prior's pictures [V, 3 or 4, S, S] as views over white, with coverage in any case.

    What is over white with coverage a is at least 1 - a bright in every channel: raising darker values to that wipes
    specks off the empty background and changes nothing on the object.
    """
    views = from_images(pictures, cameras)
    if views.alpha is None:
        return replace(views, alpha=(views.rgb.amin(-1) < OPAQUE_BELOW).float())
    return replace(views, rgb=torch.maximum(views.rgb, 1 - views.alpha[..., None]))


def save_views(views: Views, path: Path) -> None:
    """Write the pictures whole, as bytes; cameras are not stored."""
    with whole_file(path) as temporary, temporary.open("wb") as file:
        rgba = torch.cat([views.rgb, views.alpha[..., None]], -1)
        np.savez_compressed(file, rgba=(rgba.clamp(0, 1) * 255).round().to(torch.uint8).numpy())


def load_views(path: Path, cameras: Cameras) -> Views:
    """Pictures written by `save_views`."""
    with np.load(path) as stored:
        rgba = torch.from_numpy(stored["rgba"]).float() / 255
    return Views(cameras, rgba[..., :3].contiguous(), rgba[..., 3].contiguous())


def cached_samples(make_prior: Callable[[], Prior], item: HeldOut, seed: int, path: Path) -> Views:
    """Independent samples, read from `path` where an earlier run has left them.

    Both ways return what was rounded to bytes, so that a run that finds them measures exactly what the first one did.

    Args:
        make_prior: () -> Prior; called only if there is something to sample.
    """
    cameras = sample_cameras(item)
    if not path.is_file():
        save_views(independent_samples(make_prior(), item, cameras, seed), path)
    return load_views(path, cameras)


def with_source(item: HeldOut, samples: Views) -> Views:
    """The true source view, then the samples."""
    size = samples.cameras.width
    source = item.picture.resized(size)
    own = Views(item.cameras[0], source.rgb[None], source.alpha[None])
    return view_sets.concatenate([own, samples])


def visual_hull(
    alphas: Tensor, cameras: Cameras, resolution: int = HULL_RESOLUTION, agreement: float = HULL_AGREEMENT
) -> Mesh:
    """Carve a cube by silhouettes, and take the surface of what is left.

    A voxel's value is the coverage that all but (1 - agreement) V of the views reach there (agreement 1: the lowest of
    all), bilinear in the pictures, so that marching cubes at one half finds the rim between the voxels.

    Args:
        alphas: [V, H, W] in [0, 1]; a voxel that a view does not see counts as uncovered there.
    Returns:
        A closed mesh in world units; without faces where nothing is left.
    """
    spacing = 2 * EXTENT / resolution
    axis = (torch.arange(resolution, dtype=torch.float32) + 0.5) * spacing - EXTENT
    points = torch.stack(torch.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    spared = int(len(cameras) * (1 - agreement) + 1e-4)
    lowest = [torch.full((len(points),), torch.inf) for _ in range(spared + 1)]  # ascending, of the views so far
    for view in range(len(cameras)):
        seen = sample_view(alphas[view, None], cameras, view, points)[0]
        for rank, value in enumerate(lowest):
            lowest[rank], seen = torch.minimum(value, seen), torch.maximum(value, seen)
    value = lowest[spared].reshape(resolution, resolution, resolution)
    return surface_of(value.numpy(), float(axis[0]), spacing)


def surface_of(values: np.ndarray, lower: float, spacing: float, level: float = 0.5) -> Mesh:
    """Closed mesh around values [X, Y, Z] of at least `level`; node (i, j, k) lies at lower + index * spacing."""
    if values.max() < level:
        return empty_mesh()
    return extract_mesh(values, GridSpec((lower,) * 3, spacing, values.shape), level)


def empty_mesh() -> Mesh:
    """No surface at all."""
    return Mesh(np.zeros((0, 3), np.float32), np.zeros((0, 3), np.int32))


def mean_object_mesh(resolution: int = MEAN_MESH_RESOLUTION, count: int = MEAN_MESH_OBJECTS) -> Mesh:
    """One fixed mesh: the space that at least half of a fixed set of training objects fill.

    Each object is turned as a held-out one would be, so that its source lies at azimuth 0.
    """
    import procedural
    from procedural.truth import signed_distance

    seeds = np.arange(MEAN_MESH_FIRST_SEED, MEAN_MESH_FIRST_SEED + count, dtype=np.int64)
    azimuths_deg, _ = procedural.held_out_source_angles(seeds)
    objects = procedural.sample_objects(seeds)
    spacing = 2 * EXTENT / resolution
    axis = (np.arange(resolution) + 0.5) * spacing - EXTENT
    points = np.stack(np.meshgrid(axis, axis, axis, indexing="ij"), -1).reshape(-1, 3)
    filled = np.zeros(len(points), np.float32)
    for index, azimuth_deg in enumerate(azimuths_deg.tolist()):
        distance = signed_distance(objects, index, turned_to_source(points, -azimuth_deg))
        filled += np.clip(0.5 - distance / spacing, 0, 1)  # share of the voxel that is inside, nearly
    return surface_of(filled.reshape((resolution,) * 3) / count, float(axis[0]), spacing)
