"""From Gaussians to a mesh: density field, isosurface, cleaning."""

from mesh_extract.cleanup import CleanupReport, clean_mesh, decimate, taubin_smooth, vertex_normals
from mesh_extract.fields import BACKENDS, extract_fields, gaussian_3d_coeff
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface import ISOSURFACES, extract_mesh
from mesh_extract.mesh import Mesh
from mesh_extract.repair import repair
from mesh_extract.solid import fill_cavities, smooth_field
from mesh_extract.threshold import auto_threshold

__all__ = [
    "BACKENDS",
    "ISOSURFACES",
    "CleanupReport",
    "GridSpec",
    "Mesh",
    "auto_threshold",
    "clean_mesh",
    "decimate",
    "extract_fields",
    "extract_mesh",
    "fill_cavities",
    "gaussian_3d_coeff",
    "repair",
    "smooth_field",
    "taubin_smooth",
    "vertex_normals",
]
