"""A network of a public prior at work: its precision, its CUDA graphs, and where it lies between calls."""

from __future__ import annotations

import functools
import logging
import os
import shutil
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from config import PriorConfig
from cuda_ext.graphs import GraphedCall, capture
from errors import BackendUnavailable

logger = logging.getLogger(__name__)

PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16, "fp32": torch.float32, "fp64": torch.float64}
# What follows when a precision overflows: bfloat16 holds 1e38 as float32 does, at three digits.
_WIDER = {torch.float16: torch.bfloat16, torch.bfloat16: torch.float32}


@dataclass
class Runtime:
    """How the networks of one prior run.

    dtype: of networks at first.
    graphs, compiled: replay CUDA graphs; let torch.compile fuse kernels.
    fused: our own form of Stable Diffusion's networks (priors/sd_unet.py, sd_vae.py); False: diffusers', to compare.
    batch: pictures a call at most; 0: all at once.
    offload: one network at a time on the device, the others in main memory.
    """

    device: torch.device
    dtype: torch.dtype = torch.float32
    graphs: bool = False
    compiled: bool = False
    fused: bool = True
    batch: int = 0
    offload: bool = False
    networks: list[Network] = field(default_factory=list)
    _pool: tuple[int, int] | None = None
    _keeper: tuple | None = None

    @classmethod
    def from_config(
        cls, config: PriorConfig, device: torch.device, all_at_once_gb: float, resident_gb: float
    ) -> Runtime:
        """As configured; "auto" precision is half on a GPU and float32 on a CPU.

        Args:
            all_at_once_gb, resident_gb: GPU memory in half precision above which all views run in one call, and above
                which all networks stay on the GPU.
        """
        on_gpu = device.type == "cuda"
        auto = torch.float16 if on_gpu else torch.float32
        dtype = auto if config.precision == "auto" else PRECISIONS[config.precision]
        if config.compile:
            _require_compiler()
        runtime = cls(device, dtype, graphs=on_gpu, compiled=config.compile)
        if on_gpu:
            scale = dtype.itemsize / 2
            runtime.fit_into(free_gb(device, config.memory_gb), all_at_once_gb * scale, resident_gb * scale)
        return runtime

    def fit_into(self, free: float, all_at_once_gb: float, resident_gb: float) -> None:
        """Run in parts, or keep one network at a time on the device, where less memory is free; says so."""
        if free >= all_at_once_gb:
            return
        self.batch, self.offload = 2, free < resident_gb
        manner = "one network at a time on the GPU, two views a call" if self.offload else "two views a call"
        logger.info("%.1f GB of GPU memory are free, %.1f would do for all at once: %s", free, all_at_once_gb, manner)

    def load(self) -> None:
        """Read all networks, side by side; with offloading, each when it is needed."""
        if not self.offload:
            with ThreadPoolExecutor(len(self.networks)) as pool:
                for module in [pool.submit(lambda network=network: network.module) for network in self.networks]:
                    module.result()

    @property
    def pool(self) -> tuple[int, int] | None:
        """Memory that all recordings share: one call follows the other, and copies its results out."""
        if self._pool is None and self.graphs:
            self._pool = torch.cuda.graph_pool_handle()
            # A recording that stays: torch refuses a pool whose last recording is gone (a network was read anew).
            self._keeper = capture(lambda: torch.zeros(1, device=self.device), self.device, self._pool)
        return self._pool


@dataclass(frozen=True)
class Predictions:
    """The same question to a denoiser in three ways, for `Network.run`; see priors/feature_memory.py.

    whole: -> what it predicts. keeping: -> that, and its deep features. from_kept: those of an earlier call are the
    last tensor -> what it predicts, without running its inner layers.
    """

    whole: Callable[..., Tensor]
    keeping: Callable[..., tuple[Tensor, Tensor]]
    from_kept: Callable[..., Tensor]


