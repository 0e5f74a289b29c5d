"""Marching cubes on the GPU: host side of cuda_ext/kernels/marching_cubes.cu, where the method is described."""

import functools
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
import torch
from torch import Tensor

from cuda_ext import load_module, require_device
from errors import UserError
from mesh_extract.cell_cases import packed_cases

# Planes of the field at x from x0 to x1 - 1: (x0, x1) -> [x1 - x0, Y, Z] on the GPU
Planes = Callable[[int, int], Tensor]

# A vertex stays this far, in voxels, from the nodes at both ends of its grid edge. Around a node whose value is the
# threshold, or nearly, all vertices would fall on one point and their faces lose their area. The surface moves by at
# most this.
NODE_DISTANCE = 0.01

_THREADS = 256
_WORDS_A_BLOCK = {"classify_nodes": 64, "count_cells": 256, "list_active": 256, "write_mesh": 8}
_SLAB_NODES = 1 << 26  # of a slab, unless it is given: 256 MiB of field
_MOST = 2**31 - 1  # vertices, faces, words: what the kernels and the mesh count in 32 bits


@dataclass
class _Plane:
    """The last plane of a slab, from which the next one goes on."""

    values: Tensor  # [Y, Z]
    inside: Tensor  # [Y + 1, W] words of bits
    places: Tensor  # [Y + 1, W] where the vertices of each word begin


def marching_cubes_cuda(density: Tensor, iso: float) -> tuple[Tensor, Tensor]:
    """The surface around the nodes at which density >= iso, 0 outside the grid, as triangles on the device.

    The same surface as `isosurface.marching_cubes` with PyMCubes, on any field: equal vertices in single precision, and
    faces but for the diagonals of the loops in a cell. Each crossed grid edge has one vertex; they are in order of x,
    then y, then 32 nodes along z. Waits once for the device, to learn how many there are.

    Args:
        density: [X, Y, Z] on a CUDA device; float32, or converted to it.
        iso: threshold; positive also as float32.
    Returns:
        (vertices [V, 3] float32 in node units, faces [F, 3] int32), closed and wound outward; both empty where nothing
        is inside.
    Raises:
        UserError: a field that is not finite, or a mesh that does not fit 32 bits or the device's memory.
        BackendUnavailable: `density` is on no GPU, or kernels cannot run on it.
    """
    return marching_cubes_planes(lambda x0, x1: density[x0:x1], density.shape, iso, slab_planes=density.shape[0])


def marching_cubes_planes(
    planes: Planes, shape: tuple[int, int, int], iso: float, slab_planes: int | None = None
) -> tuple[Tensor, Tensor]:
    """`marching_cubes_cuda` of a field that is never whole in memory: the same mesh, in the same order.

    Args:
        planes: gives the field in slabs, asked for once each, in the order of x; it may reuse its memory.
        shape: of the whole field, (X, Y, Z).
        slab_planes: at a time, see `slabs`. The memory needed is that of a slab and of the mesh, twice.
    """
    count_x, count_y, count_z = shape
    meshes: list[tuple[Tensor, Tensor]] = []
    vertex_count = 0
    before = None
    try:
        for x0, x1 in slabs(shape, slab_planes):
            field = planes(x0, x1).detach()
            require_device(field.device, "marching cubes on the GPU")
            assert field.shape == (x1 - x0, count_y, count_z), (field.shape, x0, x1, shape)
            field = field.to(torch.float32).contiguous()
            vertices, faces, before = _slab(field, before, x0, x1 == count_x, vertex_count, iso)
            meshes.append((vertices, faces))
            vertex_count += len(vertices)
            field = None  # frees the slab before the next one is made
        if len(meshes) == 1:
            return meshes[0]
        return tuple(torch.cat(parts) for parts in zip(*meshes, strict=True))
    except torch.OutOfMemoryError as error:
        nodes = " x ".join(map(str, shape))
        raise UserError(
            f"the surface of {nodes} nodes needs more memory than the GPU has free: try a smaller mesh.resolution"
        ) from error


