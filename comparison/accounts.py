"""What a faster part does to the whole: the accounts of Amdahl (1967) and Gustafson (1988)."""

from dataclasses import asdict, dataclass


def amdahl(share: float, speedup: float) -> float:
    """Speed-up of the whole when `share` of its time becomes `speedup` times faster: 1 / ((1 - P) + P / S)."""
    return 1.0 / ((1.0 - share) + share / speedup)


@dataclass(frozen=True)
class AmdahlAccount:
    """Two runs of the same job that differ in the backend of one part.

    share: P, of the part in the slow run's time; speedup: S, of the part; predicted: 1 / ((1 - P) + P / S);
    measured: slow run over fast run; limit: 1 / (1 - P), what no speed-up of the part exceeds; rest_ratio: what the two
    runs took for everything else, slow over fast: 1 but for the load of the machine, which the law knows nothing of.
    """

    slow: str
    fast: str
    share: float
    speedup: float
    predicted: float
    measured: float
    limit: float
    rest_ratio: float

    @classmethod
    def of(
        cls, slow: str, fast: str, slow_total_s: float, slow_part_s: float, fast_total_s: float, fast_part_s: float
    ) -> "AmdahlAccount":
        share, speedup = slow_part_s / slow_total_s, slow_part_s / fast_part_s
        limit = slow_total_s / max(slow_total_s - slow_part_s, 1e-9)
        rest_ratio = (slow_total_s - slow_part_s) / max(fast_total_s - fast_part_s, 1e-9)
        measured = slow_total_s / fast_total_s
        return cls(slow, fast, share, speedup, amdahl(share, speedup), measured, limit, rest_ratio)

    def to_dict(self) -> dict:
        return asdict(self)


def gustafson(serial_s: float, parallel_s: float, speedup: float) -> float:
    """Scaled speed-up of a job of the fast machine: s + p S, with s and p the shares of its serial and parallel time.

    The same job on the slow machine would take serial_s + parallel_s * speedup.
    """
    total_s = serial_s + parallel_s
    return (serial_s + parallel_s * speedup) / total_s


def work_rate(nodes: int, seconds: float, base_nodes: int, base_seconds: float) -> float:
    """How many times more nodes a second than a base case: the speed-up when the problem grows with the machine."""
    return (nodes / seconds) / (base_nodes / base_seconds)
