"""From Gaussians to a mesh: density field, isosurface, cleaning."""

from mesh_extract.mesh import Mesh

__all__ = ["Mesh"]
