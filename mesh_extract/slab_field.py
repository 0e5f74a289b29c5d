"""A field that does not fit into memory, made slab by slab, with what only the whole can tell taken from a coarse one.

The threshold, the silhouettes and the hollows are those of a grid of at most 256 nodes a side over the same box, which
is whole. Where that is as fine as the grid itself, the slabs are slices of the whole field, bit for bit.
"""

import logging
import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from gaussians import Gaussians
from mesh_extract.blur import kernel_half
from mesh_extract.carve import Silhouettes, cut
from mesh_extract.fields import extract_fields
from mesh_extract.grid import GridSpec
from mesh_extract.isosurface import extract_mesh_by_planes
from mesh_extract.mesh import Mesh
from mesh_extract.solid import BLUR_TRUNCATE, fill_cavities, smooth_field
from profiling import profiled

logger = logging.getLogger(__name__)

COARSE_RESOLUTION = 256
SLAB_NODES = 1 << 24  # of a slab, without its margins


def coarse_grid(grid: GridSpec) -> GridSpec:
    """A grid over the same box of at most 256 nodes a side; `grid` itself if it has no more."""
    if max(grid.shape) <= COARSE_RESOLUTION:
        return grid
    extent = np.subtract(grid.upper, grid.lower)
    voxel_size = float(extent.max()) / (COARSE_RESOLUTION - 1)
    return GridSpec(grid.lower, voxel_size, np.ceil(extent / voxel_size - 1e-6).astype(int).clip(1) + 1)


def slab_planes(grid: GridSpec) -> int:
    """How many planes to make at a time."""
    return max(2, SLAB_NODES // (grid.shape[1] * grid.shape[2]))


@dataclass
class Filling:
    """A coarse field whose hollows are filled, and where they are: what it holds there is the least for a finer one."""

    grid: GridSpec
    filled: Tensor  # [X, Y, Z]
    raised: Tensor  # [X, Y, Z], 1 at the nodes that were filled, else 0

    def fill(self, density: Tensor, grid: GridSpec) -> Tensor:
        """The field of a slab [P, Y, Z] with the hollows filled, in every coarse cell of which a corner was."""
        near = self._at(self.raised, grid) > 0
        return torch.where(near, torch.maximum(density, self._at(self.filled, grid)), density)

    def _at(self, values: Tensor, grid: GridSpec) -> Tensor:
        """Coarse values, interpolated linearly at the nodes of a finer grid."""
        for axis, (positions, low) in enumerate(zip(grid.axes(), self.grid.lower, strict=True)):
            nodes = (positions - low) / self.grid.voxel_size
            # Exactly a coarse node where rounding alone stands between them.
            nodes = np.where(np.abs(nodes - nodes.round()) < 1e-6, nodes.round(), nodes)
            below = np.floor(nodes).clip(0, values.shape[axis] - 2)
            shape = [-1 if other == axis else 1 for other in range(3)]
            share = torch.from_numpy(nodes - below).to(values).reshape(shape).clamp(0, 1)
            index = torch.from_numpy(below.astype(np.int64)).to(values.device)
            values = values.index_select(axis, index) * (1 - share) + values.index_select(axis, index + 1) * share
        return values


@profiled
def find_hollows(density: Tensor, iso: float, coarse: GridSpec, grid: GridSpec, seal_voxels: int) -> Filling | None:
    """The hollows of a coarse field that is carved already; None if there are none. seal_voxels: of `grid`."""
    sealed = math.ceil(seal_voxels * grid.voxel_size / coarse.voxel_size - 1e-6)
    filled = fill_cavities(density, iso, sealed)
    raised = filled != density
    return Filling(coarse, filled, raised.to(filled.dtype)) if raised.any() else None


@dataclass
class SlabField:
    """The field of Gaussians on `grid`: blurred, cut to silhouettes and filled, some planes at a time."""

    gaussians: Gaussians
    grid: GridSpec
    backend: str
    smooth: float  # standard deviation of the blur, voxels
    iso: float
    silhouettes: Silhouettes | None = None
    filling: Filling | None = None

    @property
    def margin(self) -> int:
        """Planes on either side of a slab on which its own depend: the blur's reach, and neighbours while cutting."""
        return blur_radius(self.smooth) + (self.silhouettes is not None)

    def planes(self, x0: int, x1: int) -> Tensor:
        """Density [x1 - x0, Y, Z] of the planes x0 to x1 - 1."""
        start, stop = max(x0 - self.margin, 0), min(x1 + self.margin, self.grid.shape[0])
        slab = self.grid.slab(start, stop)
        density = extract_fields(self.gaussians, slab, self.backend).detach()
        if self.smooth:
            density = smooth_field(density, self.smooth)
        if self.silhouettes is not None:
            density = cut(density, self.iso, slab, self.silhouettes)
        density = density[x0 - start : x1 - start]
        return density if self.filling is None else self.filling.fill(density, self.grid.slab(x0, x1))


def blur_radius(sigma_voxels: float) -> int:
    """How many voxels away a node still counts in `smooth_field`."""
    return len(kernel_half(sigma_voxels, BLUR_TRUNCATE)) - 1 if sigma_voxels > 0 else 0


@profiled
def surface_by_slabs(field: SlabField, coarse_density: Tensor, coarse: GridSpec, seal_voxels: int) -> Mesh:
    """The closed surface of a field that is never whole.

    Args:
        field: without its filling, which is worked out here.
        coarse_density: the field on `coarse`, blurred alike; not cut yet.
        seal_voxels: as for fill_cavities, in voxels of the field's own grid.
    Raises:
        UserError: as `extract_mesh`.
    """
    grid, iso = field.grid, field.iso
    if field.silhouettes is not None:
        coarse_density = cut(coarse_density, iso, coarse, field.silhouettes)
    field = replace(field, filling=find_hollows(coarse_density, iso, coarse, grid, seal_voxels))
    if coarse != grid:
        logger.info("hollows are looked for at %d nodes a side: what is finer stays open", max(coarse.shape))
    return extract_mesh_by_planes(field.planes, grid, iso, slab_planes(grid), coarse_density.is_cuda)
