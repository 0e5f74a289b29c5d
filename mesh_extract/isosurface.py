"""From a density field to the closed surface at which it crosses a threshold."""

import math
from collections.abc import Sequence
from importlib.util import find_spec

import numpy as np
from torch import Tensor

from errors import UserError
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface_cuda import NODE_DISTANCE, Planes, marching_cubes_cuda, marching_cubes_planes, slabs
from mesh_extract.mesh import Mesh
from profiling import profiled
from registry import lookup, register

# name -> (density [X, Y, Z], iso) -> (vertices [V, 3] in node units, faces [F, 3]): closed, wound outward
ISOSURFACES = {}
# The same on tensors that lie on a GPU, and stay there; what is not here runs on the CPU. Nothing inside: no vertices.
ON_GPU = {"marching_cubes": marching_cubes_cuda}


@profiled
def extract_mesh(density: Tensor, grid: GridSpec, iso: float, method: str = "marching_cubes") -> Mesh:
    """The surface around the nodes at which density >= iso.

    Outside the grid the density counts as 0, so the mesh is closed even where the grid cuts the object.

    Args:
        density: [X, Y, Z], the shape of `grid`. Where it lies on a GPU, marching cubes runs there, in single precision:
            the same surface to 1e-5 of a voxel at 128 nodes a side, with other diagonals in the loops of a cell.
        grid: places the vertices in world space.
        iso: threshold, positive.
        method: a name in ISOSURFACES.
    Returns:
        Closed mesh, faces counter-clockwise from outside, none without area; vertices float64.
    Raises:
        UserError: an unknown method, a field that is not finite or of another shape, no surface at `iso`.
    """
    surface = lookup(ISOSURFACES, method, "mesh.method")
    if _is_on_gpu(density) and method in ON_GPU:
        return _to_mesh(*extract_surface(density, grid, iso, method))
    _check_arguments(density.shape, grid, iso)
    field = density.detach().cpu().numpy() if isinstance(density, Tensor) else np.asarray(density)
    check_surface(field, iso)
    vertices, faces = surface(field, iso)
    mesh = Mesh(grid.to_world(vertices), faces)
    assert mesh.volume > 0, "isosurface methods wind outward"
    return mesh


def extract_surface(
    density: Tensor, grid: GridSpec, iso: float, method: str = "marching_cubes"
) -> tuple[Tensor, Tensor]:
    """`extract_mesh` on a GPU with the result left there: vertices [V, 3], world units, float64; faces [F, 3], int32.

    Raises:
        UserError: as `extract_mesh`; no memory for it on the GPU.
        BackendUnavailable: `density` is on no GPU, or kernels cannot run on it.
    """
    surface = lookup(ON_GPU, method, "mesh.method on a GPU")
    _check_arguments(density.shape, grid, iso)
    vertices, faces = surface(density, iso)
    if not len(faces):
        raise _no_surface(float(density.min()), float(density.max()), iso)
    return grid.to_world(vertices.double()), faces


def extract_mesh_by_planes(
    planes: Planes, grid: GridSpec, iso: float, slab_planes: int | None = None, on_gpu: bool = True
) -> Mesh:
    """`extract_mesh` by marching cubes, of a field that is never whole in memory.

        extract_mesh_by_planes(lambda x0, x1: extract_fields(gaussians, grid.slab(x0, x1), "cuda"), grid, iso)

    Args:
        planes: (x0, x1) -> density [x1 - x0, Y, Z] at the nodes of `grid` with x from x0 to x1 - 1. Asked for once
            each, in order, two or more at a time.
        slab_planes: about how many; None: those of 64 M nodes.
        on_gpu: whether `planes` gives them on a GPU, where the work is then done.
    Raises:
        UserError, BackendUnavailable: as `extract_surface`.
    """
    _check_arguments(grid.shape, grid, iso)
    by_planes = marching_cubes_planes if on_gpu else marching_cubes_slabs
    vertices, faces = by_planes(planes, grid.shape, iso, slab_planes)
    if not len(faces):  # worth another walk, to say in which range a threshold would do
        ranges = [planes(*slab).aminmax() for slab in slabs(grid.shape, slab_planes)]
        raise _no_surface(min(float(low) for low, _ in ranges), max(float(high) for _, high in ranges), iso)
    if not on_gpu:
        return Mesh(grid.to_world(vertices), faces)
    return _to_mesh(grid.to_world(vertices.double()), faces)


