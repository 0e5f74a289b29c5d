"""From Gaussians to a mesh.

grid = GridSpec.around(gaussians, resolution)                      # where the samples lie
density = smooth_field(extract_fields(gaussians, grid), 0.7)       # [X, Y, Z]
iso = LOOSE_SHARE * auto_threshold(gaussians, density, grid)       # or a number
density = carve(density, iso, grid, gaussians)                     # no fatter than the splats' silhouettes;
                                                                   # both take `pixel`, where the fit's is known
density = fill_cavities(density, iso, seal_voxels=3)               # one outer skin, no hollows behind it
mesh, report = clean_mesh(extract_mesh(density, grid, iso), faces=20_000, smooth_iterations=5)
"""

from mesh_extract.bake import bake_texture
from mesh_extract.carve import LOOSE_SHARE, carve
from mesh_extract.cleanup import CleanupReport, clean_mesh, decimate, taubin_smooth, vertex_normals
from mesh_extract.export import EXPORTERS, export_mesh
from mesh_extract.fields import BACKENDS, extract_fields, gaussian_3d_coeff
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface import ISOSURFACES, extract_mesh, extract_mesh_by_planes, extract_surface
from mesh_extract.mesh import Mesh
from mesh_extract.mesh_raster import render_mesh
from mesh_extract.repair import repair
from mesh_extract.solid import fill_cavities, smooth_field
from mesh_extract.textured import TexturedMesh
from mesh_extract.threshold import auto_threshold

__all__ = [
    "BACKENDS",
    "EXPORTERS",
    "ISOSURFACES",
    "LOOSE_SHARE",
    "CleanupReport",
    "GridSpec",
    "Mesh",
    "TexturedMesh",
    "auto_threshold",
    "bake_texture",
    "carve",
    "clean_mesh",
    "compare_extract_fields_cpu_to_gpu",
    "compare_gaussian_cpu_to_gpu",
    "decimate",
    "export_mesh",
    "extract_fields",
    "extract_mesh",
    "extract_mesh_by_planes",
    "extract_surface",
    "fill_cavities",
    "gaussian_3d_coeff",
    "render_mesh",
    "repair",
    "smooth_field",
    "taubin_smooth",
    "vertex_normals",
]

_COMPARISONS = ("compare_extract_fields_cpu_to_gpu", "compare_gaussian_cpu_to_gpu")


def __getattr__(name: str) -> object:
    """The comparisons, which no run needs, are imported when somebody asks for them."""
    if name in _COMPARISONS:
        from comparison import cpu_gpu

        return getattr(cpu_gpu, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
