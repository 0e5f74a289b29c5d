"""The same Gaussians on ever finer grids, in slabs where a whole field would not fit."""

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass

from torch import Tensor

from comparison.backends import Variant
from comparison.field_error import ExactSample, FieldError
from comparison.measure import Budget, release_memory
from errors import UserError
from gaussians import Gaussians
from mesh_extract import GridSpec
from mesh_extract.isosurface_cuda import slabs as cut_into_slabs
from timing import Timing, repeat, timed

logger = logging.getLogger(__name__)

SLAB_NODES = 1 << 28  # of a field that is held at once: 1 GiB
_SAMPLED_NODES = 4096  # of one slab, against float64


@dataclass(frozen=True)
class ScalingResult:
    """One backend on one grid. timing is None where it was left out, and `left_out` says why."""

    name: str
    resolution: int
    nodes: int
    slabs: int
    timing: Timing | None
    error: FieldError | None
    left_out: str = ""

    def to_dict(self) -> dict:
        return asdict(self)


def slabs(grid: GridSpec, most_nodes: int = SLAB_NODES) -> Iterator[GridSpec]:
    """The grid cut across x into even parts of at most `most_nodes` nodes, but two layers at least, none in two."""
    _, size_y, size_z = grid.shape
    for first, last in cut_into_slabs(grid.shape, max(2, most_nodes // (size_y * size_z))):
        yield grid.slab(first, last)


def measure_scaling(
    gaussians: Gaussians,
    grid_of: Callable[[int], GridSpec],
    sizes: Sequence[int],
    variants: Sequence[Variant],
    budget: Budget,
    slab_nodes: int = SLAB_NODES,
) -> list[ScalingResult]:
    """Time every variant on every size, smallest first, as far as it stays within the budget.

    How long the next size will take is foretold from the last one in proportion to the nodes; what would take longer
    than the budget is left out, not estimated.

    Args:
        grid_of: resolution -> grid.
    """
    results: list[ScalingResult] = []
    last: dict[str, ScalingResult] = {}  # that was tried
    for size in sorted(sizes):
        grid = grid_of(size)
        parts = list(slabs(grid, slab_nodes))
        logger.info("%d nodes along a side, slabs: %d; float64 in the middle one ...", size, len(parts))
        middle = len(parts) // 2
        exact = ExactSample(gaussians, parts[middle], _SAMPLED_NODES, without_cutoff=False)
        for variant in variants:
            before = last.get(variant.name)
            reason = "" if before is None else _too_long(before, grid.node_count, budget.seconds)
            result = ScalingResult(variant.name, size, grid.node_count, len(parts), None, None, reason)
            if not reason:
                logger.info("%s, %d nodes along a side ...", variant.name, size)
                result = _measure(gaussians, variant, size, parts, middle, exact, budget)
            release_memory()
            results.append(result)
            if not reason:
                last[variant.name] = result
    return results


def _too_long(before: ScalingResult, nodes: int, budget_s: float) -> str:
    """Why a larger grid is left out, given the one before; empty: it is not."""
    if before.timing is None:
        return before.left_out
    expected_s = before.timing.median_s * nodes / before.nodes
    return f"would take about {expected_s:.0f} s" if expected_s > budget_s else ""


def _measure(
    gaussians: Gaussians,
    variant: Variant,
    size: int,
    parts: list[GridSpec],
    middle: int,
    exact: ExactSample,
    budget: Budget,
) -> ScalingResult:
    there = gaussians.to(variant.device)
    nodes = sum(part.node_count for part in parts)
    kept: list[Tensor] = []

    def all_slabs(keep: bool) -> None:
        for index, part in enumerate(parts):
            field = variant.extract(there, part)
            if keep and index == middle:
                kept.append(exact.sampled(field))

    try:
        _, first_s = timed(lambda: all_slabs(True), variant.device)  # warms up too; the check is not a part of it later
        error = exact.error_of_sample(kept[0])
        if error.is_wrong:
            reason = f"wrong: off by {error.same_cutoff:.1e} from float64"
            return ScalingResult(variant.name, size, nodes, len(parts), None, error, reason)
        timing = repeat(lambda: all_slabs(False), variant.device, first_s, budget.repeats, budget.seconds)
    except UserError as failure:  # out of memory
        return ScalingResult(variant.name, size, nodes, len(parts), None, None, str(failure))
    return ScalingResult(variant.name, size, nodes, len(parts), timing, error)