class Network:
    """One network: read when first needed, run in half precision, redone in a wider one where that overflows."""

    def __init__(
        self,
        name: str,
        build: Callable[[torch.dtype, torch.device], nn.Module],
        runtime: Runtime,
        group: int = 1,
    ) -> None:
        """
        Args:
            build: reads the network from its files, in eval mode, with a dtype on a device.
            runtime: shared by the networks of a prior.
            group: consecutive samples that have to stay in one call.
        """
        self.name = name
        self.group = group
        self.dtype = runtime.dtype
        self._build = build
        self._runtime = runtime
        self._module: nn.Module | None = None
        self._calls: dict[Callable, GraphedCall] = {}
        runtime.networks.append(self)

    @property
    def module(self) -> nn.Module:
        """The module itself, wherever it lies now."""
        if self._module is None:
            self._module = self._build(self.dtype, self._runtime.device)
            if self._runtime.device.type == "cuda":
                self._module = self._module.to(memory_format=torch.channels_last)
        return self._module

    @torch.no_grad()
    def run(
        self,
        method: Callable[..., Tensor | tuple[Tensor, ...]],
        *tensors: Tensor,
        checked: bool = False,
        seldom: bool = False,
    ) -> Tensor | tuple[Tensor, ...]:
        """method(module, *tensors), in the network's precision and in batches that fit; float32 (float64) out.

        Args:
            method: a plain function of one result or several; each has its own recordings.
            tensors: batched alike. Those of one dimension (steps of the schedule) stay float32: bf16 rounds 951.
            checked: redo in a wider precision if the one result is not finite (waits for the device).
            seldom: asked once an object: neither recorded nor compiled, which would take longer than it saves.
        """
        module = self._resident()
        inputs = [self.cast(tensor) for tensor in tensors]
        call = functools.partial(method, module) if seldom else self._calls.get(method)
        if call is None:
            call = self._calls[method] = self._make_call(method, module)
        size = max(1, self._runtime.batch // self.group) * self.group if self._runtime.batch else 0
        if 0 < size < len(inputs[0]):
            results = [call(*rows) for rows in zip(*(tensor.split(size) for tensor in inputs), strict=True)]
            result = pytree.tree_map(lambda *parts: torch.cat(parts), *results)
        else:
            result = call(*inputs)
        result = pytree.tree_map(lambda value: value.to(torch.promote_types(value.dtype, torch.float32)), result)
        if checked and not bool(result.isfinite().all()) and self.widen():
            return self.run(method, *tensors, checked=True, seldom=seldom)
        return result

    def widen(self) -> bool:
        """Go on in the next wider precision, read anew from the files; False if there is none."""
        wider = _WIDER.get(self.dtype)
        if wider is torch.bfloat16 and self._runtime.device.type == "cuda" and not torch.cuda.is_bf16_supported():
            wider = torch.float32
        if wider is None:
            return False
        logger.warning("%s: %s overflowed; going on in %s", self.name, _short(self.dtype), _short(wider))
        self.dtype = wider
        self.release()
        return True

    def release(self) -> None:
        """Forget the module and its recordings; it is read again when needed."""
        self._calls.clear()
        self._module = None

    def _resident(self) -> nn.Module:
        """The module on the device; with offloading, the others off it."""
        module = self.module
        if self._runtime.offload:
            for other in self._runtime.networks:
                if other is not self and other._module is not None:
                    other._module.to("cpu")
            module.to(self._runtime.device)
        return module

    def cast(self, tensor: Tensor) -> Tensor:
        """As `run` hands a tensor on; the same tensor, if it is so already."""
        if not tensor.is_floating_point():  # ids of tokens
            return tensor.to(self._runtime.device)
        dtype = torch.promote_types(self.dtype, torch.float32) if tensor.dim() == 1 else self.dtype
        tensor = tensor.to(self._runtime.device, dtype)
        if tensor.dim() == 4 and self._runtime.device.type == "cuda":
            tensor = tensor.contiguous(memory_format=torch.channels_last)
        return tensor

    def _make_call(self, method: Callable, module: nn.Module) -> GraphedCall:
        def function(*tensors: Tensor) -> Tensor | tuple[Tensor, ...]:
            return method(module, *tensors)

        function.__qualname__ = f"{self.name}.{method.__name__}"
        if self._runtime.compiled:
            function = torch.compile(function, dynamic=False)
        # An offloaded module moves: its recordings would read what is no longer there.
        runtime = self._runtime
        enabled = runtime.graphs and not runtime.offload
        return GraphedCall(torch.no_grad()(function), runtime.device, enabled=enabled, pool=runtime.pool)


def free_gb(device: torch.device, limit_gb: float = 0.0) -> float:
    """GPU memory that can be had, what torch holds in reserve included; at most `limit_gb`, if that is not 0."""
    free, _ = torch.cuda.mem_get_info(device)
    reserved = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    available = (free + reserved) / 1e9
    return min(available, limit_gb) if limit_gb > 0 else available


def _require_compiler() -> None:
    """torch.compile writes C and C++; better said before the work than from its depths."""
    candidates = [os.environ.get("CC"), "cc", "gcc", "clang"]
    if not any(name and shutil.which(name) for name in candidates):
        raise BackendUnavailable("prior.compile=true needs a C compiler: $CC, cc, gcc and clang are not there")


def _short(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")
