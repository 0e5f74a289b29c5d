"""The density field by tiles of nodes: the host's part of kernels/extract_fields.cu.

Three launches, queued one after the other; what they need lies in one block of memory. How long the tiles' lists become
is known on the GPU alone, so there is room for as much as calls of this size have needed so far and a quarter more. The
second launch writes to the host's memory what it needed and whether all parameters are finite; the host reads that
while the third runs, and repeats the call with more room if it has to: for a size that is new to it, as a rule.
"""

import functools
import math
import threading
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from cuda_ext import KernelModule, load_module, require_device
from errors import UserError
from gaussians import Gaussians
from mesh_extract.grid import GridSpec
from mesh_extract.support import CUTOFF, SMALLEST_SCALE

_THREADS = 256
_TILE = 8  # nodes along a side of what a block evaluates
_CELL = 2 * _TILE  # of what shares a list
_SPLIT = 8  # regions along each side of the grid
_SEGMENT = 2048  # entries of a list that are summed in one piece
_TILE_NODES = _TILE**3
KERNEL_CONSTANTS = {
    "CUTOFF": CUTOFF, "SMALLEST_SCALE": SMALLEST_SCALE,
    "BLOCK_THREADS": _THREADS, "TILE_SIDE": _TILE, "GRID_SPLIT": _SPLIT, "SEGMENT_ENTRIES": _SEGMENT,
}  # fmt: skip
_PARAMETERS = ("means", "quats", "log_scales", "logit_opacities")

_MOST_GAUSSIANS = 1 << 24  # of a call: their numbers share 32 bits with the tiles of a cell
_LARGEST_LIST = 1 << 28  # entries, 4 bytes each; a call that needs more is made in parts
_MOST_ENTRIES = 2**31 - 1  # places in the list are kept in 32 bits
_FILLING_BLOCKS = 1024  # that set the field to 0
_BLOCKS_A_PROCESSOR = 4  # of extract_fields_evaluate, as many as its registers allow

_room: dict[tuple, tuple[int, int]] = {}  # (device, N, shape) -> entries and slots that calls have needed


class _Host(threading.local):
    """What a thread waits with: kept, since to make it anew costs as much as a launch."""

    def __init__(self) -> None:
        self.status: Tensor | None = None
        self.marks: dict[torch.device, torch.cuda.Event] = {}


_host = _Host()


def move_to_gpu(gaussians: Gaussians, backend: str) -> Gaussians:
    """The Gaussians on their GPU, or on the current one; BackendUnavailable, with what is missing, if there is none."""
    if gaussians.means.is_cuda:
        return gaussians
    device = torch.device("cuda")
    require_device(device, f"mesh.backend={backend}")
    return gaussians.detach().to(device)


def extract_fields_cuda(gaussians: Gaussians, grid: GridSpec) -> Tensor:
    """The field [X, Y, Z], float32, on the device of `means`, the same bits in every run and in every slab of a grid.

    Waits for the GPU once, before the last of its work is done; not at all while a CUDA graph is captured, and then the
    room is that which earlier calls of the size needed and nothing is checked: call it once before, and keep the values
    of the Gaussians alike.

    Raises:
        UserError: parameters that are not finite.
    """
    device = gaussians.means.device
    parameters = [as_kernels_read(getattr(gaussians, name)) for name in _PARAMETERS]
    density = torch.empty(grid.shape, dtype=torch.float32, device=device)
    if parameters[0].shape[0] == 0:
        return density.zero_()
    _fill(parameters, grid, density)
    return density


def count_pairs(gaussians: Gaussians, grid: GridSpec) -> int:
    """How many values of a Gaussian at a node `extract_fields_cuda` evaluates: for benchmarks."""
    parameters = [as_kernels_read(getattr(gaussians, name)) for name in _PARAMETERS]
    density = torch.empty(grid.shape, dtype=torch.float32, device=gaussians.means.device)
    return _launch(parameters, grid, density, 1, 1, capturing=False)[3] * _TILE_NODES


