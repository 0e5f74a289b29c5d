"""Numbers as people read them."""

import math


def seconds(value: float) -> str:
    """0.000142 -> "0.142 ms", 3.645 -> "3.65 s"; three digits."""
    if value < 1e-4:
        return f"{_digits(value * 1e6)} \u00b5s"
    if value < 1:
        return f"{_digits(value * 1e3)} ms"
    return f"{_digits(value)} s" if value < 1000 else f"{value:,.0f} s"


def ratio(value: float) -> str:
    """1.634 -> "1.63x", 215.3 -> "215x", 16123 -> "16,123x"."""
    return f"{_digits(value)}x" if value < 1000 else f"{value:,.0f}x"


def _digits(value: float) -> str:
    """Three significant digits, no exponent."""
    if value <= 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = max(0, 2 - math.floor(math.log10(value)))
    return f"{value:.{decimals}f}"
