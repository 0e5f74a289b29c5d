# ruff: noqa: F403, F405 (the slots of layout.py are a vocabulary: imported whole)
"""Ground truth of random objects: signed distance, mesh, number of components, in world units."""

import numpy as np
from scipy import ndimage

from procedural.cpu_render import signed_distance as _object_frame_distance
from procedural.families import Objects
from procedural.layout import *


def signed_distance(objects: Objects, index: int, points: np.ndarray) -> np.ndarray:
    """Distance of world points [P, 3] to the surface of one object, negative inside; float32 [P].

    The zero set is exact. Away from it the value is a bound of first order (ellipsoids, blends), and a lower bound
    farther out than about 0.15 object units.
    """
    material = objects.materials[index]
    return _distance_in_frame(objects, index, to_object_frame(material, points)) * material[SCALE]


def to_object_frame(material: np.ndarray, points: np.ndarray) -> np.ndarray:
    """World points [P, 3] in the frame in which the primitives are given."""
    s, c = np.sin(material[YAW]), np.cos(material[YAW])
    x, y, z = np.asarray(points, np.float32).T
    turned = np.stack([c * x - s * z, y, s * x + c * z], 1)
    return turned / material[SCALE] + material[CENTRE : CENTRE + 3]


def to_world(material: np.ndarray, points: np.ndarray) -> np.ndarray:
    """Object-frame points [P, 3] in the world: the inverse of to_object_frame."""
    s, c = np.sin(material[YAW]), np.cos(material[YAW])
    x, y, z = ((points - material[CENTRE : CENTRE + 3]) * material[SCALE]).T
    return np.stack([c * x + s * z, y, c * z - s * x], 1)


def truth_mesh(objects: Objects, index: int, resolution: int = 128):
    """The surface as a trimesh.Trimesh in the world: marching cubes of the distance, closed, outward, y up.

    Args:
        objects, index: which object.
        resolution: grid nodes along the longest side of its box.
    """
    import trimesh

    from mesh_extract.isosurface import marching_cubes

    values, origin, step = _sample_grid(objects, index, resolution)
    vertices, faces = marching_cubes(-values.astype(np.float32), 0.0)  # inside is positive there
    vertices = to_world(objects.materials[index], origin + vertices * step)
    mesh = trimesh.Trimesh(vertices, faces, process=False)
    if mesh.volume < 0.0:
        mesh.invert()
    return mesh


def truth_components(objects: Objects, index: int, resolution: int = 96) -> int:
    """Number of connected components of the solid, on a grid of `resolution` nodes along its longest side."""
    values, _, _ = _sample_grid(objects, index, resolution)
    return int(ndimage.label(values < 0.0)[1])


def _distance_in_frame(objects: Objects, index: int, points: np.ndarray) -> np.ndarray:
    """Distance of object-frame points, object units."""
    points = np.ascontiguousarray(points, np.float32)
    out = np.empty(len(points), np.float32)
    _object_frame_distance(objects.primitives[index], objects.materials[index], points, out)
    return out


def _sample_grid(objects: Objects, index: int, resolution: int) -> tuple[np.ndarray, np.ndarray, float]:
    """Distances on a grid about the object's box (object frame), the first node and the step."""
    material = objects.materials[index].astype(np.float64)
    half = material[HALF_BOX : HALF_BOX + 3] * 1.02 + material[MARGIN] + 0.01
    step = 2.0 * half.max() / (resolution - 1)
    counts = np.ceil(2.0 * half / step).astype(int) + 1
    origin = material[CENTRE : CENTRE + 3] - 0.5 * step * (counts - 1)
    axes = [origin[k] + step * np.arange(counts[k]) for k in range(3)]
    points = np.stack(np.meshgrid(*axes, indexing="ij"), -1).reshape(-1, 3)
    return _distance_in_frame(objects, index, points).reshape(counts).astype(np.float64), origin, step
