"""From `kernels/<name>.cu` to machine code: NVRTC at run time, through cuda-core, with a cache on disk.

NVRTC needs neither nvcc nor a C++ compiler, takes about 0.1 s a file, and works without a GPU or a driver.
"""

import functools
import hashlib
import importlib.metadata
import logging
import math
import time
from collections.abc import Mapping
from pathlib import Path

from cuda_ext.core import import_cuda_core
from errors import BackendUnavailable, UserError
from files import whole_file
from runtime_env import cache_directory

logger = logging.getLogger(__name__)

KERNELS = Path(__file__).resolve().parent / "kernels"
# What every kernel is tested to compile for, as the numbers in sm_75 ...: Turing, Ampere (A100, RTX 30), Ada, Hopper,
# Blackwell (B200, RTX 50). Newer devices of the same major version run the code of the older ones.
ARCHITECTURES = (75, 80, 86, 89, 90, 100, 120)
_TESTED_COMPILER = 13  # major version of CUDA: every NVRTC of it compiles for all of ARCHITECTURES
_STANDARD = "c++17"
_MACHINE_CODE = b"\x7fELF"  # how a cubin begins

Constant = int | float | bool


def kernel_names() -> tuple[str, ...]:
    """Names of the files in kernels/, without suffix."""
    return tuple(sorted(path.stem for path in KERNELS.glob("*.cu")))


def compile_kernels(name: str, architecture: int, constants: Mapping[str, Constant] | None = None) -> bytes:
    """Machine code (cubin) of kernels/<name>.cu for one architecture, from the cache where it is there.

    Args:
        name: a file of kernels/, without suffix.
        architecture: compute capability as one number, such as 90.
        constants: macros that the source uses: what Python also needs is passed in, not typed twice.
    Raises:
        BackendUnavailable: cuda-core or NVRTC is not there, or NVRTC does not know the architecture.
    """
    macros = {key: macro_text(value) for key, value in sorted((constants or {}).items())}
    source = (KERNELS / f"{name}.cu").read_text(encoding="utf-8")
    key = hashlib.sha256()
    for part in (source, *_headers(), repr(macros), _STANDARD, str(architecture), compiler_identity()):
        key.update(part.encode() + b"\0")
    file_name = f"{name}-sm_{architecture}-{key.hexdigest()[:20]}.cubin"
    code = _read_cached(file_name)
    if code is None:
        code = _compile(name, source, architecture, macros)
        try:
            with whole_file(_cache_folder() / file_name) as temporary:
                temporary.write_bytes(code)
        except UserError as error:  # a full disk, no folder that can be written: slower next time, no more
            logger.warning("the kernels %s are not kept for later runs: %s", name, error)
    return code


def macro_text(value: Constant) -> str:
    """A Python number as C++: floats are single precision, so that no kernel computes in double by accident."""
    if isinstance(value, float):
        assert math.isfinite(value), f"{value} has no literal in C++"
        text = f"{float(value)!r}f"  # float(): NumPy's own repr is no literal
    else:
        text = str(int(value))
    return f"({text})" if value < 0 else text  # `1 -MACRO` must not become a decrement


def compiler_identity() -> str:
    """What tells one NVRTC from another, such as "13.0.88"; it is loaded only where no installed package tells.

    A process whose kernels are all in the cache so does without the library's 100 MB.

    Raises:
        BackendUnavailable: cuda-core, cuda-bindings or NVRTC is not there.
    """
    return _packaged_compiler() or compiler_version()


@functools.cache
def _packaged_compiler() -> str | None:
    """Version of the installed package that cuda-bindings takes NVRTC from, None without one."""
    _require_bindings()
    try:
        major = importlib.metadata.version("cuda-bindings").partition(".")[0]
        # From CUDA 13 on the packages carry no version in their names.
        package = "nvidia-cuda-nvrtc" if int(major) >= 13 else f"nvidia-cuda-nvrtc-cu{major}"
        version = importlib.metadata.version(package)
    except (importlib.metadata.PackageNotFoundError, ValueError):
        return None
    return version if version.partition(".")[0] == major else None


