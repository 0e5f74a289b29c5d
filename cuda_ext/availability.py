"""Whether CUDA kernels can run here, and the one thing that is missing where they cannot."""

import torch

from cuda_ext.compile import compiler_identity, nearest_architecture
from errors import BackendUnavailable


def why_unavailable(device: torch.device | None = None) -> str | None:
    """What is missing to run our kernels on a device (None: the current one); None if nothing is."""
    if torch.version.cuda is None:
        return f"torch {torch.__version__} is a CPU build: install the CUDA build of torch"
    if not torch.cuda.is_available():
        return f"torch {torch.__version__} finds no CUDA device: {_first_line_of_initialisation()}"
    try:
        compiler_identity()
        device_architecture(device)
    except BackendUnavailable as error:
        return str(error)
    return None


def require_device(device: torch.device, what: str) -> None:
    """Raise a BackendUnavailable that begins with `what` unless `device` is a GPU on which our kernels can run."""
    if device.type != "cuda":
        raise BackendUnavailable(f"{what}: expected tensors on a CUDA device, got {device}")
    reason = why_unavailable(device)
    if reason is not None:
        raise BackendUnavailable(f"{what}: {reason}")


def device_architecture(device: torch.device | None = None) -> int:
    """The architecture to compile for, for a device (None: the current one)."""
    major, minor = torch.cuda.get_device_capability(device)
    return nearest_architecture(10 * major + minor)


def _first_line_of_initialisation() -> str:
    """What torch says when it tries to start CUDA: no driver, an old driver, no device."""
    try:
        torch.cuda.init()
    except Exception as error:  # RuntimeError, AssertionError, AcceleratorError: differs between versions of torch
        return str(error).strip().splitlines()[0]
    return "no NVIDIA GPU is visible"
