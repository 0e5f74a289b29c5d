"""Meshes of one colour, for tests that ask where a mesh is seen."""

import numpy as np

from cameras import Cameras
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import MeshRendered, render_texture


def render_plain(mesh: Mesh, cameras: Cameras, color=(1.0, 1.0, 1.0), **options) -> MeshRendered:
    """Draw with a texture of one texel; options of `render_texture`."""
    texture = np.full((1, 1, 3), color, np.float32)
    return render_texture(mesh, np.zeros((1, 2)), np.zeros(mesh.faces.shape), texture, cameras, **options)