def _is_on_gpu(density: Tensor | np.ndarray) -> bool:
    return isinstance(density, Tensor) and density.is_cuda


def _to_mesh(vertices: Tensor, faces: Tensor) -> Mesh:
    return Mesh(vertices.cpu().numpy(), faces.cpu().numpy())


def _check_arguments(shape: Sequence[int], grid: GridSpec, iso: float) -> None:
    if tuple(shape) != grid.shape:
        raise UserError(f"density must be {list(grid.shape)} as the grid, got {list(shape)}")
    # Not so small that single precision takes it for 0, which is what the field has outside the grid.
    if not (math.isfinite(iso) and iso >= np.finfo(np.float32).tiny):
        raise UserError(f"mesh.iso={iso} must be a positive number, {np.finfo(np.float32).tiny:.2g} or more")


def _no_surface(low: float, high: float, iso: float) -> UserError:
    """What to say about a field that is nowhere at least `iso`."""
    if high <= 0:
        return UserError(f"no surface at mesh.iso={iso:g}: the density is 0 everywhere, no Gaussian reaches the grid")
    return UserError(
        f"no surface at mesh.iso={iso:g}: the density ranges from {low:.3g} to {high:.3g}; try mesh.iso={high / 2:.2g}"
    )


def check_surface(field: np.ndarray, iso: float) -> None:
    """Raise a UserError unless `field` is finite and somewhere at least `iso`."""
    if not np.isfinite(field).all():
        raise UserError(f"density holds {int((~np.isfinite(field)).sum())} values that are not finite")
    low, high = float(field.min()), float(field.max())
    if high < iso or high <= 0:
        raise _no_surface(low, high, iso)