def slabs(shape: tuple[int, int, int], slab_planes: int | None = None) -> list[tuple[int, int]]:
    """First plane and last plus one of even slabs of a field (X, Y, Z), none of them of a single plane.

    Args:
        slab_planes: about how many at a time; 1: single planes after all; None: as many as hold 64 M nodes.
    """
    count_x, count_y, count_z = shape
    planes = slab_planes or max(2, _SLAB_NODES // (count_y * count_z))
    count = -(-count_x // planes)
    if planes > 1:
        count = max(1, min(count, count_x // 2))
    return list(pairwise(count_x * i // count for i in range(count + 1)))


def _slab(
    field: Tensor, before: _Plane | None, x_first: int, is_last: bool, vertex_offset: int, iso: float
) -> tuple[Tensor, Tensor, _Plane | None]:
    """Vertices and faces whose upper x lies in a slab [P, Y, Z], and its last plane (None after the last slab)."""
    device = field.device
    planes, size_y, size_z = field.shape
    cell_planes = planes + is_last
    row_words = size_z // 32 + 1
    words = cell_planes * (size_y + 1) * row_words
    _check_count(words + (size_y + 1) * row_words, "words of 32 nodes")
    module = load_module("marching_cubes", device)

    def launch(kernel: str, items: int, *arguments) -> None:
        module.launch(kernel, -(-items // _WORDS_A_BLOCK[kernel]), _THREADS, *arguments)

    def empty(*shape: int, dtype=torch.int32) -> Tensor:
        return torch.empty(shape, dtype=dtype, device=device)

    cases = _cases(device)
    inside, places = (empty(cell_planes + 1, size_y + 1, row_words) for _ in range(2))
    for words_of, carried in ((inside, before and before.inside), (places, before and before.places)):
        words_of[0] = 0 if carried is None else carried
    totals = torch.zeros(4, dtype=torch.int64, device=device)
    launch("classify_nodes", words, field, planes, size_y, size_z, row_words, float(iso), words, inside, totals)
    blocks = -(-words // _WORDS_A_BLOCK["count_cells"])
    active_words = empty(blocks, _THREADS // 32)
    block_counts, block_first = empty(blocks, dtype=torch.int64), empty(3, blocks)
    launch("count_cells", words, inside, cases, size_y, row_words, words, places, active_words, block_counts)
    module.launch("scan_blocks", 1, 1024, block_counts, blocks, block_first, totals)
    vertex_count, face_count, active_count, not_finite = totals.tolist()  # the one wait for the device
    if not_finite:
        raise UserError(f"density holds {int((~torch.isfinite(field)).sum())} values that are not finite")
    _check_count(vertex_offset + vertex_count, "vertices")
    _check_count(face_count, "faces")

    vertices, faces = empty(vertex_count, 3, dtype=torch.float32), empty(face_count, 3)
    active = empty(active_count, 2)
    if active_count:
        listed = (active_words, block_first, blocks, size_y, row_words, vertex_offset, places, active)
        launch("list_active", words, *listed)
        sizes = (active_count, planes, size_y, size_z, row_words, x_first, vertex_offset)
        level = (np.float64(iso), np.float64(NODE_DISTANCE))
        previous = None if before is None else before.values
        launch(
            "write_mesh", active_count, field, previous, inside, places, cases, active, *sizes, *level, vertices, faces
        )
    after = None if is_last else _Plane(field[-1].clone(), inside[-1].clone(), places[-1].clone())
    return vertices, faces, after


def _check_count(count: int, what: str) -> None:
    """Raise a UserError where a count does not fit the 32 bits in which it is kept."""
    if count > _MOST:
        raise UserError(f"the surface needs {count:,} {what}, at most {_MOST:,} fit: try a smaller mesh.resolution")


@functools.cache
def _cases(device: torch.device) -> Tensor:
    """Triangles of the 256 cases [256], on a device."""
    return torch.from_numpy(packed_cases().view(np.int64)).to(device)
