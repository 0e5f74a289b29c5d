"""One call's kernels and device buffers, and how many entries (Gaussian, tile) there is room for.

How many entries there are is known on the GPU only, after the projection. Room is made for as many as the last call of
this picture size had, and a third; the kernels beyond that leave out what has no room. The host learns the true number
while the GPU is already drawing, and starts again where it was too large: always right, and hardly ever waited for.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import torch
from torch import Tensor

from cuda_ext import KernelModule, load_module
from errors import UserError
from gaussians import SH_C0
from rasterize.definition import (
    ALPHA_MAX,
    ALPHA_MIN,
    EPS2D,
    FOV_MARGIN,
    MEAN_MAX,
    NEAR,
    SCALE_MAX,
    TRANSMITTANCE_MIN,
)
from rasterize.projection import SH_C1, SH_C2, SH_C3

PIXELS_A_LANE = 2  # 1: tiles of 8 x 4 pixels, a warp each; 2: 8 x 8, fewer sums over lanes; 4: 8 x 16
TILE_WIDTH = 8
SUMS = 10  # partial gradients of an entry
LANES_A_GAUSSIAN = 8  # of project_backward, each with a camera of its own
_COUNTER_HEAD = 4  # words before the counts of the tiles
_GUESS = 8.0  # entries of a Gaussian in an image, before the first call of a size
_MARGIN = 4 / 3
_STEP = 2**16  # capacities are multiples of it, so that torch's allocator finds the same blocks again
_MOST_ENTRIES = 2**31 - 1
_MOST_PROJECTIONS = 2**28  # Gaussians times images: counted in 32 bits

_entries_of: dict[tuple[torch.device, int, int], float] = {}  # entries of a Gaussian in an image, by picture size
_idle: dict[torch.device, list[_Waiter]] = {}
_of_thread = threading.local()  # .capture: the _Capture of a recording that this thread makes


def constants(sh_count: int = 16) -> dict[str, dict[str, float | int]]:
    """The macros of each file of kernels; sh_count: harmonics of a colour, 1, 4, 9 or 16."""
    alphas = {"ALPHA_MIN": ALPHA_MIN, "ALPHA_MAX": ALPHA_MAX, "TRANSMITTANCE_MIN": TRANSMITTANCE_MIN}
    harmonics = {"SH_COUNT": sh_count, "SH_C0": SH_C0, "SH_C1": SH_C1}
    harmonics |= {f"SH_C2{'ABC'[i]}": value for i, value in enumerate(SH_C2)}
    harmonics |= {f"SH_C3{'ABCDE'[i]}": value for i, value in enumerate(SH_C3)}
    limits = {"EPS2D": EPS2D, "NEAR": NEAR, "ALPHA_MIN": ALPHA_MIN, "FOV_MARGIN": FOV_MARGIN}
    limits |= {"MEAN_MAX": MEAN_MAX, "SCALE_MAX": SCALE_MAX}
    tiles = {"PIXELS_A_LANE": PIXELS_A_LANE, "TILE_WIDTH": TILE_WIDTH}
    lists = {"COUNTER_HEAD": _COUNTER_HEAD, "LANES_A_GAUSSIAN": LANES_A_GAUSSIAN}
    return {
        "rasterize_project": tiles | lists | limits | harmonics,
        "rasterize_bins": tiles,
        "rasterize_draw": tiles | alphas | {"SUMS": SUMS},
    }


@dataclass
class Buffers:
    """What the kernels of one call share. c cameras, n Gaussians, tiles of 8 x 4 PIXELS_A_LANE pixels.

    spans [C, N, 4] int32, counters, tile_begins [C * tiles + 1], keys [capacity] int64: see the kernels.
    """

    device: torch.device
    project: KernelModule
    bins: KernelModule
    draw: KernelModule
    c: int
    n: int
    width: int
    height: int
    columns: int
    rows: int
    spans: Tensor
    counters: Tensor
    tile_begins: Tensor
    waiter: _Waiter
    capacity: int
    entries: int | None = None  # how many there are; None: not known yet, or captured into a graph
    keys: Tensor | None = None

    @property
    def tiles(self) -> int:
        """In all images."""
        return self.c * self.columns * self.rows

    @property
    def room(self) -> int:
        """How many entries the backward pass has to make room for."""
        return self.capacity if self.entries is None else self.entries


def make_buffers(device: torch.device, c: int, n: int, width: int, height: int, sh_count: int) -> Buffers:
    """Buffers for one call; the kernels are compiled if need be."""
    if c * n >= _MOST_PROJECTIONS:
        raise UserError(f"{n} Gaussians in {c} images are too many for one call: render fewer images at once")
    project, bins, draw = _modules(device, sh_count, PIXELS_A_LANE)
    columns, rows = -(-width // TILE_WIDTH), -(-height // (4 * PIXELS_A_LANE))
    tiles = c * columns * rows
    spans = torch.empty(c, n, 4, dtype=torch.int32, device=device)
    counters = torch.zeros(_COUNTER_HEAD + 2 * tiles, dtype=torch.int32, device=device)
    tile_begins = torch.empty(tiles + 1, dtype=torch.int32, device=device)
    capture: _Capture | None = getattr(_of_thread, "capture", None)
    if capture is not None:
        waiter, capacity = capture.waiter, capture.capacity
    elif device.type == "cuda" and torch.cuda.is_current_stream_capturing():
        raise UserError(
            "a render inside a CUDA graph needs room fixed beforehand: see rasterize.cuda_graph.GraphedStep"
        )
    else:
        waiter = _take_waiter(device)
        capacity = _rounded(_MARGIN * expected_entries(device, c, n, width, height))
    return Buffers(
        device, project, bins, draw, c, n, width, height, columns, rows, spans, counters, tile_begins, waiter, capacity
    )


@functools.cache
def _modules(device: torch.device, sh_count: int, pixels_a_lane: int) -> list[KernelModule]:
    """The three files of kernels for a device."""

    def load(name: str, macros: dict[str, float | int]) -> KernelModule:
        return load_module(name, device, **macros | {"PIXELS_A_LANE": pixels_a_lane})

    files = constants(sh_count)
    with ThreadPoolExecutor(len(files)) as pool:  # the first time they are compiled
        return list(pool.map(load, files.keys(), files.values()))


def wait_for_entries(buffers: Buffers) -> bool:
    """Learn how many entries there are; False if they were too many for the room: there is more now, draw again."""
    if buffers.waiter.keeps_largest or buffers.entries is not None:
        return True
    entries = buffers.waiter.wait()
    _idle.setdefault(buffers.device, []).append(buffers.waiter)
    if entries > _MOST_ENTRIES:
        raise UserError(
            f"{buffers.n} Gaussians cover {entries} tiles in {buffers.c} images, at most {_MOST_ENTRIES} are possible: "
            "render fewer images at once, or smaller ones"
        )
    buffers.entries = entries
    if buffers.c * buffers.n > 0:
        _entries_of[buffers.device, buffers.width, buffers.height] = entries / (buffers.c * buffers.n)
    if entries <= buffers.capacity:
        return True
    buffers.capacity = _rounded(entries)
    buffers.counters[_COUNTER_HEAD + buffers.tiles :].zero_()  # the cursors, which the first attempt has used up
    return False


def _rounded(entries: float) -> int:
    return min(_MOST_ENTRIES, _STEP * max(1, math.ceil(entries / _STEP)))


class _Waiter:
    """A number that a kernel writes into the host's memory, and the event after which it is there."""

    def __init__(self, device: torch.device, with_event: bool = True) -> None:
        self.device = device
        on_gpu = device.type == "cuda"
        self._number = torch.zeros(1, dtype=torch.int64, pin_memory=on_gpu)
        self._array = self._number.numpy()
        self._event = torch.cuda.Event() if on_gpu and with_event else None
        self.keeps_largest = not with_event  # nobody asks after every call, so that the largest number counts

    @property
    def address(self) -> int:
        """Of the number; pinned memory has the same address on the GPU."""
        return self._number.data_ptr()

    def record(self) -> None:
        """Mark that what was queued so far writes the number."""
        if self._event is not None:
            self._event.record(torch.cuda.current_stream(self.device))

    def wait(self) -> int:
        """The number; without an event whoever asks has to know that it is there."""
        if self._event is not None:
            self._event.synchronize()
        return int(self._array[0])


def _take_waiter(device: torch.device) -> _Waiter:
    """One that no other call uses: calls of several threads do not meet."""
    try:
        return _idle.setdefault(device, []).pop()
    except IndexError:
        return _Waiter(device)


@dataclass
class _Capture:
    waiter: _Waiter
    capacity: int


@contextlib.contextmanager
def fixed_capacity(device: torch.device, capacity: int):
    """Calls in this context neither wait nor start again: they can be captured into a CUDA graph.

    Calls of this thread alone, one at a time; what others draw meanwhile is no part of the recording.

    Yields:
        A function that tells, once the GPU has done the work, whether there was room for all entries, in every replay.
    """
    assert getattr(_of_thread, "capture", None) is None
    waiter, capacity = _Waiter(device, with_event=False), _rounded(capacity)
    _of_thread.capture = _Capture(waiter, capacity)
    try:
        yield lambda: waiter.wait() <= capacity
    finally:
        _of_thread.capture = None


def expected_entries(device: torch.device, c: int, n: int, width: int, height: int) -> float:
    """How many entries a call like the last of this picture size will have."""
    return _entries_of.get((device, width, height), _GUESS) * c * n