def _triangles_mcubes(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Vertices [V, 3] in the middle of grid edges and outward faces [F, 3] between nodes of 1 and of 0."""
    import mcubes

    return mcubes.marching_cubes(inside, 0.5)


def _triangles_skimage(inside: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """As `_triangles_mcubes`. Only the "lorensen" tables see nothing but the corners of a cell: the others may leave
    the surface open on fields of 0 and 1."""
    from skimage.measure import marching_cubes as skimage_marching_cubes

    vertices, faces, _, _ = skimage_marching_cubes(inside, 0.5, method="lorensen")
    return vertices.astype(np.float64), faces[:, ::-1]


# By the name of the package, in the order of preference. PyMCubes has no wheel for Python 3.13.
TRIANGLES = {"mcubes": _triangles_mcubes, "skimage": _triangles_skimage}


@register(ISOSURFACES, "marching_cubes")
def marching_cubes(density: np.ndarray, iso: float, library: str | None = None) -> tuple[np.ndarray, np.ndarray]:
    """Marching cubes (Lorensen and Cline 1987), with the topology from a library and our own vertex positions.

    Which triangles there are depends only on which nodes are inside. So the library gets that alone, as 0 and 1, and
    puts every vertex in the middle of a grid edge, from where it is moved to the crossing in float64, but not onto a
    node.

    Args:
        library: "mcubes" or "skimage"; None: the first that is installed. They differ in the diagonals of flat patches
            and in which of two inside corners of a face are joined where both ways are right.
    """
    return _marching_cubes(density, iso, library)


def _marching_cubes(
    density: np.ndarray,
    iso: float,
    library: str | None = None,
    first_x: int = 0,
    open_ends: tuple[bool, bool] = (False, False),
) -> tuple[np.ndarray, np.ndarray]:
    """`marching_cubes` of the planes from `first_x` on; at an open end the surface is not closed: the field goes on."""
    triangles = TRIANGLES[library or next((name for name in TRIANGLES if find_spec(name)), "mcubes")]
    inside = density >= iso
    # Only the box around the inside, with one empty layer: closes the surface and spares empty space.
    first, last = np.zeros(3, dtype=int), np.zeros(3, dtype=int)
    for axis in range(3):
        occupied = np.flatnonzero(inside.any(axis=tuple(other for other in range(3) if other != axis)))
        first[axis], last[axis] = occupied[0] - 1, occupied[-1] + 1
    if open_ends[0]:
        first[0] = max(first[0], 0)
    if open_ends[1]:
        last[0] = min(last[0], len(density) - 1)
    crop = tuple(slice(max(a, 0), min(b, n - 1) + 1) for a, b, n in zip(first, last, density.shape, strict=True))
    missing = [(int(a < 0), int(b > n - 1)) for a, b, n in zip(first, last, density.shape, strict=True)]
    vertices, faces = triangles(np.pad(inside[crop], missing).astype(np.float32))
    values = np.pad(density[crop], missing)

    below = np.floor(vertices).astype(np.int64)  # the edge's first node
    along = vertices > below  # the edge's axis, one-hot [V, 3]
    assert (along.sum(axis=1) == 1).all()
    value_a = values[tuple(below.T)].astype(np.float64)
    value_b = values[tuple((below + along).T)].astype(np.float64)
    fraction = (iso - value_a) / (value_b - value_a)
    fraction = np.clip(fraction, NODE_DISTANCE, 1 - NODE_DISTANCE)
    below += first + (first_x, 0, 0)  # whole numbers first: a slab rounds as the whole does
    return below + along * fraction[:, None], faces.astype(np.int32)


def marching_cubes_slabs(
    planes: Planes, shape: tuple[int, int, int], iso: float, slab_planes: int | None = None
) -> tuple[np.ndarray, np.ndarray]:
    """`marching_cubes` of a field on the CPU that is never whole in memory: the same vertices and faces, in another
    order. Both are empty where nothing is inside.

    Args:
        planes, shape, slab_planes: as of `marching_cubes_planes`.
    """
    vertices, faces, vertex_count, before = [np.zeros((0, 3))], [np.zeros((0, 3), np.int32)], 0, None
    for x0, x1 in slabs(shape, slab_planes):
        field = planes(x0, x1).detach().numpy()
        if not np.isfinite(field).all():
            raise UserError(f"density holds {int((~np.isfinite(field)).sum())} values that are not finite")
        start = x0 if before is None else x0 - 1
        field = field.copy() if before is None else np.concatenate([before, field])
        before = field[-1:].copy()
        if not (field >= iso).any():
            continue
        found, triangles = _marching_cubes(field, iso, first_x=start, open_ends=(x0 > 0, x1 < shape[0]))
        vertices.append(found)
        faces.append(triangles + vertex_count)
        vertex_count += len(found)
    ends = np.array([x1 - 1 for _, x1 in slabs(shape, slab_planes)[:-1]])
    return _welded(np.concatenate(vertices), np.concatenate(faces), ends)


def _welded(vertices: np.ndarray, faces: np.ndarray, ends: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """One vertex for two in the same place of a plane x in `ends`, where slabs meet: they are equal bit for bit, and
    since vertices stay away from nodes, two of one slab never are."""
    shared = np.flatnonzero(np.isin(vertices[:, 0], ends))
    _, first, which = np.unique(vertices[shared], axis=0, return_index=True, return_inverse=True)
    kept_as = np.arange(len(vertices))
    kept_as[shared] = shared[first][which.reshape(-1)]
    kept = kept_as == np.arange(len(vertices))
    return vertices[kept], (np.cumsum(kept) - 1)[kept_as[faces]].astype(np.int32)
