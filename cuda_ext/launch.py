"""Kernels of one file, loaded for one device, launched on torch's current stream."""

import functools
import threading
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from cuda_ext.availability import device_architecture, require_device
from cuda_ext.compile import Constant, compile_kernels, macro_text
from cuda_ext.core import import_cuda_core
from errors import UserError

Dim = int | tuple[int, ...]

_MOST_LAUNCHES = 4096  # kernels with shapes that are remembered for a file of kernels
_PASSED_AS_THEY_ARE = frozenset({int, np.float32, np.float64})  # arguments: most of them


class _Contexts(threading.local):
    """Devices whose contexts are current for the driver in this thread."""

    def __init__(self) -> None:
        self.bound: set[int] = set()


_contexts = _Contexts()


class KernelModule:
    """The kernels of kernels/<name>.cu on one device; made by `load_module`."""

    def __init__(self, name: str, device: torch.device, constants: dict[str, Constant]) -> None:
        self.name = name
        self.device = device
        self._core = import_cuda_core()
        machine_code = compile_kernels(name, device_architecture(device), constants)
        self._code = self._core.ObjectCode.from_cubin(machine_code, name=name)
        # What a launch needs besides its arguments is made once: it would take longer than the launch itself.
        self._kernels: dict[str, object] = {}
        self._streams: dict[int, object] = {}
        self._launches: dict[tuple[str, Dim, Dim, int], tuple[object, object]] = {}  # config and kernel

    def launch(self, kernel: str, grid: Dim, block: Dim, *arguments, shared_bytes: int = 0) -> None:
        """Queue a kernel on torch's current stream of the device; returns at once, can be captured into a graph.

        Args:
            kernel: its name in the source.
            grid: blocks, up to three numbers. An empty grid launches nothing.
            block: threads of a block, up to three numbers.
            arguments: in the kernel's order. A tensor is passed as its pointer and must be contiguous and on this
                device; None as a null pointer; an int fits `int` and `long long`, a float is a `float`.
            shared_bytes: of dynamic shared memory, at most 48 KiB.
        """
        if grid == 0 or (isinstance(grid, tuple) and 0 in grid):
            return
        if torch.cuda.current_device() != self.device.index:
            with torch.cuda.device(self.device):
                self.launch(kernel, grid, block, *arguments, shared_bytes=shared_bytes)
            return
        values = [
            value if type(value) in _PASSED_AS_THEY_ARE else self._argument(kernel, i, value)
            for i, value in enumerate(arguments)
        ]
        _bind_context(self.device.index)
        wanted = kernel, grid, block, shared_bytes
        prepared = self._launches.get(wanted) or self._prepare(*wanted)
        self._core.launch(self._stream(), *prepared, *values)

    def _prepare(self, kernel: str, grid: Dim, block: Dim, shared_bytes: int) -> tuple[object, object]:
        """The launch's configuration and its kernel, kept for the next call of that shape."""
        if len(self._launches) >= _MOST_LAUNCHES:
            self._launches.clear()
        if kernel not in self._kernels:  # a recording must not load kernels, but it may launch them in other shapes
            self._kernels[kernel] = self._code.get_kernel(kernel)
        config = self._core.LaunchConfig(grid=grid, block=block, shmem_size=shared_bytes)
        self._launches[kernel, grid, block, shared_bytes] = prepared = config, self._kernels[kernel]
        return prepared

    def _argument(self, kernel: str, index: int, value):
        if isinstance(value, Tensor):
            # What reaches this point was made or checked by the op's own function: a fault here is ours.
            assert value.device == self.device, f"{kernel}: argument {index} is on {value.device}, not {self.device}"
            assert value.is_contiguous(), f"{kernel}: argument {index} is not contiguous"
            return value.data_ptr()
        if value is None:
            return 0
        # cuda-core passes a Python int in 64 bits, of which a kernel's `int` reads the low ones, and a float in double.
        return np.float32(value) if type(value) is float else value

    def _stream(self):
        # As compiled code of torch asks for it: torch.cuda.current_stream takes as long as half a launch.
        handle = torch._C._cuda_getCurrentRawStream(self.device.index)
        stream = self._streams.get(handle)
        if stream is None:
            stream = self._streams[handle] = self._core.Stream.from_handle(handle)
        return stream


def _bind_context(index: int) -> None:
    """Make the device's context current for the driver, once a thread.

    torch selects devices through the CUDA runtime, which gives a new thread its context at its first call of the
    runtime; autograd's worker threads may come to a launch before that, and the driver then finds none. Where a thread
    has more than one device, torch's own switch keeps the driver's context right from then on.
    """
    if index not in _contexts.bound:
        import_cuda_core().Device(index).set_current()
        _contexts.bound.add(index)


def load_module(name: str, device: torch.device, **constants: Constant) -> KernelModule:
    """The kernels of kernels/<name>.cu for a device, compiled or taken from the cache, once a process.

    Args:
        name: of the file, without suffix.
        device: a CUDA device; without an index, the current one.
        constants: macros that the source uses, such as CUTOFF=1e-5.
    Raises:
        BackendUnavailable: the device is no GPU, or what the kernels need is not there.
    """
    if device.type == "cuda" and device.index is None and torch.cuda.is_available():
        device = torch.device("cuda", torch.cuda.current_device())
    # The texts are part of the key because 1, 1.0 and True are equal in Python and different macros.
    texts = tuple((key, macro_text(value)) for key, value in sorted(constants.items()))
    return _load_module(name, device, tuple(sorted(constants.items())), texts)


@functools.cache
def _load_module(
    name: str, device: torch.device, constants: tuple[tuple[str, Constant], ...], texts: tuple[tuple[str, str], ...]
) -> KernelModule:
    require_device(device, f"CUDA kernels {name}")
    return KernelModule(name, device, dict(constants))


def check_tensor(
    name: str, value: Tensor, shape: Sequence[int | None], dtype: torch.dtype, device: torch.device
) -> None:
    """Raise a UserError that names the argument unless it has this shape (None: any length), dtype and device."""
    expected = "[" + ", ".join("*" if length is None else str(length) for length in shape) + "]"
    fits = value.ndim == len(shape) and all(n is None or n == m for n, m in zip(shape, value.shape, strict=False))
    if not fits:
        raise UserError(f"{name} must be {expected}, got {list(value.shape)}")
    if value.dtype != dtype:
        raise UserError(f"{name} must be {dtype}, got {value.dtype}")
    same_device = value.device == device or (device.index is None and value.device.type == device.type)
    if not same_device:
        raise UserError(f"{name} must be on {device}, got {value.device}")