def as_kernels_read(value: Tensor) -> Tensor:
    """The tensor itself if it is float32 and contiguous, as a rule; else a copy that is."""
    return value if value.dtype is torch.float32 and value.is_contiguous() else value.to(torch.float32).contiguous()


def _fill(parameters: list[Tensor], grid: GridSpec, density: Tensor) -> None:
    """Write the field of the grid, in parts where that is too much for one call."""
    count = parameters[0].shape[0]
    if count > _MOST_GAUSSIANS:
        _fill([value[:_MOST_GAUSSIANS] for value in parameters], grid, density)
        rest = torch.empty_like(density)
        _fill([value[_MOST_GAUSSIANS:] for value in parameters], grid, rest)
        density += rest
        return
    capturing = density.is_cuda and torch.cuda.is_current_stream_capturing()
    key = density.device, count, grid.shape
    entries, slots = _room.get(key, (min(64 * count, 1 << 26) + (1 << 16), 1 << 12))
    while True:
        needed = _launch(parameters, grid, density, entries, slots, capturing)
        if needed is None:
            return
        needed_entries, needed_slots, faults, _ = needed
        if faults:
            names = [name for bit, name in enumerate(_PARAMETERS) if faults >> bit & 1]
            raise UserError(f"gaussians.{', gaussians.'.join(names)} holds values that are not finite")
        if needed_entries <= entries and needed_slots <= slots:
            return
        middle = _middle(grid)
        if needed_entries > _LARGEST_LIST and middle is not None:
            _fill(parameters, grid.slab(0, middle), density[:middle])
            _fill(parameters, grid.slab(middle, grid.shape[0]), density[middle:])
            return
        if needed_entries > _MOST_ENTRIES:  # in one layer of cells, which is not cut
            nodes = " x ".join(map(str, grid.shape))
            raise UserError(
                f"{count} Gaussians reach {needed_entries:,} cells of {nodes} nodes, at most {_MOST_ENTRIES:,} are "
                "possible: try fewer Gaussians, or a smaller mesh.resolution"
            )
        entries, slots = (
            max(old, math.ceil(1.25 * new)) for old, new in ((entries, needed_entries), (slots, needed_slots))
        )
        if len(_room) >= 1024:
            _room.clear()
        _room[key] = entries, slots


def _middle(grid: GridSpec) -> int | None:
    """A plane between two layers of cells at which to halve the grid; None if it has one layer."""
    first, last = grid.first_x // _CELL, (grid.first_x + grid.shape[0] - 1) // _CELL
    middle = (first + last + 1) // 2 * _CELL - grid.first_x
    return middle if 2 <= middle <= grid.shape[0] - 2 else None


def _launch(
    parameters: list[Tensor], grid: GridSpec, density: Tensor, entries: int, slots: int, capturing: bool
) -> tuple[int, int, int, int] | None:
    """Queue one attempt: entries and slots that it needed, faults, pairs; None if the host cannot wait."""
    plan = _plan(density.device, parameters[0].shape[0], grid, entries, slots)
    # One block of memory; a place in it is a number, which costs less than a view.
    workspace = torch.empty(plan.workspace_bytes, dtype=torch.uint8, device=density.device)
    start = workspace.data_ptr()
    records, boxes, bits, faults, counters, lists, segments, items, arrived, parts, partials = [
        start + place for place in plan.places
    ]
    status = None if capturing else _status_in_host_memory(density.device)
    launch, words = plan.module.launch, plan.words
    launch(
        "extract_fields_prepare", plan.gaussian_blocks + _FILLING_BLOCKS, _THREADS,
        *parameters, *plan.scene, *plan.cells,
        records, boxes, bits, words, faults, counters, plan.gaussian_blocks, density, plan.node_count,
    )  # fmt: skip
    launch(
        "extract_fields_bin", plan.cell_count, _THREADS,
        records, boxes, bits, words, faults, *plan.cells, *plan.nodes,
        lists, entries, segments, items, arrived, parts, slots, counters, None if status is None else status.data_ptr(),
    )  # fmt: skip
    binned = None if capturing else _mark(density.device)
    first_cell, _, cells_y, cells_z, _ = plan.cells
    launch(
        "extract_fields_evaluate", plan.evaluating_blocks, _THREADS,
        records, lists, entries, items, arrived, parts, slots, partials, counters,
        first_cell, cells_y, cells_z, *plan.nodes, density,
    )  # fmt: skip
    if status is None:
        return None
    if binned is not None:
        binned.synchronize()
    return tuple(status.tolist())


