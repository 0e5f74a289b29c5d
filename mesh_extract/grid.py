"""Where the samples of a density field lie: the one place that maps node indices to world space and back."""

import math
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from errors import UserError
from gaussians import Gaussians
from mesh_extract.support import CUTOFF, support_boxes

# Below this density `GridSpec.around` expects no surface; half of the lowest threshold that auto_threshold tries.
SURFACE_LEVEL = 0.01
# A Gaussian may stretch the grid beyond the bulk of the others by this share of the bulk's longest side.
_STRETCH = 0.5
# The share of Gaussians, at either end of an axis, that counts as outside the bulk.
_OUTLIERS = 0.002
_COARSE_RESOLUTION = 48


@dataclass(frozen=True)
class GridSpec:
    """Nodes at lower + index * voxel_size, index (i, j, k) from 0 to shape - 1; cubic voxels, any three counts.

    lower: x, y, z of the first node, world units; voxel_size: distance of neighbouring nodes; shape: (X, Y, Z).
    first_x: of a slab alone (see `slab`), how many planes of x lie between `lower` and its first one.
    """

    lower: tuple[float, float, float]
    voxel_size: float
    shape: tuple[int, int, int]
    first_x: int = 0

    def __post_init__(self) -> None:
        # Plain Python numbers, so that equal grids compare equal whatever they were made from.
        object.__setattr__(self, "lower", tuple(float(v) for v in self.lower))
        object.__setattr__(self, "voxel_size", float(self.voxel_size))
        object.__setattr__(self, "shape", tuple(int(v) for v in self.shape))
        if len(self.lower) != 3 or not all(math.isfinite(v) for v in self.lower):
            raise UserError(f"grid.lower={self.lower} must be three finite numbers")
        if not (math.isfinite(self.voxel_size) and self.voxel_size > 0):
            raise UserError(f"grid.voxel_size={self.voxel_size} must be a positive number")
        if len(self.shape) != 3 or min(self.shape) < 2:
            raise UserError(f"grid.shape={self.shape} must be three counts of at least 2 nodes")
        if self.first_x < 0:
            raise UserError(f"grid.first_x={self.first_x} must not be negative")

    @property
    def upper(self) -> tuple[float, float, float]:
        """x, y, z of the last node."""
        counts = (self.first_x + self.shape[0], *self.shape[1:])
        return tuple(low + self.voxel_size * (n - 1) for low, n in zip(self.lower, counts, strict=True))

    @property
    def first_node(self) -> tuple[int, int, int]:
        """Steps from `lower` to node (0, 0, 0): (first_x, 0, 0)."""
        return self.first_x, 0, 0

    @property
    def node_count(self) -> int:
        return math.prod(self.shape)

    @classmethod
    def cube(cls, lower: float, upper: float, resolution: int) -> "GridSpec":
        """`resolution` nodes along each side of the cube [lower, upper]^3, the first and last on its faces."""
        _check_resolution(resolution)
        if not upper > lower:
            raise UserError(f"grid.upper={upper} must be above grid.lower={lower}")
        return cls((lower,) * 3, (upper - lower) / (resolution - 1), (resolution,) * 3)

    @classmethod
    def around(cls, gaussians: Gaussians, resolution: int, level: float = SURFACE_LEVEL) -> "GridSpec":
        """The grid that encloses every place where the density may reach `level`; `resolution` nodes on its long side.

        The box holds each Gaussian's own region above `level`, and the region where the sum of several is above it
        (looked up in a coarse field). A few strays or giants (the outermost 0.2 % at either end of an axis) stretch
        the box by at most half of what the others need, and giants too faint to make a surface do not stretch it.

        Args:
            gaussians: N Gaussians, world units. N may be 0: the grid is then the cube [-1, 1]^3.
            resolution: nodes along the longest side, at least 2.
            level: density below which no surface will be asked for; give less than the threshold to be used.
        """
        _check_resolution(resolution)
        if not 0 < level:
            raise UserError(f"level={level} must be positive")
        lower, upper = _bounds(gaussians, level)
        extent = upper - lower
        # One voxel of margin on each side: the surface ends before the grid does. Tiny grids cannot afford it.
        margin = 1 if resolution >= 8 else 0
        voxel_size = float(extent.max()) / (resolution - 1 - 2 * margin)
        # The small slack keeps rounding from adding a layer where the extent is a whole number of voxels.
        counts = np.ceil(extent / voxel_size - 1e-6).astype(int) + 1 + 2 * margin
        counts = np.clip(counts, 2, resolution)
        first_node = (lower + upper) / 2 - voxel_size * (counts - 1) / 2
        return cls(tuple(first_node), voxel_size, tuple(counts))

    def slab(self, start: int, stop: int) -> "GridSpec":
        """The planes `start` to `stop - 1` of x, at least two of them, as a grid of its own.

        Its nodes keep `lower` and count from `first_x` on, so that each lies at exactly the position that it has in the
        whole grid: fields of slabs are, bit for bit, slices of the whole field (backends numba and cuda).
        """
        if not 0 <= start <= stop - 2 <= self.shape[0] - 2:
            raise UserError(f"a slab must be two planes or more of 0 to {self.shape[0] - 1}, got {start} to {stop - 1}")
        return replace(self, shape=(stop - start, *self.shape[1:]), first_x=self.first_x + start)

    def axes(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """World x of the X nodes, y of the Y nodes, z of the Z nodes; float64."""
        return tuple(
            low + self.voxel_size * np.arange(first, first + n, dtype=np.float64)
            for low, n, first in zip(self.lower, self.shape, self.first_node, strict=True)
        )

    def node_positions(self, device=None, dtype=torch.float32) -> Tensor:
        """World positions of all nodes [X, Y, Z, 3]."""
        axes = (torch.from_numpy(axis).to(device=device, dtype=dtype) for axis in self.axes())
        return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1)

    def to_world(self, vertices):
        """World positions of `vertices` [V, 3] given in node units (array or tensor; its dtype is kept)."""
        if isinstance(vertices, Tensor):
            if self.first_x:
                vertices = vertices + vertices.new_tensor(self.first_node)
            return vertices * self.voxel_size + vertices.new_tensor(self.lower)
        vertices = np.asarray(vertices)
        if self.first_x:
            vertices = vertices + np.asarray(self.first_node, dtype=vertices.dtype)
        return (vertices * self.voxel_size + np.asarray(self.lower)).astype(vertices.dtype)

    def to_nodes(self, positions):
        """Node units of world `positions` [P, 3] (array or tensor; its dtype is kept): the inverse of to_world."""
        if isinstance(positions, Tensor):
            nodes = (positions - positions.new_tensor(self.lower)) / self.voxel_size
            return nodes - nodes.new_tensor(self.first_node) if self.first_x else nodes
        positions = np.asarray(positions)
        nodes = (positions - np.asarray(self.lower)) / self.voxel_size
        return (nodes - self.first_node if self.first_x else nodes).astype(positions.dtype)


