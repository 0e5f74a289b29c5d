"""Stages of a run: logged, timed, and marked for profilers by one context manager."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

try:
    import nvtx
except ImportError:  # profiling ranges are a convenience: the app runs without them
    nvtx = None

logger = logging.getLogger(__name__)


@dataclass
class StageTimes:
    """Seconds of every stage, in the order in which the stages began."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log, time (after synchronising the GPU, if one is in use) and open an NVTX range named `name`."""
        logger.info("%s ...", name)
        self.seconds.setdefault(name, 0.0)
        _synchronise()
        started_s = time.perf_counter()
        marker = nvtx.start_range(name) if nvtx is not None else None
        try:
            yield
        finally:
            _synchronise()
            if marker is not None:
                nvtx.end_range(marker)
            elapsed_s = time.perf_counter() - started_s
            self.seconds[name] += elapsed_s
            logger.info("%s: %.2f s", name, elapsed_s)


def _synchronise() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