def _require_bindings() -> None:
    try:
        import_cuda_core()
        import cuda.bindings  # noqa: F401  (asked for here, so that the message names it)
    except ImportError as error:
        raise BackendUnavailable(
            f"CUDA kernels need cuda-core and cuda-bindings ({error}): pip install cuda-core cuda-bindings"
        ) from error


@functools.cache
def compiler_version() -> str:
    """NVRTC's version, such as "13.0".

    Raises:
        BackendUnavailable: cuda-core, cuda-bindings or NVRTC is not there.
    """
    _require_bindings()
    try:
        from cuda.bindings import nvrtc

        _, major, minor = nvrtc.nvrtcVersion()
    except Exception as error:  # cuda-pathfinder's own errors; which one depends on its version
        reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
        raise BackendUnavailable(
            f"CUDA kernels need the compiler library NVRTC ({reason}): pip install nvidia-cuda-nvrtc"
        ) from error
    return f"{major}.{minor}"


@functools.cache
def supported_architectures() -> tuple[int, ...]:
    """The architectures that this NVRTC compiles for."""
    compiler_version()
    from cuda.bindings import nvrtc

    status, count = nvrtc.nvrtcGetNumSupportedArchs()
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    status, architectures = nvrtc.nvrtcGetSupportedArchs()
    assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, status
    return tuple(architectures[:count])


def nearest_architecture(capability: int) -> int:
    """The newest architecture that NVRTC knows and whose code runs on a device of this compute capability.

    Raises:
        BackendUnavailable: the device is older than what the kernels are written for, or newer than this NVRTC.
    """
    if capability < ARCHITECTURES[0]:
        raise BackendUnavailable(
            f"the GPU has compute capability {capability / 10:g}; the kernels need {ARCHITECTURES[0] / 10:g} or later"
        )
    packaged = _packaged_compiler()
    if capability in ARCHITECTURES and packaged is not None and int(packaged.partition(".")[0]) == _TESTED_COMPILER:
        return capability  # known without asking, which would load NVRTC
    # Code runs on later devices of the same major version alone.
    usable = [known for known in supported_architectures() if known <= capability and known // 10 == capability // 10]
    if not usable:
        raise BackendUnavailable(
            f"NVRTC {compiler_version()} does not know compute capability {capability / 10:g}: "
            "pip install --upgrade nvidia-cuda-nvrtc"
        )
    return max(usable)


@functools.cache
def _headers() -> tuple[str, ...]:
    """What the kernels share, all of it: a change recompiles them all."""
    return tuple(path.read_text(encoding="utf-8") for path in sorted(KERNELS.glob("*.cuh")))


def _cache_folder() -> Path:
    return cache_directory() / "cuda"


def _read_cached(file_name: str) -> bytes | None:
    """Machine code from the cache; None if it is not there, or is cut short as after a crash of the machine."""
    try:
        code = (_cache_folder() / file_name).read_bytes()
    except (OSError, UserError):
        return None
    return code if code.startswith(_MACHINE_CODE) else None


def _compile(name: str, source: str, architecture: int, macros: Mapping[str, str]) -> bytes:
    if architecture not in supported_architectures():
        known = ", ".join(map(str, supported_architectures()))
        raise BackendUnavailable(f"NVRTC {compiler_version()} compiles for {known}, not for sm_{architecture}")
    core = import_cuda_core()
    started_s = time.perf_counter()
    options = core.ProgramOptions(
        name=f"{name}.cu",
        arch=f"sm_{architecture}",
        std=_STANDARD,
        define_macro=list(macros.items()) or None,
        include_path=[str(KERNELS)],
    )
    code = core.Program(source, "c++", options).compile("cubin").code
    logger.debug("compiled %s for sm_%d in %.2f s", name, architecture, time.perf_counter() - started_s)
    return bytes(code)