def _check_resolution(resolution: int) -> None:
    if resolution < 2:
        raise UserError(f"resolution={resolution} must be at least 2 nodes")


def _bounds(gaussians: Gaussians, level: float) -> tuple[np.ndarray, np.ndarray]:
    """Lower and upper corner of the box that GridSpec.around documents, float64 [3]; never flat."""
    lower, upper, peaks = support_boxes(gaussians, CUTOFF)
    seen = peaks >= CUTOFF
    if not seen.any():
        return np.full(3, -1.0), np.full(3, 1.0)
    lower, upper, peaks = lower[seen], upper[seen], peaks[seen]

    # The bulk: all boxes but the outermost few at either end, by the smaller boxes that matter for a surface.
    own_lower, own_upper, _ = support_boxes(gaussians, level)
    own_lower, own_upper = own_lower[seen], own_upper[seen]
    strong = peaks >= level
    if not strong.any():
        strong[:] = True  # only sums reach the level, if anything does
        own_lower, own_upper = lower, upper
    bulk_lower = _order_statistic(own_lower[strong], _OUTLIERS)
    bulk_upper = _order_statistic(own_upper[strong], 1 - _OUTLIERS)
    stretch = _STRETCH * max(float((bulk_upper - bulk_lower).max()), 1e-9)
    limit_lower, limit_upper = bulk_lower - stretch, bulk_upper + stretch
    inlier = (own_upper >= limit_lower).all(axis=1) & (own_lower <= limit_upper).all(axis=1) & strong
    box_lower = np.maximum(own_lower[inlier].min(axis=0), limit_lower)
    box_upper = np.minimum(own_upper[inlier].max(axis=0), limit_upper)

    # Where several overlap, their sum reaches the level outside each one's own box: ask a coarse field.
    search_lower = np.maximum(lower.min(axis=0), limit_lower)
    search_upper = np.minimum(upper.max(axis=0), limit_upper)
    from mesh_extract.fields import extract_fields  # fields.py needs GridSpec

    longest = float((search_upper - search_lower).max())
    step = longest / (_COARSE_RESOLUTION - 1)
    shape = np.maximum(np.ceil((search_upper - search_lower) / step - 1e-6).astype(int) + 1, 2)
    coarse = GridSpec(tuple(search_lower), step, tuple(shape))
    occupied = np.argwhere(extract_fields(gaussians.detach(), coarse).cpu().numpy() >= level)
    if len(occupied):
        box_lower = np.minimum(box_lower, np.maximum(search_lower + (occupied.min(axis=0) - 1) * step, search_lower))
        box_upper = np.maximum(box_upper, np.minimum(search_lower + (occupied.max(axis=0) + 1) * step, search_upper))
    smallest = 1e-6 * max(float(np.abs(np.concatenate([box_lower, box_upper])).max()), 1e-3)
    centre, half = (box_lower + box_upper) / 2, np.maximum((box_upper - box_lower) / 2, smallest)
    return centre - half, centre + half


def _order_statistic(values: np.ndarray, share: float) -> np.ndarray:
    """The value [3] of `values` [N, 3] below which `share` of them lie, per axis; an end of the range for small N."""
    ordered = np.sort(values, axis=0)
    skipped = int(min(share, 1 - share) * len(ordered))
    return ordered[skipped] if share < 0.5 else ordered[len(ordered) - 1 - skipped]
