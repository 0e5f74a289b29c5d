"""Scales from values to pixels, linear or logarithmic, and their ticks."""

import math
from collections.abc import Callable
from dataclasses import dataclass

from comparison.svg import GRID, MUTED, Svg


@dataclass(frozen=True)
class Scale:
    """Maps [low, high] to [start, end] in pixels."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        low, high = self.low, self.high
        if self.log:
            low, high, value = math.log10(low), math.log10(high), math.log10(value)
        return self.start + (self.end - self.start) * (value - low) / (high - low)

    def ticks(self) -> list[float]:
        """Powers of ten, every second or third where there are many; else about five round numbers."""
        if self.log:
            first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
            step = 1 + (last - first) // 8
            return [10.0**k for k in range(first, last + 1, step)]
        rough = (self.high - self.low) / 5
        power = 10 ** math.floor(math.log10(rough))
        step = next(power * m for m in (1, 2, 5, 10) if power * m >= rough * 0.999)
        first = math.ceil(self.low / step - 1e-9)
        return [k * step for k in range(first, math.floor(self.high / step + 1e-9) + 1)]


def log_range(values: list[float]) -> tuple[float, float]:
    """The powers of ten around positive values, at least one decade."""
    low = 10.0 ** math.floor(math.log10(min(values)) + 1e-9)
    high = 10.0 ** math.ceil(math.log10(max(values)) - 1e-9)
    return low, max(high, low * 10)


def draw_x_axis(svg: Svg, scale: Scale, top: float, bottom: float, label: str, name: Callable[[float], str]) -> None:
    """Grid lines from top to bottom, their values below, and what they mean."""
    for tick in scale.ticks():
        x = scale(tick)
        svg.line(x, top, x, bottom, GRID)
        svg.text(x, bottom + 18, name(tick), 12, MUTED, "middle")
    svg.text((scale.start + scale.end) / 2, bottom + 40, label, 13, MUTED, "middle")


def draw_y_axis(svg: Svg, scale: Scale, left: float, right: float, label: str, name: Callable[[float], str]) -> None:
    """Grid lines from left to right, their values to the left, and what they mean above."""
    for tick in scale.ticks():
        y = scale(tick)
        svg.line(left, y, right, y, GRID)
        svg.text(left - 8, y + 4, name(tick), 12, MUTED, "end")
    svg.text(left, scale.end - 14, label, 13, MUTED)
