"""Stages of a run: logged, timed, and marked for profilers by one context manager."""

import logging
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch

from profiling import marked

logger = logging.getLogger(__name__)


@dataclass
class StageTimes:
    """Seconds of every stage, in the order in which the stages began. Stages that contain each other count twice.

    started_s: when the whole began, on the clock of time.perf_counter().
    """

    seconds: dict[str, float] = field(default_factory=dict)
    started_s: float = field(default_factory=time.perf_counter)

    @property
    def total_s(self) -> float:
        """Seconds from the beginning until now."""
        return time.perf_counter() - self.started_s

    def add(self, name: str, elapsed_s: float) -> None:
        """Log and count time that passed in stage `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + elapsed_s
        logger.info("%s: %.2f s", name, elapsed_s)

    @contextmanager
    def stage(self, name: str) -> Iterator[None]:
        """Log, time (after synchronising the GPU, if one is in use) and mark it for profilers."""
        logger.info("%s ...", name)
        self.seconds.setdefault(name, 0.0)
        _synchronise()
        started_s = time.perf_counter()
        try:
            with marked(name):
                try:
                    yield
                finally:
                    _synchronise()
        finally:
            self.add(name, time.perf_counter() - started_s)


def _synchronise() -> None:
    if torch.cuda.is_available() and torch.cuda.is_initialized():
        torch.cuda.synchronize()
