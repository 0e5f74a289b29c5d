"""The device of a run: chosen once, named plainly where it cannot be had, and what is special about a GPU."""

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from cuda_ext import why_unavailable
from errors import BackendUnavailable, UserError
from runtime_env import CUBLAS_WORKSPACE

logger = logging.getLogger(__name__)

CPU = torch.device("cpu")


def choose_device(name: str) -> torch.device:
    """The device of a run, as asked, never quietly another; "auto" takes the GPU where it and our kernels can run.

    Raises:
        BackendUnavailable: "cuda" without a GPU, a driver that is new enough, or what the kernels need.
    """
    if name == "cpu":
        return CPU
    missing = _what_is_missing()
    if name == "cuda" and missing is not None:
        raise BackendUnavailable(f"--device cuda: {missing}")
    if name == "auto":
        if missing is not None and torch.cuda.is_available():  # there is a GPU: its owner wants to know
            logger.warning("the GPU is not used: %s", missing)
        name = "cpu" if missing is not None else "cuda"
        logger.info("device: %s", name)
    return torch.device(name)


def _what_is_missing() -> str | None:
    """Why the GPU cannot be used, None if it can; tried, since one that others have filled is there but of no use."""
    try:
        missing = why_unavailable()
        if missing is None:
            torch.empty(1, device="cuda")
        return missing
    except RuntimeError as error:  # of the driver, through torch
        return f"the GPU does not start: {str(error).strip().splitlines()[0]}"


def require_backend(backend: str) -> None:
    """Raise a BackendUnavailable, before any work, unless a backend of the density field can run here."""
    missing = _what_is_missing() if backend.startswith("cuda") else None
    if missing is not None:
        raise BackendUnavailable(f"mesh.backend={backend}: {missing}")


@contextmanager
def enough_memory(what: str, device: torch.device, advice: str) -> Iterator[None]:
    """Turn a GPU's lack of memory into one line that says what needed it and what may help."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise UserError(f"{what} needs more memory than {device} has; {advice}") from error


@contextmanager
def reproducible(wanted: bool, device: torch.device) -> Iterator[None]:
    """Within it, torch and its libraries compute the same bits from the same input on a GPU, where they can.

    An operation that cannot warns. On a CPU there is nothing to do.
    """
    if not wanted or device.type != "cuda":
        yield
        return
    if os.environ.get("CUBLAS_WORKSPACE_CONFIG") not in (CUBLAS_WORKSPACE, ":16:8"):
        logger.warning("deterministic=true needs CUBLAS_WORKSPACE_CONFIG=%s before torch starts", CUBLAS_WORKSPACE)
    before = torch.are_deterministic_algorithms_enabled(), torch.is_deterministic_algorithms_warn_only_enabled()
    benchmark, filled = torch.backends.cudnn.benchmark, torch.utils.deterministic.fill_uninitialized_memory
    torch.use_deterministic_algorithms(True, warn_only=True)
    torch.backends.cudnn.benchmark = False  # which algorithm is fastest differs from run to run
    torch.utils.deterministic.fill_uninitialized_memory = False  # a kernel more for every buffer
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before[0], warn_only=before[1])
        torch.backends.cudnn.benchmark, torch.utils.deterministic.fill_uninitialized_memory = benchmark, filled
