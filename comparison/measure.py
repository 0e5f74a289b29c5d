"""Every backend on one grid: its field is checked against float64, then timed, then its mesh compared."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass

import torch

from comparison.backends import Variant
from comparison.field_error import ExactSample, FieldError
from comparison.mesh_distance import MeshDistance, mesh_distance
from gaussians import Gaussians
from mesh_extract import GridSpec, Mesh, extract_mesh
from timing import Timing, repeat, timed

logger = logging.getLogger(__name__)

_WARM_UP_NODES = 24  # along a side: compiles and loads, takes no time


@dataclass(frozen=True)
class Budget:
    """How long to measure: at most `repeats` calls and `seconds` for one backend on one grid."""

    repeats: int = 10
    seconds: float = 20.0


@dataclass(frozen=True)
class FieldResult:
    """One backend on one grid. timing is None where the field is wrong: a wrong one is not timed.

    distance: of its mesh from that of the first backend.
    """

    variant: Variant
    error: FieldError
    timing: Timing | None
    vertices: int
    faces: int
    distance: MeshDistance | None

    def to_dict(self) -> dict:
        values = asdict(self)
        return {"name": self.variant.name, **values.pop("variant"), **values}


def compare_fields(
    gaussians: Gaussians, grid: GridSpec, iso: float, variants: Sequence[Variant], budget: Budget
) -> list[FieldResult]:
    """Check, time and mesh the field of every variant.

    Args:
        gaussians: on the CPU; moved to each variant's device before the clock starts.
        iso: density at which the meshes are taken.
    Raises:
        UserError: no surface at `iso`.
    """
    logger.info("float64 at every k-th node ...")
    exact = ExactSample(gaussians, grid)
    results: list[FieldResult] = []
    first: Mesh | None = None
    for variant in variants:
        logger.info("%s ...", variant.name)
        there = gaussians.to(variant.device)
        variant.extract(there, GridSpec.cube(-1, 1, _WARM_UP_NODES))
        field, first_s = timed(lambda: variant.extract(there, grid), variant.device)  # noqa: B023
        error = exact.error_of(field)
        mesh = extract_mesh(field.cpu(), grid, iso)  # one mesher for all: what differs is the field
        del field
        timing = None
        if not error.is_wrong:
            timing = repeat(
                lambda: variant.extract(there, grid),  # noqa: B023  (called in this very round)
                variant.device,
                first_s,
                budget.repeats,
                budget.seconds,
            )
        distance = None if first is None else mesh_distance(first, mesh)
        first = mesh if first is None else first
        results.append(FieldResult(variant, error, timing, len(mesh.vertices), len(mesh.faces), distance))
    return results


def release_memory() -> None:
    """Give back what torch keeps for later on the GPU: the next grid is of another size."""
    if torch.cuda.is_available():
        torch.cuda.empty_cache()
