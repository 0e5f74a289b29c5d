"""Named ranges for profilers: NVTX for NVIDIA's, `record_function` for torch's.

Stages are always marked (`stages.py`). With `profile=function` so are the functions that do the work, which carry the
decorator `profiled`; without it the decorator costs one comparison a call.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import ParamSpec, TypeVar

import torch

try:
    import nvtx
except ImportError:  # profiling ranges are a convenience: the app runs without them
    nvtx = None

P = ParamSpec("P")
R = TypeVar("R")

SCOPES = ("stage", "function")
_by_function = False  # of this process, as a profiler is too


def set_scope(scope: str) -> None:
    """Mark stages alone ("stage"), or the `profiled` functions too ("function")."""
    global _by_function
    assert scope in SCOPES, scope
    _by_function = scope == "function"


@contextmanager
def marked(name: str) -> Iterator[None]:
    """A range of this name, on the host's time line. Kernels launched inside may run later."""
    marker = nvtx.start_range(name) if nvtx is not None else None
    try:
        with torch.profiler.record_function(name):
            yield
    finally:
        if marker is not None:
            nvtx.end_range(marker)


def profiled(function: Callable[P, R]) -> Callable[P, R]:
    """Mark the calls of a function, by module and name, where the scope is "function".

    What a CUDA graph replays is not called again, and so shows as the one launch that it is.
    """
    name = f"{function.__module__}.{function.__qualname__}"

    @functools.wraps(function)
    def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
        if not _by_function:
            return function(*args, **kwargs)
        with marked(name):
            return function(*args, **kwargs)

    return wrapper
