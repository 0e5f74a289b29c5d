"""Which backends of the density field can run here, and on which device."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from errors import BackendUnavailable
from gaussians import Gaussians
from mesh_extract import BACKENDS, GridSpec, extract_fields
from mesh_extract.coefficients import coefficients_in_torch
from mesh_extract.fields_loops import extract_fields_loops
from registry import lookup

# In the order of the article: Python loops, loops that call a kernel, one fused kernel, then what is ours.
LADDER = ("cpu", "numba", "cuda-coeff", "cuda-fused", "cuda")
LOOPS, LOOPS_ON_GPU = "cpu", "cpu on GPU"


@dataclass(frozen=True)
class Variant:
    """A backend on a device. The loops on the GPU, which launch torch's kernels, are what the article starts from and
    calls its CPU version; the app, asked for "cpu", does run them on the CPU."""

    backend: str
    device: str  # "cpu" | "cuda"

    @property
    def name(self) -> str:
        """The backend's name; the loops on the GPU are told apart."""
        return LOOPS_ON_GPU if (self.backend, self.device) == (LOOPS, "cuda") else self.backend

    def extract(self, gaussians: Gaussians, grid: GridSpec) -> Tensor:
        """The field [X, Y, Z] of Gaussians on this device, on this device."""
        if self.name == LOOPS_ON_GPU:
            return extract_fields_loops(gaussians, grid, coefficients=coefficients_in_torch)
        return extract_fields(gaussians, grid, self.backend)


def find_variants(names: Sequence[str] = ()) -> tuple[list[Variant], dict[str, str]]:
    """What can run here, slowest kind first, and for the other backends why not.

    Args:
        names: backends; none: all.
    Raises:
        UserError: a backend of this name does not exist.
    """
    for name in names:
        lookup(BACKENDS, name, "--backends")
    found, missing = [], {}
    known = [*LADDER, *(name for name in BACKENDS if name not in LADDER)]
    for name in known:
        if name == "auto" or (names and name not in names):
            continue
        for device in _devices(name):
            reason = _why_not(Variant(name, device))
            if reason is None:
                found.append(Variant(name, device))
            else:
                missing[name] = reason
    return found, missing


def _devices(backend: str) -> list[str]:
    if backend.startswith("cuda"):
        return ["cuda" if torch.cuda.is_available() else "cpu"]  # without a GPU the backend itself says what is missing
    return ["cpu", "cuda"] if backend == LOOPS and torch.cuda.is_available() else ["cpu"]


def _why_not(variant: Variant) -> str | None:
    """Try on one Gaussian; None if it runs."""
    if variant.backend not in BACKENDS:
        return "not part of this version"
    one = Gaussians.create(torch.zeros(1, 3), torch.full((1, 3), 0.2), torch.tensor([0.5])).to(variant.device)
    try:
        variant.extract(one, GridSpec.cube(-1, 1, 9))
    except BackendUnavailable as error:
        return str(error)
    return None
