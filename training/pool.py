"""The pool of rendered views that training draws from, filled and refreshed in the background."""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

logger = logging.getLogger(__name__)

VIEWS = 8  # of an object
SOURCE_VIEWS = 4  # the first of them, which may be the source
SEEDS_PER_RUN = 2 * 10**7
SEED_LIMIT = 10**11  # of training seeds; procedural.TRAINING_BELOW, whose import would compile kernels

# (seeds [K] int64, size_px, device) -> images [K, VIEWS, S, S, 4] uint8, azimuths_deg, elevations_deg [K, VIEWS]
RenderChunk = Callable[[Tensor, int, torch.device], tuple[Tensor, Tensor, Tensor]]


def render_procedural(
    seeds: Tensor, size: int, device: torch.device, version: str | None = None
) -> tuple[Tensor, Tensor, Tensor]:
    """Render objects of a version (by default the one for training) from the views that their seeds give."""
    import procedural  # here, because it compiles kernels

    if version is None:
        version = "train" if "train" in procedural.VERSIONS else procedural.VERSIONS[-1]
    objects = procedural.sample_objects(seeds.numpy(), version=version)
    azimuths, elevations = procedural.sample_view_angles(seeds.numpy())
    images = procedural.render_views(objects, azimuths, elevations, size=size, device=device)
    return images, torch.from_numpy(azimuths), torch.from_numpy(elevations)


def first_seed(run: int, rank: int) -> int:
    """Start of the seeds of one run on one device: no two runs (of 512) or ranks (of 8) share an object."""
    assert 0 <= rank < 8
    seed = ((run % 512) * 8 + rank) * SEEDS_PER_RUN
    assert seed + SEEDS_PER_RUN <= SEED_LIMIT
    return seed


@dataclass(frozen=True)
class ViewBatch:
    """A source and V targets of B objects."""

    source: Tensor  # [B, 4, S, S] uint8
    targets: Tensor  # [B, V, 4, S, S] uint8
    source_elevation_deg: Tensor  # [B]
    relative_azimuth_deg: Tensor  # [B, V]
    elevation_deg: Tensor  # [B, V]


class ViewPool:
    """Images [M, VIEWS, S, S, 4] uint8 on a device, of which the first `ready` objects may be drawn.

    A thread renders chunk after chunk; `take_rendered` (called between steps) copies finished ones in, so a draw never
    sees a half-written object. When the pool is full the thread goes on replacing the oldest chunk whenever
    `request_refresh` asks for it.
    """

    def __init__(self, objects: int, size: int, device: torch.device, render_chunk: RenderChunk, seed: int) -> None:
        self.images = torch.empty(objects, VIEWS, size, size, 4, dtype=torch.uint8, device=device)
        self.azimuths = torch.zeros(objects, VIEWS, device=device)
        self.elevations = torch.zeros(objects, VIEWS, device=device)
        self.ready = 0
        self.replaced = 0
        self.device = device
        self._size = size
        self._render_chunk = render_chunk
        self._next_seed = seed
        self._cursor = 0
        self._rendered: queue.Queue = queue.Queue(maxsize=2)
        self._permits = threading.Semaphore(0)
        self._stop = threading.Event()
        self._error: BaseException | None = None
        self._thread: threading.Thread | None = None

    def start(self, chunk: int = 1024) -> None:
        """Begin to fill in the background."""
        self._chunk = min(chunk, len(self.images))
        for _ in range(-(-len(self.images) // self._chunk)):
            self._permits.release()
        self._thread = threading.Thread(target=self._work, name="pool", daemon=True)
        self._thread.start()

    def request_refresh(self) -> None:
        """Let the thread render one more chunk."""
        self._permits.release()

    def stop(self) -> None:
        """End the thread after the chunk in work."""
        self._stop.set()
        self._permits.release()
        if self._thread is not None:
            while self._thread.is_alive():
                self._drain()
                self._thread.join(timeout=0.05)

    def take_rendered(self) -> None:
        """Copy the chunks that are ready into the pool."""
        if self._error is not None:
            raise RuntimeError("rendering of the pool failed") from self._error
        while True:
            try:
                images, azimuths, elevations = self._rendered.get_nowait()
            except queue.Empty:
                return
            if images.is_cuda:  # made on the thread's stream, copied on this one: keep the memory until then
                for x in (images, azimuths, elevations):
                    x.record_stream(torch.cuda.current_stream(self.device))
            count = min(len(images), len(self.images) - self._cursor)
            rows = slice(self._cursor, self._cursor + count)
            self.images[rows] = images[:count]
            self.azimuths[rows] = azimuths[:count]
            self.elevations[rows] = elevations[:count]
            if rows.stop > self.ready:
                self.ready = rows.stop
            else:
                self.replaced += count
            self._cursor = rows.stop % len(self.images)

    def wait_for(self, objects: int, timeout_s: float = 600.0) -> None:
        """Block until so many objects can be drawn."""
        end = time.monotonic() + timeout_s
        while self.ready < min(objects, len(self.images)):
            self.take_rendered()
            if time.monotonic() > end:
                raise RuntimeError(f"pool has {self.ready} objects after {timeout_s:.0f} s, expected {objects}")
            time.sleep(0.02)

    def draw(self, batch: int, views: int, generator: torch.Generator) -> ViewBatch:
        """Draw objects with replacement, of each a source among its first views and `views` other ones."""
        device = self.device
        rows = torch.randint(self.ready, (batch, 1), device=device, generator=generator)
        source = torch.randint(SOURCE_VIEWS, (batch, 1), device=device, generator=generator)
        order = torch.rand(batch, VIEWS, device=device, generator=generator)
        order.scatter_(1, source, -1.0)  # the source comes first, the others in random order
        chosen = order.argsort(1)[:, : 1 + views]
        # Contiguous, as all batches: compiled code holds for one layout.
        pictures = self.images[rows, chosen].movedim(-1, 2).contiguous()  # [B, 1 + V, 4, S, S]
        azimuths, elevations = self.azimuths[rows, chosen], self.elevations[rows, chosen]
        return ViewBatch(
            source=pictures[:, 0],
            targets=pictures[:, 1:],
            source_elevation_deg=elevations[:, 0],
            relative_azimuth_deg=azimuths[:, 1:] - azimuths[:, :1],
            elevation_deg=elevations[:, 1:],
        )

    def _drain(self) -> None:
        while not self._rendered.empty():
            self._rendered.get_nowait()

    def _work(self) -> None:
        try:
            stream = None
            if self.device.type == "cuda":
                torch.cuda.set_device(self.device)
                stream = torch.cuda.Stream(self.device)
            while True:
                self._permits.acquire()
                if self._stop.is_set():
                    return
                seeds = torch.arange(self._next_seed, self._next_seed + self._chunk)
                self._next_seed += self._chunk
                if stream is None:
                    chunk = self._render_chunk(seeds, self._size, self.device)
                else:
                    with torch.cuda.stream(stream):
                        chunk = self._render_chunk(seeds, self._size, self.device)
                        chunk = tuple(x.to(self.device) for x in chunk)
                    stream.synchronize()
                self._rendered.put(chunk)
        except BaseException as error:  # handed to the training thread, which raises it
            self._error = error
