"""What `python -m cuda_ext` prints."""

import importlib.metadata
from pathlib import Path

import torch

from cuda_ext.availability import why_unavailable
from cuda_ext.compile import ARCHITECTURES, compiler_version, kernel_names, supported_architectures
from errors import BackendUnavailable


def describe(caches: Path) -> tuple[list[str], str | None]:
    """Lines on torch, driver, devices and compiler, and what is missing (None: nothing)."""
    cuda = f"CUDA {torch.version.cuda}" if torch.version.cuda else "a CPU build"
    lines = [f"torch      {torch.__version__} ({cuda})", f"driver     {_driver()}", *_devices()]
    lines += [f"{name:<10} {_version(name)}" for name in ("cuda-core", "cuda-bindings")]
    try:
        known = ", ".join(f"sm_{number}" for number in supported_architectures())
        lines.append(f"compiler   NVRTC {compiler_version()}, for {known}")
    except BackendUnavailable as error:
        lines.append(f"compiler   not found: {error}")
    tested = ", ".join(f"sm_{number}" for number in ARCHITECTURES)
    lines.append(f"kernels    {', '.join(kernel_names())}; tested to compile for {tested}")
    lines.append(f"cache      {caches / 'cuda'}")
    return lines, why_unavailable()


def _driver() -> str:
    """The CUDA version that the installed driver supports."""
    try:
        from cuda.bindings import driver

        status, version = driver.cuDriverGetVersion()
        if status == driver.CUresult.CUDA_SUCCESS:
            return f"supports CUDA {version // 1000}.{version % 1000 // 10}"
        return f"not usable: {status.name}"
    except ImportError:
        return "unknown: cuda-bindings is not installed"
    except Exception as error:  # the bindings raise a RuntimeError of their own where libcuda is not there
        return f"not found: {str(error).strip().splitlines()[0]}"


def _devices() -> list[str]:
    if not torch.cuda.is_available():
        return ["device     none"]
    rows = []
    for index in range(torch.cuda.device_count()):
        found = torch.cuda.get_device_properties(index)
        size = f"{found.total_memory / 2**30:.0f} GiB"
        rows.append(f"device {index}   {found.name}, compute capability {found.major}.{found.minor}, {size}")
    return rows


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"
