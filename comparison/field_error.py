"""How far a field is from float64, at nodes spread over its grid."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from gaussians import Gaussians
from mesh_extract import GridSpec
from mesh_extract.fields_exact import ABSOLUTE_ERROR, RELATIVE_ERROR, extract_fields_exact
from mesh_extract.support import CUTOFF

SAMPLED_NODES = 20_000


@dataclass(frozen=True)
class FieldError:
    """Largest differences from float64: with the same cut-off (less what lies within 1 % of it), and without any.

    excess: the largest difference as a multiple of what rounding explains; a right field has at most 1.
    """

    same_cutoff: float
    no_cutoff: float | None
    excess: float

    @property
    def is_wrong(self) -> bool:
        return not self.excess <= 1


class ExactSample:
    """The field in float64 at every k-th node of a grid; k is odd, so that no tile or block is met in one place."""

    def __init__(
        self, gaussians: Gaussians, grid: GridSpec, most_nodes: int = SAMPLED_NODES, without_cutoff: bool = True
    ) -> None:
        self.stride = 1
        while math.prod(-(-n // self.stride) for n in grid.shape) > most_nodes:
            self.stride += 2
        shape = tuple(max(2, -(-n // self.stride)) for n in grid.shape)
        if min(grid.shape) <= self.stride:  # a grid, too, has two nodes along each side
            self.stride = min(grid.shape) - 1
            shape = tuple(-(-n // self.stride) for n in grid.shape)
        lower = tuple(axis[0] for axis in grid.axes())  # of a slab, too
        sampled = GridSpec(lower, grid.voxel_size * self.stride, shape)
        gaussians = _reaching(gaussians.to("cpu"), sampled)
        self.cut, self.slack = extract_fields_exact(gaussians, sampled, CUTOFF)
        self.whole = extract_fields_exact(gaussians, sampled)[0] if without_cutoff else None

    def sampled(self, field: Tensor) -> Tensor:
        """The sample's nodes of a field [X, Y, Z] on the grid that the sample was made for."""
        k = self.stride
        return field[::k, ::k, ::k].clone()

    def error_of(self, field: Tensor) -> FieldError:
        """Of a field [X, Y, Z] on the grid that the sample was made for."""
        return self.error_of_sample(self.sampled(field))

    def error_of_sample(self, sampled: Tensor) -> FieldError:
        """Of what `sampled` has taken from a field."""
        sampled = sampled.cpu().double()
        beyond = ((sampled - self.cut).abs() - self.slack).clamp_min(0)
        rounding = beyond / (ABSOLUTE_ERROR + RELATIVE_ERROR * self.cut)
        excess = float(rounding.max()) if bool(sampled.isfinite().all()) else math.inf
        no_cutoff = None if self.whole is None else float((sampled - self.whole).abs().max())
        return FieldError(float(beyond.max()), no_cutoff, excess)


def _reaching(gaussians: Gaussians, grid: GridSpec) -> Gaussians:
    """Those that `extract_fields_exact` would find to reach the grid: a slab's are a part of all."""
    reach = 9 * gaussians.scales.amax(dim=-1, keepdim=True).double()
    lower, upper = (torch.tensor(corner, dtype=torch.float64) for corner in (grid.lower, grid.upper))
    means = gaussians.means.double()
    return gaussians[((means + reach >= lower) & (means - reach <= upper)).all(dim=-1)]
