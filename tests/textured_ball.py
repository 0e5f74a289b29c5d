"""A textured ball in colours that a formula gives."""

import dataclasses

import numpy as np
import torch
import trimesh

from mesh_extract.cleanup import with_normals
from mesh_extract.fill import nearest_texels
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import rasterize_uvs
from mesh_extract.textured import TexturedMesh
from mesh_extract.uv import unwrap


def waves(points: np.ndarray) -> np.ndarray:
    return 0.5 + 0.4 * np.sin(4.0 * points + np.array([0.0, 1.0, 2.0]))


def wavy_ball() -> TexturedMesh:
    sphere = trimesh.creation.icosphere(subdivisions=3, radius=0.6)
    mesh = with_normals(Mesh(sphere.vertices, sphere.faces))
    uvs, uv_faces = unwrap(mesh, 128, method="simple")
    face_ids, barycentrics = rasterize_uvs(uvs, uv_faces, 128)
    valid = face_ids >= 0
    points = (mesh.vertices[mesh.faces[face_ids[valid]]] * barycentrics[valid][..., None]).sum(axis=1)
    colours = (waves(points) * 255 + 0.5).astype(np.uint8)
    return TexturedMesh(mesh, uvs, uv_faces, colours[nearest_texels(torch.from_numpy(valid)).numpy()])


def grey(truth: TexturedMesh) -> TexturedMesh:
    return dataclasses.replace(truth, texture=np.full_like(truth.texture, 128))
