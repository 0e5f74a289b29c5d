"""Durations of calls: warm-up, repeats, median and spread."""

import statistics
import time
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import TypeVar

import torch

T = TypeVar("T")


@dataclass(frozen=True)
class Timing:
    """Seconds of equal calls."""

    median_s: float
    lowest_s: float
    highest_s: float
    repeats: int

    @classmethod
    def of(cls, seconds: list[float]) -> "Timing":
        return cls(statistics.median(seconds), min(seconds), max(seconds), len(seconds))


def timed(function: Callable[[], T], device: str) -> tuple[T, float]:
    """The result of one call and its seconds: between CUDA events on the current stream, or by the clock."""
    if device == "cuda":
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        begin.record()
        result = function()
        end.record()
        torch.cuda.synchronize()
        return result, begin.elapsed_time(end) / 1000
    started_s = time.perf_counter()
    result = function()
    return result, time.perf_counter() - started_s


def repeat(function: Callable[[], object], device: str, first_s: float, repeats: int, budget_s: float) -> Timing:
    """Call again, as often as asked for and as the budget allows.

    Args:
        first_s: seconds that a first call took. It warms up; where it took more than half of the budget it is what is
            measured.
        repeats: at most so many calls.
        budget_s: of all calls together.
    """
    if first_s > budget_s / 2:
        return Timing.of([first_s])
    seconds: list[float] = []
    while len(seconds) < repeats and sum(seconds) + first_s <= budget_s:
        seconds.append(timed(function, device)[1])
    return Timing.of(seconds or [first_s])


def call_times_ms(call: Callable[[], object], device: torch.device, repeats: int) -> list[float]:
    """Milliseconds of each of `repeats` calls, after one that is not counted."""
    call()
    with torch.cuda.device(device) if device.type == "cuda" else nullcontext():
        return [1e3 * timed(call, device.type)[1] for _ in range(repeats)]