@dataclass(frozen=True)
class _Plan:
    """What calls of one size have in common, ready for the kernels."""

    module: KernelModule
    scene: tuple  # the number of Gaussians, the grid's corner and voxel size
    cells: tuple[int, ...]  # the first along x, how many along each axis, by how many bits boxes count them coarser
    nodes: tuple[int, ...]  # the first along x, how many along each axis
    cell_count: int
    node_count: int
    gaussian_blocks: int
    words: int  # of bits in a region
    evaluating_blocks: int
    places: tuple[int, ...]  # of the parts of the workspace, bytes from its start
    workspace_bytes: int


@functools.lru_cache(maxsize=64)
def _plan(device: torch.device, count: int, grid: GridSpec, entries: int, slots: int) -> _Plan:
    size_x, size_y, size_z = grid.shape
    first_cell = grid.first_x // _CELL
    cells_x = (grid.first_x + size_x - 1) // _CELL - first_cell + 1
    cells = cells_x, -(-size_y // _CELL), -(-size_z // _CELL)
    cell_count = math.prod(cells)
    assert 8 * cell_count < 1 << 31, "tiles are numbered in 32 bits"
    blocks = -(-count // _THREADS)
    words = blocks * _THREADS // 32
    segments = entries // (_SEGMENT // 2) + cell_count  # all but a cell's last are longer than that
    sizes = (64 * count, 8 * count, 4 * _SPLIT**3 * words, words, 64)
    sizes += (4 * entries, 16 * segments, 128 * segments, 4 * slots, 4 * slots, 4 * _TILE_NODES * slots)
    places, total = [], 0
    for size in sizes:
        places.append(total)
        total += -(-size // 256) * 256
    box_shift = max(0, (max(cells) - 1).bit_length() - 9)  # boxes have 9 bits for a cell along each axis
    return _Plan(
        module=load_module("extract_fields", device, **KERNEL_CONSTANTS),
        scene=(count, *grid_doubles(grid)),
        cells=(first_cell, *cells, box_shift),
        nodes=(grid.first_x, *grid.shape),
        cell_count=cell_count,
        node_count=grid.node_count,
        gaussian_blocks=blocks,
        words=words,
        evaluating_blocks=_BLOCKS_A_PROCESSOR * _processors(device),
        places=tuple(places),
        workspace_bytes=total,
    )


@functools.lru_cache(maxsize=64)
def grid_doubles(grid: GridSpec) -> tuple:
    """The grid's lower corner and voxel size as a kernel's doubles."""
    return *(np.float64(value) for value in grid.lower), np.float64(grid.voxel_size)


def _status_in_host_memory(device: torch.device) -> Tensor:
    """Four numbers in page-locked memory of this thread, which kernels write to."""
    if _host.status is None:
        _host.status = torch.empty(4, dtype=torch.int64, pin_memory=device.type == "cuda")
    return _host.status


def _mark(device: torch.device) -> "torch.cuda.Event | None":
    """This thread's event of the device, after what has been queued so far."""
    if device.type != "cuda":
        return None
    event = _host.marks.get(device)
    if event is None:
        event = _host.marks[device] = torch.cuda.Event()
    event.record(torch.cuda.current_stream(device))
    return event


@functools.cache
def _processors(device: torch.device) -> int:
    return torch.cuda.get_device_properties(device).multi_processor_count
